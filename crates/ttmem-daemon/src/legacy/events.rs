//! Applies and logs the events that old clients report.

use super::{ALLOCATIONS_LISTED, Connection};
use crate::eventlog::{self, Reported};
use crate::server::Daemon;
use crate::socket::Peer;
use ttmem_core::input::{Alloc, Extent, Free, Input};
use ttmem_core::machine::Chip;
use ttmem_core::words::{Basis, ChipId, Fault, KernelClass, Layout, Scope, Space, Uncertainty};
use ttmem_core::{Outcome, Viewer};
use ttmem_reader::ProcessKey;
use ttmem_types::BufferType;
use ttmem_wire::legacy::{Message, Type};

/// Device numbers that clients may use where the machine's chips are unknown.
const UNKNOWN_DEVICES: i32 = 1024;
/// Largest allocation that the old server accepted: no device has more.
const MAX_ALLOCATION: u64 = 100 << 30;

impl Daemon {
    /// Applies a message, and logs its outcome.
    pub(super) fn handle_event(
        &mut self,
        number: u64,
        connection: &mut Connection,
        sender: Peer,
        message: &Message,
    ) {
        let Some(kind) = Type::from_byte(message.kind) else { return };
        match kind {
            Type::DumpRemaining | Type::DumpKernels if !self.output.is_logging() => return,
            Type::DumpRemaining => {
                self.reap(&[]);
                let report = self.format_remaining(ALLOCATIONS_LISTED, Viewer::ALL);
                self.output.log(&report);
                return;
            }
            Type::DumpKernels => {
                self.reap(&[]);
                let groups = self.session.state().report(&[Space::Kernel], ALLOCATIONS_LISTED, Viewer::ALL);
                self.output.log(&eventlog::format_kernels(groups));
                return;
            }
            _ => {}
        }
        let process = self.find_or_register_sender(connection, sender, message);
        let outcome = match self.translate(process, kind, message) {
            Ok(event) => self.session.apply(process, Basis::Reported, event),
            Err(why) => self.session.apply(process, Basis::Reported, Input::Fault(why.into())),
        };
        if let Outcome::Refused(why) = outcome {
            self.output.warn(
                why.text(),
                format_args!("connection {number}, pid {}: {}", sender.pid, refusal(kind, message, why)),
            );
        }
        self.report_event(process, kind, message, outcome);
    }

    /// Logs what a message did, and queues it for connections that follow events.
    fn report_event(&mut self, process: ProcessKey, kind: Type, message: &Message, outcome: Outcome) {
        let Some(process) = self.session.processes().get(process).map(|it| it.id) else { return };
        let owner = self.session.state().process(process).and_then(|info| info.uid);
        let at = self.subscriptions.wall_time(self.session.now());
        let changes_programs =
            matches!(kind, Type::CbAlloc | Type::CbFree | Type::KernelLoad | Type::KernelUnload);
        let needs_level = self.output.is_logging() || self.subscriptions.need_levels();
        let level = self
            .find_device(message.device_id)
            .filter(|_| changes_programs && needs_level)
            .and_then(|chip| self.session.state().program_level(chip));
        let reported = Reported { at, process, owner, kind, message: *message, outcome, level };
        if self.output.is_logging() {
            let mut line = std::mem::take(&mut self.line);
            line.clear();
            eventlog::write_line(&reported, &mut line);
            self.output.log(&line);
            self.line = line;
        }
        self.subscriptions.report(&reported, self.session.state(), &mut self.output);
    }

    /// Translates a message.
    fn translate(&mut self, process: ProcessKey, kind: Type, message: &Message) -> Result<Input, Fault> {
        let id = message.buffer_id;
        let allocates = matches!(kind, Type::Alloc | Type::CbAlloc | Type::KernelLoad);
        if allocates && message.size == 0 {
            return Err(Fault::ZeroSize);
        }
        if allocates && message.size > MAX_ALLOCATION {
            return Err(Fault::TooLarge);
        }
        let scope = Scope::Chip(self.find_or_add_device(process, message.device_id, allocates)?);
        let alloc = |space, class| {
            Input::Alloc(Alloc {
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
        let free = |space, size| Input::Free(Free { scope, space, id, program: 0, size, cores: 0 });
        match kind {
            Type::Alloc => {
                let kind = BufferType::from_number(message.buffer_type).ok_or(Fault::WrongSpace)?;
                Ok(alloc(kind.space(), KernelClass::Unknown))
            }
            Type::Free => Ok(free(None, None)),
            Type::CbAlloc => Ok(on_cores(alloc(Space::Cb, KernelClass::Unknown), message)),
            Type::CbFree => Ok(free(Some(Space::Cb), Some(message.size))),
            Type::KernelLoad => Ok(alloc(Space::Kernel, eventlog::kernel_class(message.buffer_type))),
            Type::KernelUnload => Ok(free(Some(Space::Kernel), Some(message.size))),
            _ => Err(Fault::WrongDirection),
        }
    }

    /// The chip with the number that a client uses.
    pub(super) fn find_device(&self, id: i32) -> Option<ChipId> {
        let index = u32::try_from(id).ok()?;
        self.devices.get(&index).copied()
    }

    /// The chip with the number that a client uses. Where the machine's chips are unknown, it is added if `add` is set.
    fn find_or_add_device(&mut self, process: ProcessKey, id: i32, add: bool) -> Result<ChipId, Fault> {
        if let Some(chip) = self.find_device(id) {
            return Ok(chip);
        }
        if self.chips_known || !(0..UNKNOWN_DEVICES).contains(&id) {
            return Err(Fault::UnknownChip);
        }
        let chip = Chip::unknown(id as u32);
        let key = chip.id;
        if add {
            if let Outcome::Refused(why) = self.session.name_chip(process, Basis::Reported, chip) {
                return Err(why);
            }
            self.handle_changes();
        }
        Ok(key)
    }
}

/// Adds the number of cores of a circular buffer, which ttmem's own client sends; old clients send 0.
fn on_cores(input: Input, message: &Message) -> Input {
    match (input, message.buffer_type) {
        (Input::Alloc(alloc), cores @ 1..) => {
            let (bytes_per_bank, banks) = (message.size, u16::from(cores));
            let occupied = bytes_per_bank.saturating_mul(u64::from(banks));
            Input::Alloc(Alloc { extent: Some(Extent { occupied, bytes_per_bank, banks }), ..alloc })
        }
        (input, _) => input,
    }
}

/// The warning about a message that was refused.
fn refusal(kind: Type, message: &Message, why: Fault) -> String {
    let what = match why {
        Fault::ZeroSize | Fault::TooLarge => format!("Invalid size {}", message.size),
        Fault::UnknownChip => format!("Invalid device_id {}", message.device_id),
        Fault::WrongSpace => format!("Invalid buffer_type {}", message.buffer_type),
        _ => format!("message {} on device {}", message.kind, message.device_id),
    };
    format!("{kind:?} refused: {what}: {}", why.text())
}
