//! The operations of the simulated models: their cores, circular buffers and kernels.

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
    pub(super) name: &'static str,
    pub(super) site: &'static str,
    pub(super) cores: OpCores,
    /// Sizes of the circular buffers on each core, in KiB.
    pub(super) cbs: &'static [u64],
    pub(super) kernel_bytes: u64,
}

const fn op(
    name: &'static str,
    site: &'static str,
    cores: OpCores,
    cbs: &'static [u64],
    kernel_bytes: u64,
) -> Op {
    Op { name, site, cores, cbs, kernel_bytes }
}

pub(super) const LLM: [Op; 10] = [
    op("embedding", "model.py:74 embed", OpCores::Row(0), &[8, 16], 3_328),
    op("rms_norm", "model.py:112 input_norm", OpCores::Row(1), &[16, 32, 4], 9_472),
    op("matmul", "model.py:118 attention.qkv", OpCores::All, &[96, 128, 64], 12_544),
    op("rotary_embedding", "model.py:121 attention.rope", OpCores::Block(0, 0, 4), &[16, 16, 8, 8], 6_912),
    op("paged_update_cache", "model.py:126 attention.kv_cache", OpCores::Column(7), &[32, 32], 5_120),
    op("sdpa_decode", "model.py:131 attention", OpCores::Block(4, 0, 4), &[64, 64, 48, 16, 16], 21_760),
    op("matmul", "model.py:138 attention.out", OpCores::Half, &[64, 96, 32], 12_288),
    op("mul", "model.py:147 mlp.gate", OpCores::Half, &[16, 16, 16], 4_352),
    op("matmul", "model.py:149 mlp.down", OpCores::Column(0), &[192, 160, 32], 12_800),
    op("argmax", "generate.py:41 sample", OpCores::Corners, &[64, 4], 3_840),
];

pub(super) const VISION: [Op; 7] = [
    op("conv2d", "resnet.py:33 stem", OpCores::Half, &[128, 96, 48], 15_360),
    op("max_pool2d", "resnet.py:36 stem", OpCores::Half, &[24, 48], 7_168),
    op("conv2d", "resnet.py:58 layer1", OpCores::Block(0, 0, 6), &[112, 64, 48], 15_104),
    op("add", "resnet.py:71 residual", OpCores::Block(0, 0, 6), &[16, 16, 16], 4_096),
    op("conv2d", "resnet.py:58 layer3", OpCores::Block(2, 2, 4), &[160, 96, 64], 15_616),
    op("avg_pool2d", "resnet.py:102 head", OpCores::Row(6), &[32, 8], 5_632),
    op("matmul", "resnet.py:105 fc", OpCores::Column(3), &[48, 64, 16], 12_032),
];

pub(super) const DIFFUSION: [Op; 5] = [
    op("group_norm", "unet.py:88 resnet_block", OpCores::Block(0, 0, 4), &[64, 64, 32, 8], 18_432),
    op("conv2d", "unet.py:93 resnet_block", OpCores::Half, &[144, 80, 64], 15_872),
    op("softmax", "unet.py:141 cross_attention", OpCores::Row(2), &[96, 32], 8_704),
    op("matmul", "unet.py:146 cross_attention", OpCores::Block(2, 1, 5), &[80, 112, 40], 12_544),
    op("concat", "unet.py:190 up_block", OpCores::Column(1), &[48], 2_816),
];

pub(super) const VICTIM: [Op; 4] = [
    op("tilize", "sweep.py:22 input", OpCores::Row(3), &[64, 64], 4_608),
    op("layernorm", "sweep.py:27 run", OpCores::Block(1, 3, 3), &[48, 48, 16], 9_984),
    op("typecast", "sweep.py:31 run", OpCores::Row(4), &[16, 32], 3_072),
    op("reduce", "sweep.py:34 check", OpCores::Column(5), &[40, 8], 6_144),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Machine;
    use std::collections::BTreeSet;
    use ttmem_client::Space;

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
