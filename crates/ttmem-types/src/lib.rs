//! The vocabulary that every part of ttmem shares: kinds of memory, architectures, boards, errors in reports, limits, and the rules
//! for the bytes that an allocation is charged and for making room.
//!
//! The wire format, the tracker, its C and Python interfaces and the core all use these types, so that a space or a fault is
//! listed once. Numbers are those of the wire format and are never reused.
#![no_std]

#[macro_use]
mod vocabulary;

mod arch;
pub mod board;
mod buffer;
mod charge;
mod failure;
mod fault;
pub mod limits;
mod program;
mod space;
mod tensor;
mod window;

pub use arch::{Arch, ArchMemory};
pub use board::Board;
pub use buffer::{BufferType, KernelClass, Layout, Uncertainty};
pub use charge::{charge, charged_banks};
pub use failure::FailureKind;
pub use fault::{Fault, FindingKind, Severity};
pub use program::{program_key, program_number};
pub use space::Space;
pub use tensor::{DataType, Pages, Purpose, Tensor, TensorLayout};
pub use window::{Window, cheapest_window};
