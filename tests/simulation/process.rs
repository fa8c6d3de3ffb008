//! One process: a keeper with its sources, and the callers that take from them.

use std::sync::Arc;

use keymill::Error;
use keymill::keeper::{Keeper, KeptSource};
use keymill::planner::Now;
use keymill::serial::SerialPattern;
use keymill::simulation::{Order, ReadyQueue, SegmentSource, SnowflakeSource};
use keymill::store::Key;
use keymill::time::{Clock, ManualClock};

use super::check::{KeyId, Ledger, Life};
use super::scenario::SourcePlan;
use super::store::{MS, Micros};

/// A machine: a clock that outlives its processes.
pub struct Machine {
    clock: Arc<ManualClock>,
    synced_ms: u64,
    /// The process that was started here, if it lives.
    pub process: Option<Life>,
    /// Forked children that live.
    pub children: Vec<Life>,
    /// No statement leaves or arrives before this time.
    pub cut_until: Micros,
    /// When its clock was set last.
    pub clock_set_at: Option<Micros>,
    /// How far its clock was set ahead, in all; negative: back.
    pub ahead_ms: i64,
    /// The highest its clock has shown.
    pub highest_ms: i64,
    /// Times at which its processes were stopped or cut off from the store.
    pub troubles: Vec<(Micros, Micros)>,
}

impl Machine {
    /// A machine whose clock shows this.
    #[must_use]
    pub fn new(wall_ms: i64) -> Machine {
        Machine {
            clock: Arc::new(ManualClock::new(wall_ms)),
            synced_ms: 0,
            process: None,
            children: Vec::new(),
            cut_until: 0,
            clock_set_at: None,
            ahead_ms: 0,
            highest_ms: wall_ms,
            troubles: Vec::new(),
        }
    }

    /// Advances the clock to this moment of virtual time.
    pub fn sync(&mut self, now: Micros) -> Now {
        let now_ms = now / MS;
        self.clock.advance(now_ms - self.synced_ms);
        self.synced_ms = now_ms;
        let wall_ms = self.clock.wall_ms();
        self.highest_ms = self.highest_ms.max(wall_ms);
        Now { boot_ms: self.clock.boot_ms(), wall_ms }
    }

    /// Sets the wall clock; it must have been synced.
    pub fn set_clock(&mut self, by_ms: i64) {
        self.ahead_ms += by_ms;
        self.clock.set_wall(self.clock.wall_ms() + by_ms);
    }

    /// Virtual time of a boot time.
    #[must_use]
    pub fn at_boot_ms(&self, boot_ms: u64) -> Micros {
        let ahead = boot_ms.saturating_sub(self.clock.boot_ms());
        (self.synced_ms + ahead).saturating_mul(MS)
    }
}

/// Numbers that one handle counts through, like the fast path of every language.
#[derive(Clone, Copy, Debug)]
struct Block {
    period: u64,
    next: u64,
    end: u64,
    /// The source's revocations when the block was leased.
    leased_at: u64,
}

/// A waiting caller.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// The number of the caller.
    pub id: u64,
    /// When it called.
    pub since: Micros,
    /// When it gives up.
    pub deadline: Micros,
    /// How many numbers it still needs.
    pub lacks: u64,
    /// The handle it counts with, for sources in blocks.
    pub handle: usize,
}

/// A source of a process.
pub struct Source {
    /// The keeper's source.
    pub kept: KeptSource,
    /// Its number in the ledger.
    pub holder: usize,
    /// Its row.
    pub row: KeyId,
    /// Its index in the scenario.
    pub plan: usize,
    /// The waiting callers.
    pub callers: Vec<Caller>,
    /// How much faster than planned calls come, in percent.
    pub pace: u64,
    blocks: Vec<Option<Block>>,
}

/// Handles of a source in blocks.
const HANDLES: usize = 3;

/// A process.
pub struct Process {
    /// Its machine.
    pub machine: usize,
    /// The database of its machine.
    pub db: usize,
    /// Its keeper.
    pub keeper: Keeper,
    ready: Arc<ReadyQueue>,
    /// Its sources, by slot.
    pub sources: Vec<Source>,
    /// The batch under way.
    pub in_flight: Option<usize>,
    /// When the keeper wakes; earlier plans are stale.
    pub attend_at: Micros,
    /// Stopped until this time.
    pub paused_until: Micros,
    /// It has to close once its batch in flight is over.
    pub closing: bool,
    /// It was already restarted for a lost worker id.
    pub complained: bool,
    clock: Clock,
}

impl Process {
    /// A process on this machine.
    #[must_use]
    pub fn start(machine: usize, db: usize, clock: &Machine, seed: u64) -> Process {
        let ready = Arc::new(ReadyQueue::default());
        Process {
            machine,
            db,
            keeper: Keeper::new(seed, ready.clone()),
            ready,
            sources: Vec::new(),
            in_flight: None,
            attend_at: Micros::MAX,
            paused_until: 0,
            closing: false,
            complained: false,
            clock: Clock::Manual(clock.clock.clone()),
        }
    }

