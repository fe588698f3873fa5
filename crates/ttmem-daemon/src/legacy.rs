//! One connection of an old client: bytes in, events and answers out.

use crate::eventlog;
use crate::server::Daemon;
use crate::socket::{self, Peer};
use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use ttmem_core::event::{Alloc, Event, Free};
use ttmem_core::machine::Chip;
use ttmem_core::words::{Basis, ChipId, Fault, KernelClass, Layout, Mono, Scope, Space, Uncertainty};
use ttmem_core::{Outcome, State};
use ttmem_reader::ProcessKey;
use ttmem_sources::monotonic;
use ttmem_types::BufferType;
use ttmem_wire::framer::{Frame, Framer};
use ttmem_wire::legacy::{DeviceInfo, Levels, MAX_SIZE, Message, Type, arch};

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
/// How long one connection's turn may be, and how many bytes are taken in between two looks at the clock.
const TURN_NS: u64 = 5_000_000;
const SLICE: usize = 16 << 10;
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
    pub(crate) authors: Vec<(Peer, ProcessKey)>,
    deaf: bool,
    /// What was read but not taken in when the turn was over, and who sent it.
    backlog: Vec<u8>,
    backlog_sender: Peer,
    /// Questions met while the sockets of the dead were read: they are answered when that is done.
    deferred: VecDeque<Frame>,
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
            backlog: Vec::new(),
            backlog_sender: peer,
            deferred: VecDeque::new(),
        }
    }
}

impl Connection {
    /// The process that was heard with these credentials.
    fn author(&self, sender: Peer) -> Option<ProcessKey> {
        self.authors.iter().find(|(peer, _)| *peer == sender).map(|&(_, author)| author)
    }
}

/// What became of a connection.
#[derive(PartialEq, Eq)]
pub(crate) enum Turn {
    Open,
    Closed,
}

impl Daemon {
    /// Reads what a connection has to say, for as long as a turn is. Returns whether it is still there.
    pub(crate) fn read_legacy(&mut self, number: u64) -> Turn {
        let Some(mut connection) = self.connections.remove(&number) else { return Turn::Closed };
        let mut buffer = std::mem::take(&mut self.buffer);
        if buffer.is_empty() {
            // A death noticed in the middle of one connection's turn drains others.
            buffer = vec![0; BUFFER];
        }
        let turn = self.read_turn(number, &mut connection, &mut buffer);
        self.buffer = buffer;
        if turn == Turn::Closed {
            self.forget_connection(&connection);
        } else {
            self.connections.insert(number, connection);
        }
        turn
    }

    fn read_turn(&mut self, number: u64, connection: &mut Connection, buffer: &mut [u8]) -> Turn {
        // What the dead left is read to the end; it is little, and their questions wait.
        let until = if self.draining { Mono(u64::MAX) } else { Mono(monotonic().0 + TURN_NS) };
        while let Some(frame) = connection.deferred.front().copied().filter(|_| !self.draining) {
            connection.deferred.pop_front();
            let peer = connection.peer;
            self.take_question(number, connection, peer, frame, true);
            if monotonic() > until {
                self.unfinished.insert(number);
                return self.send_answers(number, connection);
            }
        }
        let backlog = std::mem::take(&mut connection.backlog);
        let mut taken = self.take_in(number, connection, connection.backlog_sender, &backlog, until);
        for _ in 0..READS_A_TURN {
            if taken != Ok(true) {
                return self.settle_turn(number, connection, taken);
            }
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
            // The peer itself connected; a child of its may have died, and its pid gone to another.
            if sender != connection.peer
                && let Some(author) = connection.author(sender)
                && self.session.processes().is_pid_reused(author)
            {
                self.end_process(author);
            }
            taken = self.take_in(number, connection, sender, &buffer[..len], until);
            if len < buffer.len() {
                break;
            }
        }
        if taken != Ok(true) {
            return self.settle_turn(number, connection, taken);
        }
        let pause = if connection.framer.is_newline() { NEWLINE_PAUSE } else { QUESTION_PAUSE };
        let pause = connection.framer.waits_for_pause().then_some(pause);
        connection.pause_at = pause.map(|pause| Mono(self.session.now().0 + pause.as_nanos() as u64));
        if let Some(at) = connection.pause_at {
            self.pauses.push((at, number));
        }
        self.send_answers(number, connection)
    }

    /// The turn is over with something left, or with the stream lost.
    fn settle_turn(&mut self, number: u64, connection: &mut Connection, taken: Result<bool, Peer>) -> Turn {
        // What was asked before is owed in any case.
        let turn = self.send_answers(number, connection);
        let Err(sender) = taken else { return turn };
        self.blame(connection, sender, Fault::BrokenStream);
        Turn::Closed
    }

