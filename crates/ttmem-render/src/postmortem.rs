//! A post-mortem as a page of text: what was requested, why it failed, what to free, and what held the memory.

use crate::format::{core_count, core_range, plural, sanitize, size};
use crate::site::describe_site;
use crate::text_page::{Line, TextPage};
use crate::{Tone, allocation, format};
use ttmem_core::snapshot::{
    Allocation, FailedBank, FailureHolder, FailureKind, InTheWay, MakeRoom, OpenWith, PostMortem, Shortage,
};

/// Rows of one list of a page.
const MAX_ROWS: usize = 12;
/// Holders that a short form names.
const SHORT_HOLDERS: usize = 3;
/// The page of a post-mortem, wrapped at `width` columns. Rows of lists are not wrapped, so that a terminal or pager may cut them.
pub fn page(post_mortem: &PostMortem, width: usize) -> Vec<Line> {
    let mut page = TextPage::new(width);
    page.paragraph(&post_mortem.text, Tone::Bad);
    page.paragraph(&describe_source(post_mortem), Tone::Faint);
    page.blank();
    for sentence in reasons(post_mortem) {
        page.paragraph(&sentence, Tone::Plain);
    }
    let stack: Vec<Vec<String>> =
        post_mortem.failure.origin.stack.iter().map(|frame| vec![frame.clone()]).collect();
    if !stack.is_empty() {
        page.list("Calls that led to the request, innermost first:", &["CALL"], &stack, 0);
    }
    for remedy in remedies(post_mortem) {
        page.list(&remedy.title, &remedy.header, &remedy.rows, remedy.more);
    }
    if let Some(bank) = post_mortem.bank.as_ref().filter(|_| !post_mortem.holders.is_empty()) {
        let title = format!("Allocated in {}, per bank:", bank.space.title());
        let all: Vec<&FailureHolder> = post_mortem.holders.iter().collect();
        let (rows, more) = holder_rows(&all);
        page.list(&title, &HOLDER_HEADER, &rows, more);
    }
    page.lines
}

/// The post-mortem in a few sentences, each a line: reason, the cheapest remedy, and the largest holders.
pub fn summary(post_mortem: &PostMortem) -> Vec<String> {
    let mut lines = vec![post_mortem.text.clone()];
    lines.extend(reasons(post_mortem));
    lines.extend(remedies(post_mortem).into_iter().take(1).map(|it| it.short));
    let holders: Vec<String> = post_mortem.holders.iter().take(SHORT_HOLDERS).map(describe_holder).collect();
    if let Some(bank) = post_mortem.bank.as_ref().filter(|_| !holders.is_empty()) {
        lines.push(format!("Allocated in {} per bank: {}", bank.space.title(), holders.join("; ")));
    }
    lines.iter().map(|line| sanitize(line)).collect()
}

/// When and where, and whether everything is as it was then.
fn describe_source(found: &PostMortem) -> String {
    let mut parts = vec![format!("{:.3}", found.at)];
    parts.extend(found.runtime.clone());
    parts.push(match (&found.inexact_reason, found.exact) {
        (None, true) => "exactly as when it failed".to_owned(),
        (Some(reason), _) => format!("not exact: {reason}"),
        (None, false) => "not exact".to_owned(),
    });
    if found.later_failures > 0 {
        parts.push(format!("{} followed", plural(found.later_failures, "later failure")));
    }
    parts.join(", ")
}

/// Why it failed, in sentences.
fn reasons(found: &PostMortem) -> Vec<String> {
    let failure = &found.failure;
    match failure.kind {
        FailureKind::OutOfMemory => {
            let needed = failure.needed_bytes_per_bank;
            let described = found.bank.as_ref().zip(needed).and_then(|(bank, needed)| describe_shortage(bank, needed));
            described.into_iter().collect()
        }
        FailureKind::Clash => describe_clash(found),
        FailureKind::BeyondL1 => vec![
            "The program's circular buffers and other memory do not fit into the L1 of a core, even if it is empty: use \
             smaller blocks, fewer buffers, or spread the work over more cores."
                .to_owned(),
        ],
        FailureKind::KernelConfig => vec![
            "Kernel code, runtime arguments and semaphores of one program share this buffer: use fewer or smaller kernels and \
             arguments, or open the device with a smaller worker_l1_size, which leaves more L1 to the buffer."
                .to_owned(),
        ],
        FailureKind::TraceRegion => {
            vec!["The commands of all captured traces share the trace region.".to_owned()]
        }
        _ => vec!["No memory was missing: a request of another kind would succeed.".to_owned()],
    }
}

