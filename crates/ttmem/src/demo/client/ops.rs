//! The operations of the simulated models: their cores, circular buffers and kernels.

use super::sites::{GENERATE, MODEL, RESNET, SWEEP, Site, UNET, output};
use ttmem_client::CoreRange;

/// The cores of an operation, limited to the grid of the device.
#[derive(Clone, Copy)]
pub(super) enum OpCores {
    All,
    /// The upper half.
    Half,
    Column(u8),
    Row(u8),
    /// A square from this column and row, with this side.
    Block(u8, u8, u8),
    /// The two corners at the left.
    Corners,
}

impl OpCores {
    pub(super) fn ranges(self, (columns, rows): (u8, u8)) -> Vec<CoreRange> {
        let (right, bottom) = (columns - 1, rows - 1);
        let range = |from: (u8, u8), to: (u8, u8)| {
            let inside = |(x, y): (u8, u8)| (x.min(right), y.min(bottom));
            CoreRange::new(inside(from), inside(to))
        };
        match self {
            Self::All => vec![range((0, 0), (right, bottom))],
            Self::Half => vec![range((0, 0), (right, bottom / 2))],
            Self::Column(x) => vec![range((x, 0), (x, bottom))],
            Self::Row(y) => vec![range((0, y), (right, y))],
            Self::Block(x, y, side) => vec![range((x, y), (x + side - 1, y + side - 1))],
            Self::Corners => vec![range((0, 0), (0, 0)), range((0, bottom), (0, bottom))],
        }
    }
}

/// An operation: a program that is compiled once and dispatched many times.
pub(super) struct Op {
    /// Name of its program.
    pub(super) name: &'static str,
    /// The line that calls it.
    pub(super) site: Site,
    pub(super) cores: OpCores,
    /// Sizes of the circular buffers on each core, in KiB.
    pub(super) cbs: &'static [u64],
    pub(super) kernel_bytes: u64,
}

impl Op {
    /// The runtime's name of its device operation: `BinaryNgDeviceOperation`.
    pub(super) fn device_operation(&self) -> String {
        let mut name = String::new();
        for word in self.name.split('_') {
            let (first, rest) = word.split_at(1);
            name.push_str(&first.to_uppercase());
            name.push_str(rest);
        }
        name + "DeviceOperation"
    }
}

const fn op(name: &'static str, site: Site, cores: OpCores, cbs: &'static [u64], kernel_bytes: u64) -> Op {
    Op { name, site, cores, cbs, kernel_bytes }
}

pub(super) const LLM: [Op; 10] = [
    op(
        "embedding",
        output(MODEL, 74, "Transformer.embed", "ttnn.embedding"),
        OpCores::Row(0),
        &[8, 16],
        3_328,
    ),
    op(
        "rms_norm",
        output(MODEL, 112, "DecoderLayer.forward", "ttnn.rms_norm"),
        OpCores::Row(1),
        &[16, 32, 4],
        9_472,
    ),
    op(
        "matmul",
        output(MODEL, 118, "Attention.forward", "ttnn.linear"),
        OpCores::All,
        &[96, 128, 64],
        12_544,
    ),
    op(
        "rotary_embedding",
        output(MODEL, 121, "Attention.forward", "ttnn.experimental.rotary_embedding"),
        OpCores::Block(0, 0, 4),
        &[16, 16, 8, 8],
        6_912,
    ),
    op(
        "paged_update_cache",
        output(MODEL, 126, "Attention.forward", "ttnn.experimental.paged_update_cache"),
        OpCores::Column(7),
        &[32, 32],
        5_120,
    ),
    op(
        "sdpa_decode",
        output(MODEL, 131, "Attention.forward", "ttnn.transformer.scaled_dot_product_attention_decode"),
        OpCores::Block(4, 0, 4),
        &[64, 64, 48, 16, 16],
        21_760,
    ),
    op(
        "matmul",
        output(MODEL, 138, "Attention.forward", "ttnn.linear"),
        OpCores::Half,
        &[64, 96, 32],
        12_288,
    ),
    op("mul", output(MODEL, 147, "Mlp.forward", "ttnn.multiply"), OpCores::Half, &[16, 16, 16], 4_352),
    op(
        "matmul",
        output(MODEL, 149, "Mlp.forward", "ttnn.linear"),
        OpCores::Column(0),
        &[192, 160, 32],
        12_800,
    ),
    op("argmax", output(GENERATE, 41, "Generator.sample", "ttnn.argmax"), OpCores::Corners, &[64, 4], 3_840),
];

