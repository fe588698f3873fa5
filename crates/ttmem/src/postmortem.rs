//! `ttmem postmortem`: why an allocation failed, what held the memory then, and what makes room.

use crate::cli::{PostMortemArgs, Sockets};
use crate::listing::print_json;
use crate::text::Style;
use crate::{Exit, UsageError, print};
use std::io::{self, Write as _};
use std::path::Path;
use ttmem_core::snapshot::PostMortem;
use ttmem_reader::{FailureQuery, find_post_mortem, post_mortem_of, raise_descriptor_limit};
use ttmem_render::postmortem;
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
    let style = Style::new(args.text.ascii);
    print(style.format_page(postmortem::page(&found, style.list_width)).as_bytes())
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
