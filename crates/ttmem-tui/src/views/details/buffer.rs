//! The details of an allocation.

use super::{Fact, fact, format_core_ranges, heading};
use ttmem_core::snapshot::{Allocation, Origin};
use ttmem_core::words::{Layout, Purpose};
use ttmem_render::format::{DASH, age, mark_estimate, plural, ranges, size};

pub(super) fn title(buffer: &Allocation) -> String {
    if buffer.unplaced {
        "Allocation at an unknown address".to_owned()
    } else {
        format!("Allocation {}", buffer.id)
    }
}

pub(super) fn facts(buffer: &Allocation) -> Vec<Fact> {
    const NOT_REPORTED: &str = "not reported";
    let bytes = |value: Option<u64>| {
        value.map_or_else(|| format!("{DASH} {NOT_REPORTED}"), |n| format!("{} ({n} B)", size(n)))
    };
    let mut facts = vec![
        fact("Space", buffer.space.name()),
        fact("Devices", ranges(&buffer.indexes)),
        fact("Process", buffer.pid.map_or_else(|| DASH.to_owned(), |pid| format!("pid {pid}"))),
        fact("Requested", mark_estimate(buffer.estimated, bytes(Some(buffer.requested_bytes)))),
        fact("Occupied", bytes(buffer.occupied_bytes)),
        fact("Allocated", bytes(buffer.allocated_bytes)),
    ];
    if buffer.estimated {
        facts.push(fact("Estimated", "the size"));
    }
    if buffer.unplaced {
        facts.push(fact("Address", format!("{DASH} {NOT_REPORTED}")));
    }
    if let (Some(bytes), Some(banks)) = (buffer.bytes_per_bank, buffer.banks) {
        facts.push(fact("Per bank", format!("{} in {}", size(bytes), plural(u64::from(banks), "bank"))));
    }
    facts.extend(buffer.layout.and_then(Layout::title).map(|layout| fact("Layout", layout)));
    facts.extend(buffer.cores.as_ref().map(|cores| fact("Cores", format_core_ranges(cores))));
    facts.push(fact("Age", age(buffer.age_seconds)));
    if buffer.references != 1 {
        facts.push(fact("References", buffer.references.to_string()));
    }
    facts.extend(buffer.allocator.map(|number| fact("Allocator", number.to_string())));
    facts.extend(
        buffer
            .program
            .map(|id| fact("Program", format!("{id} {}", buffer.program_name.as_deref().unwrap_or("")))),
    );
    facts.extend(buffer.site.map(|id| match &buffer.site_name {
        Some(name) => fact("Call site", name.as_str()),
        None => fact("Call site", format!("number {id}, name unknown")),
    }));
    facts.extend(origin_facts(&buffer.origin));
    facts.push(fact("Basis", buffer.basis.name()));
    if !buffer.origin.stack.is_empty() {
        facts.push(heading("Stack, innermost first"));
        let frames = buffer.origin.stack.iter().enumerate();
        facts.extend(frames.map(|(n, frame)| fact(format!("{}", n + 1), frame.as_str())));
    }
    facts
}

/// What is known about a call site besides its name.
fn origin_facts(origin: &Origin) -> impl Iterator<Item = Fact> {
    let Origin { file, line, op, purpose, tensor, track, .. } = origin;
    let file = file.as_ref().map(|file| match line {
        Some(line) => format!("{file}:{line}"),
        None => file.clone(),
    });
    let purpose = purpose.filter(|it| *it != Purpose::Unknown).map(|it| it.name().to_owned());
    let facts = [
        ("File", file),
        ("Operation", op.clone()),
        ("Tensor", tensor.clone()),
        ("Track", track.clone()),
        ("Purpose", purpose),
    ];
    facts.into_iter().filter_map(|(label, text)| Some(fact(label, text?)))
}
