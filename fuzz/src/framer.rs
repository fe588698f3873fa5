//! Feeds any bytes to the framer, divided anywhere: it never panics, and the division makes no difference.

use std::ops::ControlFlow;
use ttmem_wire::framer::{Frame, FrameError, Framer};

fn frame_all<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Frame>, Result<(), FrameError>) {
    let mut framer = Framer::default();
    let mut frames = Vec::new();
    for piece in pieces {
        // The callback stops after every third message, and the rest is fed again.
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

/// Feeds the bytes whole and in chunks, and compares the frames.
pub fn framer(data: &[u8]) {
    // The first byte is the size of chunks.
    let Some((&step, bytes)) = data.split_first() else { return };
    let whole = frame_all(std::iter::once(bytes));
    let divided = frame_all(bytes.chunks(usize::from(step) % 160 + 1));
    assert_eq!(whole, divided);
    // A pause at any moment must not panic either.
    let mut framer = Framer::default();
    for piece in bytes.chunks(usize::from(step) % 160 + 1) {
        if framer.feed(piece, |_| ControlFlow::Continue(())).is_err() {
            return;
        }
        let waits = framer.waits_for_pause();
        assert_eq!(framer.pause().is_some(), waits);
    }
}
