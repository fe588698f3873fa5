//! `ttmem peak`: the largest use of each space, when that was, and which lines of code it consisted of.

use crate::cli::{PeakArgs, Sockets};
use crate::listing::print_json;
use crate::source::{answer_or_report, open_source};
use crate::text::Style;
use crate::{Exit, print};
use anyhow::Context as _;
use std::io::{self, Write as _};
use ttmem_core::snapshot::RunReport;
use ttmem_reader::protocol::Request;
use ttmem_render::run_report;

pub(crate) fn run(args: &PeakArgs, sockets: &Sockets) -> anyhow::Result<Exit> {
    let mut source = open_source(sockets, false, false)?;
    let Some(answer) = answer_or_report(source.ask(&Request::Report))? else { return Ok(Exit::NoDaemon) };
    let mut report: RunReport = serde_json::from_slice(&answer).context("cannot read the daemon's answer")?;
    report.processes.retain(|process| {
        let has_peak = process.spaces.iter().any(|space| space.peak_bytes > 0);
        has_peak && args.pid.is_none_or(|pid| process.pid == Some(pid))
    });
    if report.processes.is_empty() {
        let which = args.pid.map_or_else(|| "no process has".to_owned(), |pid| format!("pid {pid} has not"));
        let _ = writeln!(
            io::stderr(),
            "ttmem: {which} reported any buffer; start programs with `ttmem run -- CMD`"
        );
        return Ok(Exit::NothingFound);
    }
    if args.json {
        return print_json(&report, None);
    }
    let style = Style::new(args.text.ascii);
    print(style.format_page(run_report::peaks(&report, style.list_width)).as_bytes())
}