    /// Opens a source.
    ///
    /// # Panics
    /// If the source cannot be made: a defect of the scenario.
    pub fn open(&mut self, plan: usize, source: &SourcePlan, life: Life, ledger: &mut Ledger) {
        let spec = source.spec(self.machine);
        let row = source.row(self.machine, self.db);
        let slot = self.sources.len();
        let kept = self.keeper.open(slot, spec.clone(), self.clock.clone()).expect("a source");
        let holder = ledger.open(row, life, spec);
        let blocks = vec![None; HANDLES];
        self.sources.push(Source { kept, holder, row, plan, callers: Vec::new(), pace: 100, blocks });
    }

    /// A careless fork: the child's handles continue with the parent's blocks. For a mutant.
    pub fn inherit_blocks(&mut self, parent: &Process) {
        for source in &mut self.sources {
            if let Some(old) = parent.sources.iter().find(|old| old.plan == source.plan) {
                // A revocation word that is not changed reads the same in the child as in the parent.
                let KeptSource::Segment(kept) = &source.kept else { continue };
                let leased_at = kept.revocations();
                let inherit = |block: &Option<Block>| block.map(|block| Block { leased_at, ..block });
                source.blocks = old.blocks.iter().map(inherit).collect();
            }
        }
    }

    /// Whether the keeper was woken and has not run yet.
    #[must_use]
    pub fn is_called(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The ledger's number of the source with this key.
    #[must_use]
    pub fn holder_of(&self, key: &Arc<Key>) -> Option<usize> {
        self.sources.iter().find(|s| Arc::ptr_eq(&s.kept.spec().key, key)).map(|s| s.holder)
    }
}

impl Source {
    /// Gives a caller the numbers it needs, as far as there are any.
    ///
    /// # Errors
    /// The caller's error if it has to wait or give up.
    pub fn serve(&mut self, caller: &mut Caller, ledger: &mut Ledger, now: Micros) -> Result<(), Error> {
        match self.kept.clone() {
            KeptSource::Bank(_) => unreachable!("banks have a world of their own, `banks`"),
            KeptSource::Snowflake(kept) => self.serve_flakes(&kept, caller, ledger, now),
            KeptSource::Segment(kept) if kept.spec().order == Order::Thread => {
                self.serve_from_block(&kept, caller, ledger, now)
            }
            KeptSource::Segment(kept) => {
                while caller.lacks > 0 {
                    let (period, lo, hi) = self.take(&kept, caller.lacks, ledger, now)?;
                    ledger.issued(self.holder, period, lo, hi, now);
                    caller.lacks -= hi - lo;
                }
                Ok(())
            }
        }
    }

    fn serve_flakes(
        &mut self,
        kept: &SnowflakeSource,
        caller: &mut Caller,
        ledger: &mut Ledger,
        now: Micros,
    ) -> Result<(), Error> {
        let layout = self.kept.spec().snowflake.expect("a snowflake").layout;
        while caller.lacks > 0 {
            let id = kept.try_next()?;
            ledger.flake(self.holder, id, layout.unpack(id).tick, now);
            caller.lacks -= 1;
        }
        Ok(())
    }

    fn serve_from_block(
        &mut self,
        kept: &SegmentSource,
        caller: &mut Caller,
        ledger: &mut Ledger,
        now: Micros,
    ) -> Result<(), Error> {
        while caller.lacks > 0 {
            let word = kept.revocations();
            match &mut self.blocks[caller.handle] {
                Some(block) if block.next < block.end && block.leased_at == word => {
                    let end = block.end.min(block.next + caller.lacks);
                    let lo = std::mem::replace(&mut block.next, end);
                    ledger.issued(self.holder, block.period, lo, end, now);
                    caller.lacks -= end - lo;
                }
                _ => {
                    let (period, next, end) = self.take(kept, kept.spec().block, ledger, now)?;
                    self.blocks[caller.handle] = Some(Block { period, next, end, leased_at: word });
                }
            }
        }
        Ok(())
    }

    /// Takes numbers; the period is read from the text that a caller would get.
    fn take(
        &self,
        kept: &SegmentSource,
        want: u64,
        ledger: &mut Ledger,
        now: Micros,
    ) -> Result<(u64, u64, u64), Error> {
        ledger.wanted(self.holder, want);
        loop {
            let taken = kept.try_take(want)?;
            ledger.taken(self.holder, taken.hi - taken.lo, now);
            let Some(pattern) = kept.spec().pattern() else { return Ok((0, taken.lo, taken.hi)) };
            if let Some(prefix) = kept.prefix(&taken) {
                return Ok((period_of(pattern, prefix.as_str(), taken.lo), taken.lo, taken.hi));
            }
        }
    }
}

/// The period that a serial's text names.
fn period_of(pattern: &SerialPattern, prefix: &str, number: u64) -> u64 {
    let width = pattern.width() as usize;
    match pattern.split(&format!("{prefix}{number:0width$}")) {
        Some((period, read)) if read == number => period,
        // No such period can have been reserved: the ledger reports it.
        _ => u64::MAX,
    }
}
