//! The legacy transport: reports to an old server, in the socket protocol of the proof of concept.
//!
//! No function waits. What the server does not accept now stays in a queue of slots. A slot is in the queue at most once, and
//! an allocation that is freed before its turn is never sent, so the queue is bounded by what is live. A slot whose free was
//! not sent yet keeps its words until it was. A server that was restarted gets everything again.

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

/// Time between attempts to connect.
const BACKOFF_NS: u64 = 1_000_000_000;
/// Most messages sent at one event: a long queue must not become a long pause.
const MESSAGES_PER_EVENT: usize = 128;
/// Slots checked at one event while there is no server: more than one event adds, so that the queue stays near what is live.
const CHECKED_PER_EVENT: usize = 8;

/// Mark: the allocation was sent to the server.
const SENT: u8 = 1;
/// Mark: the slot is in the queue.
const QUEUED: u8 = 2;
/// Mark: the allocation was freed.
const FREED: u8 = 4;
/// Mark: messages of the slot are being sent.
const SENDING: u8 = 8;

pub(crate) struct Legacy {
    path: Text<108>,
    socket: Option<Descriptor>,
    /// Time of the next attempt to connect.
    not_before: u64,
    marks: Array<u8>,
    queue: Array<u32>,
    head: usize,
    len: usize,
    /// The slot whose messages are being sent, and the number of its chips for which one was.
    current: Option<(u32, usize)>,
    /// A message that is partly sent: its bytes, the sent ones, and its length.
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

    /// Queues the allocation in a slot that was filled.
    pub(crate) fn slot_filled(&mut self, slot: u32) {
        self.push(slot);
    }

    /// Queues the free of the allocation in a slot. Returns whether the slot may be reused at once.
    pub(crate) fn slot_freed(&mut self, slot: u32) -> bool {
        let Some(mark) = self.marks.get_mut(slot as usize).filter(|mark| **mark != 0) else { return true };
        *mark |= FREED;
        if *mark & (SENT | SENDING) == SENT {
            self.push(slot);
        }
        // Its turn in the queue releases it.
        false
    }

    /// Queues the frees of all allocations that were sent, and drops the others.
    pub(crate) fn all_freed(&mut self) {
        for slot in 0..self.marks.len() as u32 {
            if self.marks[slot as usize] != 0 {
                self.slot_freed(slot);
            }
        }
    }