/// Why banks have no free block of `needed` bytes; `None` if that is unknown.
pub(crate) fn describe_shortage(bank: &FailedBank, needed: u64) -> Option<String> {
    let needed = size(needed);
    let FailedBank { bytes_per_bank, free_bytes_per_bank, largest_free_bytes_per_bank, free_count, .. } =
        *bank;
    let (banks, space) = (plural(bank.banks.into(), "bank"), bank.space.title());
    Some(match bank.shortage? {
        Shortage::TooLarge => format!(
            "Too large: {needed} per bank are needed, and each of the {banks} of {space} has {}.",
            size(bytes_per_bank)
        ),
        Shortage::Full => format!(
            "Full: {needed} per bank are needed, and {} of {} are free in each of the {banks} of {space}.",
            size(free_bytes_per_bank),
            size(bytes_per_bank)
        ),
        Shortage::Fragmented => format!(
            "Fragmented: {needed} per bank are needed and {} are free, but in {}; the largest has {}.",
            size(free_bytes_per_bank),
            plural(free_count, "block"),
            size(largest_free_bytes_per_bank)
        ),
        Shortage::Other => return None,
    })
}

fn describe_clash(found: &PostMortem) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(gap) = found.gaps.first() {
        let lowest = gap.lowest_reserved.map_or_else(|| "unknown".to_owned(), |at| format!("{at:#x}"));
        let cores = match &gap.cores[..] {
            [] => "each core".to_owned(),
            cores => format!("each of {}", plural(core_count(cores), "core")),
        };
        all.push(format!(
            "The program needs {} on {cores}; the free gap is {}, up to the lowest L1 buffer at {lowest}.",
            size(gap.needed_bytes),
            size(gap.free_bytes)
        ));
        let elsewhere = found.in_the_way.iter().filter(|it| it.only_by_lockstep).count() as u64;
        if elsewhere > 0 {
            let lowest = gap.lowest_buffer.map_or_else(
                || "no buffer is on the program's own cores".to_owned(),
                |at| format!("the lowest buffer on the program's own cores is at {at:#x}"),
            );
            all.push(format!(
                "{} in the way {} on other cores: the runtime compares with the lowest address of all banks, and {lowest}.",
                plural(elsewhere, "buffer"),
                if elsewhere == 1 { "is" } else { "are" }
            ));
        }
    }
    all
}

/// Something that makes the request succeed.
pub(crate) struct Remedy {
    pub(crate) title: String,
    pub(crate) header: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) more: u64,
    /// The remedy in one sentence.
    short: String,
}

fn remedies(found: &PostMortem) -> Vec<Remedy> {
    let mut all = Vec::new();
    all.extend(found.open_with.as_ref().map(open_with));
    all.extend(found.make_room.as_ref().and_then(free_window));
    all.extend(free_sites(found));
    all.extend(move_buffers(found));
    all
}

/// To open the device with a parameter.
pub(crate) fn open_with(OpenWith { parameter, bytes }: &OpenWith) -> Remedy {
    let title = format!("Open the device with {parameter}={bytes} ({}) or more.", size(*bytes));
    Remedy { short: title.clone(), title, header: Vec::new(), rows: Vec::new(), more: 0 }
}

/// To free neighbouring buffers; `None` if there is nothing to free.
pub(crate) fn free_window(window: &MakeRoom) -> Option<Remedy> {
    let block = format!("a free block of {} at {:#x}", size(window.block_bytes_per_bank), window.address);
    let what = format!("{} with {} per bank", plural(window.count, "buffer"), size(window.bytes_per_bank));
    if window.count == 0 {
        return None;
    }
    let rows = window
        .buffers
        .iter()
        .take(MAX_ROWS)
        .map(|buffer| vec![buffer.id.clone(), per_bank(buffer), describe_buffer(buffer)]);
    let named = window.buffers.first().map(|buffer| format!(": {}", describe_buffer(buffer)));
    Some(Remedy {
        title: format!("Cheapest way to make room: free {what}, which leaves {block}."),
        header: vec!["ADDRESS", "PER BANK", "BUFFER"],
        rows: rows.collect(),
        more: window.count.saturating_sub(MAX_ROWS.min(window.buffers.len()) as u64),
        short: format!("To make room, free {what}{}.", named.unwrap_or_default()),
    })
}

