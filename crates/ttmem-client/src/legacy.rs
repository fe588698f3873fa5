//! Telling an old server, on request: the socket protocol of the proof of concept, without its faults.
//!
//! Nothing here waits. What the server does not take now stays in a queue of slots: a slot is in it at most once, and an
//! allocation that comes and goes before its turn is never told, so the queue is bounded by what is live. A slot whose
//! free was not told yet keeps its words until it was. A server that went away and came back is told everything again.

use crate::descriptor::Descriptor;
use crate::identity;
use crate::memory::Array;
use crate::text::Text;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::time::ClockId;
use ttmem_types::{BufferType, KernelClass};
use ttmem_wire::legacy::{MAX_SIZE, Message, Type, Vintage};
use ttmem_wire::record::{Kind, Record, Space};
use ttmem_wire::segment::MAX_SLOTS;

/// How long to leave a server alone that did not answer.
const BACKOFF_NS: u64 = 1_000_000_000;
/// Messages sent at one event: a long queue must not become a long pause.
const MESSAGES_A_TURN: usize = 128;

/// Slots looked at, at one event, while there is no server. More than come, so that the queue stays near what is live.
const UNHEARD_A_TURN: usize = 8;

/// The server knows of it.
const TOLD: u8 = 1;
/// It is in the queue.
const QUEUED: u8 = 2;
/// It was freed.
const GONE: u8 = 4;
/// Its messages are being sent.
const SENDING: u8 = 8;

pub(crate) struct Legacy {
    path: Text<108>,
    socket: Option<Descriptor>,
    /// When connecting may be tried again.
    not_before: u64,
    marks: Array<u8>,
    queue: Array<u32>,
    head: usize,
    len: usize,
    /// The slot whose messages are being sent, and how many of its chips were told.
    current: Option<(u32, usize)>,
    /// A message of which only the beginning went out.
    rest: ([u8; MAX_SIZE], usize, usize),
}

impl Legacy {
    pub(crate) fn new(path: Text<108>) -> Option<Self> {
        Some(Self {
            path,
            socket: None,
            not_before: 0,
            marks: Array::new(MAX_SLOTS as usize)?,
            queue: Array::new(MAX_SLOTS as usize)?,
            head: 0,
            len: 0,
            current: None,
            rest: ([0; MAX_SIZE], 0, 0),
        })
    }

    pub(crate) fn queued(&self) -> u64 {
        self.len as u64 + u64::from(self.current.is_some())
    }

    fn push(&mut self, slot: u32) {
        let Some(mark) = self.marks.get_mut(slot as usize) else { return };
        if *mark & QUEUED == 0 && self.len < self.queue.len() {
            *mark |= QUEUED;
            let at = (self.head + self.len) % self.queue.len();
            self.queue[at] = slot;
            self.len += 1;
        }
    }

    /// A slot was filled with an allocation.
    pub(crate) fn came(&mut self, slot: u32) {
        self.push(slot);
    }

    /// A slot is free. Returns whether it may be used again at once.
    pub(crate) fn went(&mut self, slot: u32) -> bool {
        let Some(mark) = self.marks.get_mut(slot as usize).filter(|mark| **mark != 0) else { return true };
        *mark |= GONE;
        if *mark & (TOLD | SENDING) == TOLD {
            self.push(slot);
        }
        // Its turn in the queue gives it back.
        false
    }

    /// Everything is free. What was told of it is to be taken back, and nothing else is to be told.
    pub(crate) fn all_went(&mut self) {
        for slot in 0..self.marks.len() as u32 {
            if self.marks[slot as usize] != 0 {
                self.went(slot);
            }
        }
    }

    /// Sends what can be sent. `held` is what a slot holds, `chip` is an allocator's chip by its place, `cores` is how many a set has,
    /// `free` takes a slot back.
    pub(crate) fn pump(
        &mut self,
        held: impl Fn(u32) -> Option<Record>,
        chip: impl Fn(u16, usize) -> Option<u32>,
        cores: impl Fn(u16) -> u16,
        mut free: impl FnMut(u32),
    ) {
        for _ in 0..MESSAGES_A_TURN {
            if self.socket.is_none() && !self.connect(&held) {
                // Nobody hears; what came and went meanwhile need not be kept.
                self.drop_unheard(&mut free);
                return;
            }
            if self.rest.1 < self.rest.2 {
                if !self.send_rest() {
                    return;
                }
                continue;
            }
            let Some((slot, told)) = self.current.or_else(|| self.next().map(|slot| (slot, 0))) else {
                return;
            };
            let mark = self.marks[slot as usize];
            let leaves = mark & TOLD != 0;
            if mark & GONE == 0 && leaves || mark & GONE != 0 && !leaves && told == 0 {
                // Nothing to tell: it is known and stays, or it came and went unheard.
                self.current = None;
                self.marks[slot as usize] = mark & TOLD;
                if mark & GONE != 0 {
                    free(slot);
                }
                continue;
            }
            self.marks[slot as usize] |= SENDING;
            self.current = Some((slot, told + 1));
            let record = held(slot);
            let next = record.and_then(|it| {
                let chip = chip(it.allocator.get(), told)?;
                Some((chip, message(&it, cores(it.cores.get()), leaves)?))
            });
            match next {
                Some((chip, mut message)) => {
                    message.device_id = chip as i32;
                    let mut bytes = [0; MAX_SIZE];
                    let len = message.encode(Vintage::V144, &mut bytes).len();
                    self.rest = (bytes, 0, len);
                }
                // Every chip was told.
                None if leaves => {
                    self.current = None;
                    self.marks[slot as usize] = 0;
                    free(slot);
                }
                None => {
                    let mark = &mut self.marks[slot as usize];
                    *mark = *mark & !SENDING | TOLD;
                    // Freed meanwhile: that is told at once, before anything else comes to its address.
                    self.current = (*mark & GONE != 0).then_some((slot, 0));
                }
            }
        }
    }

