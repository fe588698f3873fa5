//! The listing of the public API (`public-api.txt`) has every public item of the sources. `cargo xtask public-api` rewrites it.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use syn::{Fields, ImplItem, Item, Visibility};

type Names = BTreeSet<String>;

/// Collects the public items of a file and its modules. The lint `unreachable_pub` keeps `pub` off what users cannot reach.
fn collect(path: &Path, names: &mut Names) {
    let file = syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap();
    for item in file.items {
        match item {
            // What is hidden from the documentation is not public.
            Item::Mod(module) if module.ident == "agent" || module.content.is_some() => {}
            Item::Mod(module) => {
                let stem = path.file_stem().unwrap();
                let folder = path.parent().unwrap();
                let folder = if stem == "lib" { folder.to_owned() } else { folder.join(stem) };
                collect(&folder.join(format!("{}.rs", module.ident)), names);
            }
            Item::Struct(item) if is_public(&item.vis) => {
                if let Fields::Named(fields) = &item.fields {
                    let public = fields.named.iter().filter(|field| is_public(&field.vis));
                    names.extend(
                        public.map(|field| format!("{}::{}", item.ident, field.ident.as_ref().unwrap())),
                    );
                }
                names.insert(item.ident.to_string());
            }
            Item::Enum(item) if is_public(&item.vis) => {
                names
                    .extend(item.variants.iter().map(|variant| format!("{}::{}", item.ident, variant.ident)));
                names.insert(item.ident.to_string());
            }
            Item::Type(item) if is_public(&item.vis) => drop(names.insert(item.ident.to_string())),
            Item::Impl(item) if item.trait_.is_none() => {
                let syn::Type::Path(of) = &*item.self_ty else { continue };
                let of = &of.path.segments.last().unwrap().ident;
                let members = item.items.iter().flat_map(public_members);
                names.extend(members.map(|member| format!("{of}::{member}")));
            }
            _ => {}
        }
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Returns the names of an impl item: a function, a constant, or the functions that `number!` or `setters!` declares.
fn public_members(item: &ImplItem) -> Vec<String> {
    match item {
        ImplItem::Fn(function) if is_public(&function.vis) => vec![function.sig.ident.to_string()],
        ImplItem::Const(constant) if is_public(&constant.vis) => vec![constant.ident.to_string()],
        ImplItem::Macro(call) if call.mac.path.is_ident("number") => vec!["new".to_owned(), "get".to_owned()],
        ImplItem::Macro(call) if call.mac.path.is_ident("setters") => {
            let tokens = call.mac.tokens.to_string();
            // Each setter is its documentation, then `name: type = example;`.
            let rows = tokens.split(';').filter_map(|row| row.split_once(" : "));
            rows.map(|(before, _)| before.rsplit([' ', ']', '\n']).next().unwrap().to_owned()).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the names in the listing, without re-exports, modules and members of trait implementations.
fn listed(listing: &str) -> Names {
    let mut names = Names::new();
    let mut in_trait = false;
    for line in listing.lines() {
        let line = line.strip_prefix("#[non_exhaustive] ").unwrap_or(line);
        if line.starts_with("impl") {
            in_trait = line.contains(" for ");
            continue;
        }
        let Some(declared) = line.strip_prefix("pub ") else { continue };
        let member = ["fn ", "const "].iter().any(|kind| declared.starts_with(kind));
        in_trait &= member;
        if in_trait || declared.starts_with("use ") || declared.starts_with("mod ") {
            continue;
        }
        let path = declared.split_once("ttmem_client::").unwrap().1;
        let path = path.strip_prefix("compat::").unwrap_or(path);
        let mut plain = String::new();
        let mut depth = 0;
        let mut characters = path.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '<' => depth += 1,
                '>' => depth -= 1,
                ':' if depth == 0 && characters.peek() == Some(&':') => {
                    characters.next();
                    plain.push_str("::");
                }
                _ if depth > 0 => {}
                _ if character.is_alphanumeric() || character == '_' => plain.push(character),
                _ => break,
            }
        }
        names.insert(plain);
    }
    names
}

#[test]
fn listing_has_every_public_item() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names = Names::new();
    collect(&root.join("src/lib.rs"), &mut names);
    let listing = listed(&fs::read_to_string(root.join("public-api.txt")).unwrap());
    let missing: Vec<_> = names.difference(&listing).collect();
    let outdated: Vec<_> = listing.difference(&names).collect();
    assert!(names.len() > 150, "{names:?}");
    assert!(missing.is_empty(), "not in public-api.txt, run `cargo xtask public-api`: {missing:?}");
    assert!(outdated.is_empty(), "only in public-api.txt, run `cargo xtask public-api`: {outdated:?}");
}
