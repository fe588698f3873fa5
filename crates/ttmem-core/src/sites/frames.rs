//! The frames of call sites.

use super::{MAX_STACK, Sites, special_purpose};
use crate::snapshot::{Frame, FrameKind};

impl Sites {
    /// The frames of a site, outermost first: the calls that led to its line or that line alone, the operation, and what the memory
    /// is.
    pub(crate) fn frames(&self, number: u32) -> Vec<Frame> {
        let of = |kind, name: &str| Frame { kind, name: name.to_owned(), file: None, line: None };
        let Some(site) = self.get(number) else { return vec![of(FrameKind::Unknown, UNKNOWN)] };
        let op = self.ops.get(&site.op);
        let mut frames = self.calls(site.stack);
        if frames.is_empty() {
            frames.push(match (self.call(site.frame), self.name(number)) {
                (Some(call), _) => call,
                // Without a line, an operation or a track is the name of the site.
                (None, Some(name)) if Some(name) == op => of(FrameKind::Op, name),
                (None, Some(name)) => of(FrameKind::Call, name),
                (None, None) => of(FrameKind::Unknown, UNKNOWN),
            });
        }
        let is_named_by_op = frames.last().is_some_and(|last| last.kind == FrameKind::Op);
        frames.extend(op.filter(|_| !is_named_by_op).map(|op| of(FrameKind::Op, op)));
        let tensor = || site.tensor.map(|tensor| tensor.to_string());
        let contents = special_purpose(site).map(str::to_owned).or_else(tensor);
        frames.extend(contents.map(|name| of(FrameKind::Contents, &name)));
        frames
    }

    /// The calls of a stack, outermost first.
    fn calls(&self, stack: u32) -> Vec<Frame> {
        let calls = self.stack_frames(stack).filter_map(|frame| self.call(frame));
        let mut calls: Vec<Frame> = calls.take(MAX_STACK).collect();
        calls.reverse();
        calls
    }

    /// A call as a frame; `None`: nothing is known of it.
    fn call(&self, number: u32) -> Option<Frame> {
        let frame = self.frames.get(&number)?;
        Some(Frame {
            kind: FrameKind::Call,
            name: self.describe_frame(number)?,
            file: self.files.get(&frame.file).filter(|path| !path.is_empty()).cloned(),
            line: Some(frame.line).filter(|&line| line != 0),
        })
    }
}

/// The name of a frame of which nothing is known.
pub(crate) const UNKNOWN: &str = "unknown";
