//! Where the native stack has the frames of the interpreter: it runs them in activations of one function, each of which runs one frame or
//! several that call each other.

use super::{MAX_WALKED, Python, Walk, load};

/// How the activations of the calling thread are found.
#[derive(Clone, Copy)]
pub(super) enum Activations {
    /// Each has a variable in its native frame, which refers to that of the previous one; the thread's state has the newest.
    Chain {
        /// In the thread's state: the newest.
        newest: usize,
        /// In such a variable: the previous one.
        previous: usize,
        /// In a frame: the byte that marks the outermost of an activation; without it, each is the only one.
        outermost: Option<usize>,
    },
    /// The frames of an activation end with one of the interpreter itself, which is in its native frame.
    OwnFrames,
}

impl Python {
    /// For each frame of the calling thread's walk, an address in the native frame that runs it; `usize::MAX`: unknown.
    #[cold]
    pub(crate) fn places<const MOST: usize>(&self, walk: &Walk<MOST>) -> [usize; MOST] {
        let layout = &self.layout;
        let mut places = [usize::MAX; MOST];
        let Some((state, mut frame)) = self.newest_frame() else { return places };
        let mut activation = match layout.activations {
            // SAFETY: this thread's own state, as this version lays it out.
            Activations::Chain { newest, .. } => unsafe { load(state, newest) },
            Activations::OwnFrames => 0,
        };
        // Frames that were found, and of those the ones whose activation was.
        let (mut found, mut placed) = (0, 0);
        for _ in 0..MAX_WALKED {
            if frame == 0 || placed == walk.len {
                break;
            }
            // SAFETY: a frame of this thread, which exists at least until the call that is running returns.
            let byte = |offset: usize| unsafe { load::<u8>(frame, offset) };
            let mut end = None;
            if layout.owner.is_some_and(|(offset, value)| byte(offset) == value) {
                end = Some(frame);
            } else {
                // SAFETY: as above.
                let code: usize = unsafe { load(frame, layout.code) };
                let is_next =
                    |it: &super::Frame| it.code == code && it.position == self.position(frame, code);
                found += usize::from(walk.frames().get(found).is_some_and(is_next));
                if let Activations::Chain { previous, outermost, .. } = layout.activations
                    && outermost.is_none_or(|offset| byte(offset) != 0)
                {
                    end = Some(activation);
                    // SAFETY: a variable in the native frame of an activation that has not returned.
                    activation = if activation == 0 { 0 } else { unsafe { load(activation, previous) } };
                }
            }
            if let Some(place) = end.filter(|&place| place != 0) {
                places[placed..found].fill(place);
                placed = found;
            }
            // SAFETY: as above.
            frame = unsafe { load(frame, layout.back) };
        }
        places
    }
}
