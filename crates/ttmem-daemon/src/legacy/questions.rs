//! Answers the questions of old clients.

use super::{ALLOCATIONS_LISTED, Connection, ConnectionStatus};
use crate::eventlog;
use crate::poller::Token;
use crate::server::Daemon;
use crate::socket::{Peer, send};
use std::os::fd::AsFd;
use ttmem_core::Viewer;
use ttmem_core::machine::Chip;
use ttmem_core::snapshot::Usage;
use ttmem_core::words::{Arch, Fault, Space};
use ttmem_reader::ProcessKey;
use ttmem_wire::framer::Frame;
use ttmem_wire::legacy::{DeviceInfo, Levels, MAX_SIZE, Message, Type, arch};

/// Bytes of answers that may wait for a client to read them.
const MAX_ANSWERS: usize = 256 << 10;
/// Bytes of reports that may wait for all clients together. Reports beyond that only count allocations.
const MAX_REPORTS: usize = 16 << 20;

impl Daemon {
    /// Answers a question. `has_more`: further bytes of this connection were read already.
    pub(super) fn handle_question(
        &mut self,
        number: u64,
        connection: &mut Connection,
        sender: Peer,
        frame: Frame,
        has_more: bool,
    ) {
        // Unread bytes of this connection may be of a process that has exited. It was alive when this was asked, since it sent
        // them later.
        let has_unread = !connection.processes.is_empty()
            && (has_more || rustix::io::ioctl_fionread(&connection.stream).is_ok_and(|held| held > 0));
        let spared: &[(Peer, ProcessKey)] = if has_unread { &connection.processes } else { &[] };
        self.reap(spared);
        match frame {
            Frame::Question(message, vintage) => {
                if connection.answers.len() >= MAX_ANSWERS {
                    // The client may have read some meanwhile.
                    self.send_answers(number, connection);
                }
                if connection.answers.len() < MAX_ANSWERS {
                    let mut bytes = [0; MAX_SIZE];
                    let answer = self.answer(&message);
                    connection.answers.extend_from_slice(answer.encode(vintage, &mut bytes));
                } else if !connection.warned_unread {
                    connection.warned_unread = true;
                    let why = Fault::UnreadAnswers;
                    self.output.warn(
                        why.text(),
                        format_args!("connection {number}, pid {}: {}", sender.pid, why.text()),
                    );
                    self.report_fault(connection, sender, why);
                }
            }
            Frame::Newline => {
                // Clients that request reports and do not read them must not fill the memory.
                let waiting: usize = self.connections.values().map(|it| it.answers.len()).sum();
                let listed = if waiting < MAX_REPORTS { ALLOCATIONS_LISTED } else { 0 };
                // Not by the sender of the newline, which may be a program that has the socket as its output.
                let viewer = self.viewers.of(connection.stream.as_fd(), connection.peer);
                let report = self.format_remaining(listed, viewer);
                connection.answers.extend_from_slice(report.as_bytes());
                connection.closing = Some(self.session.now());
            }
            Frame::Event(_) => {}
        }
    }

    /// Sends answers as far as the client takes them.
    pub(super) fn send_answers(&mut self, number: u64, connection: &mut Connection) -> ConnectionStatus {
        match send(&connection.stream, &mut connection.answers) {
            Ok(()) if connection.answers.is_empty() && connection.closing.is_some() => {
                ConnectionStatus::Closed
            }
            Ok(()) => {
                // A closing connection is not read any more.
                let wanted = (connection.closing.is_none(), !connection.answers.is_empty());
                if wanted != connection.waits_for {
                    connection.waits_for = wanted;
                    let (fd, token) = (connection.stream.as_fd(), Token::Legacy(number));
                    self.poller.modify(fd, token, wanted.0, wanted.1);
                }
                ConnectionStatus::Open
            }
            // The client does not read any more, but what it sends still counts.
            Err(_) => {
                connection.answers.clear();
                if connection.closing.is_some() { ConnectionStatus::Closed } else { ConnectionStatus::Open }
            }
        }
    }

    /// The report of everything that is allocated, as far as a viewer may see it, with `listed` single allocations of each device and space.
    pub(super) fn format_remaining(&self, listed: usize, viewer: Viewer) -> String {
        let spaces: Vec<Space> = Space::BUFFERS.into_iter().chain(Space::PROGRAM).collect();
        eventlog::format_remaining(self.session.state().report(&spaces, listed, viewer))
    }

    fn answer(&mut self, question: &Message) -> Message {
        let device = question.device_id;
        let chip = self.find_device(device);
        let answer = |kind| Message { device_id: device, ..Message::new(kind) };
        let levels = chip.map(|chip| levels(&self.session.usage_of(chip))).unwrap_or_default();
        if question.kind == Type::Query as u8 {
            return Message { levels, ..answer(Type::Response) };
        }
        let capacity = if device == -1 {
            let num_devices = self.devices.len() as u32;
            DeviceInfo { num_devices, is_available: u32::from(num_devices > 0), ..DeviceInfo::default() }
        } else {
            chip.and_then(|chip| self.session.state().chip(chip)).map(device_info).unwrap_or_default()
        };
        Message { levels, capacity, ..answer(Type::DeviceInfoResponse) }
    }
}

/// The levels of a device in the fields of the old messages: every space of the device is in exactly one of them.
///
/// Kernels are those loaded, as the old server counted them, whether they are active or not. All other fields add up to
/// what the device's spaces use.
pub fn levels(usage: &Usage) -> Levels {
    let mut levels = Levels::default();
    for space in Space::BUFFERS.into_iter().chain(Space::PROGRAM) {
        let field = match space {
            Space::Dram => &mut levels.dram,
            Space::Trace => &mut levels.trace,
            Space::L1 | Space::L1Core => &mut levels.l1,
            Space::L1Small => &mut levels.l1_small,
            Space::Cb | Space::Dfb | Space::Scratch => &mut levels.cb,
            Space::Kernel => &mut levels.kernel,
            // This is not memory of the device.
            Space::Host => continue,
        };
        let bytes = match space {
            Space::Kernel => usage.kernel.as_ref().map(|it| it.registered_bytes),
            _ => usage.used(space).map(|(bytes, _)| bytes),
        };
        *field = field.saturating_add(bytes.unwrap_or(0));
    }
    levels
}

fn device_info(chip: &Chip) -> DeviceInfo {
    let arch_type = match chip.arch {
        Some(Arch::WormholeB0) => arch::WORMHOLE_B0,
        Some(Arch::Blackhole) => arch::BLACKHOLE,
        None => arch::INVALID,
    };
    let available = DeviceInfo { arch_type, is_available: 1, ..DeviceInfo::default() };
    let Some(capacity) = chip.capacity else { return available };
    DeviceInfo {
        // Old clients multiply channels by their size, so the total must agree with that.
        total_dram_size: u64::from(capacity.dram_channels) * capacity.dram_bytes_per_channel,
        total_l1_size: capacity.l1_bytes,
        num_dram_channels: capacity.dram_channels,
        dram_size_per_channel: u32::try_from(capacity.dram_bytes_per_channel).unwrap_or(u32::MAX),
        l1_size_per_core: u32::try_from(capacity.l1_bytes_per_core).unwrap_or(u32::MAX),
        ..available
    }
}
