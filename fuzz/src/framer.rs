//! Any bytes, cut anywhere: the framer never panics, and the cuts never matter.

use std::ops::ControlFlow;
use ttmem_wire::framer::{Frame, FrameError, Framer};

fn run<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Frame>, Result<(), FrameError>) {
    let mut framer = Framer::default();
    let mut frames = Vec::new();
    for piece in pieces {
        // Every third message breaks off, and the rest is fed again.
        let mut rest = piece;
        loop {
            let before = frames.len();
            let fed = framer.feed(rest, |frame| {
                frames.push(frame);
                if frames.len() % 3 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            match fed {
                Ok(taken) => rest = &rest[taken..],
                Err(e) => return (frames, Err(e)),
            }
            if rest.is_empty() && frames.len() == before {
                break;
            }
        }
    }
    match framer.end() {
        Ok(last) => {
            frames.extend(last);
            (frames, Ok(()))
        }
        Err(e) => (frames, Err(e)),
    }
}

/// Feeds the bytes whole and cut, with pauses: the frames are the same.
pub fn framer(data: &[u8]) {
    // The first byte says how to cut the rest.
    let Some((&step, bytes)) = data.split_first() else { return };
    let whole = run(std::iter::once(bytes));
    let cut = run(bytes.chunks(usize::from(step) % 160 + 1));
    assert_eq!(whole, cut);
    // A pause at any moment must not panic either, whatever it decides.
    let mut framer = Framer::default();
    for piece in bytes.chunks(usize::from(step) % 160 + 1) {
        if framer.feed(piece, |_| ControlFlow::Continue(())).is_err() {
            return;
        }
        let waits = framer.waits_for_pause();
        assert_eq!(framer.pause().is_some(), waits);
    }
}
