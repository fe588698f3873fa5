//! Cuts one connection's bytes into legacy messages.
//!
//! The protocol has four message sizes and says nowhere which one a peer uses. What makes the size decidable is
//! that every client zeroes its message before it fills in the head: after the 72 bytes of a head there are zeros
//! up to the end of the message, and the byte after the end is the next message's type, which is never zero. So
//! the first message's length is the distance to the next non-zero byte, and it must be one of the four.
//!
//! An *event* is complete with its head, whatever the vintage, so it is handed out at once. A *question* must be
//! answered in the size it was asked in. When the stream pauses or ends right after a first question, nothing
//! follows that could tell; [`Framer::pause`] then takes what has arrived as the whole message, if it is as long
//! as one of the four. The caller decides what a pause is, since the framer knows no clock.

use crate::legacy::{HEAD_SIZE, Head, MAX_SIZE, Message, Type, Vintage};
use core::ops::ControlFlow;
use zerocopy::FromBytes;

/// What a stream turned out to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A message that wants no answer.
    Event(Message),
    /// A message to be answered in this vintage.
    Question(Message, Vintage),
    /// A lone newline on a fresh connection: a person with `nc` who wants a text dump.
    Newline,
}

/// Why a stream cannot be read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// No message starts with these four bytes (a type from 1 to 12 and three zeros).
    NotAMessage {
        /// How many bytes of the stream were good.
        offset: u64,
        /// The bytes found, little-endian.
        found: u32,
    },
    /// The first message's padding or tail was neither zero nor the start of another message.
    UnknownSize {
        /// Where in the first message the odd byte is.
        offset: u64,
    },
    /// The stream went on inside a message that a pause had already closed.
    LateTail {
        /// How many bytes of the stream were good.
        offset: u64,
    },
    /// The stream ended inside a message.
    Half {
        /// How many bytes of the stream were good.
        offset: u64,
        /// How many bytes were left over.
        left: usize,
    },
}

impl core::fmt::Display for FrameError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotAMessage { offset, found } => {
                write!(f, "no message starts with 0x{found:08x} (at byte {offset} of the stream)")
            }
            Self::UnknownSize { offset } => write!(
                f,
                "message size is none of 72, 112, 128, 144: unexpected data at byte {offset} of the first message"
            ),
            Self::LateTail { offset } => write!(
                f,
                "message incomplete after a pause: its size is not known (at byte {offset} of the stream)"
            ),
            Self::Half { offset, left } => {
                write!(f, "stream ended inside a message ({left} bytes after byte {offset})")
            }
        }
    }
}

impl core::error::Error for FrameError {}

/// How sure the framer is of the message size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    /// Not known; the first message's event, if it is one, may have been handed out already.
    Open { delivered: bool },
    /// A pause decided it; the next message must begin right there.
    Paused(Vintage),
    /// The next message's start proved it.
    Settled(Vintage),
}

/// The state of one connection's stream. Holds at most one unfinished message.
#[derive(Debug)]
pub struct Framer {
    size: Size,
    /// Bytes not yet consumed.
    carry: [u8; MAX_SIZE],
    carried: usize,
    /// Bytes of the stream consumed so far.
    consumed: u64,
}

impl Default for Framer {
    fn default() -> Self {
        Self { size: Size::Open { delivered: false }, carry: [0; MAX_SIZE], carried: 0, consumed: 0 }
    }
}