/// To free everything of one call site.
fn free_sites(found: &PostMortem) -> Option<Remedy> {
    let all: Vec<&FailureHolder> = found.sites_that_make_room.iter().collect();
    let first = all.first()?;
    let (rows, more) = holder_rows(&all);
    Some(Remedy {
        title: "Freeing all buffers of one of these call sites makes room, too:".to_owned(),
        header: HOLDER_HEADER.to_vec(),
        rows,
        more,
        short: format!("To make room, free {}.", describe_holder(first)),
    })
}

/// To free the buffers in the way of a program, and to allocate them again.
fn move_buffers(found: &PostMortem) -> Option<Remedy> {
    if found.in_the_way.is_empty() {
        return None;
    }
    let count = plural(found.in_the_way.len() as u64, "buffer");
    let place = |it: &InTheWay| match it.new_address {
        Some(address) => format!("{address:#x}"),
        None => "no room".to_owned(),
    };
    let rows = found.in_the_way.iter().take(MAX_ROWS).map(|in_the_way| {
        let buffer = &in_the_way.buffer;
        let cores = if in_the_way.only_by_lockstep { "other".to_owned() } else { cores_of(buffer) };
        vec![buffer.id.clone(), per_bank(buffer), place(in_the_way), cores, describe_buffer(buffer)]
    });
    let all_fit = found.in_the_way.iter().all(|it| it.new_address.is_some());
    let end = found.failure.program_end.map_or_else(String::new, |end| format!(" below {end:#x}"));
    let first = describe_buffer(&found.in_the_way[0].buffer);
    let title = if all_fit {
        format!(
            "Free {count}{end}, then allocate them again in this order; they move above the program's memory:"
        )
    } else {
        format!(
            "Free or move to DRAM {count}{end}. Those with a new address can be allocated again, in this order:"
        )
    };
    let short = if all_fit {
        format!("To make room, free {count}{end} and allocate them again, largest first: {first}.")
    } else {
        format!("To make room, free {count}{end} or move them to DRAM: {first}.")
    };
    Some(Remedy {
        title,
        header: vec!["ADDRESS", "PER BANK", "NEW ADDRESS", "CORES", "BUFFER"],
        rows: rows.collect(),
        more: found.in_the_way.len().saturating_sub(MAX_ROWS) as u64,
        short,
    })
}

const HOLDER_HEADER: [&str; 4] = ["PER BANK", "SHARE", "COUNT", "CALL SITE"];

fn holder_rows(holders: &[&FailureHolder]) -> (Vec<Vec<String>>, u64) {
    let row = |holder: &&FailureHolder| {
        vec![
            size(holder.bytes_per_bank),
            format!("{:.1}%", holder.share_percent),
            holder.count.to_string(),
            describe_site_and_tensor(holder),
        ]
    };
    let rows = holders.iter().take(MAX_ROWS).map(row).collect();
    (rows, holders.len().saturating_sub(MAX_ROWS) as u64)
}

fn describe_holder(holder: &FailureHolder) -> String {
    let FailureHolder { count, bytes_per_bank, .. } = holder;
    format!("{} in {}, {}", size(*bytes_per_bank), plural(*count, "buffer"), describe_site_and_tensor(holder))
}

fn describe_site_and_tensor(holder: &FailureHolder) -> String {
    let origin = &holder.origin;
    let site = describe_site(holder.site_name.as_deref(), origin.op.as_deref(), origin.purpose);
    with_tensor(site, origin.tensor.as_deref())
}

fn describe_buffer(buffer: &Allocation) -> String {
    with_tensor(allocation::call_site(buffer), buffer.origin.tensor.as_deref())
}

fn with_tensor(site: Option<String>, tensor: Option<&str>) -> String {
    let site = site.unwrap_or_else(|| "unknown".to_owned());
    tensor.map_or_else(|| site.clone(), |tensor| format!("{site}, {tensor}"))
}

fn per_bank(buffer: &Allocation) -> String {
    buffer.bytes_per_bank.map_or_else(|| format::UNKNOWN.to_owned(), size)
}

fn cores_of(buffer: &Allocation) -> String {
    match buffer.cores.as_deref() {
        None | Some([]) => String::new(),
        Some([one]) => core_range(*one),
        Some(many) => plural(core_count(many), "core"),
    }
}
