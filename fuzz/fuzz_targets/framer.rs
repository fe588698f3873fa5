//! Any bytes, cut anywhere: the framer never panics, and the cuts never matter.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ttmem_wire::framer::{Frame, FrameError, Framer};

fn run<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Frame>, Result<(), FrameError>) {
    let mut framer = Framer::default();
    let mut frames = Vec::new();
    for piece in pieces {
        if let Err(e) = framer.feed(piece, |frame| frames.push(frame)) {
            return (frames, Err(e));
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

fuzz_target!(|data: &[u8]| {
    // The first byte says how to cut the rest.
    let Some((&step, bytes)) = data.split_first() else { return };
    let whole = run(std::iter::once(bytes));
    let cut = run(bytes.chunks(usize::from(step) % 160 + 1));
    assert_eq!(whole, cut);
    // A pause at any moment must not panic either, whatever it decides.
    let mut framer = Framer::default();
    for piece in bytes.chunks(usize::from(step) % 160 + 1) {
        if framer.feed(piece, |_| ()).is_err() {
            return;
        }
        let waits = framer.waits_for_pause();
        assert_eq!(framer.pause().is_some(), waits);
    }
});
