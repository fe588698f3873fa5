//! One connection of an old client: bytes in, events and answers out.

use crate::eventlog;
use crate::server::{Daemon, monotonic};
use crate::socket::{self, Peer};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use ttmem_core::event::{Alloc, Chip, Event, Free, Refusal};
use ttmem_core::words::{ChipId, KernelClass, Mono, Scope, Space};
use ttmem_core::{Outcome, State};
use ttmem_wire::framer::{Frame, Framer};
use ttmem_wire::legacy::{DeviceInfo, Levels, MAX_SIZE, Message, Type, arch, buffer_type};

/// How long a first question may lack what would tell its size before what is there is taken as whole.
const QUESTION_PAUSE: Duration = Duration::from_millis(50);
/// How long a lone newline waits: a person's dump can, and a kernel load's next bytes come sooner.
const NEWLINE_PAUSE: Duration = Duration::from_millis(200);
/// Answers that may wait for a client to read them.
const ANSWER_ROOM: usize = 256 << 10;
/// Bytes read at a time.
const BUFFER: usize = 256 << 10;
/// Reads of one connection before the others get their turn.
const READS_A_TURN: usize = 4;
/// A turn longer than this makes the connection's next ones shorter.
const LONG_TURN_NS: u64 = 5_000_000;
/// Devices clients may name where the machine's chips are not known.
const UNKNOWN_DEVICES: i32 = 1024;
/// The old server's bound on one allocation: no device has more.
const MAX_ALLOCATION: u64 = 100 << 30;

/// A connection.
pub(crate) struct Connection {
    pub(crate) stream: UnixStream,
    pub(crate) peer: Peer,
    framer: Framer,
    pub(crate) answers: Vec<u8>,
    /// Whether the loop waits for something to read, and for room to write.
    pub(crate) waits_for: (bool, bool),
    /// Since when it is to be closed as soon as all answers are out.
    pub(crate) closing: Option<Mono>,
    /// When the framer is to be told of a pause.
    pub(crate) pause_at: Option<Mono>,
    /// Processes heard on it, with the pid they had: mostly one, more after a fork.
    pub(crate) authors: Vec<(Peer, u64)>,
    deaf: bool,
    /// How many bytes to read at a time: less for one whose messages take long, so that others wait less.
    reach: usize,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream, peer: Peer) -> Self {
        Self {
            stream,
            peer,
            framer: Framer::default(),
            answers: Vec::new(),
            waits_for: (true, false),
            closing: None,
            pause_at: None,
            authors: Vec::new(),
            deaf: false,
            reach: BUFFER,
        }
    }
}

/// What became of a connection.
#[derive(PartialEq, Eq)]
pub(crate) enum Turn {
    Open,
    Closed,
}

impl Daemon {
    /// Reads what a connection has to say. Returns whether it is still there.
    pub(crate) fn read_legacy(&mut self, number: u64) -> Turn {
        let Some(mut connection) = self.connections.remove(&number) else { return Turn::Closed };
        let mut buffer = std::mem::take(&mut self.buffer);
        if buffer.is_empty() {
            // A death noticed in the middle of one connection's turn drains others.
            buffer = vec![0; BUFFER];
        }
        let begin = monotonic();
        let reach = connection.reach;
        let turn = self.read_turn(number, &mut connection, &mut buffer[..reach]);
        let long = monotonic().since(begin) > LONG_TURN_NS;
        connection.reach = if long { (reach / 8).max(MAX_SIZE) } else { (reach * 2).min(BUFFER) };
        self.buffer = buffer;
        if turn == Turn::Closed {
            self.forget_connection(&connection);
        } else {
            self.connections.insert(number, connection);
        }
        turn
    }

