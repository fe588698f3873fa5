//! The workloads of the demo's client processes. They report through the client library, as any program can; one uses the
//! old protocol, as a patched tt-metal does.

use crate::cli::DemoClientArgs;
use crate::sim::Machine;
use anyhow::Context;
use std::time::Duration;
use ttmem_client::{
    AllocatorNumber, Buffer, CoreRange, CoresNumber, Kernel, KernelClass, Layout, Options, Placement,
    Program, Space, Tracker, Transport,
};

/// The workload of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Role {
    /// A language model on all devices: weights, cache, trace, then one token after another.
    Llm,
    /// A vision model on the first device: little DRAM, much L1.
    Vision,
    /// An image generator on a quarter of the devices, if there are many.
    Diffusion,
    /// A program that leaks buffers and uses the old protocol.
    Leaky,
    /// A program that is killed while it holds buffers, circular buffers and kernels.
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
/// After this many rounds, the leaking program frees everything and starts over.
const EPOCH: u64 = 2500;

/// The cores of an operation, limited to the grid of the device.
#[derive(Clone, Copy)]
enum OpCores {
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

/// An operation: a program that is compiled once and dispatched many times.
struct Op {
    name: &'static str,
    site: &'static str,
    cores: OpCores,
    /// Sizes of the circular buffers on each core, in KiB.
    cbs: &'static [u64],
    kernel_bytes: u64,
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

const LLM: [Op; 10] = [
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

const VISION: [Op; 7] = [
    op("conv2d", "resnet.py:33 stem", OpCores::Half, &[128, 96, 48], 15_360),
    op("max_pool2d", "resnet.py:36 stem", OpCores::Half, &[24, 48], 7_168),
    op("conv2d", "resnet.py:58 layer1", OpCores::Block(0, 0, 6), &[112, 64, 48], 15_104),
    op("add", "resnet.py:71 residual", OpCores::Block(0, 0, 6), &[16, 16, 16], 4_096),
    op("conv2d", "resnet.py:58 layer3", OpCores::Block(2, 2, 4), &[160, 96, 64], 15_616),
    op("avg_pool2d", "resnet.py:102 head", OpCores::Row(6), &[32, 8], 5_632),
    op("matmul", "resnet.py:105 fc", OpCores::Column(3), &[48, 64, 16], 12_032),
];

const DIFFUSION: [Op; 5] = [
    op("group_norm", "unet.py:88 resnet_block", OpCores::Block(0, 0, 4), &[64, 64, 32, 8], 18_432),
    op("conv2d", "unet.py:93 resnet_block", OpCores::Half, &[144, 80, 64], 15_872),
    op("softmax", "unet.py:141 cross_attention", OpCores::Row(2), &[96, 32], 8_704),
    op("matmul", "unet.py:146 cross_attention", OpCores::Block(2, 1, 5), &[80, 112, 40], 12_544),
    op("concat", "unet.py:190 up_block", OpCores::Column(1), &[48], 2_816),
];

const VICTIM: [Op; 4] = [
    op("tilize", "sweep.py:22 input", OpCores::Row(3), &[64, 64], 4_608),
    op("layernorm", "sweep.py:27 run", OpCores::Block(1, 3, 3), &[48, 48, 16], 9_984),
    op("typecast", "sweep.py:31 run", OpCores::Row(4), &[16, 32], 3_072),
    op("reduce", "sweep.py:34 check", OpCores::Column(5), &[40, 8], 6_144),
];

pub(crate) fn run(args: &DemoClientArgs) -> anyhow::Result<()> {
    super::exit_with_parent(args.parent)?;
    let name = std::ffi::CString::new(format!("demo-{}", args.role.name()))?;
    rustix::thread::set_name(&name)?;
    let place = args.place.to_str().context("the demo's folder has a strange name")?.to_owned();
    let options = if args.role.is_legacy() {
        Options::default().transport(Transport::Legacy(place))
    } else {
        Options::default().folder(place).runtime("simulated")
    };
    let tracker = Tracker::new(&options);
    let mut workload = Workload::new(&tracker, args.sim, args.role)?;
    match args.role {
        Role::Llm => workload.run_llm(),
        Role::Vision => workload.run_vision(),
        Role::Diffusion => workload.run_diffusion(),
        Role::Leaky => workload.run_leaky(),
        Role::Victim => workload.run_victim(),
    }
}

/// A workload on an allocator over some devices.
struct Workload<'a> {
    tracker: &'a Tracker,
    allocator: AllocatorNumber,
    grid: (u8, u8),
    dram_banks: u64,
    l1_banks: u64,
    /// Address of the first circular buffer on a core.
    cb_base: u64,
    /// End of the L1 buffers.
    l1_top: u64,
    /// Address of `L1_SMALL`.
    l1_small: u64,
    /// Address of the trace region.
    trace: u64,
    /// Address in a DRAM bank above the memory of the language model, for all other workloads.
    upper: u64,
}

impl<'a> Workload<'a> {
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
            // Banks of a Blackhole are larger than those of a Wormhole.
            upper: if base(Space::Trace) > 2 << 30 { 0x4000_0000 } else { 0x2000_0000 },
        })
    }

    fn allocate(&self, space: Space, address: u64, bytes: u64, site: &str) -> anyhow::Result<()> {
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

    /// Allocates a sharded buffer on some cores.
    fn allocate_sharded(
        &self,
        address: u64,
        bytes_per_core: u64,
        cores: OpCores,
        layout: Layout,
        site: &str,
    ) -> anyhow::Result<()> {
        let ranges = cores.ranges(self.grid);
        let count = |it: &CoreRange| u64::from(it.to.0 - it.from.0 + 1) * u64::from(it.to.1 - it.from.1 + 1);
        let bytes = bytes_per_core * ranges.iter().map(count).sum::<u64>();
        let buffer = Buffer::new(self.allocator, Space::L1, address, bytes)
            .bytes_per_bank(bytes_per_core)
            .occupied(bytes)
            .cores(self.tracker.define_cores(&ranges)?)
            .layout(layout)
            .site(self.tracker.define_site(site)?);
        self.tracker.alloc(&buffer)?;
        Ok(())
    }

    fn free(&self, space: Space, address: u64) -> anyhow::Result<()> {
        self.tracker.free(self.allocator, space, address)?;
        Ok(())
    }

    fn wait(&self, ms: u64) {
        std::thread::sleep(Duration::from_millis(ms));
        self.tracker.refresh();
    }

    fn load_kernel(
        &self,
        program: u32,
        id: u64,
        bytes: u64,
        cores: CoresNumber,
        class: KernelClass,
    ) -> anyhow::Result<()> {
        let allocator = self.allocator;
        self.tracker.load_kernel(&Kernel::new(allocator, program, id, bytes).cores(cores).class(class))?;
        Ok(())
    }

    /// Compiles a program: a kernel, and circular buffers from the base address that all programs share.
    fn compile(&self, program: u32, op: &Op) -> anyhow::Result<()> {
        let cores = self.tracker.define_cores(&op.cores.ranges(self.grid))?;
        let site = self.tracker.define_site(op.name)?;
        self.tracker.build_program(&Program::new(self.allocator, program).cores(cores).site(site))?;
        self.load_kernel(
            program,
            0x1000 + u64::from(program),
            op.kernel_bytes,
            cores,
            KernelClass::Application,
        )?;
        let mut address = self.cb_base;
        for kib in op.cbs {
            let placed = Placement::new(self.allocator, program, Space::Cb, address, kib * KIB);
            self.tracker.place(&placed.cores(cores))?;
            address += kib * KIB;
        }
        Ok(())
    }

    /// Compiles operations, each several times as for other shapes. Programs are numbered from 1.
    fn compile_all(&self, ops: &[Op], times: u32) -> anyhow::Result<()> {
        for program in 0..ops.len() as u32 * times {
            self.compile(1 + program, &ops[program as usize % ops.len()])?;
            self.wait(30);
        }
        Ok(())
    }

    fn dispatch(&self, program: u32) -> anyhow::Result<()> {
        self.tracker.dispatch(self.allocator, program)?;
        Ok(())
    }

    fn run_llm(&mut self) -> anyhow::Result<()> {
        let all = self.tracker.define_cores(&OpCores::All.ranges(self.grid))?;
        let row = self.tracker.define_cores(&OpCores::Row(0).ranges(self.grid))?;
        for n in 0..2 {
            self.load_kernel(1000, 0x10 + n, 57_344, row, KernelClass::Fabric)?;
            self.load_kernel(1001, 0x20 + n, 47_104, all, KernelClass::Dispatch)?;
        }
        let mut at = 2 * MIB;
        let weights = [(56, "mlp.gate_up"), (24, "attention.qkv"), (56, "mlp.down"), (1, "norms")];
        for _layer in 0..32 {
            for (mib, what) in weights {
                self.allocate(Space::Dram, at, mib * MIB, &format!("load.py:52 {what}"))?;
                at += (mib * MIB).div_ceil(TILE).div_ceil(self.dram_banks) * TILE;
            }
            self.wait(120);
        }
        self.allocate(Space::Dram, at, 1536 * MIB, "model.py:61 kv_cache")?;
        self.allocate(Space::Trace, self.trace, 24 * MIB, "generate.py:66 capture")?;
        self.compile_all(&LLM, 3)?;
        let programs = LLM.len() as u32;
        for request in 0u32.. {
            // Prefill: one operation after another, each with its activations.
            for step in 0..programs * 2 {
                let program = 1 + step % programs + request % 3 * programs;
                let hidden = self.l1_top - 2 * 0x1_0000;
                self.allocate(
                    Space::L1,
                    hidden,
                    u64::from(2 + step % 3) * MIB,
                    "model.py:116 hidden_states",
                )?;
                let scores = self.l1_top - 5 * 0x1_0000;
                let heads = if step % 2 == 0 { OpCores::Block(0, 0, 4) } else { OpCores::Block(4, 2, 4) };
                self.allocate_sharded(
                    scores,
                    96 * KIB,
                    heads,
                    Layout::HeightSharded,
                    "model.py:129 attention.scores",
                )?;
                self.dispatch(program)?;
                self.wait(220);
                self.free(Space::L1, scores)?;
                self.free(Space::L1, hidden)?;
            }
            // Decode: replays of one trace. Its state is allocated before, since nothing may be allocated during a trace.
            let (trace, state) = (1 + request, self.l1_top - 0x2_0000);
            let heads = OpCores::Block(2, 0, 4);
            self.allocate_sharded(
                state,
                64 * KIB,
                heads,
                Layout::WidthSharded,
                "generate.py:63 decode_state",
            )?;
            self.tracker.capture_trace(self.allocator, trace, u64::from(programs))?;
            for token in 0..40 {
                self.tracker.replay_trace(self.allocator, trace)?;
                self.dispatch(1 + token % programs)?;
                self.wait(180);
            }
            self.tracker.release_trace(self.allocator, trace)?;
            self.free(Space::L1, state)?;
        }
        Ok(())
    }

    fn run_vision(&mut self) -> anyhow::Result<()> {
        self.wait(1500);
        let dram = self.upper + 0x1000_0000;
        for n in 0..54 {
            self.allocate(Space::Dram, dram + n * MIB, (1 + n % 4) * MIB, "resnet.py:19 weights")?;
            self.wait(30);
        }
        self.allocate(Space::L1Small, self.l1_small, 24 * KIB * self.l1_banks, "resnet.py:30 halo_config")?;
        self.compile_all(&VISION, 1)?;
        let layers = VISION.len() as u64;
        for batch in 0u64.. {
            for layer in 0..layers {
                let address = |layer: u64| 0xa_0000 + layer % 4 * 0x1_8000;
                let op = &VISION[layer as usize];
                // The size varies with the image.
                let size = (24 + 8 * ((layer + batch) % 5)) * KIB;
                self.allocate_sharded(address(layer), size, op.cores, Layout::BlockSharded, op.site)?;
                self.dispatch(1 + layer as u32)?;
                self.wait(120);
                if layer > 0 {
                    self.free(Space::L1, address(layer - 1))?;
                }
            }
            self.free(Space::L1, 0xa_0000 + (layers - 1) % 4 * 0x1_8000)?;
        }
        Ok(())
    }

    fn run_diffusion(&mut self) -> anyhow::Result<()> {
        self.wait(800);
        let dram = self.upper + 0x0400_0000;
        for n in 0..24 {
            self.allocate(Space::Dram, dram + n * 10 * MIB, 64 * MIB, "unet.py:31 weights")?;
            self.wait(60);
        }
        self.compile_all(&DIFFUSION, 2)?;
        let programs = DIFFUSION.len() as u32;
        for step in 0u32.. {
            let latents = self.l1_top - 9 * 0x1_0000;
            let size = (64 + u64::from(step / 20 % 3) * 48) * KIB;
            self.allocate_sharded(
                latents,
                size,
                OpCores::Block(1, 1, 5),
                Layout::BlockSharded,
                "unet.py:77 latents",
            )?;
            for n in 0..programs {
                self.dispatch(1 + n + step % 2 * programs)?;
                self.wait(160);
            }
            self.free(Space::L1, latents)?;
        }
        Ok(())
    }

    fn run_leaky(&mut self) -> anyhow::Result<()> {
        let (kept, freed) = (|n: u64| self.upper + n * 128 * KIB, self.upper + 0x1e00_0000);
        for n in 0u64.. {
            let n = n % EPOCH;
            self.allocate(Space::Dram, kept(n), MIB, "train.py:212 losses")?;
            self.allocate(Space::Dram, freed, 4 * MIB, "train.py:208 batch")?;
            self.wait(700);
            self.free(Space::Dram, freed)?;
            if n + 1 == EPOCH {
                // Start over after half an hour, so that the demo can run for long.
                for n in 0..EPOCH {
                    self.free(Space::Dram, kept(n))?;
                }
            }
        }
        Ok(())
    }

    fn run_victim(&mut self) -> anyhow::Result<()> {
        let (base, scratch) = (self.upper + 0x1800_0000, self.upper + 0x0ff0_0000);
        for n in 0u64.. {
            let program = 1 + (n % 40) as u32;
            if n < 40 {
                self.allocate(Space::Dram, base + n * 2 * MIB, 8 * MIB, "sweep.py:18 cases")?;
                self.compile(program, &VICTIM[n as usize % VICTIM.len()])?;
            }
            self.dispatch(program)?;
            if n % 10 == 9 {
                // A double free, which the library refuses and a finding reports.
                self.allocate(Space::Dram, scratch, MIB, "sweep.py:34 check")?;
                self.free(Space::Dram, scratch)?;
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
                    let end = base.next_multiple_of(64) + op.cbs.iter().sum::<u64>() * KIB;
                    assert!(end <= 0xa_0000, "{board} {}: {end:#x}", op.name);
                }
                assert!(ranges.len() >= 4, "operations use different cores");
            }
        }
    }
}
