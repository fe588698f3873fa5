//! The lives of the demo's client processes. They publish themselves as any program can, with the client library; one
//! speaks the old protocol, as a patched tt-metal does.

use crate::cli::DemoClientArgs;
use crate::sim::Machine;
use anyhow::Context;
use std::time::Duration;
use ttmem_client::{
    AllocatorNumber, Buffer, CoreRange, CoresNumber, Kernel, KernelClass, Options, Placement, Space, Tracker,
    Transport,
};

/// Who a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Role {
    /// A language model over all chips: weights, cache, trace, then token after token.
    Llm,
    /// A vision model on the first chip: little DRAM, much L1.
    Vision,
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
/// Where circular buffers begin in a Wormhole core.
const CB_BASE: u64 = 0x19d60;

pub(crate) fn run(args: &DemoClientArgs) -> anyhow::Result<()> {
    super::end_with(args.parent)?;
    let name = std::ffi::CString::new(format!("demo-{}", args.role.name()))?;
    rustix::thread::set_name(&name)?;
    let place = args.place.to_str().context("the demo's folder has a strange name")?.to_owned();
    let options = if args.role.is_legacy() {
        Options { transport: Transport::Legacy(place), ..Options::default() }
    } else {
        Options { folder: place, runtime: "simulated".to_owned(), ..Options::default() }
    };
    let tracker = Tracker::new(&options);
    let mut life = Life::new(&tracker, args.sim, args.role)?;
    match args.role {
        Role::Llm => life.llm(),
        Role::Vision => life.vision(),
        Role::Leaky => life.leaky(),
        Role::Victim => life.victim(),
    }
}

struct Life<'a> {
    tracker: &'a Tracker,
    allocator: AllocatorNumber,
    /// Cores that its programs run on: one program on these, the next on those.
    cores: [CoresNumber; 3],
    dram_banks: u64,
    l1_banks: u64,
}

type Told = anyhow::Result<()>;

impl<'a> Life<'a> {
    fn new(tracker: &'a Tracker, machine: Machine, role: Role) -> anyhow::Result<Self> {
        let mut chips = Vec::new();
        for chip in machine.client_chips() {
            chips.push(tracker.chip(&chip)?);
        }
        let chips = match role {
            Role::Llm => &chips[..],
            Role::Vision | Role::Victim => &chips[..1],
            Role::Leaky => &chips[chips.len() - 1..],
        };
        let banks = machine.banks();
        let count = |space| {
            let found = banks.iter().find(|it| it.space == space as u8);
            found.map_or(1, |it| u64::from(it.banks.get()))
        };
        let (dram_banks, l1_banks) = (count(Space::Dram), count(Space::L1));
        let allocator = tracker.allocator(chips, &banks)?;
        let all = CoreRange { from: (0, 0), to: (7, 6) };
        let part = CoreRange { from: (0, 0), to: (7, 3) };
        let row = CoreRange { from: (0, 0), to: (3, 0) };
        let cores = [tracker.cores(&[all])?, tracker.cores(&[part])?, tracker.cores(&[row])?];
        Ok(Self { tracker, allocator, cores, dram_banks, l1_banks })
    }

