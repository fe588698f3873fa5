//! Divides the byte stream of a connection into legacy messages.
//!
//! The protocol has four message sizes, and no field with the size. It can be derived because every client zeroes its message
//! before it fills in the head: after the 72 bytes of the head there are zeros up to the end of the message, and the next byte is
//! the type of the next message, which is never zero. So the length of the first message is the distance to the next non-zero
//! byte, and it must be one of the four.
//!
//! An *event* is complete with its head in every vintage, so it is delivered at once. A *question* must be answered in the size
//! in which it was asked. If the stream pauses or ends after a first question, no byte follows it; [`Framer::pause`] then takes
//! what has arrived as the whole message, if its length is one of the four. The caller decides what a pause is, since the framer
//! has no clock.

use crate::legacy::{HEAD_SIZE, Head, MAX_SIZE, Message, Type, Vintage};
use core::ops::ControlFlow;
use zerocopy::FromBytes;

/// A message, or what else a stream may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A message without an answer.
    Event(Message),
    /// A message to be answered in this vintage.
    Question(Message, Vintage),
    /// A newline alone on a new connection: a user of `nc` requests a text dump.
    Newline,
}

/// Why a stream cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// No message starts with these four bytes (a type from 1 to 12 and three zeros).
    NotAMessage {
        /// Number of valid bytes before it.
        offset: u64,
        /// The bytes found, little-endian.
        found: u32,
    },
    /// The bytes after the first head are neither zero nor the start of another message.
    UnknownSize {
        /// Position of the unexpected byte in the first message.
        offset: u64,
    },
    /// The stream continued inside a message that a pause had completed.
    LateTail {
        /// Number of valid bytes before it.
        offset: u64,
    },
    /// The stream ended inside a message.
    Half {
        /// Number of valid bytes before it.
        offset: u64,
        /// Number of bytes of the incomplete message.
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

/// Whether the message size is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    /// Unknown. The first message may have been delivered already, if it is an event.
    Unknown { delivered: bool },
    /// Derived from a pause: the next message must begin there.
    Paused(Vintage),
    /// Derived from the start of the next message.
    Confirmed(Vintage),
}

/// State of the stream of one connection. It keeps at most one incomplete message.
#[derive(Debug)]
pub struct Framer {
    size: Size,
    /// Bytes that are not consumed yet.
    carry: [u8; MAX_SIZE],
    carried: usize,
    /// Bytes of the stream consumed so far.
    consumed: u64,
}

impl Default for Framer {
    fn default() -> Self {
        Self { size: Size::Unknown { delivered: false }, carry: [0; MAX_SIZE], carried: 0, consumed: 0 }
    }
}

impl Framer {
    /// Takes the next bytes of the stream, divided anyhow, and delivers every message in them to `sink`, until that breaks. Returns
    /// the number of bytes taken: all, or up to the message at which `sink` broke. To continue, feed the rest, even if it is
    /// empty. After an error no more bytes may be fed.
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
                // Most messages are read without copying them.
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

    /// Handles a pause of the stream. Returns the question that was incomplete without it, or a newline alone.
    pub fn pause(&mut self) -> Option<Frame> {
        if self.size != (Size::Unknown { delivered: false }) {
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

    /// Handles the end of the stream. Returns the question or newline that it completes, or an error if a message is incomplete.
    pub fn end(&mut self) -> Result<Option<Frame>, FrameError> {
        if let Some(frame) = self.pause() {
            return Ok(Some(frame));
        }
        let whole = match self.size {
            Size::Unknown { delivered: true } => Vintage::of_size(self.carried).is_some(),
            _ => self.carried == 0,
        };
        if whole { Ok(None) } else { Err(FrameError::Half { offset: self.consumed, left: self.carried }) }
    }

    /// Returns whether [`Framer::pause`] would return a frame, so that the caller must detect pauses.
    pub fn waits_for_pause(&self) -> bool {
        self.size == (Size::Unknown { delivered: false })
            && (self.is_newline() || Vintage::of_size(self.carried).is_some())
    }

    /// Returns whether these bytes continue a message of which others were fed before.
    pub fn continues_with(&self, bytes: &[u8]) -> bool {
        let Some(&first) = bytes.first() else { return false };
        match self.size {
            // The first message may be complete: then no zero follows it.
            Size::Unknown { .. } if Vintage::of_size(self.carried).is_some() => first == 0,
            _ => self.carried > 0,
        }
    }

    /// Returns whether all bytes so far are one newline.
    pub fn is_newline(&self) -> bool {
        self.consumed == 0 && self.carry[..self.carried] == *b"\n"
    }

    fn vintage(&self) -> Option<Vintage> {
        match self.size {
            Size::Unknown { .. } => None,
            Size::Paused(vintage) | Size::Confirmed(vintage) => Some(vintage),
        }
    }

    /// Delivers the first message if it is an event, and derives the message size if possible.
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
        let mut delivered = self.size == (Size::Unknown { delivered: true });
        if !delivered && !Type::from_byte(self.carry[0]).is_some_and(Type::wants_answer) {
            if let Ok((head, _)) = Head::ref_from_prefix(&self.carry) {
                flow = sink(Frame::Event(Message::from_head(head)));
            }
            delivered = true;
            self.size = Size::Unknown { delivered };
        }
        let Some(vintage) = self.derive_size()? else { return Ok(flow) };
        let carry = self.carry;
        let size = vintage.size();
        self.size = Size::Confirmed(vintage);
        if delivered {
            self.consumed += size as u64;
        } else {
            flow = self.emit(&carry[..size], vintage, sink)?;
        }
        // The rest begins the second message, which may be complete if it has the smallest size.
        let rest = self.carried - size;
        self.carry[..rest].copy_from_slice(&carry[size..self.carried]);
        self.carried = rest;
        Ok(flow)
    }

    /// Derives the size of the first message, if enough bytes after its head have arrived.
    fn derive_size(&self) -> Result<Option<Vintage>, FrameError> {
        let bytes = &self.carry[..self.carried];
        let Some(at) = bytes[HEAD_SIZE..].iter().position(|&b| b != 0).map(|i| i + HEAD_SIZE) else {
            // Only zeros so far: only the longest message has a known size then.
            return Ok((bytes.len() == MAX_SIZE).then_some(Vintage::V144));
        };
        Vintage::of_size(at).map(Some).ok_or(FrameError::UnknownSize { offset: at as u64 })
    }

    /// Delivers a complete message.
    fn emit(
        &mut self,
        bytes: &[u8],
        vintage: Vintage,
        sink: &mut impl FnMut(Frame) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, FrameError> {
        let found = start(bytes).map_err(|found| self.refuse(found))?;
        self.consumed += bytes.len() as u64;
        self.size = Size::Confirmed(vintage);
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

/// Returns the type at the start of a message, or the four bytes if they are no start.
fn start(bytes: &[u8]) -> Result<Type, u32> {
    let [a, b, c, d] = [bytes[0], bytes[1], bytes[2], bytes[3]];
    match Type::from_byte(a) {
        Some(kind) if [b, c, d] == [0; 3] => Ok(kind),
        _ => Err(u32::from_le_bytes([a, b, c, d])),
    }
}

#[cfg(test)]
mod tests;
