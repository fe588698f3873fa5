//! The details of findings and events.

use super::{Fact, FactTone, fact, heading};
use crate::data::FailureKey;
use crate::views::Scene;
use ttmem_core::snapshot::{Event, Finding};
use ttmem_render::format::size;
use ttmem_render::{Line, Tone, label, postmortem};

impl Scene<'_> {
    pub(super) fn finding_facts(&self, finding: &Finding, width: usize) -> Vec<Fact> {
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
        facts.extend(self.post_mortem_facts(finding, width));
        facts
    }

    /// The post-mortem of the failed allocation that a finding is about, line by line.
    fn post_mortem_facts(&self, finding: &Finding, width: usize) -> Vec<Fact> {
        let Some(wanted) = FailureKey::of(finding) else { return Vec::new() };
        let line = |text: String, tone| Fact { label: text, text: String::new(), tone };
        let mut facts = vec![fact("", ""), heading("Post-mortem")];
        match self.data.post_mortem.as_ref().filter(|(failure, _)| *failure == wanted) {
            None => facts.push(line(super::super::LOADING.to_owned(), FactTone::Plain)),
            Some((_, Err(why))) => facts.push(line(why.clone(), FactTone::Plain)),
            Some((_, Ok(found))) => {
                for Line { text, tone, is_title } in postmortem::page(found, width) {
                    let tone = match tone {
                        _ if is_title => FactTone::Heading,
                        Tone::Bad => FactTone::Bad,
                        _ => FactTone::Plain,
                    };
                    facts.push(line(text, tone));
                }
            }
        }
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
