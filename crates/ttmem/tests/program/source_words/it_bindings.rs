//! Finds bindings called `it` that are used far from where they were bound.

use proc_macro2::{TokenStream, TokenTree};
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Expr, Pat, Token};

/// Lines after its binding in which `it` may be used.
const MAX_LINES: usize = 3;

/// The lines of bindings called `it` that are used more than [`MAX_LINES`] lines later, with the line of their last use.
pub(super) fn long_bindings(source: &str) -> syn::Result<Vec<(usize, usize)>> {
    let file = syn::parse_file(source)?;
    let mut bindings = Bindings::default();
    bindings.visit_file(&file);
    Ok(bindings.long)
}

#[derive(Default)]
struct Bindings {
    /// Bindings in scope, the innermost last: the line of each, and of its last use.
    open: Vec<(usize, usize)>,
    long: Vec<(usize, usize)>,
}

impl Bindings {
    /// Visits a part of the source whose bindings end with it.
    fn visit_scope(&mut self, visit: impl FnOnce(&mut Self)) {
        let outer = self.open.len();
        visit(self);
        let ended = self.open.split_off(outer);
        self.long.extend(ended.into_iter().filter(|(bound, used)| used - bound > MAX_LINES));
    }

    fn add_use(&mut self, line: usize) {
        if let Some((_, used)) = self.open.last_mut() {
            *used = (*used).max(line);
        }
    }

    /// Visits the arguments of a macro: expressions or statements if they can be parsed, otherwise tokens.
    fn visit_arguments(&mut self, tokens: &TokenStream) {
        let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
        if let Ok(arguments) = parser.parse2(tokens.clone()) {
            arguments.iter().for_each(|argument| self.visit_expr(argument));
        } else if let Ok((value, pattern, guard)) = parse_match.parse2(tokens.clone()) {
            self.visit_expr(&value);
            self.visit_scope(|bindings| {
                bindings.visit_pat(&pattern);
                if let Some(guard) = &guard {
                    bindings.visit_expr(guard);
                }
            });
        } else if let Ok(statements) = syn::Block::parse_within.parse2(tokens.clone()) {
            self.visit_scope(|bindings| statements.iter().for_each(|it| bindings.visit_stmt(it)));
        } else {
            self.visit_tokens(tokens.clone());
        }
    }

    fn visit_tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.visit_arguments(&group.stream()),
                TokenTree::Ident(name) if name == "it" => self.add_use(name.span().start().line),
                _ => {}
            }
        }
    }
}

/// The arguments of `matches!`.
fn parse_match(input: ParseStream<'_>) -> syn::Result<(Expr, Pat, Option<Expr>)> {
    let value = input.parse()?;
    input.parse::<Token![,]>()?;
    let pattern = Pat::parse_multi_with_leading_vert(input)?;
    let guard = input.parse::<Option<Token![if]>>()?.map(|_| input.parse()).transpose()?;
    input.parse::<Option<Token![,]>>()?;
    Ok((value, pattern, guard))
}

impl<'ast> Visit<'ast> for Bindings {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.visit_scope(|bindings| visit::visit_item_fn(bindings, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.visit_scope(|bindings| visit::visit_impl_item_fn(bindings, item));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.visit_scope(|bindings| visit::visit_trait_item_fn(bindings, item));
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        self.visit_scope(|bindings| visit::visit_block(bindings, block));
    }

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        self.visit_scope(|bindings| visit::visit_expr_closure(bindings, closure));
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        self.visit_scope(|bindings| visit::visit_arm(bindings, arm));
    }

    fn visit_expr_for_loop(&mut self, expr: &'ast syn::ExprForLoop) {
        self.visit_expr(&expr.expr);
        self.visit_scope(|bindings| {
            bindings.visit_pat(&expr.pat);
            bindings.visit_block(&expr.body);
        });
    }

    fn visit_expr_if(&mut self, expr: &'ast syn::ExprIf) {
        self.visit_scope(|bindings| {
            bindings.visit_expr(&expr.cond);
            bindings.visit_block(&expr.then_branch);
        });
        if let Some((_, otherwise)) = &expr.else_branch {
            self.visit_expr(otherwise);
        }
    }

    fn visit_expr_while(&mut self, expr: &'ast syn::ExprWhile) {
        self.visit_scope(|bindings| visit::visit_expr_while(bindings, expr));
    }

    // A pattern is bound after the value is evaluated.
    fn visit_local(&mut self, local: &'ast syn::Local) {
        if let Some(init) = &local.init {
            self.visit_local_init(init);
        }
        self.visit_pat(&local.pat);
    }

    fn visit_expr_let(&mut self, expr: &'ast syn::ExprLet) {
        self.visit_expr(&expr.expr);
        self.visit_pat(&expr.pat);
    }

    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        if pattern.ident == "it" {
            let line = pattern.ident.span().start().line;
            self.open.push((line, line));
        }
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_expr_path(&mut self, expr: &'ast syn::ExprPath) {
        if expr.path.is_ident("it") {
            self.add_use(expr.path.segments[0].ident.span().start().line);
        }
    }

    // A format string may name a value.
    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        let text = literal.value();
        if text.contains("{it}") || text.contains("{it:") {
            self.add_use(literal.span().start().line);
        }
    }

    fn visit_macro(&mut self, macro_call: &'ast syn::Macro) {
        self.visit_arguments(&macro_call.tokens);
    }

    // Names in `macro_rules!` are not resolved.
    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        if item.ident.is_none() {
            visit::visit_item_macro(self, item);
        }
    }
}
