//! Many threads write while one process reads.

use super::script::Random;
use super::{only_segment, spawn, tracker};
use anyhow::{Context, ensure};
use std::io::{BufWriter, Read, Write};
use std::time::{Duration, Instant};
use ttmem_client::{AllocatorNumber, Banks, Buffer, Chip, Space, Tracker};
use ttmem_sources::SegmentFile;
use ttmem_wire::record::Kind;

const THREADS: u64 = 8;
/// Most buffers of one thread.
const MAX_BUFFERS: usize = 500;

/// Buffers as three numbers that do not depend on their order: count, bytes, and a sum of hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    count: u64,
    bytes: u64,
    hash: u64,
}

impl Sum {
    fn apply(&mut self, id: u64, bytes: u64, is_allocation: bool) {
        let hash = (id ^ bytes.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let change = |figure: &mut u64, by: u64| {
            *figure = if is_allocation { figure.wrapping_add(by) } else { figure.wrapping_sub(by) };
        };
        change(&mut self.count, 1);
        change(&mut self.bytes, bytes);
        change(&mut self.hash, hash);
    }
}

/// Events before the first allocation: opening the allocator is one.
const OPENING: u64 = 1;

pub(super) fn run(what: &str, events: u64, rate: Option<u64>) -> anyhow::Result<()> {
    let folder = ttmem_testkit::memory_folder();
    let log = tempfile::NamedTempFile::new()?;
    let (path, log_path) = (
        folder.path().to_str().context("the folder's name is not UTF-8")?,
        log.path().to_str().unwrap_or(""),
    );
    let rate = rate.unwrap_or(0).to_string();
    let mut writer = spawn(&["threads", path, &events.to_string(), &rate, log_path])?;
    let segment = SegmentFile::open_path(&only_segment(folder.path())).map_err(|e| anyhow::anyhow!("{e}"))?;
    let mut samples: Vec<(u64, Option<Sum>)> = Vec::new();
    let total = THREADS * events;
    loop {
        let contents = segment.contents().map_err(|e| anyhow::anyhow!("{e}"))?;
        let mut sum = Sum::default();
        for slot in contents.slots.iter().filter(|it| it.sequence.get() != 0) {
            ensure!(!contents.exact || slot.kind == Kind::Alloc as u8, "a slot of kind {}", slot.kind);
            sum.apply(slot.id.get(), slot.requested.get(), true);
        }
        samples.push((contents.sequence, contents.exact.then_some(sum)));
        if contents.sequence >= total + OPENING {
            break;
        }
        ensure!(writer.0.try_wait()?.is_none(), "the writer ended");
    }
    // The writer writes its log now, and exits when its input is closed.
    drop(writer.0.stdin.take());
    ensure!(writer.0.wait()?.success(), "the writer failed");
    let mut bytes = Vec::new();
    std::fs::File::open(log.path())?.read_to_end(&mut bytes)?;
    let word =
        |entry: &[u8], n: usize| u64::from_le_bytes(entry[n * 8..n * 8 + 8].try_into().unwrap_or_default());
    let mut written: Vec<(u64, u64, u64)> =
        bytes.chunks_exact(24).map(|entry| (word(entry, 0), word(entry, 1), word(entry, 2))).collect();
    drop(bytes);
    written.sort_unstable();
    ensure!(written.len() as u64 == total, "{} events were logged", written.len());
    let in_order = written.iter().zip(OPENING + 1..).all(|(entry, n)| entry.0 == n);
    ensure!(in_order, "sequence numbers are not {} to {}", OPENING + 1, OPENING + total);

    let exact = samples.iter().filter(|(_, sum)| sum.is_some()).count();
    let mut next = written.iter();
    let mut model = Sum::default();
    let mut done = OPENING;
    for &(sequence, sum) in &samples {
        while done < sequence {
            let &(_, id, bytes) = next.next().context("a sample is ahead of the writer")?;
            done += 1;
            model.apply(id & !FREED, bytes, id & FREED == 0);
        }
        if let Some(sum) = sum {
            ensure!(sum == model, "{what}: the sample at event {sequence} is {sum:?}, the model {model:?}");
        }
    }
    let share = exact as f64 / samples.len() as f64 * 100.0;
    println!(
        "{what}: {total} events, {} samples, {exact} of them exact ({share:.2} %) and each equal to the model; \
         at the end {} buffers, {} bytes",
        samples.len(),
        model.count,
        model.bytes
    );
    ensure!(rate == "0" || share >= 99.0, "{what}: only {share:.2} % of the samples are exact");
    Ok(())
}

/// Marks a free in the log.
const FREED: u64 = 1 << 63;

/// The writer's process: `events` from each thread, at `rate` a second in total, then the log.
pub(super) fn write(folder: &str, events: u64, rate: u64, log: &str) -> anyhow::Result<()> {
    let tracker = tracker(folder);
    let chip = tracker.define_chip(&Chip::default().unique_id(0x7e57))?;
    let allocator = tracker.define_allocator(&[chip], &[Banks::new(Space::Dram, 12, 0, 1 << 40)])?;
    let logs: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let tracker = &tracker;
                    move || write_in_thread(tracker, allocator, thread, events, rate)
                })
            })
            .collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    let mut file = BufWriter::new(std::fs::File::create(log)?);
    for log in logs {
        let log = log.map_err(|_| anyhow::anyhow!("a thread failed"))??;
        for (sequence, id, bytes) in log {
            for word in [sequence, id, bytes] {
                file.write_all(&word.to_le_bytes())?;
            }
        }
    }
    file.flush()?;
    // Buffers stay allocated until the reader has read them.
    let _ = std::io::stdin().read(&mut [0]);
    Ok(())
}

type Log = Vec<(u64, u64, u64)>;

fn write_in_thread(
    tracker: &Tracker,
    allocator: AllocatorNumber,
    thread: u64,
    events: u64,
    rate: u64,
) -> anyhow::Result<Log> {
    let mut random = Random::new(thread + 1);
    let mut held: Vec<(u64, u64)> = Vec::new();
    let mut log = Vec::with_capacity(events as usize);
    let begin = Instant::now();
    for n in 0..events {
        if rate > 0 && n % 16 == 0 {
            let due = Duration::from_nanos(n * THREADS * 1_000_000_000 / rate);
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
        }
        let allocates = held.len() < MAX_BUFFERS && (held.is_empty() || random.below(2) == 0);
        if allocates {
            let (address, bytes) = ((thread << 48 | n) << 5, 1 + random.below(1 << 20));
            let buffer = Buffer::new(allocator, Space::Dram, address, bytes).bytes_per_bank(bytes);
            log.push((tracker.alloc(&buffer)?, address, bytes));
            held.push((address, bytes));
        } else {
            let which = random.below(held.len() as u64) as usize;
            let (address, bytes) = held.swap_remove(which);
            log.push((tracker.free(allocator, Space::Dram, address)?, address | FREED, bytes));
        }
    }
    Ok(log)
}
