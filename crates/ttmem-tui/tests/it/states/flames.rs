//! Flames of the processes of a state.

use ttmem_core::snapshot::{Flame, FlameMoment, FlamePool, FlameStack, Frame, FrameKind, Process};
use ttmem_core::words::{Basis, Space};

/// Lines that allocate little: too narrow for any screen.
const SMALL: u32 = 12;
const UNKNOWN: u32 = 13;

fn frames() -> Vec<Frame> {
    let call = |file: &str, line: u32, function: &str| Frame {
        kind: FrameKind::Call,
        name: format!("{file}:{line} ({function})"),
        file: Some(format!("/home/ml/llama/{file}")),
        line: Some(line),
    };
    let other = |kind, name: &str| Frame { kind, name: name.to_owned(), file: None, line: None };
    let mut frames = vec![
        call("generate.py", 301, "main"),
        call("generate.py", 188, "Generator.run"),
        call("model.py", 42, "Transformer.forward"),
        call("attention.py", 77, "Attention.forward"),
        call("model.py", 91, "Mlp.forward"),
        call("attention.py", 61, "Attention.init_cache"),
        call("load.py", 52, "load_matrix"),
        other(FrameKind::Op, "ttnn.linear"),
        other(FrameKind::Op, "ttnn.as_tensor"),
        other(FrameKind::Op, "ttnn.zeros"),
        other(FrameKind::Contents, "bfloat16 [1, 32, 4096] tile"),
        other(FrameKind::Contents, "bfloat8_b [1, 1, 4096, 14336] tile"),
        other(FrameKind::Contents, "semaphore"),
        other(FrameKind::Unknown, "unknown"),
    ];
    frames.extend((0..SMALL).map(|n| call("load.py", 60 + n, "load_norms")));
    frames
}

fn stack(frames: &[u32], count: u64, bytes: u64) -> FlameStack {
    FlameStack { frames: frames.to_vec(), count: Some(count), bytes }
}

/// Stacks with this many bytes of DRAM.
fn in_dram(bytes: u64) -> Vec<FlameStack> {
    let mut stacks = vec![
        stack(&[0, 1, 6, 8, 11], 96, bytes / 10 * 6),
        stack(&[0, 1, 5, 9, 10], 32, bytes / 5),
        stack(&[0, 1, 2, 3, 7, 10], 6, bytes / 10),
        stack(&[0, 1, 2, 4, 7, 10], 6, bytes / 16),
    ];
    stacks.extend((0..SMALL).map(|n| stack(&[0, 1, UNKNOWN + 1 + n, 8, 10], 2, bytes / 1000)));
    let listed: u64 = stacks.iter().map(|it| it.bytes).sum();
    stacks.push(stack(&[0, 12], 3, bytes - listed));
    stacks
}

fn pools(process: &Process) -> Vec<FlamePool> {
    let summary = &process.summary;
    let pool = |space, bytes: u64, stacks| FlamePool {
        pid: process.pid,
        reported_pid: process.reported_pid,
        process_name: process.name.clone(),
        hidden: false,
        indexes: summary.indexes.clone(),
        space,
        bytes: Some(bytes),
        at: None,
        gap: None,
        stacks,
    };
    let devices = summary.indexes.len().max(1) as u64;
    let per_device = |bytes: Option<u64>| bytes.map_or(0, |bytes| bytes / devices);
    let (dram, l1) = (per_device(summary.dram_bytes), per_device(summary.l1_bytes));
    let mut pools = Vec::new();
    if dram > 0 && process.basis == Basis::Exact {
        pools.push(pool(Space::Dram, dram, in_dram(dram)));
    } else if dram > 0 {
        let unknown = FlameStack { frames: vec![UNKNOWN], count: None, bytes: dram };
        pools.push(pool(Space::Dram, dram, vec![unknown]));
    }
    if l1 > 0 {
        pools.push(pool(
            Space::L1,
            l1,
            vec![stack(&[0, 1, 2, 3, 7, 10], 2, l1 - l1 / 9), stack(&[0, 12], 4, l1 / 9)],
        ));
    }
    pools
}

/// The live buffers of processes.
pub(super) fn flame(processes: &[Process]) -> Flame {
    Flame { moment: FlameMoment::Live, frames: frames(), pools: processes.iter().flat_map(pools).collect() }
}
