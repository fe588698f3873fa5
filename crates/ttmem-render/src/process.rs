//! The fields and tables of processes, and of their memory on one device.

use crate::column::{Column, Format};
use crate::field::{Field, RowKind, find_field};
use crate::value::{Unit, Value};
use std::borrow::Cow;
use ttmem_core::snapshot::{Device, Process, Total, Tracking, Usage};
use ttmem_core::words::{Basis, Space};

/// Rows of processes.
#[derive(Debug)]
pub enum Processes {}

impl RowKind for Processes {
    type Row<'a> = &'a Process;
}

const fn text(
    name: &'static str,
    help: &'static str,
    value: for<'r> fn(&'r &Process) -> Value<'r>,
) -> Field<Processes> {
    Field::<Processes>::new(name, Unit::None, help, value)
}

const fn bytes(
    name: &'static str,
    help: &'static str,
    value: for<'r> fn(&'r &Process) -> Value<'r>,
) -> Field<Processes> {
    Field::<Processes>::new(name, Unit::Bytes, help, value)
}

/// The fields of a process.
pub static FIELDS: &[Field<Processes>] = &[
    text("pid", "process id", |it| Value::pid(it.pid, it.reported_pid)).queried(),
    text("name", "process name", |it| Value::text(it.name.as_deref())).queried(),
    text("command", "command line", |it| Value::text(it.command.as_deref())).queried(),
    text("user", "user", |it| Value::text(it.user.as_deref())).queried(),
    text("container", "container", |it| Value::text(it.container.as_deref())).queried(),
    text("pod", "pod", |it| Value::text(it.pod.as_deref())).queried(),
    text("start", "start time", |it| it.start.map_or(Value::Unknown, Value::Time)).queried(),
    text("tracking", "how well its memory is known: audited, agent, library, counters, reported, partial, drift or untracked", |it| {
        Value::Tracking(it.tracking)
    })
    .queried(),
    text("basis", "where its figures come from: exact, counters or reported", |it| {
        if it.basis == Basis::Unknown { Value::Unknown } else { Value::Name(it.basis.name()) }
    })
    .queried(),
    text("devices", "devices it has open or holds memory on", |it| Value::indexes(&it.summary.indexes)),
    bytes("dram_bytes", "DRAM on all devices, with traces", |it| sum(it, it.summary.dram_bytes)),
    bytes("l1_bytes", "L1 buffers on all devices", |it| sum(it, it.summary.l1_bytes)),
    bytes("program_bytes", "circular buffers, dataflow buffers and scratchpads of its programs on all devices", |it| {
        sum(it, it.summary.program_bytes)
    }),
    bytes("kernel_bytes", "kernels on all devices", |it| sum(it, it.summary.kernel_bytes)),
    Field::<Processes>::new("cpu_percent", Unit::Percent, "host CPU time, in percent of one CPU", |it| {
        Value::number(it.host.as_ref().and_then(|host| host.cpu_percent))
    }),
    bytes("rss_bytes", "resident host memory", |it| {
        Value::bytes(it.host.as_ref().map(|host| host.rss_bytes))
    }),
    text("place", "container or pod", |it| match (&it.container, &it.pod) {
        (Some(name), _) | (None, Some(name)) => Value::text(Some(name)),
        (None, None) => Value::Nothing,
    }),
    text("short_command", "command line without the folder of the program", |it| {
        it.command.as_deref().map_or(Value::Unknown, |command| Value::Text(strip_folder(command)))
    }),
    text("name_and_command", "process name, if it differs from the command, and command line", |it| {
        name_and_command(it)
    }),
];

const fn page(name: &str, title: &'static str, width: u16) -> Column<Processes> {
    Column::page(find_field(FIELDS, name), title, width)
}

const fn screen(name: &str, title: &'static str, width: u16) -> Column<Processes> {
    Column::screen(find_field(FIELDS, name), title, width)
}

/// A column of sizes; a dot if the process never had any.
const fn bytes_held(name: &str, title: &'static str) -> Column<Processes> {
    screen(name, title, 10).right().nothing("·").faint_zero()
}

/// The table of `ttmem`.
pub static TABLE: &[Column<Processes>] = &[
    page("pid", "PID", 0).right(),
    page("user", "User", 9).cut(),
    page("devices", "Dev", 11).cut(),
    page("dram_bytes", "DRAM", 0).right(),
    page("l1_bytes", "L1", 0).right(),
    page("program_bytes", "Programs", 0).right(),
    page("tracking", "Tracking", 0).apart(),
    page("name_and_command", "Command", 10).grows(u16::MAX).cut(),
];

