//! Fuzz target `segment`; see `ttmem_fuzz::segment`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ttmem_fuzz::segment(data));
