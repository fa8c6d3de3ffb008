//! Even low digits: where a tick's sequence starts, and which positions are skipped within it.

use super::word::{Core, Moment};
use crate::process::sync::Ordering;

/// Gaps are below 256: wider ones would not make residues modulo 128 more even.
const GAP_MASK: u64 = 255;

impl Core {
    /// Where a tick begins. A sequence that began at 0 would give low digits that are 0 at low rates, and a sequence that goes on from tick
    /// to tick would not be even modulo 5, which divides 2^22 + 1; a hash of tick and seed is even modulo anything. No promise rests on
    /// where that is: a start never moves the word back. A sequence of 8 bits or less has no room for a few ids *and* a free start in one
    /// tick: there it is even at up to one id a tick and at full rate, and a little less between.
    pub(super) fn spread_start(&self, tick: u64) -> u64 {
        self.spread_start_of(tick, self.spread_seed())
    }

    /// The same for a worker that is about to begin.
    pub(super) fn spread_start_of(&self, tick: u64, seed: u64) -> u64 {
        let hash = scramble(tick ^ seed);
        let position = tick << self.seq_bits | (hash & self.spread_mask);
        // Position 0 with worker 0 would be id 0, which is not valid; 0 also means "not started".
        position.max(1)
    }

    fn spread_seed(&self) -> u64 {
        // ordering: Relaxed — any value does; while a worker begins it may be the one before.
        self.slow.spread_seed.load(Ordering::Relaxed)
    }

    /// How many positions to skip after `position`. At middle rates the ids of a tick would be consecutive, and consecutive ids
    /// even out more slowly than single ids do. So where the tick has room for it, a gap is left at each reading of the clock: at
    /// most about 32 gaps a tick, each of less than a 64th of it. Gaps are multiples of 4: residues modulo 2 and 4 even out soonest
    /// where ids are consecutive.
    pub(super) fn gap(&self, position: u64, moment: &Moment) -> u64 {
        let leads = (position >> self.seq_bits) as i64 > moment.adopted;
        // Not in the last quarter: a gap must not push the next id out of the present tick. Not without a lead, which compensates
        // where a tick begins at a low rate and then needs all of its ids.
        let late = position & self.seq_mask > self.seq_mask / 4 * 3;
        if !moment.quiet || leads || late || self.lead_ticks == 0 {
            return 0;
        }
        scramble(position ^ self.spread_seed()) & self.max_gap() & !3
    }

    /// No gap is longer.
    pub(super) fn max_gap(&self) -> u64 {
        (self.seq_mask >> 6) & GAP_MASK
    }
}

/// The finalizer of splitmix64 (<https://prng.di.unimi.it/splitmix64.c>).
fn scramble(value: u64) -> u64 {
    let mut hash = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^ (hash >> 31)
}
