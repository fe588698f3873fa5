//! Whether a buffer fits, as a page of text: the address, or why not and what to free.

use crate::Tone;
use crate::format::size;
use crate::postmortem::{describe_shortage, free_window, open_with};
use crate::text_page::{Line, TextPage};
use ttmem_core::{Fit, FitAnswer};

/// The most addresses in one line.
const MAX_ADDRESSES: usize = 3;

/// The page of an answer, wrapped at `width` columns. `place` names the allocator, `count` is the number of buffers.
pub fn page(place: &str, count: u64, fit: &Fit, width: usize) -> Vec<Line> {
    let mut page = TextPage::new(width);
    let needed = size(fit.needed_bytes_per_bank.unwrap_or(0));
    let buffers = if count == 1 { String::new() } else { format!("{count} buffers of ") };
    match &fit.answer {
        FitAnswer::Fits { addresses, .. } => {
            let addresses = describe_addresses(addresses);
            page.paragraph(&format!("yes: {place}: {buffers}{needed} per bank at {addresses}"), Tone::Good);
        }
        FitAnswer::DoesNotFit { fitting_count, bank, make_room, open_with: parameter } => {
            let only = if count == 1 { String::new() } else { format!("; {fitting_count} fit") };
            page.paragraph(&format!("no: {place}: {buffers}{needed} per bank do not fit{only}"), Tone::Bad);
            let total = fit.needed_bytes_per_bank.unwrap_or(0).saturating_mul(count);
            if let Some(reason) = describe_shortage(bank, total) {
                page.paragraph(&reason, Tone::Plain);
            }
            let parameter = parameter.as_ref().map(open_with);
            for remedy in parameter.into_iter().chain(make_room.as_ref().and_then(free_window)) {
                page.list(&remedy.title, &remedy.header, &remedy.rows, remedy.more);
            }
        }
        FitAnswer::Unknown { reason } => {
            page.paragraph(&format!("cannot say: {place}: {reason}"), Tone::Warn);
        }
    }
    page.lines
}

fn describe_addresses(addresses: &[u64]) -> String {
    let listed: Vec<String> = addresses.iter().take(MAX_ADDRESSES).map(|it| format!("{it:#x}")).collect();
    let more = match addresses.len().saturating_sub(MAX_ADDRESSES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    listed.join(", ") + &more
}
