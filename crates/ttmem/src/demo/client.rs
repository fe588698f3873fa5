//! The lives of the demo's client processes, told to the daemon in the old protocol, as a patched tt-metal tells them.

use crate::cli::DemoClientArgs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use ttmem_wire::legacy::{MAX_SIZE, Message, Type, Vintage, buffer_type, kernel_type};

/// Who a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Role {
    /// A language model over all chips: weights, cache, trace, then token after token.
    Llm,
    /// A vision model on the first chip: little DRAM, much L1.
    Vision,
    /// Forgets a buffer now and then, and frees another twice.
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
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Where circular buffers begin in a Wormhole core.
const CB_BASE: u64 = 0x19d60;

pub(crate) fn run(args: &DemoClientArgs) -> anyhow::Result<()> {
    super::end_with(args.parent)?;
    let name = std::ffi::CString::new(format!("demo-{}", args.role.name()))?;
    rustix::thread::set_name(&name)?;
    let mut life = Life { socket: UnixStream::connect(&args.socket)?, chips: args.chips };
    let end = match args.role {
        Role::Llm => life.llm(),
        Role::Vision => life.vision(),
        Role::Leaky => life.leaky(),
        Role::Victim => life.victim(),
    };
    match end {
        // The daemon is gone: so is the demo.
        Err(e)
            if matches!(e.kind(), std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset) =>
        {
            Ok(())
        }
        end => Ok(end?),
    }
}

struct Life {
    socket: UnixStream,
    chips: u32,
}

type Told = std::io::Result<()>;

impl Life {
    fn tell(&mut self, kind: Type, device: u32, buffer_type: u8, id: u64, size: u64) -> Told {
        let timestamp = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |now| now.as_nanos() as u64);
        let message = Message {
            device_id: device as i32,
            size,
            buffer_type,
            process_id: std::process::id() as i32,
            buffer_id: id,
            timestamp,
            ..Message::new(kind)
        };
        let mut buffer = [0; MAX_SIZE];
        self.socket.write_all(message.encode(Vintage::V144, &mut buffer))
    }

    /// The same on every chip, as a mesh does it.
    fn tell_all(&mut self, kind: Type, buffer_type: u8, id: u64, size: u64) -> Told {
        (0..self.chips).try_for_each(|device| self.tell(kind, device, buffer_type, id, size))
    }

    fn wait(ms: u64) {
        std::thread::sleep(Duration::from_millis(ms));
    }

    /// A program: kernels on its cores, and circular buffers where all programs have theirs.
    fn compile(&mut self, program: u64) -> Told {
        self.tell_all(Type::KernelLoad, kernel_type::APPLICATION, 0x1000 + program, 64 * KIB)?;
        for (n, size) in [32 * KIB, 16 * KIB, 64 * KIB].into_iter().enumerate() {
            let id = CB_BASE + n as u64 * 64 * KIB;
            self.tell_all(Type::CbAlloc, 0, id, size + (program % 3) * 8 * KIB)?;
        }
        Ok(())
    }

    fn llm(&mut self) -> Told {
        for n in 0..2 {
            self.tell_all(Type::KernelLoad, kernel_type::FABRIC, 0x10 + n, 57_344)?;
            self.tell_all(Type::KernelLoad, kernel_type::DISPATCH, 0x20 + n, 47_104)?;
        }
        let mut at = MIB;
        for _layer in 0..32 {
            for size in [56 * MIB, 24 * MIB, 56 * MIB, MIB] {
                self.tell_all(Type::Alloc, buffer_type::DRAM, at, size)?;
                at += size / 12;
            }
            Self::wait(120);
        }
        self.tell_all(Type::Alloc, buffer_type::DRAM, at, 1536 * MIB)?;
        self.tell_all(Type::Alloc, buffer_type::TRACE, 0x3f00_0000, 24 * MIB)?;
        for program in 0..24 {
            self.compile(program)?;
            Self::wait(40);
        }
        for token in 0u64.. {
            let activations =
                [(0x15_0000, 6 * MIB), (0x14_0000, 12 * MIB), (0x13_0000, (4 + token % 5) * MIB)];
            for (id, size) in activations {
                self.tell_all(Type::Alloc, buffer_type::L1, id, size)?;
            }
            Self::wait(300);
            for (id, size) in activations {
                self.tell_all(Type::Free, 0, id, size)?;
            }
            Self::wait(60);
        }
        Ok(())
    }

    fn vision(&mut self) -> Told {
        Self::wait(1500);
        for n in 0..54 {
            self.tell(Type::Alloc, 0, buffer_type::DRAM, 0x3000_0000 + n * MIB, (1 + n % 4) * MIB)?;
            Self::wait(30);
        }
        self.tell(Type::Alloc, 0, buffer_type::L1_SMALL, 0x16_0000, 64 * 24 * KIB)?;
        for batch in 0u64.. {
            for layer in 0..12 {
                let size = (2 + (layer + batch) % 4) * MIB;
                self.tell(Type::Alloc, 0, buffer_type::L1, 0x10_0000 + layer * 0x4000, size)?;
                Self::wait(40);
                if layer > 0 {
                    self.tell(Type::Free, 0, 0, 0x10_0000 + (layer - 1) * 0x4000, 0)?;
                }
            }
            self.tell(Type::Free, 0, 0, 0x10_0000 + 11 * 0x4000, 0)?;
        }
        Ok(())
    }

    fn leaky(&mut self) -> Told {
        let device = self.chips - 1;
        for n in 0u64.. {
            let (kept, freed) = (0x2000_0000 + n * MIB, 0x2f00_0000);
            self.tell(Type::Alloc, device, buffer_type::DRAM, kept, MIB)?;
            self.tell(Type::Alloc, device, buffer_type::DRAM, freed, 4 * MIB)?;
            Self::wait(700);
            self.tell(Type::Free, device, 0, freed, 0)?;
            if n % 10 == 9 {
                self.tell(Type::Free, device, 0, freed, 0)?;
            }
        }
        Ok(())
    }

    fn victim(&mut self) -> Told {
        for n in 0.. {
            if n < 40 {
                self.tell(Type::Alloc, 0, buffer_type::DRAM, 0x3800_0000 + n * MIB, 8 * MIB)?;
                self.tell(Type::CbAlloc, 0, 0, CB_BASE + n * 4 * KIB, 4 * KIB)?;
                self.tell(Type::KernelLoad, 0, kernel_type::APPLICATION, 0x9000 + n, 12 * KIB)?;
            }
            Self::wait(150);
        }
        Ok(())
    }
}
