//! Processes, and what they hold on a device.

use crate::column::{Column, Field, Form, Kind, find};
use crate::value::{Unit, Value};
use std::borrow::Cow;
use ttmem_core::snapshot::{Device, Process, Total, Tracking, Usage};
use ttmem_core::words::{Basis, Space};

/// Rows of processes.
#[derive(Debug)]
pub enum Processes {}

impl Kind for Processes {
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

/// All that tables and scripts show of a process.
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
        (Some(it), _) | (None, Some(it)) => Value::text(Some(it)),
        (None, None) => Value::Nothing,
    }),
    text("short_command", "command line without the folder of the program", |it| {
        it.command.as_deref().map_or(Value::Unknown, |it| Value::Text(without_folder(it)))
    }),
    text("name_and_command", "process name, if it differs from the command, and command line", |it| {
        name_and_command(it)
    }),
];

const fn page(name: &str, title: &'static str, width: u16) -> Column<Processes> {
    Column::page(find(FIELDS, name), title, width)
}

const fn screen(name: &str, title: &'static str, width: u16) -> Column<Processes> {
    Column::screen(find(FIELDS, name), title, width)
}

/// A size; a dot if the process never held any.
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

/// The table of `tt_smi_umd`.
pub static OLD_TABLE: &[Column<Processes>] = &[
    page("pid", "PID", 8).right(),
    page("user", "User", 9).cut(),
    page("name", "Process", 14).cut(),
    page("devices", "Devices", 7).unknown("").cut(),
    page("dram_bytes", "DRAM", 10).right().unknown("-"),
    page("l1_bytes", "L1", 10).right().unknown("-"),
    page("program_bytes", "Programs", 10).right().unknown("-"),
    page("kernel_bytes", "Kernels", 10).right().unknown("-"),
    page("tracking", "Tracking", 0).apart(),
];

/// The processes of the dashboard's first view.
pub static SCREEN: &[Column<Processes>] = &[
    screen("pid", "PID", 7).right().sorted("pid"),
    screen("user", "User", 8).grows(2).faint().sorted("user"),
    screen("name", "Process", 12).grows(8).sorted("name"),
    screen("place", "Container", 12).drop(7).faint().sorted("container"),
    screen("devices", "Device", 7).grows(3).sorted("devices"),
    bytes_held("dram_bytes", "DRAM").sorted("dram"),
    bytes_held("l1_bytes", "L1").sorted("l1"),
    bytes_held("program_bytes", "Programs").drop(5).sorted("programs"),
    bytes_held("kernel_bytes", "Kernels").drop(6).sorted("kernels"),
    screen("cpu_percent", "CPU %", 6).drop(1).right().form(Form::Places(0)).sorted("cpu"),
    screen("rss_bytes", "Host mem", 10).drop(4).right().sorted("host"),
    screen("tracking", "Tracking", 9).grows(2).sorted("tracking"),
    screen("short_command", "Command", 28).grows(80).drop(3).faint().sorted("command"),
];

/// A sum that has nothing in it is known to be nothing only of a process that is tracked.
fn sum(process: &Process, bytes: Option<u64>) -> Value<'static> {
    match bytes {
        Some(bytes) => Value::Bytes(bytes),
        None if process.tracking == Tracking::Untracked => Value::Unknown,
        None => Value::Nothing,
    }
}

/// A process's command, behind its name if the command does not begin with that.
fn name_and_command(process: &Process) -> Value<'_> {
    match (process.name.as_deref(), process.command.as_deref().map(without_folder)) {
        (None, None) => Value::Unknown,
        (Some(name), None) => Value::Text(Cow::Borrowed(name)),
        (None, Some(command)) => Value::Text(command),
        (Some(name), Some(command)) if command.starts_with(name) => Value::Text(command),
        (Some(name), Some(command)) => Value::Text(Cow::Owned(format!("{name}: {command}"))),
    }
}

/// A command line without the folder of its program, which leaves more room for the arguments.
fn without_folder(command: &str) -> Cow<'_, str> {
    let program = command.split(' ').next().unwrap_or(command);
    match program.rfind('/').filter(|at| at + 1 < program.len()) {
        Some(at) => Cow::Borrowed(&command[at + 1..]),
        None => Cow::Borrowed(command),
    }
}

/// A process's pid within a sentence, or in brackets the one it calls itself by.
pub fn pid(pid: Option<u32>, reported: Option<i64>, unknown: &'static str) -> Cow<'static, str> {
    match (pid, reported) {
        (Some(pid), _) => Cow::Owned(pid.to_string()),
        (None, Some(pid)) => Cow::Owned(format!("({pid})")),
        (None, None) => Cow::Borrowed(unknown),
    }
}

/// Whether a process has a device open or holds memory of it.
pub fn uses(process: &Process, device: &Device) -> bool {
    process.usage.iter().any(|it| it.device == device.id) || process.open_devices.contains(&device.id)
}

/// Rows of what a process holds on a device.
#[derive(Debug)]
pub enum Held {}

impl Kind for Held {
    type Row<'a> = &'a Usage;
}

const fn held(
    name: &'static str,
    help: &'static str,
    value: for<'r> fn(&'r &Usage) -> Value<'r>,
) -> Field<Held> {
    Field::<Held>::new(name, Unit::Bytes, help, value).queried()
}

/// All that scripts get of what a process holds on a device.
pub static HELD: &[Field<Held>] = &[
    held("dram_bytes", "DRAM on the device", |it| used(it.dram_total.as_ref())),
    held("l1_bytes", "L1 on the device", |it| used(it.l1_total.as_ref())),
    held("l1_small_bytes", "L1_SMALL on the device", |it| space(it, Space::L1Small)),
    held("trace_bytes", "traces on the device", |it| space(it, Space::Trace)),
    held("cb_bytes", "circular buffers on the device", |it| space(it, Space::Cb)),
];

fn used(total: Option<&Total>) -> Value<'static> {
    Value::bytes(total.map(|it| it.used_bytes))
}

fn space(usage: &Usage, space: Space) -> Value<'static> {
    Value::bytes(usage.used(space).map(|it| it.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_lose_the_folder_of_their_program_only() {
        assert_eq!(without_folder("/usr/bin/python /tmp/a.py"), "python /tmp/a.py");
        assert_eq!(without_folder("python /tmp/a.py"), "python /tmp/a.py");
        assert_eq!(without_folder("/bin/ x"), "/bin/ x");
        assert_eq!(without_folder(""), "");
    }
}