    fn read_turn(&mut self, number: u64, connection: &mut Connection, buffer: &mut [u8]) -> Turn {
        for _ in 0..READS_A_TURN {
            let (len, sender) = match socket::receive(connection.stream.as_fd(), buffer) {
                Ok(received) => received,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => (0, None),
            };
            let sender = sender.unwrap_or(connection.peer);
            if len == 0 {
                return self.end_of_stream(number, connection);
            }
            self.bytes_read += len as u64;
            if connection.closing.is_some() {
                continue;
            }
            if let Some(&(_, author)) = connection.authors.iter().find(|(peer, _)| *peer == sender)
                && self.is_reused(author)
            {
                self.end_process(author);
            }
            let mut framer = std::mem::take(&mut connection.framer);
            let fed = framer.feed(&buffer[..len], |frame| self.take(number, connection, sender, frame));
            connection.framer = framer;
            if let Err(e) = fed {
                self.refuse_stream(number, connection, sender, &e);
                // What was asked before is still owed.
                self.send_answers(number, connection);
                return Turn::Closed;
            }
            if len < buffer.len() {
                break;
            }
        }
        let pause = if connection.framer.is_newline() { NEWLINE_PAUSE } else { QUESTION_PAUSE };
        let pause = connection.framer.waits_for_pause().then_some(pause);
        connection.pause_at = pause.map(|pause| Mono(self.now.0 + pause.as_nanos() as u64));
        if let Some(at) = connection.pause_at {
            self.pauses.push((at, number));
        }
        self.send_answers(number, connection)
    }

    /// Reads what a process sent before it died: what its socket holds now. A child that goes on speaking on the same
    /// socket does not hold this up.
    pub(crate) fn drain(&mut self, number: u64) {
        let Some(connection) = self.connections.get(&number) else { return };
        let held = rustix::io::ioctl_fionread(&connection.stream).unwrap_or(0);
        let until = self.bytes_read + held;
        while self.bytes_read < until {
            let before = self.bytes_read;
            if self.read_legacy(number) == Turn::Closed || self.bytes_read == before {
                break;
            }
        }
    }

    /// The connection was quiet for as long as it asked to be watched, or takes answers again.
    pub(crate) fn wake(&mut self, number: u64) {
        let Some(mut connection) = self.connections.remove(&number) else { return };
        let due = connection.pause_at.is_some_and(|at| at <= self.now);
        if due {
            connection.pause_at = None;
            if let Some(frame) = connection.framer.pause() {
                let peer = connection.peer;
                self.take(number, &mut connection, peer, frame);
            }
        }
        if self.send_answers(number, &mut connection) == Turn::Closed {
            self.forget_connection(&connection);
        } else {
            self.connections.insert(number, connection);
        }
    }

    fn end_of_stream(&mut self, number: u64, connection: &mut Connection) -> Turn {
        let peer = connection.peer;
        if connection.closing.is_none() {
            match connection.framer.end() {
                Ok(Some(frame)) => self.take(number, connection, peer, frame),
                Ok(None) => {}
                Err(e) => self.refuse_stream(number, connection, peer, &e),
            }
        }
        // The peer may have closed only its sending half and wait for what it asked.
        connection.closing.get_or_insert(self.now);
        self.send_answers(number, connection)
    }

    fn refuse_stream(
        &mut self,
        number: u64,
        connection: &mut Connection,
        sender: Peer,
        why: &dyn std::error::Error,
    ) {
        self.output.warn(
            "broken stream",
            format_args!("connection {number}, pid {}: {why}; connection closed", sender.pid),
        );
        // Blame a process only if it is tracked; a stray connection makes no process.
        if let Some(&(_, author)) = connection.authors.iter().find(|(peer, _)| *peer == sender) {
            self.apply(author, Event::Refused(Refusal::BrokenStream));
        }
    }

    fn take(&mut self, number: u64, connection: &mut Connection, sender: Peer, frame: Frame) {
        self.messages += 1;
        match frame {
            Frame::Event(message) => self.take_event(number, connection, sender, &message),
            Frame::Question(message, vintage) => {
                self.reap();
                let answer = self.answer(&message);
                if connection.answers.len() >= ANSWER_ROOM {
                    // It may well have read since.
                    self.send_answers(number, connection);
                }
                if connection.answers.len() >= ANSWER_ROOM {
                    if !connection.deaf {
                        connection.deaf = true;
                        self.output.warn(
                            Refusal::UnreadAnswers.text(),
                            format_args!(
                                "connection {number}, pid {}: {}",
                                sender.pid,
                                Refusal::UnreadAnswers.text()
                            ),
                        );
                        if let Some(&(_, author)) = connection.authors.first() {
                            self.apply(author, Event::Refused(Refusal::UnreadAnswers));
                        }
                    }
                    return;
                }
                let mut bytes = [0; MAX_SIZE];
                connection.answers.extend_from_slice(answer.encode(vintage, &mut bytes));
            }
            Frame::Newline => {
                self.reap();
                let report = self.remaining();
                connection.answers.extend_from_slice(report.as_bytes());
                connection.closing = Some(self.now);
            }
        }
    }

