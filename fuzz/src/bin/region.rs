//! Fuzz target `region`; see `ttmem_fuzz::region`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ttmem_fuzz::region(data));
