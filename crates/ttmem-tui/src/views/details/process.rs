//! The details of a process.

use super::{Fact, fact, heading, space_facts, text_or_dash};
use crate::views::Scene;
use ttmem_core::snapshot::{AllocatorSpace, AllocatorUsage, AuditResult, Process, Tracker, Tracking, Usage};
use ttmem_render::format::{DASH, plural, ranges, size, time_since};

impl Scene<'_> {
    pub(super) fn process_facts(&self, process: &Process) -> Vec<Fact> {
        let mut facts = self.identity_facts(process);
        facts.push(heading("Tracking"));
        facts.extend(tracking_facts(process));
        facts.extend(process.audit.iter().map(audit_fact));
        if !process.allocators.is_empty() {
            facts.push(heading("Allocators"));
        }
        for allocator in &process.allocators {
            facts.push(self.allocator_fact(allocator));
            facts.extend(allocator.spaces.iter().map(allocator_space_fact));
        }
        // Devices with equal memory, as in a mesh, share one heading.
        let mut usages: Vec<(&Usage, Vec<&str>)> = Vec::new();
        for on_device in &process.usage {
            match usages.iter_mut().find(|(usage, _)| **usage == on_device.usage) {
                Some((_, ids)) => ids.push(&on_device.device),
                None => usages.push((&on_device.usage, vec![&on_device.device])),
            }
        }
        for (usage, ids) in usages {
            let indexes = self.device_indexes(|id| ids.contains(&id));
            let (each, s) = if indexes.len() > 1 { (" each", "s") } else { ("", "") };
            facts.push(heading(format!("On device{s} {}{each}", ranges(&indexes))));
            facts.extend(space_facts(usage));
        }
        facts
    }

    fn identity_facts(&self, process: &Process) -> Vec<Fact> {
        let start = process.start.map_or_else(
            || DASH.to_owned(),
            |at| format!("{}, {} ago", self.data.time_of_day(at), time_since(at, self.now.wall.max(at))),
        );
        let command = match (&process.command, process.hidden) {
            (None, true) => format!("{DASH} not visible to this user"),
            (command, _) => text_or_dash(command.as_ref()),
        };
        let mut facts = vec![
            fact("Name", text_or_dash(process.name.as_ref())),
            fact("Command", command),
            fact("User", text_or_dash(process.user.as_ref())),
            fact("Started", start),
        ];
        facts.extend(process.last_mark.as_ref().map(|mark| {
            let words = [mark.name.clone(), mark.number.map(|number| number.to_string())];
            let words: Vec<String> = words.into_iter().flatten().collect();
            let ago = time_since(mark.at, self.now.wall.max(mark.at));
            fact("Last mark", format!("{}, {ago} ago", words.join(" ")))
        }));
        if let Some(pid) = process.reported_pid {
            facts.push(fact("Own pid", format!("{pid} (in its PID namespace)")));
        }
        if let Some(host) = &process.host {
            let parent = host.parent_pid.map_or_else(|| DASH.to_owned(), |pid| format!("pid {pid}"));
            let cpu = host.cpu_percent.map_or_else(|| DASH.to_owned(), |percent| format!("{percent:.0} %"));
            facts.push(fact("Parent", parent));
            facts.push(fact("Host CPU", cpu));
            facts.push(fact("Host memory", format!("{} resident", size(host.rss_bytes))));
        }
        facts.extend(process.container.as_ref().map(|name| fact("Container", name.as_str())));
        facts.extend(process.pod.as_ref().map(|name| fact("Pod", name.as_str())));
        let open: Vec<String> = process.open_devices.iter().map(|id| self.device_index(id)).collect();
        if !open.is_empty() {
            facts.push(fact("Open devices", open.join(", ")));
        }
        facts
    }

    fn allocator_fact(&self, allocator: &AllocatorUsage) -> Fact {
        let indexes = self.device_indexes(|id| allocator.devices.iter().any(|it| it == id));
        fact(format!("Allocator {}", allocator.id), format!("devices {}", ranges(&indexes)))
    }

    /// The indexes of the devices with these ids.
    fn device_indexes(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<u32> {
        let devices = self.data.snapshot.devices.iter();
        devices.filter(|it| is_wanted(&it.id)).map(|it| it.index).collect()
    }
}

fn tracking_facts(process: &Process) -> Vec<Fact> {
    let tracking = process.tracking;
    let text = match tracking {
        Tracking::Untracked => {
            "untracked: has a device open and publishes nothing; start it with `ttmem run` to see its memory"
        }
        known => known.name(),
    };
    let is_bad = matches!(tracking, Tracking::Drift | Tracking::Partial);
    let mut facts = vec![fact("Tracking", text).bad_if(is_bad)];
    if let Some(Tracker { writer, runtime, hooks, missing_hooks, cost_seconds, .. }) = &process.tracker {
        facts.push(fact("Tracked by", writer.as_str()));
        facts.extend(runtime.as_ref().map(|runtime| fact("Runtime", runtime.as_str())));
        if *hooks > 0 {
            let missing = missing_hooks.len();
            facts.push(if missing == 0 {
                fact("Hooks", format!("all {hooks}")).good()
            } else {
                let text = format!("{missing} of {hooks} missing: {}", missing_hooks.join(", "));
                fact("Hooks", text).bad_if(true)
            });
        }
        facts.extend(
            cost_seconds.map(|seconds| fact("CPU time of tracking", format!("{:.1} ms", seconds * 1e3))),
        );
    }
    facts
}

fn allocator_space_fact(space: &AllocatorSpace) -> Fact {
    let usage = &space.usage;
    let largest = usage
        .largest_free_bytes_per_bank
        .map_or_else(String::new, |largest| format!(", largest free block {} per bank", size(largest)));
    let text = format!(
        "{} of {} in {}; {} x {}{largest}",
        size(usage.used_bytes),
        usage.allocatable_bytes.map_or_else(|| DASH.to_owned(), size),
        usage.count.map_or_else(|| DASH.to_owned(), |n| plural(n, "buffer")),
        plural(u64::from(space.banks), "bank"),
        size(space.bytes_per_bank)
    );
    fact(format!("  {}", space.space), text)
}

fn audit_fact(audit: &AuditResult) -> Fact {
    let label = format!("Drift {} {}", audit.allocator, audit.space);
    if !audit.compared {
        return fact(label, "not audited: allocator busy, or no statistics");
    }
    if audit.is_zero() {
        let text = format!("0: the allocator reports {}", size(audit.allocated_bytes));
        return fact(label, text).good();
    }
    let signed = |drift: Option<i64>| drift.map_or_else(|| DASH.to_owned(), |drift| format!("{drift:+}"));
    let text = format!(
        "allocated {:+}, free {}, largest free {} bytes",
        audit.drift_bytes,
        signed(audit.free_drift_bytes),
        signed(audit.largest_free_drift_bytes)
    );
    fact(label, text).bad_if(true)
}
