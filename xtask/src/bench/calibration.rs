//! What budgets are multiples of: simple work, measured in the same run. Machines of one kind differ by a factor of two, so a
//! budget in nanoseconds would hold on one of them and not on the next.

use super::pure::{cpu, each};
use super::{Figure, median};
use anyhow::Context;
use std::collections::HashMap;
use std::hint::black_box;
use std::io::Write;
use std::os::unix::fs::FileExt;
use ttmem_client::Space;
use ttmem_wire::record::{Kind, Record};

const RECORD_BYTES: usize = size_of::<Record>();

/// Simple work, and the processor time it takes.
pub(super) struct Calibration {
    what: String,
    ns: f64,
}

impl Calibration {
    /// Opening, reading and parsing a file of one line: what a reader of `/proc` and of sensors does.
    pub(super) fn file_read() -> anyhow::Result<Self> {
        const READS: u32 = 2000;
        let folder = tempfile::tempdir_in("/dev/shm")?;
        let path = folder.path().join("stat");
        std::fs::write(
            &path,
            "4711 (python) S 1 4711 4711 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 64 0 123456 9 10\n",
        )?;
        let read = || -> anyhow::Result<u64> {
            let text = std::fs::read_to_string(&path)?;
            Ok(text.split(' ').nth(21).context("no such word")?.parse()?)
        };
        read()?;
        let costs = (0..21).map(|_| {
            let time = cpu(|| {
                for _ in 0..READS {
                    black_box(read().ok());
                }
            });
            time.as_nanos() as f64 / f64::from(READS)
        });
        Ok(Self { what: "file read".to_owned(), ns: median(costs.collect()) })
    }

    /// Reading a record of a ring from a file, many at once, and parsing it.
    pub(super) fn record_read() -> anyhow::Result<Self> {
        const COUNT: usize = 12_000;
        let record = Record { sequence: 1.into(), ..Record::new(Kind::Alloc, Some(Space::Dram), 1) };
        let mut file = tempfile::tempfile_in("/dev/shm")?;
        let record = record.to_words().map(u64::to_le_bytes).concat();
        file.write_all(&record.repeat(COUNT))?;
        let mut bytes = vec![0; COUNT * RECORD_BYTES];
        let ns = each(21, COUNT as u64, || {
            file.read_exact_at(&mut bytes, 0).ok();
            for record in bytes.chunks_exact(RECORD_BYTES) {
                black_box(Record::parse(black_box(record)).ok());
            }
        });
        Ok(Self { what: "pread and parse".to_owned(), ns })
    }

    /// Removing one entry of 64 bytes from a standard map with `live` of them and adding another, half each.
    pub(super) fn map_event(live: u64) -> Self {
        const COUNT: u64 = 200_000;
        let mut map: HashMap<u64, [u64; 8]> = (0..live).map(|n| (scattered(n), [n; 8])).collect();
        let mut next = live;
        let ns = each(9, COUNT, || {
            for _ in 0..COUNT / 2 {
                black_box(map.remove(&scattered(next - live)));
                black_box(map.insert(scattered(next), [next; 8]));
                next += 1;
            }
        });
        Self { what: "std HashMap".to_owned(), ns }
    }

    /// Something that another figure of this run has measured.
    pub(super) fn measured(what: &str, ns: f64) -> Self {
        Self { what: what.to_owned(), ns }
    }

    /// A figure that may be at most `times` this. A share of a core is compared per second.
    pub(super) fn allows(&self, times: f64, what: &str, measured: f64, unit: &'static str) -> Figure {
        let ns_per_unit = match unit {
            "ns" => 1.0,
            "%" => 1e7,
            _ => 1e6,
        };
        let budget = times * self.ns / ns_per_unit;
        let anchor = format!("{times} x {} of {:.0} ns", self.what, self.ns);
        let digits = if budget < 10.0 { 2 } else { 0 };
        let budget_text = format!("<= {budget:.digits$} {unit}");
        let ok = Some(measured <= budget);
        Figure { what: what.to_owned(), anchor, budget: budget_text, measured, unit, ok }
    }
}

/// Addresses in an order that caches cannot predict.
pub(super) fn scattered(n: u64) -> u64 {
    (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) << 11
}
