//! Fuzz target `framer`; see `ttmem_fuzz::framer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ttmem_fuzz::framer(data));
