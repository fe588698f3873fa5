//! What time does: findings expire, history takes samples, growth is measured.

use super::State;
use crate::analysis::Analysis;
use crate::words::Mono;

/// Rounds of this length, at least, without a single fall are growth...
pub(crate) const GROWTH_ROUND_SECONDS: u64 = 10;
/// ...after this many.
pub(crate) const GROWTH_ROUNDS: u32 = 6;

impl State {
    /// Lets time pass: old findings expire, growth is measured, peaks and a sample of usage are recorded.
    pub fn tick(&mut self, analysis: &mut Analysis, now: Mono) {
        self.advance(now);
        self.faults.expire(self.now);
        self.forget_removed_chips();
        self.judge_growth();
        self.sample(analysis);
    }

    /// Moves the state's time forward, and nothing else: ages in a snapshot are as of then.
    pub fn advance(&mut self, now: Mono) {
        self.now = self.now.max(now);
    }

    /// Ends a round of growth, of every pool and for late survivors, if it is over.
    fn judge_growth(&mut self) {
        if self.now.since(self.growth_round) < GROWTH_ROUND_SECONDS * Mono::SECOND {
            return;
        }
        self.growth_round = self.now;
        self.compare_late_survivors();
        let pools = self.processes.values().flat_map(|process| process.pools.values());
        for &pool in pools {
            let pool = self.ledger.pool_mut(pool);
            let growth = &mut pool.growth;
            if growth.last_low > 0 && pool.low > growth.last_low {
                growth.rounds += 1;
                growth.bytes += pool.low - growth.last_low;
            } else {
                (growth.rounds, growth.bytes) = (0, 0);
            }
            growth.last_low = pool.low;
            pool.low = pool.used();
        }
    }

    /// Records peaks, and a sample of the usage and sensors of every chip.
    fn sample(&mut self, analysis: &mut Analysis) {
        let now = self.now;
        for state in self.chips.values_mut() {
            state.sensor_history.push(now, state.sensors.at, &state.sensors.sensors);
        }
        if !std::mem::take(&mut self.unsampled) {
            for state in self.chips.values_mut() {
                state.dram.repeat(now);
                state.l1.repeat(now);
            }
            return;
        }
        self.ledger.keep_changes();
        self.record_peaks(analysis);
        self.note_blocked_programs(analysis);
        let mut figures = analysis.of(self);
        let plan = figures.plan();
        let groups = plan.groups.iter().enumerate();
        let totals: Vec<[u64; 2]> =
            groups.map(|(number, group)| figures.usage_of_group(number, group).totals()).collect();
        for (&id, state) in &mut self.chips {
            let [dram, l1] = plan.group_of(id).map_or([0; 2], |number| totals[number]);
            state.dram.push(now, dram);
            state.l1.push(now, l1);
            let Some(capacity) = state.chip.capacity else { continue };
            let spaces = [("DRAM", dram, capacity.dram_bytes), ("L1", l1, capacity.l1_bytes)];
            for ((name, used, capacity), level) in spaces.into_iter().zip(&mut state.levels) {
                let chip = (state.chip.index, id);
                *level = self.event_log.usage_changed(now, chip, name, *level, (used, capacity));
            }
        }
    }
}
