//! The workloads of the demo's client processes. They report through the client library, as any program can; one uses the
//! old protocol, as a patched tt-metal does.

mod ops;
mod sites;

use self::ops::{DIFFUSION, LLM, Op, OpCores, VICTIM, VISION};
use self::sites::Site;
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

    fn allocate(&self, space: Space, address: u64, bytes: u64, site: &Site) -> anyhow::Result<()> {
        let banks = match space {
            Space::Dram | Space::Trace => self.dram_banks,
            _ => self.l1_banks,
        };
        let bytes_per_bank = bytes.div_ceil(TILE).div_ceil(banks) * TILE;
        let buffer = Buffer::new(self.allocator, space, address, bytes)
            .bytes_per_bank(bytes_per_bank)
            .occupied(bytes.next_multiple_of(TILE))
            .layout(Layout::Interleaved)
            .site(site.define(self.tracker, bytes)?);
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
        site: &Site,
    ) -> anyhow::Result<()> {
        let ranges = cores.ranges(self.grid);
        let count = |it: &CoreRange| u64::from(it.to.0 - it.from.0 + 1) * u64::from(it.to.1 - it.from.1 + 1);
        let bytes = bytes_per_core * ranges.iter().map(count).sum::<u64>();
        let buffer = Buffer::new(self.allocator, Space::L1, address, bytes)
            .bytes_per_bank(bytes_per_core)
            .occupied(bytes)
            .cores(self.tracker.define_cores(&ranges)?)
            .layout(layout)
            .site(site.define(self.tracker, bytes)?);
        self.tracker.alloc(&buffer)?;
        Ok(())
    }

    /// Reports an L1 buffer for which there was no block.
    fn report_out_of_memory(&self, bytes_per_bank: u64, largest: u64, site: &Site) -> anyhow::Result<()> {
        let bytes = bytes_per_bank * self.l1_banks;
        let buffer = Buffer::new(self.allocator, Space::L1, 0, bytes)
            .bytes_per_bank(bytes_per_bank)
            .site(site.define(self.tracker, bytes)?);
        self.tracker.report_out_of_memory(&buffer, Some(largest))?;
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
        let site = self.tracker.define_call_site(&op.site.of_program(&op.device_operation()))?;
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
        for _layer in 0..32 {
            for (mib, site) in &sites::LLM_WEIGHTS {
                self.allocate(Space::Dram, at, mib * MIB, site)?;
                at += (mib * MIB).div_ceil(TILE).div_ceil(self.dram_banks) * TILE;
            }
            self.wait(120);
        }
        self.allocate(Space::Dram, at, 1536 * MIB, &sites::KV_CACHE)?;
        // Above the activations.
        self.allocate(Space::L1, self.l1_top - TILE, self.l1_banks * 16, &sites::SEMAPHORE)?;
        self.allocate(Space::Trace, self.trace, 24 * MIB, &sites::TRACE)?;
        self.compile_all(&LLM, 3)?;
        let programs = LLM.len() as u32;
        for request in 0u32.. {
            // Prefill: one operation after another, each with its activations.
            for step in 0..programs * 2 {
                let program = 1 + step % programs + request % 3 * programs;
                let hidden = self.l1_top - 2 * 0x1_0000;
                self.allocate(Space::L1, hidden, u64::from(2 + step % 3) * MIB, &sites::HIDDEN_STATES)?;
                let scores = self.l1_top - 5 * 0x1_0000;
                let heads = if step % 2 == 0 { OpCores::Block(0, 0, 4) } else { OpCores::Block(4, 2, 4) };
                self.allocate_sharded(scores, 96 * KIB, heads, Layout::HeightSharded, &sites::SCORES)?;
                self.dispatch(program)?;
                self.wait(220);
                self.free(Space::L1, scores)?;
                self.free(Space::L1, hidden)?;
            }
            // Decode: replays of one trace. Its state is allocated before, since nothing may be allocated during a trace.
            let (trace, state) = (1 + request, self.l1_top - 0x2_0000);
            let heads = OpCores::Block(2, 0, 4);
            self.allocate_sharded(state, 64 * KIB, heads, Layout::WidthSharded, &sites::DECODE_STATE)?;
            self.tracker.capture_trace(self.allocator, trace, u64::from(programs))?;
            for token in 0..40 {
                self.tracker.replay_trace(self.allocator, trace)?;
                self.dispatch(1 + token % programs)?;
                self.wait(180);
            }
            self.tracker.release_trace(self.allocator, trace)?;
            self.free(Space::L1, state)?;
            self.tracker.mark("request", Some(request.into()))?;
        }
        Ok(())
    }

    fn run_vision(&mut self) -> anyhow::Result<()> {
        self.wait(1500);
        let dram = self.upper + 0x1000_0000;
        for n in 0..54 {
            self.allocate(Space::Dram, dram + n * MIB, (1 + n % 4) * MIB, &sites::RESNET_WEIGHTS)?;
            self.wait(30);
        }
        self.allocate(Space::L1Small, self.l1_small, 24 * KIB * self.l1_banks, &sites::HALO_CONFIG)?;
        self.compile_all(&VISION, 1)?;
        let layers = VISION.len() as u64;
        for batch in 0u64.. {
            for layer in 0..layers {
                let address = |layer: u64| 0xa_0000 + layer % 4 * 0x1_8000;
                let op = &VISION[layer as usize];
                // The size varies with the image.
                let size = (24 + 8 * ((layer + batch) % 5)) * KIB;
                self.allocate_sharded(address(layer), size, op.cores, Layout::BlockSharded, &op.site)?;
                self.dispatch(1 + layer as u32)?;
                self.wait(120);
                if (batch, layer) == (1, 3) {
                    // Two buffers are in the middle of L1, so there is no block for a third that is larger than each rest.
                    self.report_out_of_memory(
                        768 * KIB,
                        address(layer - 1) - self.cb_base,
                        &sites::FEATURES,
                    )?;
                }
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
            self.allocate(Space::Dram, dram + n * 10 * MIB, 64 * MIB, &sites::UNET_WEIGHTS)?;
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
                &sites::LATENTS,
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
            self.allocate(Space::Dram, kept(n), MIB, &sites::LOSSES)?;
            self.allocate(Space::Dram, freed, 4 * MIB, &sites::BATCH)?;
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
                self.allocate(Space::Dram, base + n * 2 * MIB, 8 * MIB, &sites::CASES)?;
                // The program cache keeps kernels in DRAM.
                self.allocate(Space::Dram, base + 0x0580_0000 + n * 16 * KIB, 96 * KIB, &sites::KERNELS)?;
                self.compile(program, &VICTIM[n as usize % VICTIM.len()])?;
            }
            self.dispatch(program)?;
            if n % 10 == 9 {
                // A double free, which the library refuses and a finding reports.
                self.allocate(Space::Dram, scratch, MIB, &sites::CHECK)?;
                self.free(Space::Dram, scratch)?;
                let _ = self.tracker.free(self.allocator, Space::Dram, scratch);
            }
            self.wait(150);
        }
        Ok(())
    }
}