    fn take_event(&mut self, number: u64, connection: &mut Connection, sender: Peer, message: &Message) {
        let Some(kind) = Type::from_byte(message.kind) else { return };
        match kind {
            Type::DumpRemaining | Type::DumpKernels if !self.output.logs() => return,
            Type::DumpRemaining => {
                self.reap();
                let report = self.remaining();
                self.output.log(&report);
                return;
            }
            Type::DumpKernels => {
                self.reap();
                let groups = self.state.report(&[Space::Kernel], KERNELS_LISTED, true);
                self.output.log(&eventlog::kernels(&groups));
                return;
            }
            _ => {}
        }
        let author = self.author(number, connection, sender, message);
        let outcome = match self.translate(kind, message) {
            Ok(event) => self.apply(author, event),
            Err(why) => self.apply(author, Event::Refused(why)),
        };
        if let Outcome::Refused(why) = outcome {
            self.output.warn(
                why.text(),
                format_args!("connection {number}, pid {}: {}", sender.pid, refusal(kind, message, why)),
            );
        } else if self.output.logs() {
            let pid = if sender.pid == 0 { i64::from(message.process_id) } else { i64::from(sender.pid) };
            let recorded = match kind {
                Type::CbAlloc | Type::CbFree => self.recorded(message.device_id, Space::Cb),
                Type::KernelLoad | Type::KernelUnload => self.recorded(message.device_id, Space::Kernel),
                _ => 0,
            };
            let mut line = std::mem::take(&mut self.line);
            line.clear();
            eventlog::line(message, pid, outcome, recorded, &mut line);
            self.output.log(&line);
            self.line = line;
        }
    }

    fn recorded(&self, device: i32, space: Space) -> u64 {
        self.device(device).map_or(0, |chip| self.state.recorded(chip, space))
    }

    pub(crate) fn remaining(&self) -> String {
        let spaces: Vec<Space> = Space::BUFFERS.into_iter().chain(Space::PROGRAM).collect();
        eventlog::remaining(&self.state.report(&spaces, BUFFERS_LISTED, false))
    }

    /// What a message means.
    fn translate(&mut self, kind: Type, message: &Message) -> Result<Event, Refusal> {
        let id = message.buffer_id;
        let takes = matches!(kind, Type::Alloc | Type::CbAlloc | Type::KernelLoad);
        if takes && message.size == 0 {
            return Err(Refusal::ZeroSize);
        }
        if takes && message.size > MAX_ALLOCATION {
            return Err(Refusal::TooLarge);
        }
        let scope = Scope::Chip(self.device_or_new(message.device_id, takes)?);
        let alloc = |space, class| {
            Event::Alloc(Alloc {
                scope,
                space,
                id,
                requested: message.size,
                extent: None,
                cores: 0,
                program: 0,
                site: 0,
                class,
            })
        };
        let free = |space, size| Event::Free(Free { scope, space, id, program: 0, size });
        match kind {
            Type::Alloc => {
                let space = match message.buffer_type {
                    buffer_type::DRAM => Space::Dram,
                    buffer_type::L1 => Space::L1,
                    buffer_type::SYSTEM_MEMORY => Space::Host,
                    buffer_type::L1_SMALL => Space::L1Small,
                    buffer_type::TRACE => Space::Trace,
                    _ => return Err(Refusal::UnknownSpace),
                };
                Ok(alloc(space, KernelClass::Unknown))
            }
            Type::Free => Ok(free(None, None)),
            Type::CbAlloc => Ok(alloc(Space::Cb, KernelClass::Unknown)),
            Type::CbFree => Ok(free(Some(Space::Cb), Some(message.size))),
            Type::KernelLoad => Ok(alloc(Space::Kernel, eventlog::kernel_class(message.buffer_type))),
            Type::KernelUnload => Ok(free(Some(Space::Kernel), Some(message.size))),
            _ => Err(Refusal::WrongDirection),
        }
    }