    /// Takes bytes in, message by message. Whether all were: what is left when time is up waits for the next turn. A
    /// stream that is lost is an error, with who sent the byte that lost it.
    fn take_in(
        &mut self,
        number: u64,
        connection: &mut Connection,
        sender: Peer,
        bytes: &[u8],
        until: Mono,
    ) -> Result<bool, Peer> {
        let mut rest = bytes;
        loop {
            // In slices, to look at the clock in between.
            let slice = &rest[..rest.len().min(SLICE)];
            let mut question = None;
            let mut framer = std::mem::take(&mut connection.framer);
            let fed = framer.feed(slice, |frame| {
                self.messages += 1;
                if let Frame::Event(message) = frame {
                    self.take_event(number, connection, sender, &message);
                    return ControlFlow::Continue(());
                }
                question = Some(frame);
                ControlFlow::Break(())
            });
            connection.framer = framer;
            match fed {
                Ok(taken) => rest = &rest[taken..],
                Err(e) => {
                    self.warn_of_stream(number, sender, &e);
                    return Err(sender);
                }
            }
            match question {
                Some(frame) if self.draining => {
                    connection.deferred.push_back(frame);
                    self.unfinished.insert(number);
                }
                Some(frame) => self.take_question(number, connection, sender, frame, !rest.is_empty()),
                None if rest.is_empty() => return Ok(true),
                None => {}
            }
            if monotonic() > until {
                connection.backlog = rest.to_vec();
                connection.backlog_sender = sender;
                self.unfinished.insert(number);
                return Ok(false);
            }
        }
    }

    /// Reads what a process sent before it died: what its socket holds now. A child that goes on speaking on the same
    /// socket does not hold this up.
    pub(crate) fn drain(&mut self, number: u64) {
        let Some(connection) = self.connections.get(&number) else { return };
        let held = rustix::io::ioctl_fionread(&connection.stream).unwrap_or(0);
        let until = self.bytes_read + held;
        // Once in any case: bytes that were read before may wait for a turn.
        loop {
            let before = self.bytes_read;
            let turn = self.read_legacy(number);
            if turn == Turn::Closed || self.bytes_read >= until || self.bytes_read == before {
                break;
            }
        }
    }

    /// The connection was quiet for as long as it asked to be watched, or takes answers again.
    pub(crate) fn wake(&mut self, number: u64) {
        let Some(mut connection) = self.connections.remove(&number) else { return };
        let due = connection.pause_at.is_some_and(|at| at <= self.session.now());
        if due {
            connection.pause_at = None;
            if let Some(frame) = connection.framer.pause() {
                let peer = connection.peer;
                self.messages += 1;
                self.take_question(number, &mut connection, peer, frame, false);
            }
        }
        if self.send_answers(number, &mut connection) == Turn::Closed {
            self.forget_connection(&connection);
        } else {
            self.connections.insert(number, connection);
        }
    }

    fn end_of_stream(&mut self, number: u64, connection: &mut Connection) -> Turn {
        if !connection.deferred.is_empty() {
            // The end comes again when these are answered.
            return Turn::Open;
        }
        let peer = connection.peer;
        if connection.closing.is_none() {
            match connection.framer.end() {
                Ok(Some(frame)) => self.take_question(number, connection, peer, frame, false),
                Ok(None) => {}
                Err(e) => {
                    self.warn_of_stream(number, peer, &e);
                    self.blame(connection, peer, Fault::BrokenStream);
                }
            }
        }
        // The peer may have closed only its sending half and wait for what it asked.
        connection.closing.get_or_insert(self.session.now());
        self.send_answers(number, connection)
    }

    fn warn_of_stream(&mut self, number: u64, sender: Peer, why: &dyn std::error::Error) {
        self.output.warn(
            "broken stream",
            format_args!("connection {number}, pid {}: {why}; connection closed", sender.pid),
        );
    }

    /// Makes a finding about who sent something, if it is tracked: a stray connection makes no process.
    fn blame(&mut self, connection: &Connection, sender: Peer, why: Fault) {
        if let Some(author) = connection.author(sender) {
            self.session.apply(author, Basis::Reported, Event::Fault(why.into()));
        }
    }

    /// Answers. `more` says that further bytes of this connection were read already.
    fn take_question(
        &mut self,
        number: u64,
        connection: &mut Connection,
        sender: Peer,
        frame: Frame,
        more: bool,
    ) {
        // Who died may still have last words on this very connection: then it is heard first. It lived when this was
        // asked, since it spoke after that.
        let unheard = !connection.authors.is_empty()
            && (more || rustix::io::ioctl_fionread(&connection.stream).is_ok_and(|held| held > 0));
        let spared: &[(Peer, ProcessKey)] = if unheard { &connection.authors } else { &[] };
        self.reap(spared);
        match frame {
            Frame::Question(message, vintage) => {
                if connection.answers.len() >= ANSWER_ROOM {
                    // It may well have read since.
                    self.send_answers(number, connection);
                }
                if connection.answers.len() < ANSWER_ROOM {
                    let mut bytes = [0; MAX_SIZE];
                    let answer = self.answer(&message);
                    connection.answers.extend_from_slice(answer.encode(vintage, &mut bytes));
                } else if !connection.deaf {
                    connection.deaf = true;
                    let why = Fault::UnreadAnswers;
                    self.output.warn(
                        why.text(),
                        format_args!("connection {number}, pid {}: {}", sender.pid, why.text()),
                    );
                    self.blame(connection, sender, why);
                }
            }
            Frame::Newline => {
                let report = self.remaining();
                connection.answers.extend_from_slice(report.as_bytes());
                connection.closing = Some(self.session.now());
            }
            Frame::Event(_) => {}
        }
    }

