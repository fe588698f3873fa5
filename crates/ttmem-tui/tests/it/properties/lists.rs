//! Any lists of allocations and programs.

use super::generator::Generator;
use ttmem_core::snapshot::{
    Allocation, Block, BlockMap, BlockState, BufferGroup, Buffers, CoreAllocation, CoreAllocations,
    CoreClass, Origin, Placement, Program, ProgramList, ProgramRow,
};
use ttmem_core::words::{KernelClass, Layout, Purpose};

impl Generator<'_> {
    pub(super) fn core_allocations(&mut self) -> CoreAllocations {
        let one = |g: &mut Self| CoreAllocation {
            class: g.one(&[CoreClass::Buffer, CoreClass::Cb, CoreClass::Lockstep, CoreClass::Free]),
            start: g.number(),
            bytes: g.number(),
            pid: g.pid(),
            process_name: g.maybe(Self::text),
            program: g.maybe(Self::small),
            program_name: g.maybe(Self::text),
            site_name: g.maybe(Self::text),
            op: g.maybe(Self::text),
        };
        CoreAllocations {
            hidden_count: self.number(),
            device: self.small(),
            x: self.one(&[0, 1, 255]),
            y: self.one(&[0, 1, 255]),
            count: self.number(),
            list: self.some(6, one),
        }
    }

    pub(super) fn block_map(&mut self) -> BlockMap {
        let block = |g: &mut Self| Block {
            address: g.number(),
            bytes: g.number(),
            state: g.one(&[BlockState::Free, BlockState::Used, BlockState::Reserved]),
            largest: g.yes(),
            allocation: g.maybe(Self::allocation),
        };
        BlockMap {
            pid: self.pid(),
            reported_pid: self.maybe(Self::signed),
            process_name: self.maybe(Self::text),
            hidden: false,
            allocator: self.maybe(Self::small),
            devices: self.some(2, Self::id),
            indexes: self.some(4, Self::small),
            space: self.space(),
            basis: self.basis(),
            used_bytes: self.number(),
            unknown: self.maybe(Self::text).filter(|_| self.byte() > 200),
            banks: self.maybe(|g| g.small() as u16),
            base: self.maybe(Self::number),
            bytes_per_bank: self.maybe(Self::number),
            used_bytes_per_bank: self.maybe(Self::number),
            free_bytes_per_bank: self.maybe(Self::number),
            largest_free_bytes_per_bank: self.maybe(Self::number),
            largest_free_block_addrs: self.some(3, Self::number),
            single_core_bytes: self.number(),
            used_count: self.maybe(Self::number),
            free_count: self.maybe(Self::number),
            blocks: self.some(8, block),
            omitted_blocks: self.number(),
            parts: self.some(8, Self::byte),
        }
    }

    pub(super) fn program(&mut self) -> Program {
        Program {
            id: self.small(),
            allocator: self.maybe(Self::small),
            devices: self.some(2, Self::id),
            indexes: self.some(4, Self::small),
            name: self.maybe(Self::text),
            kernels: self.maybe(Self::text),
            site_name: self.maybe(Self::text),
            class: self.one(&[KernelClass::Application, KernelClass::Fabric, KernelClass::Unknown]),
            cores: self.some(3, Self::rectangle),
            core_count: self.small(),
            resident_cores: self.small(),
            dispatches: self.number(),
            residency_unknown: self.yes(),
            estimated: self.yes(),
            dispatched: self.maybe(Self::time),
            kernel_bytes: self.number(),
            cb_bytes: self.number(),
            dfb_bytes: self.number(),
            scratch_bytes: self.number(),
            view_count: self.number(),
            end: self.maybe(Self::number),
            would_clash: self.yes(),
            placements: self.some(3, |g| Placement {
                space: g.space(),
                address: g.maybe(Self::number),
                bytes: g.number(),
                cores: g.some(2, Self::rectangle),
                view: g.yes(),
                count: g.one(&[1, 2, 7]),
            }),
        }
    }

    pub(super) fn allocation(&mut self) -> Allocation {
        Allocation {
            pid: self.pid(),
            reported_pid: self.maybe(Self::signed),
            devices: self.some(2, Self::id),
            indexes: self.some(3, Self::small),
            allocator: self.maybe(Self::small),
            space: self.space(),
            id: self.text(),
            requested_bytes: self.number(),
            occupied_bytes: self.maybe(Self::number),
            allocated_bytes: self.maybe(Self::number),
            bytes_per_bank: self.maybe(Self::number),
            banks: self.maybe(|g| g.number() as u16),
            layout: self.maybe(|g| g.one(&[Layout::Unknown, Layout::NdSharded, Layout::View])),
            cores: self.maybe(|g| g.some(3, Self::rectangle)),
            estimated: self.yes(),
            unplaced: self.yes(),
            references: self.small(),
            age_seconds: self.real(),
            kernel: None,
            program: self.maybe(Self::small),
            site: self.maybe(Self::small),
            site_name: self.maybe(Self::text),
            origin: self.origin(),
            program_name: self.maybe(Self::text),
            hidden: self.yes(),
            basis: self.basis(),
        }
    }

    pub(super) fn buffers(&mut self) -> Buffers {
        Buffers {
            hidden_count: self.number(),
            hidden_bytes: self.number(),
            count: self.number(),
            requested_bytes: self.number(),
            used_bytes: self.number(),
            offset: self.number(),
            list: self.some(6, Self::allocation),
            group_count: self.number(),
            groups: self.some(3, |g| BufferGroup {
                hidden: g.yes(),
                pid: g.pid(),
                process_name: g.maybe(Self::text),
                space: g.maybe(Self::space),
                program: g.maybe(Self::small),
                program_name: g.maybe(Self::text),
                site: g.maybe(Self::small),
                site_name: g.maybe(Self::text),
                label: g.maybe(Self::text),
                count: g.number(),
                requested_bytes: g.number(),
                used_bytes: g.number(),
            }),
        }
    }

    pub(super) fn program_list(&mut self) -> ProgramList {
        let row = |g: &mut Self| ProgramRow {
            pid: g.pid(),
            reported_pid: g.maybe(|g| g.number() as i64),
            start: g.maybe(Self::time),
            process_name: g.maybe(Self::text),
            hidden: g.yes(),
            program: g.program(),
        };
        ProgramList {
            hidden_processes: self.number(),
            count: self.number(),
            resident_count: self.number(),
            has_dfbs: self.yes(),
            has_scratch: self.yes(),
            offset: self.number(),
            list: self.some(4, row),
            open: self.maybe(row),
        }
    }

    fn origin(&mut self) -> Origin {
        Origin {
            file: self.maybe(Self::text),
            line: self.maybe(Self::small),
            function: self.maybe(Self::text),
            op: self.maybe(Self::text),
            purpose: self.maybe(|g| g.one(&[Purpose::Unknown, Purpose::Tensor, Purpose::Raw])),
            tensor: self.maybe(Self::text),
            track: self.maybe(Self::text),
            stack: self.some(40, Self::text),
        }
    }
}
