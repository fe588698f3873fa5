//! The fields of `--query`: one row per device, or one per process and device.

use crate::column::Field;
use crate::device::{self, Devices};
use crate::process::{self, Held, Processes};
use crate::value::{Unit, Value};
use std::borrow::Cow;
use ttmem_core::snapshot::{Process, Usage};

/// What a line is about.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The device.
    pub device: device::Row<'a>,
    /// A process that uses it, and what that holds there if that is known.
    pub process: Option<(&'a Process, Option<&'a Usage>)>,
}

/// A field that scripts can ask for.
#[derive(Clone, Copy, Debug)]
pub enum Queried {
    /// Of a device.
    Device(&'static Field<Devices>),
    /// Of a process.
    Process(&'static Field<Processes>),
    /// Of what a process holds on a device.
    Held(&'static Field<Held>),
}

impl Queried {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let devices = device::FIELDS.iter().filter(|it| it.queried).map(Self::Device);
        let processes = process::FIELDS.iter().filter(|it| it.queried).map(Self::Process);
        devices.chain(processes).chain(process::HELD.iter().map(Self::Held))
    }

    /// Its name: that of a process begins with `process.`.
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Self::Device(field) => Cow::Borrowed(field.name),
            Self::Process(Field { name, .. }) | Self::Held(Field { name, .. }) => {
                Cow::Owned(format!("process.{name}"))
            }
        }
    }

    /// What it is measured in.
    pub fn unit(self) -> Unit {
        match self {
            Self::Device(field) => field.unit,
            Self::Process(field) => field.unit,
            Self::Held(field) => field.unit,
        }
    }

    /// What it is.
    pub fn help(self) -> &'static str {
        match self {
            Self::Device(field) => field.help,
            Self::Process(field) => field.help,
            Self::Held(field) => field.help,
        }
    }

    /// Whether it is about a process.
    pub fn is_of_process(self) -> bool {
        !matches!(self, Self::Device(_))
    }

    /// Its value in a line.
    pub fn value<'r>(self, row: &'r Row<'_>) -> Value<'r> {
        match (self, &row.process) {
            (Self::Device(field), _) => (field.value)(&row.device),
            (Self::Process(field), Some((process, _))) => (field.value)(process),
            (Self::Held(field), Some((_, Some(usage)))) => (field.value)(usage),
            (Self::Process(_) | Self::Held(_), _) => Value::Unknown,
        }
    }
}
