//! The host, with the keys of tt-smi.

use crate::text::UNKNOWN;
use rustix::system::uname;
use serde_json::{Value, json};
use std::ffi::CStr;
use std::fs;
use ttmem_core::machine::Host;

/// Files with the name of the distribution.
const OS_RELEASE: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];

pub(super) fn host_info(host: &Host) -> Value {
    let system = uname();
    let text = |it: &CStr| it.to_string_lossy().into_owned();
    let known = |it: Option<String>| it.unwrap_or_else(|| UNKNOWN.to_owned());
    let release = OS_RELEASE.iter().find_map(|path| fs::read_to_string(path).ok());
    let memory = fs::read_to_string("/proc/meminfo").ok();
    json!({
        "OS": text(system.sysname()),
        "Distro": known(release.and_then(|it| distribution(&it))),
        "Kernel": text(system.release()),
        "Hostname": known(host.name.clone()),
        "Platform": text(system.machine()),
        // This program does not use Python.
        "Python": UNKNOWN,
        "Memory": known(memory.and_then(|it| total_memory(&it))),
        "Driver": known(host.driver.as_ref().map(|version| format!("TT-KMD {version}"))),
    })
}

fn distribution(release: &str) -> Option<String> {
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    let name = name.trim().trim_matches(['"', '\'']);
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

/// The total memory as `30.46 GB`; tt-smi means GiB.
fn total_memory(meminfo: &str) -> Option<String> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let mut size = 1024.0 * line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? as f64;
    let mut units = ["B", "KB", "MB", "GB", "TB", "PB"].into_iter();
    let mut unit = units.next()?;
    while size >= 1024.0 {
        size /= 1024.0;
        unit = units.next()?;
    }
    Some(format!("{size:.2} {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distribution_name_may_be_quoted() {
        let text = "NAME=\"Ubuntu\"\nPRETTY_NAME=\"Ubuntu 22.04.5 LTS\"\nID=ubuntu\n";
        assert_eq!(distribution(text).as_deref(), Some("Ubuntu 22.04.5 LTS"));
        assert_eq!(distribution("PRETTY_NAME=Void\n").as_deref(), Some("Void"));
        assert_eq!(distribution("NAME=x\n"), None);
        assert_eq!(distribution("PRETTY_NAME=\"\"\n"), None);
    }

    #[test]
    fn memory_is_scaled() {
        for (kilobytes, text) in [
            ("31939624", "30.46 GB"),
            ("527905792", "503.45 GB"),
            ("1073741824", "1.00 TB"),
            ("524288", "512.00 MB"),
            ("0", "0.00 B"),
        ] {
            let meminfo = format!("MemTotal:       {kilobytes} kB\nMemFree:        1 kB\n");
            assert_eq!(total_memory(&meminfo).as_deref(), Some(text));
        }
        for bad in ["", "MemFree: 1 kB\n", "MemTotal: x kB\n", "MemTotal: 12\n"] {
            assert_eq!(total_memory(bad), None, "{bad}");
        }
    }

    #[test]
    fn missing_driver_is_shown_as_unknown() {
        let none = host_info(&Host::default());
        assert_eq!((&none["Driver"], &none["Hostname"]), (&json!("N/A"), &json!("N/A")));
        let some = host_info(&Host { driver: Some("2.10.0".to_owned()), ..Host::default() });
        assert_eq!(some["Driver"], "TT-KMD 2.10.0");
        assert_eq!(some["OS"], "Linux");
    }
}
