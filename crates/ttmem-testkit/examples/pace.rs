//! Reports a number of allocations and frees at a steady rate, to measure what followers of events cost:
//! `pace FOLDER EVENTS PER_SECOND`. Waits for a line on standard input before it starts, and prints the last event's number.
#![allow(clippy::unwrap_used, reason = "wrong arguments end it")]

use std::io::BufRead;
use std::time::{Duration, Instant};
use ttmem_client::{Buffer, Options, Space, Tracker};

/// Events between two pauses.
const BATCH: u64 = 500;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, events, per_second] = &args[..] else { panic!("usage: pace FOLDER EVENTS PER_SECOND") };
    let (events, per_second): (u64, u64) = (events.parse().unwrap(), per_second.parse().unwrap());
    let tracker = Tracker::new(&Options::from_env().folder(folder.as_str()));
    let device = tracker.define_devices(&[0]).unwrap();
    let mut last = tracker.alloc(&Buffer::new(device, Space::Dram, 1 << 40, 64)).unwrap();
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    let begin = Instant::now();
    for batch in 0..events / BATCH {
        for pair in 0..BATCH / 2 {
            let address = (pair + 1) * 4096;
            tracker.alloc(&Buffer::new(device, Space::Dram, address, 64)).unwrap();
            last = tracker.free(device, Space::Dram, address).unwrap();
        }
        let due = Duration::from_nanos((batch + 1) * BATCH * 1_000_000_000 / per_second);
        std::thread::sleep(due.saturating_sub(begin.elapsed()));
    }
    println!("{last} {:.3}", begin.elapsed().as_secs_f64());
    // Followers read the end before the segment is removed.
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
}