impl Framer {
    /// Takes the next bytes of the stream, however they were cut, and hands every message in them to `sink`, until
    /// that breaks. Returns how many bytes were taken: all, or up to the message `sink` broke at. To go on, feed the
    /// rest, even if there is none. After an error the stream is lost: feed no more.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        mut sink: impl FnMut(Frame) -> ControlFlow<()>,
    ) -> Result<usize, FrameError> {
        let mut rest = bytes;
        let taken = |rest: &[u8]| bytes.len() - rest.len();
        loop {
            let Some(vintage) = self.vintage() else {
                if rest.is_empty() {
                    return Ok(bytes.len());
                }
                self.carry_from(&mut rest, MAX_SIZE);
                if self.begin(&mut sink)?.is_break() {
                    return Ok(taken(rest));
                }
                continue;
            };
            let size = vintage.size();
            if self.carried == 0 {
                // The bulk is read where it lies.
                while rest.len() >= size {
                    let message = &rest[..size];
                    rest = &rest[size..];
                    if self.emit(message, vintage, &mut sink)?.is_break() {
                        return Ok(taken(rest));
                    }
                }
            }
            self.carry_from(&mut rest, size);
            if self.carried >= 4 {
                self.check_start()?;
            }
            if self.carried < size {
                return Ok(bytes.len());
            }
            let carry = self.carry;
            self.carried = 0;
            if self.emit(&carry[..size], vintage, &mut sink)?.is_break() {
                return Ok(taken(rest));
            }
        }
    }

    /// Moves bytes into `carry` until it holds `size` of them.
    fn carry_from(&mut self, rest: &mut &[u8], size: usize) {
        let take = rest.len().min(size.saturating_sub(self.carried));
        self.carry[self.carried..self.carried + take].copy_from_slice(&rest[..take]);
        self.carried += take;
        *rest = &rest[take..];
    }

    /// The stream is quiet. Returns what that alone decides: the question that waits, or a lone newline.
    pub fn pause(&mut self) -> Option<Frame> {
        if self.size != (Size::Open { delivered: false }) {
            return None;
        }
        if self.is_newline() {
            self.carried = 0;
            return Some(Frame::Newline);
        }
        let vintage = Vintage::of_size(self.carried)?;
        let message = Message::decode(vintage, &self.carry[..self.carried])?;
        self.size = Size::Paused(vintage);
        self.consumed += self.carried as u64;
        self.carried = 0;
        Some(Frame::Question(message, vintage))
    }

    /// The stream has ended. Returns what only the end decides, or says that it ended inside a message.
    pub fn end(&mut self) -> Result<Option<Frame>, FrameError> {
        if let Some(frame) = self.pause() {
            return Ok(Some(frame));
        }
        let whole = match self.size {
            Size::Open { delivered: true } => Vintage::of_size(self.carried).is_some(),
            _ => self.carried == 0,
        };
        if whole { Ok(None) } else { Err(FrameError::Half { offset: self.consumed, left: self.carried }) }
    }

    /// Whether [`Framer::pause`] would have something to say: the caller should watch for one.
    pub fn waits_for_pause(&self) -> bool {
        self.size == (Size::Open { delivered: false })
            && (self.is_newline() || Vintage::of_size(self.carried).is_some())
    }

    /// Whether all that came so far is a newline.
    pub fn is_newline(&self) -> bool {
        self.consumed == 0 && self.carry[..self.carried] == *b"\n"
    }

    fn vintage(&self) -> Option<Vintage> {
        match self.size {
            Size::Open { .. } => None,
            Size::Paused(vintage) | Size::Settled(vintage) => Some(vintage),
        }
    }

    /// Makes what it can of the first message: hands an event out with its head, and settles the size.
    fn begin(
        &mut self,
        sink: &mut impl FnMut(Frame) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, FrameError> {
        if self.carried >= 4 {
            self.check_start()?;
        }
        if self.carried < HEAD_SIZE {
            return Ok(ControlFlow::Continue(()));
        }
        let mut flow = ControlFlow::Continue(());
        let mut delivered = self.size == (Size::Open { delivered: true });
        if !delivered && !Type::from_byte(self.carry[0]).is_some_and(Type::wants_answer) {
            if let Ok((head, _)) = Head::ref_from_prefix(&self.carry) {
                flow = sink(Frame::Event(Message::from_head(head)));
            }
            delivered = true;
            self.size = Size::Open { delivered };
        }
        let Some(vintage) = self.settle()? else { return Ok(flow) };
        let carry = self.carry;
        let size = vintage.size();
        self.size = Size::Settled(vintage);
        if delivered {
            self.consumed += size as u64;
        } else {
            flow = self.emit(&carry[..size], vintage, sink)?;
        }
        // What lies beyond begins the second message; of the smallest size it may be whole.
        let rest = self.carried - size;
        self.carry[..rest].copy_from_slice(&carry[size..self.carried]);
        self.carried = rest;
        Ok(flow)
    }

    /// Decides the size of the first message, once enough of what follows its head has arrived.
    fn settle(&self) -> Result<Option<Vintage>, FrameError> {
        let bytes = &self.carry[..self.carried];
        let Some(at) = bytes[HEAD_SIZE..].iter().position(|&b| b != 0).map(|i| i + HEAD_SIZE) else {
            // Zeros so far: only the longest message can be told from them, by its length.
            return Ok((bytes.len() == MAX_SIZE).then_some(Vintage::V144));
        };
        Vintage::of_size(at).map(Some).ok_or(FrameError::UnknownSize { offset: at as u64 })
    }

    /// Hands out one whole message.
    fn emit(
        &mut self,
        bytes: &[u8],
        vintage: Vintage,
        sink: &mut impl FnMut(Frame) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, FrameError> {
        let found = start(bytes).map_err(|found| self.refuse(found))?;
        self.consumed += bytes.len() as u64;
        self.size = Size::Settled(vintage);
        let frame = if found.wants_answer() {
            Message::decode(vintage, bytes).map(|message| Frame::Question(message, vintage))
        } else {
            Head::ref_from_prefix(bytes).ok().map(|(head, _)| Frame::Event(Message::from_head(head)))
        };
        Ok(frame.map_or(ControlFlow::Continue(()), sink))
    }

    fn check_start(&self) -> Result<(), FrameError> {
        start(&self.carry).map(drop).map_err(|found| self.refuse(found))
    }

    fn refuse(&self, found: u32) -> FrameError {
        match self.size {
            Size::Paused(_) if found == 0 => FrameError::LateTail { offset: self.consumed },
            _ => FrameError::NotAMessage { offset: self.consumed, found },
        }
    }
}

/// The type a message starts with, or the four bytes that are no start.
fn start(bytes: &[u8]) -> Result<Type, u32> {
    let [a, b, c, d] = [bytes[0], bytes[1], bytes[2], bytes[3]];
    match Type::from_byte(a) {
        Some(kind) if [b, c, d] == [0; 3] => Ok(kind),
        _ => Err(u32::from_le_bytes([a, b, c, d])),
    }
}

#[cfg(test)]
mod tests;
