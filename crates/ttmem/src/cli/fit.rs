//! The arguments of `ttmem fit` and `ttmem map`.

use super::{Filter, TextArgs};
use crate::limits::parse_size;
use crate::sim;
use clap::Args;
use std::path::PathBuf;
use std::str::FromStr;
use ttmem_core::End;
use ttmem_core::words::{DataType, Space, Tensor, TensorLayout};

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("request").required(true)))]
pub(crate) struct FitArgs {
    /// A buffer in DRAM: bytes over all banks, or in each, as 2GiB or 64MiB/bank.
    #[arg(long, value_name = "SIZE[/bank]", group = "request")]
    pub(crate) dram: Option<BufferSize>,
    /// A buffer in L1: bytes over all cores, or on each, as 1MiB or 64KiB/core.
    #[arg(long, value_name = "SIZE[/core]", group = "request")]
    pub(crate) l1: Option<BufferSize>,
    /// A sharded buffer in L1_SMALL.
    #[arg(long, value_name = "SIZE[/core]", group = "request")]
    pub(crate) l1_small: Option<BufferSize>,
    /// A tensor, as 1x1x4096x4096:bfloat16:tile or 512x100:float32:row_major.
    #[arg(long, value_name = "SHAPE:TYPE:LAYOUT", group = "request", value_parser = parse_tensor)]
    pub(crate) tensor: Option<Tensor>,
    /// Memory of the tensor.
    #[arg(long, value_enum, default_value_t = TensorMemory::Dram, conflicts_with_all = ["dram", "l1", "l1_small"])]
    pub(crate) memory: TensorMemory,
    /// The buffer is sharded over columns and rows of cores, as 8x4; a tensor by blocks, or as height:8x4 or width:8x4.
    #[arg(long, value_name = "[KIND:]CxR")]
    pub(crate) sharded: Option<Sharding>,
    /// Bytes of a page of an interleaved buffer [default: 2KiB, a tile of bfloat16].
    #[arg(long, value_name = "SIZE", value_parser = parse_page, conflicts_with_all = ["tensor", "sharded"])]
    pub(crate) page: Option<u64>,
    /// The end of memory that the buffer goes to [default: bottom in DRAM, top in L1]. Kernels of programs go to the top of DRAM.
    #[arg(long, value_enum, value_name = "END")]
    pub(crate) from: Option<FitEnd>,
    /// Number of such buffers, allocated one after the other.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) count: u64,
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// In the allocator with this number.
    #[arg(long, value_name = "N")]
    pub(crate) allocator: Option<u32>,
    /// In the state of one segment, also a crash segment.
    #[arg(long, value_name = "FILE", conflicts_with = "local")]
    pub(crate) segment: Option<PathBuf>,
    /// On an empty board: n150, n300, t3k, p100a, p150a, p300, galaxy-wh or galaxy-bh.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["segment", "allocator", "device", "pid", "user"])]
    pub(crate) board: Option<sim::Machine>,
    /// Print one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) text: TextArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MapArgs {
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Only the allocator with this number.
    #[arg(long, value_name = "N")]
    pub(crate) allocator: Option<u32>,
    /// Only this space: dram, trace, l1 or l1_small.
    #[arg(long, value_name = "SPACE", value_parser = super::dump::parse_space)]
    pub(crate) space: Option<Space>,
    /// Largest blocks and holes that are listed below each map.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(crate) top: usize,
    /// Read one segment, also a crash segment.
    #[arg(long, value_name = "FILE", conflicts_with = "local")]
    pub(crate) segment: Option<PathBuf>,
    /// Print one line of JSON, the same as `ttmem dump --blocks --json`.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) text: TextArgs,
}

/// The size of a buffer on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferSize {
    pub(crate) bytes: u64,
    /// Whether it is the size in each bank or on each core.
    pub(crate) is_per_bank: bool,
}

impl FromStr for BufferSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (bytes, part) = text.split_once('/').map_or((text, None), |(bytes, part)| (bytes, Some(part)));
        let is_per_bank = match part.map(str::trim) {
            None => false,
            Some("bank" | "core") => true,
            Some(part) => return Err(format!("unknown part {part:?}; expected /bank or /core")),
        };
        Ok(Self { bytes: parse_positive_size(bytes)?, is_per_bank })
    }
}

fn parse_positive_size(text: &str) -> Result<u64, String> {
    match parse_size(text.trim())? {
        0 => Err("a size of 0 bytes".to_owned()),
        bytes => Ok(bytes),
    }
}

fn parse_page(text: &str) -> Result<u64, String> {
    parse_positive_size(text)
}