    fn take(&self, space: Space, address: u64, bytes: u64) -> Told {
        let banks = match space {
            Space::Dram | Space::Trace => self.dram_banks,
            _ => self.l1_banks,
        };
        let bytes_per_bank = bytes.div_ceil(TILE).div_ceil(banks) * TILE;
        let buffer = Buffer {
            bytes_per_bank,
            occupied: Some(bytes.next_multiple_of(TILE)),
            ..Buffer::new(self.allocator, space, address, bytes)
        };
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

    fn cores_of(&self, program: u32) -> CoresNumber {
        self.cores[program as usize % self.cores.len()]
    }

    fn kernel(&self, program: u32, id: u64, bytes: u64, class: KernelClass) -> Told {
        let (allocator, cores) = (self.allocator, self.cores_of(program));
        self.tracker.load_kernel(&Kernel { allocator, program, id, bytes, cores, class })?;
        Ok(())
    }

    /// A program: a kernel, and circular buffers where all programs have theirs.
    fn compile(&self, program: u32, name: &str) -> Told {
        self.tracker.begin_program(self.allocator, program, name)?;
        self.kernel(program, 0x1000 + u64::from(program), 6 * KIB, KernelClass::Application)?;
        let mut address = CB_BASE;
        for size in [32 * KIB, 16 * KIB, 64 * KIB] {
            let bytes = size + u64::from(program % 3) * 8 * KIB;
            self.tracker.place(&Placement {
                allocator: self.allocator,
                program,
                space: Space::Cb,
                address,
                bytes,
                cores: self.cores_of(program),
                view: false,
            })?;
            address += bytes;
        }
        Ok(())
    }

    fn llm(&mut self) -> Told {
        for n in 0..2 {
            self.kernel(1000, 0x10 + n, 57_344, KernelClass::Fabric)?;
            self.kernel(1001, 0x20 + n, 47_104, KernelClass::Dispatch)?;
        }
        let mut at = 2 * MIB;
        for _layer in 0..32 {
            for size in [56 * MIB, 24 * MIB, 56 * MIB, MIB] {
                self.take(Space::Dram, at, size)?;
                at += size.div_ceil(TILE).div_ceil(self.dram_banks) * TILE;
            }
            self.wait(120);
        }
        self.take(Space::Dram, at, 1536 * MIB)?;
        self.take(Space::Trace, 0x3f00_0000, 24 * MIB)?;
        for program in 1..=24 {
            self.compile(program, ["matmul", "add", "softmax", "layernorm"][program as usize % 4])?;
            self.wait(40);
        }
        for token in 0u32.. {
            let activations =
                [(0x15_0000, 3 * MIB), (0x14_0000, 3 * MIB), (0x13_0000, u64::from(2 + token % 3) * MIB)];
            for (address, size) in activations {
                self.take(Space::L1, address, size)?;
            }
            self.tracker.dispatch(self.allocator, 1 + token % 24)?;
            self.wait(300);
            for (address, _) in activations {
                self.give_back(Space::L1, address)?;
            }
            self.wait(60);
        }
        Ok(())
    }

    fn vision(&mut self) -> Told {
        self.wait(1500);
        for n in 0..54 {
            self.take(Space::Dram, 0x3000_0000 + n * MIB, (1 + n % 4) * MIB)?;
            self.wait(30);
        }
        self.take(Space::L1Small, 0x16_8000, 56 * 24 * KIB)?;
        for batch in 0u64.. {
            for layer in 0..12 {
                let place = |layer: u64| 0xa_0000 + layer * 0xc000;
                self.take(Space::L1, place(layer), (1 + (layer + batch) % 2) * MIB)?;
                self.wait(40);
                if layer > 0 {
                    self.give_back(Space::L1, place(layer - 1))?;
                }
                if layer == 11 {
                    self.give_back(Space::L1, place(layer))?;
                }
            }
        }
        Ok(())
    }

    fn leaky(&mut self) -> Told {
        for n in 0u64.. {
            let (kept, freed) = (0x2000_0000 + n * MIB, 0x2f00_0000);
            self.take(Space::Dram, kept, MIB)?;
            self.take(Space::Dram, freed, 4 * MIB)?;
            self.wait(700);
            self.give_back(Space::Dram, freed)?;
        }
        Ok(())
    }

    fn victim(&mut self) -> Told {
        for n in 0u64.. {
            if n < 40 {
                self.take(Space::Dram, 0x3800_0000 + n * MIB, 8 * MIB)?;
                self.compile(1 + n as u32, "victim")?;
                self.tracker.dispatch(self.allocator, 1 + n as u32)?;
            }
            if n % 10 == 9 {
                // It frees what it freed before; the library says so, and a finding does.
                self.take(Space::Dram, 0x3000_0000 - MIB, MIB)?;
                self.give_back(Space::Dram, 0x3000_0000 - MIB)?;
                let _ = self.tracker.free(self.allocator, Space::Dram, 0x3000_0000 - MIB);
            }
            self.wait(150);
        }
        Ok(())
    }
}