    /// The chip a client means.
    fn device(&self, id: i32) -> Option<ChipId> {
        let index = u32::try_from(id).ok()?;
        self.devices.get(&index).copied()
    }

    /// The same; where the machine's chips are not known, a client's word makes one.
    fn device_or_new(&mut self, id: i32, make: bool) -> Result<ChipId, Refusal> {
        if let Some(chip) = self.device(id) {
            return Ok(chip);
        }
        if self.chips_known || !(0..UNKNOWN_DEVICES).contains(&id) {
            return Err(Refusal::UnknownDevice);
        }
        let chip = Chip::unknown(id as u32);
        let key = chip.id;
        if make {
            self.define_chip(chip);
        }
        Ok(key)
    }

    fn answer(&self, question: &Message) -> Message {
        let device = question.device_id;
        let chip = self.device(device);
        let answer = |kind| Message { device_id: device, ..Message::new(kind) };
        if question.kind == Type::Query as u8 {
            let levels = chip.map(|chip| levels(&self.state, chip)).unwrap_or_default();
            return Message { levels, ..answer(Type::Response) };
        }
        let capacity = if device == -1 {
            let num_devices = self.devices.len() as u32;
            DeviceInfo { num_devices, is_available: u32::from(num_devices > 0), ..DeviceInfo::default() }
        } else {
            chip.and_then(|chip| self.state.chip(chip)).map(device_info).unwrap_or_default()
        };
        Message { capacity, ..answer(Type::DeviceInfoResponse) }
    }
}

/// Individual lines in a dump, at most this many of one kind.
const BUFFERS_LISTED: u64 = 10;
const KERNELS_LISTED: u64 = 1000;

fn levels(state: &State, chip: ChipId) -> Levels {
    let usage = state.usage_of(chip);
    let used = |space| usage.used(space).map_or(0, |(bytes, _)| bytes);
    Levels {
        dram: used(Space::Dram),
        l1: used(Space::L1),
        l1_small: used(Space::L1Small),
        trace: used(Space::Trace),
        cb: used(Space::Cb),
        kernel: used(Space::Kernel),
    }
}

fn device_info(chip: &Chip) -> DeviceInfo {
    use ttmem_core::words::Arch;
    let arch_type = match chip.arch {
        Some(Arch::WormholeB0) => arch::WORMHOLE_B0,
        Some(Arch::Blackhole) => arch::BLACKHOLE,
        None => arch::INVALID,
    };
    let available = DeviceInfo { arch_type, is_available: 1, ..DeviceInfo::default() };
    let Some(capacity) = chip.capacity else { return available };
    DeviceInfo {
        // Old clients multiply channels by their size, so the total has to agree with that.
        total_dram_size: u64::from(capacity.dram_channels) * capacity.dram_bytes_per_channel,
        total_l1_size: capacity.l1_bytes,
        num_dram_channels: capacity.dram_channels,
        dram_size_per_channel: u32::try_from(capacity.dram_bytes_per_channel).unwrap_or(u32::MAX),
        l1_size_per_core: u32::try_from(capacity.l1_bytes_per_core).unwrap_or(u32::MAX),
        ..available
    }
}

fn refusal(kind: Type, message: &Message, why: Refusal) -> String {
    let what = match why {
        Refusal::ZeroSize | Refusal::TooLarge => format!("Invalid size {}", message.size),
        Refusal::UnknownDevice => format!("Invalid device_id {}", message.device_id),
        Refusal::UnknownSpace => format!("Invalid buffer_type {}", message.buffer_type),
        _ => format!("message {} on device {}", message.kind, message.device_id),
    };
    format!("{kind:?} refused: {what}: {}", why.text())
}
