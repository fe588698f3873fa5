//! Fuzz target `ledger`; see `ttmem_fuzz::ledger`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ttmem_fuzz::ledger(data));
