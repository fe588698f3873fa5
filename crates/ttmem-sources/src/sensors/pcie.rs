//! PCIe traffic, from the chip's counters of transferred words.

use std::time::Duration;
use ttmem_core::machine::PcieRates;

/// Number of counters of a chip.
pub(super) const COUNTERS: usize = 12;

/// The values of a chip's counters, in the order of [`counter_names`].
pub(super) type Counters = [Option<u32>; COUNTERS];

/// Names of the counters, each with the rate that it belongs to. Each name stands for two counters, which are added.
const NAMES: [(&str, usize); COUNTERS / 2] = [
    ("slv_rd_data_word_sent", 0),
    ("slv_posted_wr_data_word_received", 1),
    ("slv_nonposted_wr_data_word_received", 1),
    ("mst_rd_data_word_received", 2),
    ("mst_posted_wr_data_word_sent", 3),
    ("mst_nonposted_wr_data_word_sent", 3),
];
/// Bytes of the words that are counted. Counters wrap at 32 bits.
const WORD_BYTES: f64 = 32.0;
/// More than any bus carries: a counter was reset.
const MAX_BYTES_PER_SECOND: f64 = 70e9;
/// After this long a counter may have wrapped more than once.
pub(super) const WRAPS_AFTER: Duration = Duration::from_secs(4);

/// Computes rates from two readings of the counters.
pub(super) fn rates(before: &Counters, after: &Counters, since: Duration) -> PcieRates {
    let mut sums = [Some(0.0f64); 4];
    for (n, (&then, &now)) in before.iter().zip(after).enumerate() {
        let sum = &mut sums[NAMES[n / 2].1];
        let words = then.zip(now).map(|(then, now)| f64::from(now.wrapping_sub(then)));
        *sum = sum.zip(words).map(|(sum, words)| sum + words * WORD_BYTES / since.as_secs_f64());
    }
    let [host_reads, host_writes, chip_reads, chip_writes] =
        sums.map(|rate| rate.filter(|&rate| rate <= MAX_BYTES_PER_SECOND).map(f64::round));
    PcieRates {
        host_reads_bytes_per_second: host_reads,
        host_writes_bytes_per_second: host_writes,
        device_reads_bytes_per_second: chip_reads,
        device_writes_bytes_per_second: chip_writes,
    }
}

/// The files of all counters.
pub(super) fn counter_names() -> impl Iterator<Item = String> {
    NAMES.iter().flat_map(|(name, _)| [0, 1].map(|n| format!("pcie_perf_counters/{name}{n}")))
}
