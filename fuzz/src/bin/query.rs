//! Fuzz target `query`; see `ttmem_fuzz::query`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ttmem_fuzz::query(data));
