//! The fields of `--query`: one row per device, or one per process and device.

use crate::device::{self, Devices};
use crate::field::Field;
use crate::process::{self, DeviceUsage, Processes};
use crate::value::{Unit, Value};
use std::borrow::Cow;
use ttmem_core::snapshot::{Process, Usage};

/// The data of a line.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The device.
    pub device: device::Row<'a>,
    /// A process that uses the device, and its memory there if that is known.
    pub process: Option<(&'a Process, Option<&'a Usage>)>,
}

/// A field that scripts can request.
#[derive(Clone, Copy, Debug)]
pub enum QueryField {
    /// A field of a device.
    Device(&'static Field<Devices>),
    /// A field of a process.
    Process(&'static Field<Processes>),
    /// A field of the memory of a process on one device.
    DeviceUsage(&'static Field<DeviceUsage>),
}

impl QueryField {
    /// All fields.
    pub fn all() -> impl Iterator<Item = Self> {
        let devices = device::FIELDS.iter().filter(|it| it.queried).map(Self::Device);
        let processes = process::FIELDS.iter().filter(|it| it.queried).map(Self::Process);
        devices.chain(processes).chain(process::DEVICE_USAGE_FIELDS.iter().map(Self::DeviceUsage))
    }

    /// Name; that of a process's field begins with `process.`.
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Self::Device(field) => Cow::Borrowed(field.name),
            Self::Process(Field { name, .. }) | Self::DeviceUsage(Field { name, .. }) => {
                Cow::Owned(format!("process.{name}"))
            }
        }
    }

    /// Unit of its values.
    pub fn unit(self) -> Unit {
        match self {
            Self::Device(field) => field.unit,
            Self::Process(field) => field.unit,
            Self::DeviceUsage(field) => field.unit,
        }
    }

    /// Short description.
    pub fn help(self) -> &'static str {
        match self {
            Self::Device(field) => field.help,
            Self::Process(field) => field.help,
            Self::DeviceUsage(field) => field.help,
        }
    }

    /// Whether the field is about a process.
    pub fn is_of_process(self) -> bool {
        !matches!(self, Self::Device(_))
    }

    /// The value in a line.
    pub fn value<'r>(self, row: &'r Row<'_>) -> Value<'r> {
        match (self, &row.process) {
            (Self::Device(field), _) => (field.value)(&row.device),
            (Self::Process(field), Some((process, _))) => (field.value)(process),
            (Self::DeviceUsage(field), Some((_, Some(usage)))) => (field.value)(usage),
            (Self::Process(_) | Self::DeviceUsage(_), _) => Value::Unknown,
        }
    }
}
