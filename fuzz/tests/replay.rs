//! Runs the fuzz targets on fixed inputs: those in `corpus`, mutations of them, and pseudo-random ones.
#![allow(clippy::unwrap_used, missing_docs)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Pseudo-random numbers (xorshift), the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Fewer than `max` bytes, of which about half are small numbers, as in real inputs.
    fn bytes(&mut self, max: usize) -> Vec<u8> {
        let len = self.below(max);
        let byte = |number: u64| if number & 256 == 0 { number as u8 } else { number as u8 % 8 };
        (0..len).map(|_| byte(self.next())).collect()
    }

    /// The input with a few bytes changed, removed or doubled.
    fn mutate(&mut self, input: &[u8]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(4) {
            if bytes.is_empty() {
                break;
            }
            let at = self.below(bytes.len());
            match self.below(4) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.next() as u8,
                2 => drop(bytes.remove(at)),
                _ => bytes.insert(at, bytes[at]),
            }
        }
        bytes
    }
}

/// Reads the files of a target's corpus, in order of their names.
fn read_corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    let read = |file: &std::path::PathBuf| {
        (file.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(file).unwrap())
    };
    files.iter().map(read).collect()
}

/// Runs a target on one input, and names the input if it fails.
fn run(target: fn(&[u8]), what: &str, input: &[u8]) {
    let passed = catch_unwind(AssertUnwindSafe(|| target(input))).is_ok();
    assert!(passed, "{what} fails; bytes: {input:02x?}");
}

fn replay(name: &str, target: fn(&[u8]), mutations: usize, random: usize, max: usize) {
    let mut numbers = Random(0x9e37_79b9_7f4a_7c15);
    for (file, input) in read_corpus(name) {
        run(target, &format!("corpus/{name}/{file}"), &input);
        for n in 0..mutations {
            run(target, &format!("corpus/{name}/{file}, mutation {n}"), &numbers.mutate(&input));
        }
    }
    for n in 0..random {
        run(target, &format!("{name}, random input {n}"), &numbers.bytes(max));
    }
}

#[test]
fn framer_result_does_not_depend_on_chunks() {
    replay("framer", ttmem_fuzz::framer, 200, 20_000, 1000);
}

#[test]
fn ledger_totals_are_sums_of_the_list() {
    replay("ledger", ttmem_fuzz::ledger, 50, 1000, 2000);
}

#[test]
fn any_request_is_answered_within_its_limits() {
    replay("query", ttmem_fuzz::query, 500, 2000, 300);
}

#[test]
fn region_of_any_bytes_is_parsed_or_refused() {
    replay("region", ttmem_fuzz::region, 50, 2000, 500);
}

#[test]
fn segment_of_any_bytes_is_read_without_panic() {
    replay("segment", ttmem_fuzz::segment, 100, 5000, 4000);
}
