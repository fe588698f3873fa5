//! The summary at the end of a run, on standard error and in a file.

use crate::text::Style;
use anyhow::Context as _;
use rustix::fs::FileType;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use ttmem_core::snapshot::RunReport;
use ttmem_reader::json;
use ttmem_render::run_report;

/// The file that a report is written to. It is opened before the program starts, so that a wrong path is found then.
pub(super) struct ReportFile<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> ReportFile<'a> {
    pub(super) fn create(path: &'a Path) -> anyhow::Result<Self> {
        let file =
            File::create(path).with_context(|| format!("cannot write the report {}", path.display()))?;
        Ok(Self { path, file })
    }

    /// Writes JSON if the file's name ends so, else text.
    pub(super) fn write(mut self, report: &RunReport) -> anyhow::Result<()> {
        let is_json = self.path.extension().is_some_and(|it| it.eq_ignore_ascii_case("json"));
        let plain = || -> String {
            run_report::page(report, usize::MAX).into_iter().map(|line| line.text + "\n").collect()
        };
        let mut text = if is_json { json::to_vec(report)? } else { plain().into_bytes() };
        if is_json {
            text.push(b'\n');
        }
        let written = self.file.write_all(&text);
        written.with_context(|| format!("cannot write the report {}", self.path.display()))
    }
}

/// Whether standard error is neither closed nor discarded.
pub(super) fn is_read() -> bool {
    let is_null = |stat: rustix::fs::Stat| {
        let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
        is_device && rustix::fs::major(stat.st_rdev) == 1 && rustix::fs::minor(stat.st_rdev) == 3
    };
    rustix::fs::fstat(io::stderr()).is_ok_and(|stat| !is_null(stat))
}

/// Prints the summary. Errors are ignored: the program's exit code counts.
pub(super) fn print(report: &RunReport, style: Style) {
    let page = style.format_page(run_report::page(report, style.list_width));
    let _ = io::stderr().lock().write_all(page.as_bytes());
}
