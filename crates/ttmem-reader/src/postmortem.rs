//! Post-mortems: finds a failed allocation, and reads what was allocated at that time.

use crate::session::Model;
use crate::{Error, Result};
use std::cmp::Reverse;
use std::path::Path;
use ttmem_core::input::Input;
use ttmem_core::snapshot::PostMortem;
use ttmem_core::words::{Basis, ProcessId};
use ttmem_sources::{
    EventSink, FailureFile, ProcessIdentity, Reached, SourceConfig, Sources, WhichFailure, emit_failure,
};

/// Which failed allocation is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailureQuery {
    /// Only of this process.
    pub pid: Option<u32>,
    /// Which one of each process.
    pub which: WhichFailure,
}

/// The post-mortem of the newest failed allocation in all segments of a machine, also in those of processes that exited. Segments of
/// other users are read as far as their permissions allow. `None`: no failure is recorded.
pub fn find_post_mortem(config: &SourceConfig, query: FailureQuery) -> Result<Option<PostMortem>> {
    let of_process = |it: &FailureFile| query.pid.is_none_or(|pid| it.file.header().pid.get() == pid);
    let found = find_failures(config, query.which).into_iter().filter(of_process).max_by_key(|it| it.at);
    found.map(|failure| read(&failure)).transpose()
}

/// The post-mortems of the last failed allocation of each process, newest first, at most `most`. Those that cannot be read are left
/// out.
pub fn post_mortems(config: &SourceConfig, most: usize) -> Vec<PostMortem> {
    let mut found = find_failures(config, WhichFailure::Last);
    found.sort_by_key(|it| Reverse(it.at));
    found.iter().take(most).filter_map(|failure| read(failure).ok()).collect()
}

fn find_failures(config: &SourceConfig, which: WhichFailure) -> Vec<FailureFile> {
    // Only the folders of segments are needed.
    let config = SourceConfig { machine: false, repeated: false, thorough: false, ..config.clone() };
    let mut sources = Sources::new(config);
    sources.rescan(&mut NoSink);
    sources.failures(which)
}

/// The post-mortem of a failed allocation in a segment. `None`: no failure is recorded there.
pub fn post_mortem_of(path: &Path, which: WhichFailure) -> Result<Option<PostMortem>> {
    let no_segment = |why| Error::NoSegment { path: path.to_owned(), why };
    let found = FailureFile::open(path, which).map_err(no_segment)?;
    found.map(|failure| read(&failure)).transpose()
}

fn read(failure: &FailureFile) -> Result<PostMortem> {
    let (mut model, process) = Model::of_segment(&failure.file);
    let unreadable = |why| Error::Segment { path: failure.path.clone(), why };
    let reached = emit_failure(failure, process, &mut model).map_err(unreadable)?;
    let at = model.wall.at(model.now);
    let found = model.analysis.post_mortem(&model.state, process, Some(failure.sequence), at);
    let mut found = found.ok_or_else(|| Error::NoFailure { path: failure.path.clone() })?;
    found.file = Some(failure.path.display().to_string());
    found.later_failures = failure.later as u64;
    let reason = match reached {
        Reached::Exact => None,
        Reached::Later(since) => {
            Some(format!("events after the failure were overwritten; buffers are those of {since:.3}"))
        }
        Reached::Incomplete => {
            Some("buffers that were freed together after the failure are not listed".to_owned())
        }
    };
    found.exact = reason.is_none() && found.exact;
    found.inexact_reason =
        reason.or_else(|| (!found.exact).then(|| "the segment has no space to list all buffers".to_owned()));
    Ok(found)
}

/// Takes nothing: a rescan only finds folders.
struct NoSink;

impl EventSink for NoSink {
    fn register(&mut self, identity: &ProcessIdentity, _: Basis) -> ProcessId {
        ProcessId { pid: identity.pid, start: 0 }
    }

    fn emit(&mut self, _: ProcessId, _: Basis, _: Input) {}

    fn emit_machine(&mut self, _: Input) {}
}
