//! Applies and logs the events that old clients report.

use super::Connection;
use crate::eventlog;
use crate::server::Daemon;
use crate::socket::Peer;
use ttmem_core::Outcome;
use ttmem_core::input::{Alloc, Free, Input};
use ttmem_core::machine::Chip;
use ttmem_core::words::{Basis, ChipId, Fault, KernelClass, Layout, Scope, Space, Uncertainty};
use ttmem_types::BufferType;
use ttmem_wire::legacy::{Message, Type};

/// Device numbers that clients may use where the machine's chips are unknown.
const UNKNOWN_DEVICES: i32 = 1024;
/// Largest allocation that the old server accepted: no device has more.
const MAX_ALLOCATION: u64 = 100 << 30;
/// Kernels that a dump lists.
const KERNELS_LISTED: u64 = 1000;

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
                let report = self.remaining();
                self.output.log(&report);
                return;
            }
            Type::DumpKernels => {
                self.reap(&[]);
                let groups = self.session.state().report(&[Space::Kernel], KERNELS_LISTED, true);
                self.output.log(&eventlog::format_kernels(&groups));
                return;
            }
            _ => {}
        }
        let process = self.find_or_register_sender(connection, sender, message);
        let outcome = match self.translate(kind, message) {
            Ok(event) => self.session.apply(process, Basis::Reported, event),
            Err(why) => self.session.apply(process, Basis::Reported, Input::Fault(why.into())),
        };
        if let Outcome::Refused(why) = outcome {
            self.output.warn(
                why.text(),
                format_args!("connection {number}, pid {}: {}", sender.pid, refusal(kind, message, why)),
            );
        } else if self.output.is_logging() {
            let pid = if sender.pid == 0 { i64::from(message.process_id) } else { i64::from(sender.pid) };
            let recorded = match kind {
                Type::CbAlloc | Type::CbFree => self.recorded(message.device_id, Space::Cb),
                Type::KernelLoad | Type::KernelUnload => self.recorded(message.device_id, Space::Kernel),
                _ => 0,
            };
            let mut line = std::mem::take(&mut self.line);
            line.clear();
            eventlog::write_line(message, pid, outcome, recorded, &mut line);
            self.output.log(&line);
            self.line = line;
        }
    }

    fn recorded(&self, device: i32, space: Space) -> u64 {
        self.find_device(device).map_or(0, |chip| self.session.state().recorded(chip, space))
    }

    /// Translates a message.
    fn translate(&mut self, kind: Type, message: &Message) -> Result<Input, Fault> {
        let id = message.buffer_id;
        let allocates = matches!(kind, Type::Alloc | Type::CbAlloc | Type::KernelLoad);
        if allocates && message.size == 0 {
            return Err(Fault::ZeroSize);
        }
        if allocates && message.size > MAX_ALLOCATION {
            return Err(Fault::TooLarge);
        }
        let scope = Scope::Chip(self.find_or_add_device(message.device_id, allocates)?);
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
            Type::CbAlloc => Ok(alloc(Space::Cb, KernelClass::Unknown)),
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
    fn find_or_add_device(&mut self, id: i32, add: bool) -> Result<ChipId, Fault> {
        if let Some(chip) = self.find_device(id) {
            return Ok(chip);
        }
        if self.chips_known || !(0..UNKNOWN_DEVICES).contains(&id) {
            return Err(Fault::UnknownChip);
        }
        let chip = Chip::unknown(id as u32);
        let key = chip.id;
        if add {
            self.session.apply_machine(Input::Chip(chip));
            self.handle_changes();
        }
        Ok(key)
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