    fn take_event(&mut self, number: u64, connection: &mut Connection, sender: Peer, message: &Message) {
        let Some(kind) = Type::from_byte(message.kind) else { return };
        match kind {
            Type::DumpRemaining | Type::DumpKernels if !self.output.logs() => return,
            Type::DumpRemaining => {
                self.reap(&[]);
                let report = self.remaining();
                self.output.log(&report);
                return;
            }
            Type::DumpKernels => {
                self.reap(&[]);
                let groups = self.session.state().report(&[Space::Kernel], KERNELS_LISTED, true);
                self.output.log(&eventlog::kernels(&groups));
                return;
            }
            _ => {}
        }
        let author = self.author(connection, sender, message);
        let outcome = match self.translate(kind, message) {
            Ok(event) => self.session.apply(author, Basis::Reported, event),
            Err(why) => self.session.apply(author, Basis::Reported, Event::Fault(why.into())),
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
        self.device(device).map_or(0, |chip| self.session.state().recorded(chip, space))
    }

    fn remaining(&self) -> String {
        let spaces: Vec<Space> = Space::BUFFERS.into_iter().chain(Space::PROGRAM).collect();
        eventlog::remaining(&self.session.state().report(&spaces, BUFFERS_LISTED, false))
    }

    /// What a message means.
    fn translate(&mut self, kind: Type, message: &Message) -> Result<Event, Fault> {
        let id = message.buffer_id;
        let takes = matches!(kind, Type::Alloc | Type::CbAlloc | Type::KernelLoad);
        if takes && message.size == 0 {
            return Err(Fault::ZeroSize);
        }
        if takes && message.size > MAX_ALLOCATION {
            return Err(Fault::TooLarge);
        }
        let scope = Scope::Chip(self.device_or_new(message.device_id, takes)?);
        let alloc = |space, class| {
            Event::Alloc(Alloc {
                scope,
                space,
                id,
                requested: message.size,
                at: None,
                extent: None,
                cores: 0,
                program: 0,
                site: 0,
                layout: Layout::Unknown,
                class,
                uncertainty: Uncertainty::default(),
            })
        };
        let free = |space, size| Event::Free(Free { scope, space, id, program: 0, size, cores: 0 });
        match kind {
            Type::Alloc => {
                let kind = BufferType::from_number(message.buffer_type).ok_or(Fault::WrongSpace)?;
                Ok(alloc(kind.space(), KernelClass::Unknown))
            }
            Type::Free => Ok(free(None, None)),
            Type::CbAlloc => Ok(alloc(Space::Cb, KernelClass::Unknown)),
            Type::CbFree => Ok(free(Some(Space::Cb), Some(message.size))),
            Type::KernelLoad => Ok(alloc(Space::Kernel, eventlog::kernel_class(message.buffer_type))),
            Type::KernelUnload => Ok(free(Some(Space::Kernel), Some(message.size))),
            _ => Err(Fault::WrongDirection),
        }
    }

    /// The chip a client means.
    fn device(&self, id: i32) -> Option<ChipId> {
        let index = u32::try_from(id).ok()?;
        self.devices.get(&index).copied()
    }

    /// The same; where the machine's chips are not known, a client's word makes one.
    fn device_or_new(&mut self, id: i32, make: bool) -> Result<ChipId, Fault> {
        if let Some(chip) = self.device(id) {
            return Ok(chip);
        }
        if self.chips_known || !(0..UNKNOWN_DEVICES).contains(&id) {
            return Err(Fault::UnknownChip);
        }
        let chip = Chip::unknown(id as u32);
        let key = chip.id;
        if make {
            self.session.apply_machine(Event::Chip(chip));
            self.follow_changes();
        }
        Ok(key)
    }

    fn answer(&self, question: &Message) -> Message {
        let device = question.device_id;
        let chip = self.device(device);
        let answer = |kind| Message { device_id: device, ..Message::new(kind) };
        if question.kind == Type::Query as u8 {
            let levels = chip.map(|chip| levels(self.session.state(), chip)).unwrap_or_default();
            return Message { levels, ..answer(Type::Response) };
        }
        let capacity = if device == -1 {
            let num_devices = self.devices.len() as u32;
            DeviceInfo { num_devices, is_available: u32::from(num_devices > 0), ..DeviceInfo::default() }
        } else {
            chip.and_then(|chip| self.session.state().chip(chip)).map(device_info).unwrap_or_default()
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

fn refusal(kind: Type, message: &Message, why: Fault) -> String {
    let what = match why {
        Fault::ZeroSize | Fault::TooLarge => format!("Invalid size {}", message.size),
        Fault::UnknownChip => format!("Invalid device_id {}", message.device_id),
        Fault::WrongSpace => format!("Invalid buffer_type {}", message.buffer_type),
        _ => format!("message {} on device {}", message.kind, message.device_id),
    };
    format!("{kind:?} refused: {what}: {}", why.text())
}
