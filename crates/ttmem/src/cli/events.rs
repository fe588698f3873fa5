//! The arguments of `ttmem events`.

use crate::events::{parse_kind, parse_since};
use clap::Args;
use ttmem_core::snapshot::MemoryEventKind;

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Keep printing events as they happen, until interrupted.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only events since a time: 10s, 5m, 2h ago, or 2026-11-15T04:00:00Z. With -f: events before now, too.
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    pub(crate) since: Option<jiff::Timestamp>,
    /// Only these kinds, comma-separated: allocated, freed, program_dispatched, out_of_memory, ... (docs/events.md).
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = parse_kind)]
    pub(crate) kind: Vec<MemoryEventKind>,
    /// Only these devices, comma-separated: index, id, PCI address or /dev/tenstorrent/N.
    #[arg(short, long, value_name = "DEVICE", value_delimiter = ',')]
    pub(crate) device: Vec<String>,
    /// Only this process.
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Print one line of JSON for each event; the same as --format json.
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// Output format.
    #[arg(long, value_enum, default_value_t = EventFormat::Text)]
    pub(crate) format: EventFormat,
}

/// Output formats of `ttmem events`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum EventFormat {
    /// A line for each event.
    Text,
    /// JSON lines.
    Json,
    /// The old server's log.
    Old,
}
