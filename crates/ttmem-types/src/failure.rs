//! Failures: why the runtime could not allocate.

use crate::FindingKind;

vocabulary! {
    /// Why the runtime refused to allocate memory, or to place a program or a trace.
    #[non_exhaustive]
    pub enum FailureKind: u8 {
        OutOfMemory = 1, "out_of_memory": "No free block was large enough.",
        Clash = 2, "clash": "The memory of a program would overlap an L1 buffer.",
        BeyondL1 = 3, "beyond_l1": "The memory of a program exceeds the L1 of a core.",
        KernelConfig = 4, "kernel_config": "The kernels and arguments of a program exceed the kernel config buffer.",
        TraceRegion = 5, "trace_region": "A trace exceeds the trace region.",
        Unsupported = 6, "unsupported": "The runtime does not support the request; memory was not the reason.",
    }
}

impl FailureKind {
    /// Returns the kind of the finding that this failure becomes.
    ///
    /// ```
    /// # use ttmem_types::{FailureKind, FindingKind};
    /// assert_eq!(FailureKind::Clash.finding(), FindingKind::Clash);
    /// ```
    pub const fn finding(self) -> FindingKind {
        match self {
            Self::OutOfMemory => FindingKind::OutOfMemory,
            Self::Clash => FindingKind::Clash,
            Self::BeyondL1 | Self::KernelConfig => FindingKind::ProgramTooLarge,
            Self::TraceRegion => FindingKind::TraceTooLarge,
            Self::Unsupported => FindingKind::Unsupported,
        }
    }

    /// Returns the title in texts.
    ///
    /// ```
    /// # use ttmem_types::FailureKind;
    /// assert_eq!(FailureKind::OutOfMemory.title(), "out of memory");
    /// ```
    pub const fn title(self) -> &'static str {
        match self {
            Self::OutOfMemory => "out of memory",
            Self::Clash => "L1 clash",
            Self::BeyondL1 => "program exceeds L1",
            Self::KernelConfig => "program exceeds the kernel config buffer",
            Self::TraceRegion => "trace exceeds the trace region",
            Self::Unsupported => "unsupported request",
        }
    }
}
