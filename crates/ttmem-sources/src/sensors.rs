//! Sensors of all chips, read by a worker pool, so that nothing waits for a chip that does not answer. Its files are read
//! again without the one that hangs; if others hang too, the chip is reported as not answering.
//!
//! This module decides when chips are read; `chip_files` reads one chip, with the tables in `gauge` and `pcie`.

mod chip_files;
mod gauge;
mod pcie;
#[cfg(test)]
mod tests;

use self::chip_files::ChipFiles;
use crate::bus::BusChip;
use crate::worker_pool::{DEADLINE, WorkerPool, lock};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use ttmem_core::input::SensorReading;
use ttmem_core::words::{ChipId, Mono};

/// Time between two rounds while snapshots are requested. The firmware measures ten times a second.
const PERIOD: Duration = Duration::from_secs(1);
/// Time between two rounds while no snapshots are requested.
const IDLE_PERIOD: Duration = Duration::from_secs(5);
/// How long a request keeps the shorter period.
const REQUEST_WINDOW: Duration = Duration::from_secs(10);
/// Files of a chip that may hang before the chip is reported as not answering.
const MAX_HUNG_FILES: usize = 2;
/// Two readings of a counter must be this far apart to be compared.
const MIN_INTERVAL: Duration = Duration::from_millis(250);

/// A chip whose sensors are read.
struct SensorChip {
    files: Arc<ChipFiles>,
    state: Arc<Mutex<ReadState>>,
    /// Inode of the chip's folder.
    inode: u64,
}

/// The readings of one chip.
#[derive(Default)]
struct ReadState {
    reading: Option<SensorReading>,
    /// Whether the reading was not taken yet.
    is_new: bool,
    /// Reads started so far.
    started: u64,
    /// Number of the last read that finished.
    finished: u64,
    /// When the last read began.
    begun: Option<Instant>,
    /// Reads started in this round.
    tries: usize,
    /// Whether a read of this round has finished.
    answered: bool,
}

/// All sensors.
pub(crate) struct Sensors {
    pool: WorkerPool,
    chips: Vec<SensorChip>,
    /// When the last round began.
    round: Option<Instant>,
    /// When a snapshot was last requested.
    requested: Option<Instant>,
    /// Whether chips are read more than once, which PCIe rates need.
    repeated: bool,
    thorough: bool,
}

impl Sensors {
    pub(crate) fn new(pool: &WorkerPool, repeated: bool, thorough: bool) -> Self {
        Self { pool: pool.clone(), chips: Vec::new(), round: None, requested: None, repeated, thorough }
    }

    /// Sets the chips that are read, and starts a round. Readings of chips that stay are kept.
    pub(crate) fn set_chips<'a>(&mut self, chips: impl Iterator<Item = &'a BusChip>) {
        let before = std::mem::take(&mut self.chips).into_iter();
        let mut before: BTreeMap<_, _> = before.map(|chip| ((chip.files.id, chip.inode), chip)).collect();
        let keep_or_add = |chip: &BusChip| {
            before.remove(&(chip.chip.id, chip.inode)).unwrap_or_else(|| SensorChip {
                files: Arc::new(ChipFiles::new(chip, self.repeated, self.thorough)),
                state: Arc::default(),
                inode: chip.inode,
            })
        };
        self.chips = chips.map(keep_or_add).collect();
        self.start_round();
    }

    /// Notes that a snapshot was requested: sensors are read more often for a while.
    pub(crate) fn note_request(&mut self) {
        self.requested = Some(Instant::now());
    }

    fn start_round(&mut self) {
        self.round = Some(Instant::now());
        for chip in &self.chips {
            let mut state = lock(&chip.state);
            (state.tries, state.answered) = (0, false);
            drop(state);
            self.start_read(chip);
        }
    }

    fn start_read(&self, chip: &SensorChip) {
        let (files, shared) = (Arc::clone(&chip.files), Arc::clone(&chip.state));
        let mut state = lock(&chip.state);
        state.started += 1;
        state.tries += 1;
        state.begun = None;
        let number = state.started;
        drop(state);
        self.pool.submit(move || {
            lock(&shared).begun = Some(Instant::now());
            let (mut reading, hangs) = files.read();
            let mut state = lock(&shared);
            // A read that a later one has overtaken is ignored.
            if number > state.finished {
                (state.finished, state.answered, state.is_new) = (number, true, true);
                // The last values are kept while the chip does not answer.
                if let Some(old) = state.reading.take().filter(|_| hangs && reading.at.is_none()) {
                    (reading.at, reading.sensors) = (old.at, old.sensors);
                }
                state.reading = Some(reading);
            }
        });
    }

    /// Starts another read of each chip whose last one hangs. Returns whether all chips have answered in this round.
    fn retry_hung(&mut self) -> bool {
        self.pool.start_thread_if_needed();
        let mut all_answered = true;
        for chip in &self.chips {
            let state = lock(&chip.state);
            let hangs = state.begun.is_some_and(|at| at.elapsed() > DEADLINE);
            let retry = !state.answered && hangs && state.tries <= MAX_HUNG_FILES;
            all_answered &= state.answered;
            drop(state);
            if retry {
                self.start_read(chip);
            }
        }
        all_answered
    }

    /// Waits until every chip has answered, or `timeout` is over.
    pub(crate) fn wait(&mut self, timeout: Duration) {
        let pool = self.pool.clone();
        pool.wait(timeout, || self.retry_hung());
    }

    /// Returns readings that are new since the last call, and starts a round when that is due.
    pub(crate) fn take_readings(&mut self, now: Mono) -> Vec<(ChipId, SensorReading)> {
        let all_answered = self.retry_hung();
        let recently_requested = self.requested.is_some_and(|at| at.elapsed() < REQUEST_WINDOW);
        let period = if recently_requested { PERIOD } else { IDLE_PERIOD };
        let mut readings = Vec::new();
        for chip in &self.chips {
            let mut state = lock(&chip.state);
            let hangs = !state.answered && state.begun.is_some_and(|at| at.elapsed() > DEADLINE);
            if !std::mem::take(&mut state.is_new) && !hangs && state.reading.is_some() {
                continue;
            }
            let mut reading = state.reading.clone().unwrap_or_default();
            if hangs || state.reading.is_none() {
                reading.why.get_or_insert_with(|| "its sensors have not answered yet".to_owned());
            }
            reading.at = reading.at.map(|at| at.min(now));
            readings.push((chip.files.id, reading));
        }
        if all_answered && self.round.is_some_and(|at| at.elapsed() >= period) {
            self.start_round();
        }
        readings
    }
}
