//! `ttmem postmortem`: why an allocation failed, what held the memory then, and what makes room.

use crate::cli::{PostMortemArgs, Sockets};
use crate::listing::print_json;
use crate::text::{Style, severity_colour};
use crate::{Exit, UsageError, print};
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::path::Path;
use ttmem_core::snapshot::{PostMortem, Severity};
use ttmem_reader::{FailureQuery, find_post_mortem, post_mortem_of, raise_descriptor_limit};
use ttmem_render::{Tone, postmortem};
use ttmem_sources::WhichFailure;

pub(crate) fn run(args: &PostMortemArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    raise_descriptor_limit();
    let Some(found) = find(args, sockets)? else {
        let _ = writeln!(io::stderr(), "ttmem: {}", describe_absence(args));
        return Ok(Exit::NothingFound);
    };
    if args.json {
        return print_json(&found, None);
    }
    print(format_page(&found, Style::new(args.text.ascii)).as_bytes())
}

fn find(args: &PostMortemArgs, sockets: &Sockets) -> anyhow::Result<Option<PostMortem>> {
    let which = if args.first { WhichFailure::First } else { WhichFailure::Last };
    let pid = match args.target.as_deref() {
        None => None,
        Some(target) if target.bytes().all(|byte| byte.is_ascii_digit()) && !target.is_empty() => {
            let pid = target.parse().map_err(|_| UsageError(format!("{target} is not a pid")))?;
            Some(pid)
        }
        Some(file) => return Ok(post_mortem_of(Path::new(file), which)?),
    };
    Ok(find_post_mortem(&sockets.source_config()?, FailureQuery { pid, which })?)
}

/// What to print if no failure is recorded.
fn describe_absence(args: &PostMortemArgs) -> String {
    match &args.target {
        None => "no failed allocation is recorded; start programs with `ttmem run -- CMD`".to_owned(),
        Some(target) if target.bytes().all(|byte| byte.is_ascii_digit()) => format!(
            "no failed allocation of pid {target} is recorded; `ttmem postmortem` shows the newest of all processes"
        ),
        Some(file) => format!("{file} has no failed allocation"),
    }
}

fn format_page(found: &PostMortem, style: Style) -> String {
    // A page for a pipe is for searching, so its lines are not wrapped.
    let width = if io::stdout().is_terminal() { style.width } else { usize::MAX };
    let mut page = String::new();
    for line in postmortem::page(found, width) {
        let text = match line.tone {
            _ if line.is_title => style.bold(&line.text),
            Tone::Bad => style.paint(&line.text, severity_colour(Severity::Error)),
            Tone::Faint => style.faint(&line.text),
            _ => line.text,
        };
        let _ = writeln!(page, "{text}");
    }
    style.encode(page)
}