pub(super) const VISION: [Op; 7] = [
    op("conv2d", output(RESNET, 33, "ResNet50.stem", "ttnn.conv2d"), OpCores::Half, &[128, 96, 48], 15_360),
    op("max_pool2d", output(RESNET, 36, "ResNet50.stem", "ttnn.max_pool2d"), OpCores::Half, &[24, 48], 7_168),
    op(
        "conv2d",
        output(RESNET, 58, "Bottleneck.forward", "ttnn.conv2d"),
        OpCores::Block(0, 0, 6),
        &[112, 64, 48],
        15_104,
    ),
    op(
        "add",
        output(RESNET, 71, "Bottleneck.forward", "ttnn.add"),
        OpCores::Block(0, 0, 6),
        &[16, 16, 16],
        4_096,
    ),
    op(
        "conv2d",
        output(RESNET, 58, "Bottleneck.forward", "ttnn.conv2d"),
        OpCores::Block(2, 2, 4),
        &[160, 96, 64],
        15_616,
    ),
    op(
        "avg_pool2d",
        output(RESNET, 102, "ResNet50.head", "ttnn.avg_pool2d"),
        OpCores::Row(6),
        &[32, 8],
        5_632,
    ),
    op(
        "matmul",
        output(RESNET, 105, "ResNet50.head", "ttnn.linear"),
        OpCores::Column(3),
        &[48, 64, 16],
        12_032,
    ),
];

pub(super) const DIFFUSION: [Op; 5] = [
    op(
        "group_norm",
        output(UNET, 88, "ResnetBlock.forward", "ttnn.group_norm"),
        OpCores::Block(0, 0, 4),
        &[64, 64, 32, 8],
        18_432,
    ),
    op(
        "conv2d",
        output(UNET, 93, "ResnetBlock.forward", "ttnn.conv2d"),
        OpCores::Half,
        &[144, 80, 64],
        15_872,
    ),
    op(
        "softmax",
        output(UNET, 141, "CrossAttention.forward", "ttnn.softmax"),
        OpCores::Row(2),
        &[96, 32],
        8_704,
    ),
    op(
        "matmul",
        output(UNET, 146, "CrossAttention.forward", "ttnn.linear"),
        OpCores::Block(2, 1, 5),
        &[80, 112, 40],
        12_544,
    ),
    op("concat", output(UNET, 190, "UpBlock.forward", "ttnn.concat"), OpCores::Column(1), &[48], 2_816),
];

pub(super) const VICTIM: [Op; 4] = [
    op("tilize", output(SWEEP, 22, "run", "ttnn.tilize"), OpCores::Row(3), &[64, 64], 4_608),
    op(
        "layernorm",
        output(SWEEP, 27, "run", "ttnn.layer_norm"),
        OpCores::Block(1, 3, 3),
        &[48, 48, 16],
        9_984,
    ),
    op("typecast", output(SWEEP, 31, "run", "ttnn.typecast"), OpCores::Row(4), &[16, 32], 3_072),
    op("reduce", output(SWEEP, 34, "check", "ttnn.sum"), OpCores::Column(5), &[40, 8], 6_144),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Machine;
    use std::collections::BTreeSet;
    use ttmem_client::Space;

    #[test]
    fn device_operations_are_named_as_in_the_runtime() {
        assert_eq!(LLM[3].device_operation(), "RotaryEmbeddingDeviceOperation");
    }

    #[test]
    fn operations_fit_their_grid_and_memory() {
        for board in ["n150", "n300", "p100a", "p150a", "galaxy-wh", "galaxy-bh"] {
            let machine: Machine = board.parse().unwrap();
            let grid = machine.client_chips()[0].grid;
            let base = machine.banks().iter().find(|it| it.space == Space::L1).unwrap().base;
            for ops in [&LLM[..], &VISION, &DIFFUSION, &VICTIM] {
                let mut ranges = BTreeSet::new();
                for op in ops {
                    for range in op.cores.ranges(grid) {
                        assert!(
                            range.from.0 <= range.to.0 && range.from.1 <= range.to.1,
                            "{board} {}",
                            op.name
                        );
                        assert!(range.to.0 < grid.0 && range.to.1 < grid.1, "{board} {}", op.name);
                        ranges.insert((range.from, range.to));
                    }
                    let end = base.next_multiple_of(64) + op.cbs.iter().sum::<u64>() * 1024;
                    assert!(end <= 0xa_0000, "{board} {}: {end:#x}", op.name);
                }
                assert!(ranges.len() >= 4, "operations use different cores");
            }
        }
    }
}