    fn next(&mut self) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let slot = self.queue[self.head];
        self.head = (self.head + 1) % self.queue.len();
        self.len -= 1;
        self.marks[slot as usize] &= !QUEUED;
        Some(slot)
    }

    /// With nobody to hear it, gives back what was freed, from the front of the queue.
    fn drop_unheard(&mut self, free: &mut impl FnMut(u32)) {
        for _ in 0..self.len.min(UNHEARD_A_TURN) {
            let Some(slot) = self.next() else { return };
            if self.marks[slot as usize] & GONE != 0 {
                self.marks[slot as usize] = 0;
                free(slot);
            } else {
                self.push(slot);
            }
        }
    }

    fn connect(&mut self, held: &impl Fn(u32) -> Option<Record>) -> bool {
        let now = identity::now(ClockId::Monotonic);
        if now < self.not_before {
            return false;
        }
        self.not_before = now.saturating_add(BACKOFF_NS);
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let connected = SocketAddrUnix::new(self.path.as_str()).and_then(|address| {
            let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            rustix::net::connect(&socket, &address)?;
            Descriptor::new(socket)
        });
        let Ok(socket) = connected else { return false };
        self.socket = Some(socket);
        self.rest = ([0; MAX_SIZE], 0, 0);
        if let Some((slot, _)) = self.current.take() {
            self.marks[slot as usize] &= !SENDING;
            self.push(slot);
        }
        // It knows nothing: what an earlier one was told is to be told again, and what it was not told it need not be.
        for slot in 0..self.marks.len() as u32 {
            if self.marks[slot as usize] & TOLD != 0 {
                self.marks[slot as usize] &= !TOLD;
                self.push(slot);
            } else if self.marks[slot as usize] == 0 && held(slot).is_none() {
                // Beyond the table.
                break;
            }
        }
        true
    }

    /// Sends what is left of a message; `false`: the server takes no more for now.
    fn send_rest(&mut self) -> bool {
        let Some(socket) = self.socket.as_ref().and_then(Descriptor::ours) else {
            // Closed by the workload, or gone.
            self.socket = None;
            return false;
        };
        let (bytes, from, to) = &mut self.rest;
        match rustix::net::send(socket, &bytes[*from..*to], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(sent) => {
                *from += sent;
                true
            }
            Err(rustix::io::Errno::INTR) => true,
            Err(rustix::io::Errno::AGAIN) => false,
            Err(_) => {
                // The server is gone. Closing before connecting again, so that no descriptor is left behind.
                self.socket = None;
                false
            }
        }
    }
}

/// What an old server is told of a slot on so many cores, but for the chip; `None` for what it knows no word for.
fn message(held: &Record, cores: u16, gone: bool) -> Option<Message> {
    // An alias is reported by the allocator that it counts for.
    if held.kind != Kind::Alloc as u8 || held.is_alias() {
        return None;
    }
    let buffer = |kind: BufferType| (Type::Alloc, Type::Free, kind as u8);
    let (comes, goes, kind) = match held.space()? {
        Space::Dram => buffer(BufferType::Dram),
        Space::L1 | Space::L1Core => buffer(BufferType::L1),
        Space::L1Small => buffer(BufferType::L1Small),
        Space::Trace => buffer(BufferType::Trace),
        Space::Host => buffer(BufferType::SystemMemory),
        Space::Cb | Space::Dfb | Space::Scratch => (Type::CbAlloc, Type::CbFree, 0),
        Space::Kernel => {
            let class = match held.class() {
                KernelClass::Unknown => KernelClass::Application,
                class => class,
            };
            (Type::KernelLoad, Type::KernelUnload, class as u8)
        }
    };
    // As the old client filled it in: a free says nothing of its time and its kind, and a buffer's nothing of its size.
    let size = match comes {
        Type::Alloc if gone => 0,
        // A circular buffer is so large on each core, a kernel on all of its cores together.
        Type::KernelLoad => held.requested.get().saturating_mul(u64::from(cores.max(1))),
        _ => held.requested.get(),
    };
    Some(Message {
        size,
        buffer_type: if gone { 0 } else { kind },
        process_id: identity::pid() as i32,
        buffer_id: held.id.get(),
        timestamp: if gone { 0 } else { wall_clock(held.at_ns.get()) },
        ..Message::new(if gone { goes } else { comes })
    })
}

/// When something happened, by the clock that the old client used.
fn wall_clock(at: u64) -> u64 {
    let age = identity::now(ClockId::Monotonic).saturating_sub(at);
    identity::now(ClockId::Realtime).saturating_sub(age)
}