    /// Sends what the server accepts now. `held` returns the record in a slot, `chip` an allocator's chip by its position, `cores` the
    /// number of cores of a set; `release` makes a slot reusable.
    pub(crate) fn send_queued(
        &mut self,
        held: impl Fn(u32) -> Option<Record>,
        chip: impl Fn(u16, usize) -> Option<u32>,
        cores: impl Fn(u16) -> u16,
        mut release: impl FnMut(u32),
    ) {
        for _ in 0..MESSAGES_PER_EVENT {
            if self.socket.is_none() && !self.connect(&held) {
                self.drop_freed(&mut release);
                return;
            }
            if self.rest.1 < self.rest.2 {
                if !self.send_rest() {
                    return;
                }
                continue;
            }
            let Some((slot, sent)) = self.current.or_else(|| self.next().map(|slot| (slot, 0))) else {
                return;
            };
            let mark = self.marks[slot as usize];
            let is_free = mark & SENT != 0;
            if mark & FREED == 0 && is_free || mark & FREED != 0 && !is_free && sent == 0 {
                // Nothing to send: it was sent and is live, or it was freed before it was sent.
                self.current = None;
                self.marks[slot as usize] = mark & SENT;
                if mark & FREED != 0 {
                    release(slot);
                }
                continue;
            }
            self.marks[slot as usize] |= SENDING;
            self.current = Some((slot, sent + 1));
            let next = held(slot).and_then(|record| {
                let chip = chip(record.allocator.get(), sent)?;
                Some((chip, make_message(&record, cores(record.cores.get()), is_free)?))
            });
            match next {
                Some((chip, mut message)) => {
                    message.device_id = chip as i32;
                    let mut bytes = [0; MAX_SIZE];
                    let len = message.encode(Vintage::V144, &mut bytes).len();
                    self.rest = (bytes, 0, len);
                }
                // A message for every chip was sent.
                None if is_free => {
                    self.current = None;
                    self.marks[slot as usize] = 0;
                    release(slot);
                }
                None => {
                    let mark = &mut self.marks[slot as usize];
                    *mark = *mark & !SENDING | SENT;
                    // Freed meanwhile: the free is sent at once, before another allocation at its address.
                    self.current = (*mark & FREED != 0).then_some((slot, 0));
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

    /// Releases freed slots from the front of the queue while there is no server: their allocations need not be sent.
    fn drop_freed(&mut self, release: &mut impl FnMut(u32)) {
        for _ in 0..self.len.min(CHECKED_PER_EVENT) {
            let Some(slot) = self.next() else { return };
            if self.marks[slot as usize] & FREED != 0 {
                self.marks[slot as usize] = 0;
                release(slot);
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
        // A new server knows nothing: what was sent to an earlier one is sent again, and frees of what was not sent are dropped.
        for slot in 0..self.marks.len() as u32 {
            if self.marks[slot as usize] & SENT != 0 {
                self.marks[slot as usize] &= !SENT;
                self.push(slot);
            } else if self.marks[slot as usize] == 0 && held(slot).is_none() {
                // Beyond the table.
                break;
            }
        }
        true
    }

    /// Sends the rest of a message; `false` if the server accepts no more for now.
    fn send_rest(&mut self) -> bool {
        let Some(socket) = self.socket.as_ref().and_then(Descriptor::verified) else {
            // Closed by the workload.
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
                // The server is gone. The socket is closed before the next attempt, so that no descriptor leaks.
                self.socket = None;
                false
            }
        }
    }
}

/// Returns the message for an allocation on so many cores, without its chip; `None` for what the old protocol has no message for.
fn make_message(held: &Record, cores: u16, is_free: bool) -> Option<Message> {
    // An alias is reported by the allocator that it counts for.
    if held.kind != Kind::Alloc as u8 || held.is_alias() {
        return None;
    }
    let buffer = |kind: BufferType| (Type::Alloc, Type::Free, kind as u8);
    let (alloc, free, kind) = match held.space()? {
        Space::Dram => buffer(BufferType::Dram),
        Space::L1 | Space::L1Core => buffer(BufferType::L1),
        Space::L1Small => buffer(BufferType::L1Small),
        Space::Trace => buffer(BufferType::Trace),
        Space::Host => buffer(BufferType::SystemMemory),
        // The old protocol has no cores, and nothing else in this field; with their number, totals are right.
        Space::Cb | Space::Dfb | Space::Scratch => (Type::CbAlloc, Type::CbFree, cores.min(255) as u8),
        Space::Kernel => {
            let class = match held.class() {
                KernelClass::Unknown => KernelClass::Application,
                class => class,
            };
            (Type::KernelLoad, Type::KernelUnload, class as u8)
        }
    };
    // As the old client filled it in: a free has neither time nor kind, and a free of a buffer has no size.
    let size = match alloc {
        Type::Alloc if is_free => 0,
        // The size of a circular buffer is per core, that of a kernel the total over its cores.
        Type::KernelLoad => held.requested.get().saturating_mul(u64::from(cores.max(1))),
        _ => held.requested.get(),
    };
    Some(Message {
        size,
        buffer_type: if is_free { 0 } else { kind },
        process_id: identity::pid() as i32,
        buffer_id: held.id.get(),
        timestamp: if is_free { 0 } else { wall_clock(held.at_ns.get()) },
        ..Message::new(if is_free { free } else { alloc })
    })
}

/// Converts a monotonic time to the wall clock, which the old client used.
fn wall_clock(at: u64) -> u64 {
    let age = identity::now(ClockId::Monotonic).saturating_sub(at);
    identity::now(ClockId::Realtime).saturating_sub(age)
}
