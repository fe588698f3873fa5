//! Threads that report at the same time: their rate compared with one thread's, and the longest wait compared with that for a
//! `pthread_mutex` in the same run.
#![allow(unsafe_code)]

use super::{Figure, median, segment};
use std::sync::Barrier;
use std::time::Instant;
use ttmem_client::{AllocatorNumber, Buffer, Fault, Space, Tracker};

const THREADS: usize = 8;
/// Pairs of all threads together.
const PAIRS: usize = 800_000;
const ROUNDS: usize = 5;

/// A mutex as C programs have it.
struct Mutex(std::cell::UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a mutex is made to be used by several threads.
unsafe impl Sync for Mutex {}

impl Mutex {
    fn with(&self, work: impl FnOnce()) {
        // SAFETY: initialised below, and never moved while it is used.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
        work();
        // SAFETY: as above; this thread has it.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

/// What a run of several threads took.
struct Run {
    /// Pairs per second of processor time that the machine has for these threads.
    rate: f64,
    /// The longest pair, in microseconds.
    worst: f64,
}

/// Runs `pair` on so many threads. Each gets its number and that of the pair.
fn run(threads: usize, pair: impl Fn(u64, u64) -> Result<(), Fault> + Sync) -> anyhow::Result<Run> {
    let barrier = Barrier::new(threads);
    let each = PAIRS / threads;
    let results: Vec<(Instant, Instant, f64, Option<Fault>)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads as u64)
            .map(|thread| {
                let (barrier, pair) = (&barrier, &pair);
                scope.spawn(move || {
                    barrier.wait();
                    let (begin, mut worst, mut fault) = (Instant::now(), 0.0f64, None);
                    for n in 0..each as u64 {
                        let started = Instant::now();
                        fault = fault.or(pair(thread, n).err());
                        worst = worst.max(started.elapsed().as_secs_f64() * 1e6);
                    }
                    (begin, Instant::now(), worst, fault)
                })
            })
            .collect();
        workers.into_iter().filter_map(|it| it.join().ok()).collect()
    });
    anyhow::ensure!(results.len() == threads && results.iter().all(|it| it.3.is_none()), "a report failed");
    let begin = results.iter().map(|it| it.0).min().unwrap_or_else(Instant::now);
    let end = results.iter().map(|it| it.1).max().unwrap_or_else(Instant::now);
    let worst = results.iter().map(|it| it.2).fold(0.0, f64::max);
    Ok(Run { rate: (each * threads) as f64 / (end - begin).as_secs_f64(), worst })
}

fn report(tracker: &Tracker, allocator: AllocatorNumber, thread: u64, n: u64) -> Result<(), Fault> {
    let address = (thread << 32) + (n % 64 + 1) * 2048;
    tracker.alloc(&Buffer::new(allocator, Space::Dram, address, 2048).bytes_per_bank(2048))?;
    tracker.free(allocator, Space::Dram, address).map(drop)
}

pub(super) fn figures() -> anyhow::Result<Vec<Figure>> {
    let (_folder, tracker, allocator) = segment::tracker(1)?;
    // SAFETY: a mutex of zeros is an initialised one on Linux.
    let mutex = Mutex(unsafe { std::mem::zeroed() });
    let (mut ratios, mut worst, mut mutex_ratios, mut worst_ratios) = (vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        let one = run(1, |thread, n| report(&tracker, allocator, thread, n))?;
        let many = run(THREADS, |thread, n| report(&tracker, allocator, thread, n))?;
        // About as long as a report.
        let work = |n: u64| {
            std::hint::black_box((0..24).fold(n, |sum, step| std::hint::black_box(sum).wrapping_mul(step)));
        };
        let locked = |_, n| {
            mutex.with(|| work(n));
            mutex.with(|| work(n));
            Ok(())
        };
        let (one_locked, many_locked) = (run(1, locked)?, run(THREADS, locked)?);
        println!(
            "{THREADS} threads: {:.2} M pairs/s (1 thread {:.2}), worst pair {:.0} us; pthread_mutex {:.2} (1 thread {:.2}), worst {:.0} us",
            many.rate / 1e6,
            one.rate / 1e6,
            many.worst,
            many_locked.rate / 1e6,
            one_locked.rate / 1e6,
            many_locked.worst,
        );
        ratios.push(many.rate / one.rate);
        mutex_ratios.push(many_locked.rate / one_locked.rate);
        worst.push(many.worst);
        worst_ratios.push(many.worst / many_locked.worst);
    }
    Ok(vec![
        Figure::at_least("client: 8 threads' rate over one's", "same run", 0.9, median(ratios), "x"),
        Figure::plain("pthread_mutex: 8 threads' rate over one's", "same run", median(mutex_ratios), "x"),
        Figure::plain("client: longest pair of 8 threads", "same run", median(worst), "us"),
        Figure::at_most(
            "client: longest pair over pthread_mutex's",
            "same run",
            2.0,
            median(worst_ratios),
            "x",
        ),
    ])
}
