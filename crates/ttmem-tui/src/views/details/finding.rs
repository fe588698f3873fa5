//! The details of findings and events.

use super::{Fact, fact};
use crate::views::Scene;
use ttmem_core::snapshot::{Event, Finding};
use ttmem_render::format::size;
use ttmem_render::label;

impl Scene<'_> {
    pub(super) fn finding_facts(&self, finding: &Finding) -> Vec<Fact> {
        let mut facts = vec![
            fact("Severity", label::severity(finding.severity)),
            fact("Kind", label::kind(finding.kind)),
            fact("Text", finding.text.as_str()),
        ];
        facts.extend(finding.device.as_ref().map(|id| fact("Device", self.device_index(id))));
        facts.extend(finding.pid.map(|pid| match &finding.process_name {
            Some(name) => fact("Process", format!("{name} (pid {pid})")),
            None => fact("Process", format!("pid {pid}")),
        }));
        facts.extend(finding.command.as_ref().map(|command| fact("Command", command.as_str())));
        facts.extend(finding.space.map(|space| fact("Space", space.name())));
        facts.extend(finding.bytes.map(|n| fact("Bytes", format!("{} ({n} B)", size(n)))));
        facts.push(fact("Count", finding.count.to_string()));
        facts.extend(finding.first.map(|at| fact("First", self.data.time_of_day(at))));
        facts.extend(finding.last.map(|at| fact("Last", self.data.time_of_day(at))));
        facts
    }

    pub(super) fn event_facts(&self, event: &Event) -> Vec<Fact> {
        let mut facts = vec![
            fact("Time", self.data.time_of_day(event.at)),
            fact("Kind", label::kind(event.kind)),
            fact("Text", event.text.as_str()),
        ];
        facts.extend(event.device.as_ref().map(|id| fact("Device", self.device_index(id))));
        facts.extend(event.pid.map(|pid| fact("Process", format!("pid {pid}"))));
        facts.extend(event.bytes.map(|n| fact("Bytes", format!("{} ({n} B)", size(n)))));
        facts
    }
}
