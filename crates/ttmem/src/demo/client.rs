//! The lives of the demo's client processes. They publish themselves as any program can, with the client library; one
//! speaks the old protocol, as a patched tt-metal does.

use crate::cli::DemoClientArgs;
use crate::sim::Machine;
use anyhow::Context;
use std::time::Duration;
use ttmem_client::{
    AllocatorNumber, Buffer, CoreRange, CoresNumber, Kernel, KernelClass, Layout, Options, Placement,
    Program, Space, Tracker, Transport,
};

/// Who a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Role {
    /// A language model over all chips: weights, cache, trace, then token after token.
    Llm,
    /// A vision model on the first chip: little DRAM, much L1.
    Vision,
    /// An image generator on a quarter of the chips, where there are many.
    Diffusion,
    /// Forgets a buffer now and then; speaks the old protocol.
    Leaky,
    /// Is killed while it holds buffers, circular buffers and kernels.
    Victim,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Llm => "llm",
            Self::Vision => "vision",
            Self::Diffusion => "diffusion",
            Self::Leaky => "leaky",
            Self::Victim => "victim",
        }
    }

    pub(crate) fn is_legacy(self) -> bool {
        self == Self::Leaky
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const TILE: u64 = 2048;
/// After so many rounds who leaks begins anew.
const EPOCH: u64 = 2500;

/// Which cores an operation runs on, as far as the chip has them.
#[derive(Clone, Copy)]
enum Where {
    All,
    /// The upper half.
    Half,
    Column(u8),
    Row(u8),
    /// From this column and row, so many each way.
    Block(u8, u8, u8),
    /// One at each of the left corners.
    Corners,
}

impl Where {
    fn ranges(self, (columns, rows): (u8, u8)) -> Vec<CoreRange> {
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

/// An operation: a program that is compiled once and dispatched again and again.
struct Op {
    name: &'static str,
    site: &'static str,
    cores: Where,
    /// Circular buffers on each core, in KiB, one behind the other.
    cbs: &'static [u64],
    kernel_bytes: u64,
}

const fn op(
    name: &'static str,
    site: &'static str,
    cores: Where,
    cbs: &'static [u64],
    kernel_bytes: u64,
) -> Op {
    Op { name, site, cores, cbs, kernel_bytes }
}

const LLM: [Op; 10] = [
    op("embedding", "model.py:74 embed", Where::Row(0), &[8, 16], 3_328),
    op("rms_norm", "model.py:112 input_norm", Where::Row(1), &[16, 32, 4], 9_472),
    op("matmul", "model.py:118 attention.qkv", Where::All, &[96, 128, 64], 12_544),
    op("rotary_embedding", "model.py:121 attention.rope", Where::Block(0, 0, 4), &[16, 16, 8, 8], 6_912),
    op("paged_update_cache", "model.py:126 attention.kv_cache", Where::Column(7), &[32, 32], 5_120),
    op("sdpa_decode", "model.py:131 attention", Where::Block(4, 0, 4), &[64, 64, 48, 16, 16], 21_760),
    op("matmul", "model.py:138 attention.out", Where::Half, &[64, 96, 32], 12_288),
    op("mul", "model.py:147 mlp.gate", Where::Half, &[16, 16, 16], 4_352),
    op("matmul", "model.py:149 mlp.down", Where::Column(0), &[192, 160, 32], 12_800),
    op("argmax", "generate.py:41 sample", Where::Corners, &[64, 4], 3_840),
];

const VISION: [Op; 7] = [
    op("conv2d", "resnet.py:33 stem", Where::Half, &[128, 96, 48], 15_360),
    op("max_pool2d", "resnet.py:36 stem", Where::Half, &[24, 48], 7_168),
    op("conv2d", "resnet.py:58 layer1", Where::Block(0, 0, 6), &[112, 64, 48], 15_104),
    op("add", "resnet.py:71 residual", Where::Block(0, 0, 6), &[16, 16, 16], 4_096),
    op("conv2d", "resnet.py:58 layer3", Where::Block(2, 2, 4), &[160, 96, 64], 15_616),
    op("avg_pool2d", "resnet.py:102 head", Where::Row(6), &[32, 8], 5_632),
    op("matmul", "resnet.py:105 fc", Where::Column(3), &[48, 64, 16], 12_032),
];

const DIFFUSION: [Op; 5] = [
    op("group_norm", "unet.py:88 resnet_block", Where::Block(0, 0, 4), &[64, 64, 32, 8], 18_432),
    op("conv2d", "unet.py:93 resnet_block", Where::Half, &[144, 80, 64], 15_872),
    op("softmax", "unet.py:141 cross_attention", Where::Row(2), &[96, 32], 8_704),
    op("matmul", "unet.py:146 cross_attention", Where::Block(2, 1, 5), &[80, 112, 40], 12_544),
    op("concat", "unet.py:190 up_block", Where::Column(1), &[48], 2_816),
];

const VICTIM: [Op; 4] = [
    op("tilize", "sweep.py:22 input", Where::Row(3), &[64, 64], 4_608),
    op("layernorm", "sweep.py:27 run", Where::Block(1, 3, 3), &[48, 48, 16], 9_984),
    op("typecast", "sweep.py:31 run", Where::Row(4), &[16, 32], 3_072),
    op("reduce", "sweep.py:34 check", Where::Column(5), &[40, 8], 6_144),
];

pub(crate) fn run(args: &DemoClientArgs) -> anyhow::Result<()> {
    super::end_with(args.parent)?;
    let name = std::ffi::CString::new(format!("demo-{}", args.role.name()))?;
    rustix::thread::set_name(&name)?;
    let place = args.place.to_str().context("the demo's folder has a strange name")?.to_owned();
    let options = if args.role.is_legacy() {
        Options::default().transport(Transport::Legacy(place))
    } else {
        Options::default().folder(place).runtime("simulated")
    };
    let tracker = Tracker::new(&options);
    let mut life = Life::new(&tracker, args.sim, args.role)?;
    match args.role {
        Role::Llm => life.llm(),
        Role::Vision => life.vision(),
        Role::Diffusion => life.diffusion(),
        Role::Leaky => life.leaky(),
        Role::Victim => life.victim(),
    }
}

struct Life<'a> {
    tracker: &'a Tracker,
    allocator: AllocatorNumber,
    grid: (u8, u8),
    dram_banks: u64,
    l1_banks: u64,
    /// Where circular buffers begin on a core, and where its L1 buffers, small ones and traces end or begin.
    cb_base: u64,
    l1_top: u64,
    l1_small: u64,
    trace: u64,
    /// Where in a bank of DRAM those begin that leave the lower part to the language model.
    upper: u64,
}

type Told = anyhow::Result<()>;

impl<'a> Life<'a> {
    fn new(tracker: &'a Tracker, machine: Machine, role: Role) -> anyhow::Result<Self> {
        let known = machine.client_chips();
        let mut chips = Vec::new();
        for chip in &known {
            chips.push(tracker.define_chip(chip)?);
        }
        let quarter = chips.len() / 4;
        let chips = match role {
            Role::Llm => &chips[..],
            Role::Vision | Role::Victim => &chips[..1],
            Role::Diffusion => &chips[quarter..quarter * 2],
            Role::Leaky => &chips[chips.len() - 1..],
        };
        let banks = machine.banks();
        let of = |space: Space| banks.iter().find(|it| it.space == space);
        let count = |space| of(space).map_or(1, |it| u64::from(it.banks));
        let base = |space| of(space).map_or(0, |it| it.base);
        Ok(Self {
            tracker,
            allocator: tracker.define_allocator(chips, &banks)?,
            grid: known.first().map_or((1, 1), |chip| chip.grid),
            dram_banks: count(Space::Dram),
            l1_banks: count(Space::L1),
            cb_base: base(Space::L1).next_multiple_of(64),
            l1_top: base(Space::L1Small),
            l1_small: base(Space::L1Small),
            trace: base(Space::Trace),
            // More than half of it, and three quarters of a Blackhole's are beyond that.
            upper: if base(Space::Trace) > 2 << 30 { 0x4000_0000 } else { 0x2000_0000 },
        })
    }

    fn take(&self, space: Space, address: u64, bytes: u64, site: &str) -> Told {
        let banks = match space {
            Space::Dram | Space::Trace => self.dram_banks,
            _ => self.l1_banks,
        };
        let bytes_per_bank = bytes.div_ceil(TILE).div_ceil(banks) * TILE;
        let buffer = Buffer::new(self.allocator, space, address, bytes)
            .bytes_per_bank(bytes_per_bank)
            .occupied(bytes.next_multiple_of(TILE))
            .layout(Layout::Interleaved)
            .site(self.tracker.define_site(site)?);
        self.tracker.alloc(&buffer)?;
        Ok(())
    }

    /// A buffer that lies on some cores only, so much on each.
    fn shard(&self, address: u64, bytes_per_core: u64, cores: Where, layout: Layout, site: &str) -> Told {
        let ranges = cores.ranges(self.grid);
        let width = |it: &CoreRange| u64::from(it.to.0 - it.from.0 + 1) * u64::from(it.to.1 - it.from.1 + 1);
        let bytes = bytes_per_core * ranges.iter().map(width).sum::<u64>();
        let buffer = Buffer::new(self.allocator, Space::L1, address, bytes)
            .bytes_per_bank(bytes_per_core)
            .occupied(bytes)
            .cores(self.tracker.define_cores(&ranges)?)
            .layout(layout)
            .site(self.tracker.define_site(site)?);
        self.tracker.alloc(&buffer)?;
        Ok(())
    }

    fn give_back(&self, space: Space, address: u64) -> Told {
        self.tracker.free(self.allocator, space, address)?;
        Ok(())
    }

    fn wait(&self, ms: u64) {
        std::thread::sleep(Duration::from_millis(ms));
        self.tracker.refresh();
    }

    fn kernel(&self, program: u32, id: u64, bytes: u64, cores: CoresNumber, class: KernelClass) -> Told {
        let allocator = self.allocator;
        self.tracker.load_kernel(&Kernel::new(allocator, program, id, bytes).cores(cores).class(class))?;
        Ok(())
    }

    /// A program: a kernel, and circular buffers where all programs have theirs.
    fn compile(&self, program: u32, op: &Op) -> Told {
        let cores = self.tracker.define_cores(&op.cores.ranges(self.grid))?;
        let site = self.tracker.define_site(op.name)?;
        self.tracker.build_program(&Program::new(self.allocator, program).cores(cores).site(site))?;
        self.kernel(program, 0x1000 + u64::from(program), op.kernel_bytes, cores, KernelClass::Application)?;
        let mut address = self.cb_base;
        for kib in op.cbs {
            let placed = Placement::new(self.allocator, program, Space::Cb, address, kib * KIB);
            self.tracker.place(&placed.cores(cores))?;
            address += kib * KIB;
        }
        Ok(())
    }

    /// Compiles operations, each several times as for other shapes, and numbers them from 1.
    fn compile_all(&self, ops: &[Op], times: u32) -> Told {
        for program in 0..ops.len() as u32 * times {
            self.compile(1 + program, &ops[program as usize % ops.len()])?;
            self.wait(30);
        }
        Ok(())
    }

    fn dispatch(&self, program: u32) -> Told {
        self.tracker.dispatch(self.allocator, program)?;
        Ok(())
    }

    fn llm(&mut self) -> Told {
        let all = self.tracker.define_cores(&Where::All.ranges(self.grid))?;
        let row = self.tracker.define_cores(&Where::Row(0).ranges(self.grid))?;
        for n in 0..2 {
            self.kernel(1000, 0x10 + n, 57_344, row, KernelClass::Fabric)?;
            self.kernel(1001, 0x20 + n, 47_104, all, KernelClass::Dispatch)?;
        }
        let mut at = 2 * MIB;
        let weights = [(56, "mlp.gate_up"), (24, "attention.qkv"), (56, "mlp.down"), (1, "norms")];
        for _layer in 0..32 {
            for (mib, what) in weights {
                self.take(Space::Dram, at, mib * MIB, &format!("load.py:52 {what}"))?;
                at += (mib * MIB).div_ceil(TILE).div_ceil(self.dram_banks) * TILE;
            }
            self.wait(120);
        }
        self.take(Space::Dram, at, 1536 * MIB, "model.py:61 kv_cache")?;
        self.take(Space::Trace, self.trace, 24 * MIB, "generate.py:66 capture")?;
        self.compile_all(&LLM, 3)?;
        let programs = LLM.len() as u32;
        for request in 0u32.. {
            // The prompt: operation by operation, each with its activations.
            for step in 0..programs * 2 {
                let program = 1 + step % programs + request % 3 * programs;
                let hidden = self.l1_top - 2 * 0x1_0000;
                self.take(Space::L1, hidden, u64::from(2 + step % 3) * MIB, "model.py:116 hidden_states")?;
                let scores = self.l1_top - 5 * 0x1_0000;
                let heads = if step % 2 == 0 { Where::Block(0, 0, 4) } else { Where::Block(4, 2, 4) };
                self.shard(scores, 96 * KIB, heads, Layout::HeightSharded, "model.py:129 attention.scores")?;
                self.dispatch(program)?;
                self.wait(220);
                self.give_back(Space::L1, scores)?;
                self.give_back(Space::L1, hidden)?;
            }
            // The answer: one trace, again and again. While it lives, nothing is allocated, but what it works on is there.
            let (trace, state) = (1 + request, self.l1_top - 0x2_0000);
            let heads = Where::Block(2, 0, 4);
            self.shard(state, 64 * KIB, heads, Layout::WidthSharded, "generate.py:63 decode_state")?;
            self.tracker.capture_trace(self.allocator, trace, u64::from(programs))?;
            for token in 0..40 {
                self.tracker.replay_trace(self.allocator, trace)?;
                self.dispatch(1 + token % programs)?;
                self.wait(180);
            }
            self.tracker.release_trace(self.allocator, trace)?;
            self.give_back(Space::L1, state)?;
        }
        Ok(())
    }

    fn vision(&mut self) -> Told {
        self.wait(1500);
        let dram = self.upper + 0x1000_0000;
        for n in 0..54 {
            self.take(Space::Dram, dram + n * MIB, (1 + n % 4) * MIB, "resnet.py:19 weights")?;
            self.wait(30);
        }
        self.take(Space::L1Small, self.l1_small, 24 * KIB * self.l1_banks, "resnet.py:30 halo_config")?;
        self.compile_all(&VISION, 1)?;
        let layers = VISION.len() as u64;
        for batch in 0u64.. {
            for layer in 0..layers {
                let place = |layer: u64| 0xa_0000 + layer % 4 * 0x1_8000;
                let it = &VISION[layer as usize];
                // Each is as large as its image, on the cores that make it.
                let size = (24 + 8 * ((layer + batch) % 5)) * KIB;
                self.shard(place(layer), size, it.cores, Layout::BlockSharded, it.site)?;
                self.dispatch(1 + layer as u32)?;
                self.wait(120);
                if layer > 0 {
                    self.give_back(Space::L1, place(layer - 1))?;
                }
            }
            self.give_back(Space::L1, 0xa_0000 + (layers - 1) % 4 * 0x1_8000)?;
        }
        Ok(())
    }

    fn diffusion(&mut self) -> Told {
        self.wait(800);
        let dram = self.upper + 0x0400_0000;
        for n in 0..24 {
            self.take(Space::Dram, dram + n * 10 * MIB, 64 * MIB, "unet.py:31 weights")?;
            self.wait(60);
        }
        self.compile_all(&DIFFUSION, 2)?;
        let programs = DIFFUSION.len() as u32;
        for step in 0u32.. {
            let latents = self.l1_top - 9 * 0x1_0000;
            let size = (64 + u64::from(step / 20 % 3) * 48) * KIB;
            self.shard(latents, size, Where::Block(1, 1, 5), Layout::BlockSharded, "unet.py:77 latents")?;
            for n in 0..programs {
                self.dispatch(1 + n + step % 2 * programs)?;
                self.wait(160);
            }
            self.give_back(Space::L1, latents)?;
        }
        Ok(())
    }

    fn leaky(&mut self) -> Told {
        let (kept, freed) = (|n: u64| self.upper + n * 128 * KIB, self.upper + 0x1e00_0000);
        for n in 0u64.. {
            let n = n % EPOCH;
            self.take(Space::Dram, kept(n), MIB, "train.py:212 losses")?;
            self.take(Space::Dram, freed, 4 * MIB, "train.py:208 batch")?;
            self.wait(700);
            self.give_back(Space::Dram, freed)?;
            if n + 1 == EPOCH {
                // Half an hour is enough to see what it does.
                for n in 0..EPOCH {
                    self.give_back(Space::Dram, kept(n))?;
                }
            }
        }
        Ok(())
    }

    fn victim(&mut self) -> Told {
        let (base, scratch) = (self.upper + 0x1800_0000, self.upper + 0x0ff0_0000);
        for n in 0u64.. {
            let program = 1 + (n % 40) as u32;
            if n < 40 {
                self.take(Space::Dram, base + n * 2 * MIB, 8 * MIB, "sweep.py:18 cases")?;
                self.compile(program, &VICTIM[n as usize % VICTIM.len()])?;
            }
            self.dispatch(program)?;
            if n % 10 == 9 {
                // It frees what it freed before; the library says so, and a finding does.
                self.take(Space::Dram, scratch, MIB, "sweep.py:34 check")?;
                self.give_back(Space::Dram, scratch)?;
                let _ = self.tracker.free(self.allocator, Space::Dram, scratch);
            }
            self.wait(150);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn operations_lie_on_cores_that_there_are_and_stay_clear_of_buffers() {
        for board in ["n150", "n300", "p100a", "p150a", "galaxy-wh", "galaxy-bh"] {
            let machine: Machine = board.parse().unwrap();
            let grid = machine.client_chips()[0].grid;
            let base = machine.banks().iter().find(|it| it.space == Space::L1).unwrap().base;
            for ops in [&LLM[..], &VISION, &DIFFUSION, &VICTIM] {
                let mut places = BTreeSet::new();
                for op in ops {
                    for range in op.cores.ranges(grid) {
                        assert!(
                            range.from.0 <= range.to.0 && range.from.1 <= range.to.1,
                            "{board} {}",
                            op.name
                        );
                        assert!(range.to.0 < grid.0 && range.to.1 < grid.1, "{board} {}", op.name);
                        places.insert((range.from, range.to));
                    }
                    let end = base.next_multiple_of(64) + op.cbs.iter().sum::<u64>() * KIB;
                    assert!(end <= 0xa_0000, "{board} {}: {end:#x}", op.name);
                }
                assert!(places.len() >= 4, "they lie on different cores");
            }
        }
    }
}
