//! Lists of allocations, and of groups of them.

use super::{KIB, MIB, text};
use ttmem_core::snapshot::{Allocation, BufferGroup, Buffers, Origin};
use ttmem_core::words::{Basis, Layout, Purpose, Space};

const FILE: &str = "/home/ml/llama/model.py";

/// What is known about the call site of a buffer.
fn origin(n: u64, space: Space) -> Origin {
    let is_tensor = matches!(space, Space::Dram | Space::L1);
    Origin {
        file: text(FILE),
        line: Some(40 + n as u32 % 9),
        function: text("Attention.forward"),
        op: is_tensor.then(|| "ttnn.linear".to_owned()),
        purpose: Some(match space {
            Space::Trace => Purpose::Trace,
            Space::L1Small => Purpose::Semaphore,
            _ if n % 2 == 1 => Purpose::Raw,
            _ => Purpose::Tensor,
        }),
        tensor: is_tensor.then(|| "bfloat16 [1, 32, 4096] tile".to_owned()),
        track: n.is_multiple_of(3).then(|| "decode / attention".to_owned()),
        stack: match n {
            0 => [42, 188, 301].map(|line| format!("model.py:{line} (Attention.forward)")).to_vec(),
            _ => Vec::new(),
        },
    }
}

pub(super) fn allocation(n: u64, pid: u32, indexes: &[u32]) -> Allocation {
    let space = [Space::Dram, Space::Dram, Space::L1, Space::Dram, Space::Cb, Space::L1Small, Space::Trace]
        [n as usize % 7];
    let bytes = (96 * MIB) / (n + 1);
    let sharded = space == Space::L1;
    Allocation {
        pid: Some(pid),
        reported_pid: None,
        devices: indexes
            .iter()
            .map(|index| format!("0x{:016x}", 0x0100_0144_1181_1000 + u64::from(*index)))
            .collect(),
        indexes: indexes.to_vec(),
        allocator: Some(1),
        space,
        id: format!("0x{:x}", 0x2_0000 + n * 0x4_c800),
        requested_bytes: bytes,
        occupied_bytes: Some(bytes),
        allocated_bytes: (space != Space::Cb).then(|| bytes.next_multiple_of(12 * 2 * KIB)),
        bytes_per_bank: (space != Space::Cb).then(|| bytes.div_ceil(12)),
        banks: (space != Space::Cb).then_some(12),
        layout: match space {
            Space::Dram | Space::Trace | Space::L1Small => Some(Layout::Interleaved),
            Space::L1 => Some(Layout::HeightSharded),
            _ => None,
        },
        cores: sharded.then(|| vec![[0, 0, 7, 3]]),
        estimated: false,
        unplaced: false,
        references: if n == 3 { 2 } else { 1 },
        age_seconds: (n * n) as f64 * 1.7 + 0.2,
        kernel: None,
        program: (space == Space::Cb).then_some(17),
        site: (n % 3 != 1).then_some(n as u32 % 9),
        site_name: (n % 3 != 1).then(|| format!("model.py:{} (Attention.forward)", 40 + n % 9)),
        origin: if n % 3 == 1 { Origin::default() } else { origin(n, space) },
        program_name: (space == Space::Cb).then(|| "ttnn.matmul".to_owned()),
        hidden: false,
        basis: Basis::Exact,
    }
}

/// The first page of a list of `count` allocations.
pub(super) fn page(count: u64, pid: u32, indexes: &[u32]) -> Buffers {
    let list: Vec<Allocation> = (0..count.min(120)).map(|n| allocation(n, pid, indexes)).collect();
    let used = |it: &Allocation| it.allocated_bytes.unwrap_or(it.requested_bytes);
    let group = |n: u64| BufferGroup {
        hidden: false,
        pid: Some(pid + n as u32 % 2 * 764),
        process_name: text(if n.is_multiple_of(2) { "python3" } else { "llama-serve" }),
        space: (n < 4).then_some(if n.is_multiple_of(3) { Space::Dram } else { Space::L1 }),
        program: (n == 4).then_some(17),
        program_name: (n == 4).then(|| "ttnn.matmul".to_owned()),
        site: (n > 4).then_some(n as u32),
        site_name: (n > 5).then(|| format!("model.py:{} (Attention.forward)", 40 + n)),
        label: (n == 3).then(|| "ttnn.linear".to_owned()),
        count: 90 / (n + 1),
        requested_bytes: 300 * MIB / (n + 1),
        used_bytes: 301 * MIB / (n + 1),
    };
    Buffers {
        hidden_count: 0,
        hidden_bytes: 0,
        count,
        requested_bytes: list.iter().map(|it| it.requested_bytes).sum(),
        used_bytes: list.iter().map(used).sum(),
        offset: 0,
        list,
        group_count: 8,
        groups: (0..8).map(group).collect(),
    }
}