fn parse_tensor(text: &str) -> Result<Tensor, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let &[shape, data_type, layout] = &parts[..] else {
        return Err("expected SHAPE:TYPE:LAYOUT, such as 32x512:bfloat16:tile".to_owned());
    };
    let dimension = |text: &str| text.trim().parse().ok().filter(|&it: &u32| it > 0);
    let dimensions: Option<Vec<u32>> = shape.split('x').map(dimension).collect();
    let dimensions = dimensions
        .filter(|it| it.len() <= Tensor::MAX_RANK)
        .ok_or_else(|| format!("unknown shape {shape:?}; expected up to 8 numbers such as 1x1x32x512"))?;
    let types = DataType::ALL.map(DataType::name).join(", ");
    let data_type = DataType::from_name(data_type)
        .ok_or_else(|| format!("unknown data type {data_type:?}; expected {types}"))?;
    let layouts = TensorLayout::ALL.map(TensorLayout::name).join(", ");
    let layout = TensorLayout::from_name(layout)
        .ok_or_else(|| format!("unknown layout {layout:?}; expected {layouts}"))?;
    let tensor = Tensor::new(&dimensions).data_type(data_type).layout(layout);
    if tensor.pages().is_none() {
        return Err(format!("{} has no rows: its layout is tile", data_type.name()));
    }
    Ok(tensor)
}

/// Memory of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TensorMemory {
    /// DRAM.
    Dram,
    /// L1.
    L1,
}

/// An end of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FitEnd {
    /// The lowest address.
    Bottom,
    /// The highest address.
    Top,
}

impl From<FitEnd> for End {
    fn from(end: FitEnd) -> Self {
        match end {
            FitEnd::Bottom => Self::Bottom,
            FitEnd::Top => Self::Top,
        }
    }
}

/// How a buffer is divided into shards, one for each core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sharding {
    /// Columns and rows of cores.
    cores: (u64, u64),
    /// Columns and rows of shards that a tensor is divided into.
    pub(crate) parts: (u64, u64),
}

impl Sharding {
    pub(crate) fn core_count(self) -> u64 {
        self.cores.0 * self.cores.1
    }
}

impl FromStr for Sharding {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("unknown sharding {text:?}; expected 8x4, height:8x4, width:8x4 or block:8x4");
        let (kind, cores) = text.split_once(':').unwrap_or(("block", text));
        let number = |text: &str| text.trim().parse().ok().filter(|&it: &u64| (1..=1000).contains(&it));
        let (columns, rows) = cores.split_once('x').ok_or_else(expected)?;
        let cores = number(columns).zip(number(rows)).ok_or_else(expected)?;
        let count = cores.0 * cores.1;
        let parts = match kind.trim() {
            "block" => cores,
            "height" => (1, count),
            "width" => (count, 1),
            _ => return Err(expected()),
        };
        Ok(Self { cores, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_of_all_banks_or_of_each() {
        let size = |text: &str| text.parse::<BufferSize>();
        assert_eq!(size("2GiB"), Ok(BufferSize { bytes: 2 << 30, is_per_bank: false }));
        assert_eq!(size("64 KiB/core"), Ok(BufferSize { bytes: 64 << 10, is_per_bank: true }));
        assert_eq!(size("1.5kB / bank"), Ok(BufferSize { bytes: 1500, is_per_bank: true }));
        for (bad, part) in
            [("2GB/chip", "\"chip\""), ("2 gigs", "KiB"), ("0B", "0 bytes"), ("/core", "\"\""), ("5%", "KiB")]
        {
            assert!(size(bad).unwrap_err().contains(part), "{bad}: {:?}", size(bad));
        }
    }

    #[test]
    fn tensors_have_shape_type_and_layout() {
        let tensor = parse_tensor("2x40x100:bfloat8_b:tile").unwrap();
        assert_eq!(tensor.to_string(), "bfloat8_b [2, 40, 100] tile");
        for (bad, part) in [
            ("32x32", "SHAPE:TYPE:LAYOUT"),
            ("32,32:bfloat16:tile", "shape \"32,32\""),
            ("0x32:bfloat16:tile", "shape"),
            ("1x1x1x1x1x1x1x1x1:bfloat16:tile", "up to 8"),
            ("32x32:bf16:tile", "bfloat16, float32"),
            ("32x32:bfloat16:rows", "row_major, tile"),
            ("32x32:bfloat8_b:row_major", "its layout is tile"),
        ] {
            assert!(parse_tensor(bad).unwrap_err().contains(part), "{bad}: {:?}", parse_tensor(bad));
        }
    }

    #[test]
    fn sharding_divides_columns_and_rows() {
        let parts = |text: &str| text.parse::<Sharding>().map(|it| (it.core_count(), it.parts));
        assert_eq!(parts("8x4"), Ok((32, (8, 4))));
        assert_eq!(parts("height:8x4"), Ok((32, (1, 32))));
        assert_eq!(parts("width:8x4"), Ok((32, (32, 1))));
        for bad in ["", "8", "0x4", "8x4x2", "8x-4", "depth:8x4", "9999x1"] {
            assert!(bad.parse::<Sharding>().is_err(), "{bad}");
        }
    }
}
