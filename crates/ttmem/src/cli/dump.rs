//! The arguments of `ttmem dump`.

use super::Filter;
use crate::query::Format;
use clap::Args;
use std::path::PathBuf;
use std::str::FromStr;
use ttmem_core::words::Space;

#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// Print one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    // Not a comment, in which rustdoc takes brackets for links.
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = Format::parse, conflicts_with = "json",
        help = "Output format: table, json, or csv[,noheader][,nounits]")]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Add allocations up by what they have in common.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["all", "programs", "cores", "maps"])]
    pub(crate) group_by: Option<GroupBy>,
    /// Order by size, age (oldest first) or count (of allocations in a group, or of references).
    #[arg(long, value_name = "ORDER", conflicts_with_all = ["programs", "cores", "maps"])]
    pub(crate) sort: Option<SortBy>,
    /// Show the first N only.
    #[arg(long, value_name = "N", conflicts_with_all = ["all", "programs", "cores", "maps"])]
    pub(crate) top: Option<usize>,
    /// List every allocation, also on a terminal.
    #[arg(long, conflicts_with_all = ["programs", "cores", "maps"])]
    pub(crate) all: bool,
    /// List programs: their memory in L1, cores and dispatches.
    #[arg(long, conflicts_with_all = ["cores", "maps"])]
    pub(crate) programs: bool,
    /// Show the L1 of all cores, or of core X,Y by address.
    #[arg(long, value_name = "X,Y", num_args = 0..=1, default_missing_value = "all", conflicts_with_all = ["pid", "user", "maps"])]
    pub(crate) cores: Option<CoreSelection>,
    /// Show each allocator's memory by address: used blocks with their owners, and holes.
    #[arg(long, group = "maps")]
    pub(crate) blocks: bool,
    /// With --blocks: only this space: dram, trace, l1, l1_small or l1_core.
    #[arg(long, value_name = "SPACE", requires = "blocks", value_parser = parse_space)]
    pub(crate) space: Option<Space>,
    /// With --blocks and --report: only the allocator with this number.
    #[arg(long, value_name = "N", requires = "maps")]
    pub(crate) allocator: Option<u32>,
    /// Write the three CSV files of `ttnn.dump_device_memory_state` into DIR, for one allocator.
    #[arg(long, value_name = "DIR", group = "maps", conflicts_with_all = ["json", "format"])]
    pub(crate) report: Option<PathBuf>,
    /// Read one segment, also a crash segment.
    #[arg(long, value_name = "FILE", conflicts_with = "local")]
    pub(crate) segment: Option<PathBuf>,
}

impl DumpArgs {
    /// The output format.
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

/// Spaces that have a block map.
const MAPPED_SPACES: [Space; 5] = [Space::Dram, Space::Trace, Space::L1, Space::L1Small, Space::L1Core];

pub(super) fn parse_space(text: &str) -> Result<Space, String> {
    let found = MAPPED_SPACES.into_iter().find(|it| it.name() == text.trim().to_lowercase());
    found.ok_or_else(|| format!("expected one of {}", MAPPED_SPACES.map(Space::name).join(", ")))
}

/// The criterion by which allocations are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum GroupBy {
    /// Space.
    Space,
    /// Process, space, size and call site.
    Size,
    /// Process.
    Process,
    /// Program: its circular buffers, kernels and other program memory.
    Program,
    /// Call site: file, line and function.
    Site,
    /// Operation, such as `ttnn.matmul`.
    Op,
    /// Function that the call site is in.
    Function,
    /// File that the call site is in.
    File,
    /// Tensor: data type, shape and layout.
    Tensor,
    /// Track: the part of a program that names its parts with `ttmem.track`.
    Track,
    /// Device.
    Device,
}

/// The order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SortBy {
    /// Largest first.
    Size,
    /// Oldest first.
    Age,
    /// Most first.
    Count,
}

/// All cores, or one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CoreSelection {
    All,
    /// The core in this column and row.
    One(u8, u8),
}

impl CoreSelection {
    pub(crate) fn contains(self, x: u8, y: u8) -> bool {
        self == Self::All || self == Self::One(x, y)
    }
}

impl FromStr for CoreSelection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        let number = |text: &str| text.trim().parse().ok();
        let parsed = text.split_once(',').and_then(|(x, y)| Some(Self::One(number(x)?, number(y)?)));
        parsed.ok_or_else(|| "expected column,row, such as 3,0".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_is_a_column_and_a_row() {
        assert_eq!("3,0".parse(), Ok(CoreSelection::One(3, 0)));
        assert_eq!("all".parse(), Ok(CoreSelection::All));
        for bad in ["", "3", "3,", "-1,0", "3,0,1", "300,0", "x,y"] {
            assert!(bad.parse::<CoreSelection>().is_err(), "{bad}");
        }
    }

    #[test]
    fn spaces_are_found_by_name() {
        assert_eq!(parse_space("DRAM"), Ok(Space::Dram));
        assert_eq!(parse_space("l1_small"), Ok(Space::L1Small));
        for bad in ["", "cb", "kernel", "host"] {
            assert!(parse_space(bad).unwrap_err().contains("dram, trace, l1"), "{bad}");
        }
    }
}