/// The processes of the dashboard's first view.
pub static SCREEN: &[Column<Processes>] = &[
    screen("pid", "PID", 7).right().sortable("pid"),
    screen("user", "User", 8).grows(2).faint().sortable("user"),
    screen("name", "Process", 12).grows(8).sortable("name"),
    screen("place", "Container", 12)
        .drop(7)
        .faint()
        .sortable("container")
        .sort_field(find_field(FIELDS, "container")),
    screen("devices", "Device", 7).grows(3).sortable("devices"),
    bytes_held("dram_bytes", "DRAM").sortable("dram"),
    bytes_held("l1_bytes", "L1").sortable("l1"),
    bytes_held("program_bytes", "Programs").drop(5).sortable("programs"),
    bytes_held("kernel_bytes", "Kernels").drop(6).sortable("kernels"),
    screen("cpu_percent", "CPU %", 6).drop(1).right().format(Format::Decimals(0)).sortable("cpu"),
    screen("rss_bytes", "Host mem", 10).drop(4).right().sortable("host"),
    screen("tracking", "Tracking", 9).grows(2).sortable("tracking"),
    screen("short_command", "Command", 28)
        .grows(80)
        .drop(3)
        .faint()
        .sortable("command")
        .sort_field(find_field(FIELDS, "command")),
];

/// A sum over all devices. Without one, a tracked process has no such memory, and of an untracked one it is unknown.
fn sum(process: &Process, bytes: Option<u64>) -> Value<'static> {
    match bytes {
        Some(bytes) => Value::Bytes(bytes),
        None if process.tracking == Tracking::Untracked => Value::Unknown,
        None => Value::Nothing,
    }
}

/// The command of a process, with its name before it unless the command begins with that.
fn name_and_command(process: &Process) -> Value<'_> {
    match (process.name.as_deref(), process.command.as_deref().map(strip_folder)) {
        (None, None) => Value::Unknown,
        (Some(name), None) => Value::Text(Cow::Borrowed(name)),
        (None, Some(command)) => Value::Text(command),
        (Some(name), Some(command)) if command.starts_with(name) => Value::Text(command),
        (Some(name), Some(command)) => Value::Text(Cow::Owned(format!("{name}: {command}"))),
    }
}

/// A command line without the folder of its program, which leaves more space for the arguments.
fn strip_folder(command: &str) -> Cow<'_, str> {
    let program = command.split(' ').next().unwrap_or(command);
    match program.rfind('/').filter(|at| at + 1 < program.len()) {
        Some(at) => Cow::Borrowed(&command[at + 1..]),
        None => Cow::Borrowed(command),
    }
}

/// The pid of a process within a sentence, or in brackets the pid that it reports for itself.
pub fn pid(pid: Option<u32>, reported: Option<i64>, unknown: &'static str) -> Cow<'static, str> {
    match (pid, reported) {
        (Some(pid), _) => Cow::Owned(pid.to_string()),
        (None, Some(pid)) => Cow::Owned(format!("({pid})")),
        (None, None) => Cow::Borrowed(unknown),
    }
}

/// Whether a process has a device open or memory on it.
pub fn uses_device(process: &Process, device: &Device) -> bool {
    process.usage.iter().any(|it| it.device == device.id) || process.open_devices.contains(&device.id)
}

/// Rows of the memory of a process on one device.
#[derive(Debug)]
pub enum DeviceUsage {}

impl RowKind for DeviceUsage {
    type Row<'a> = &'a Usage;
}

const fn on_device(
    name: &'static str,
    help: &'static str,
    value: for<'r> fn(&'r &Usage) -> Value<'r>,
) -> Field<DeviceUsage> {
    Field::<DeviceUsage>::new(name, Unit::Bytes, help, value).queried()
}

/// The fields of the memory of a process on one device.
pub static DEVICE_USAGE_FIELDS: &[Field<DeviceUsage>] = &[
    on_device("dram_bytes", "DRAM on the device", |it| used_total(it.dram_total.as_ref())),
    on_device("l1_bytes", "L1 on the device", |it| used_total(it.l1_total.as_ref())),
    on_device("l1_small_bytes", "L1_SMALL on the device", |it| used_space(it, Space::L1Small)),
    on_device("trace_bytes", "traces on the device", |it| used_space(it, Space::Trace)),
    on_device("cb_bytes", "circular buffers on the device", |it| used_space(it, Space::Cb)),
];

fn used_total(total: Option<&Total>) -> Value<'static> {
    Value::bytes(total.map(|it| it.used_bytes))
}

fn used_space(usage: &Usage, space: Space) -> Value<'static> {
    Value::bytes(usage.used(space).map(|it| it.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_folder_of_the_program_is_stripped() {
        assert_eq!(strip_folder("/usr/bin/python /tmp/a.py"), "python /tmp/a.py");
        assert_eq!(strip_folder("python /tmp/a.py"), "python /tmp/a.py");
        assert_eq!(strip_folder("/bin/ x"), "/bin/ x");
        assert_eq!(strip_folder(""), "");
    }
}
