//! What the planner sees of a source of snowflakes, and what it decides for it.

/// What the planner sees of a source of snowflakes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SnowflakeView {
    /// Its worker is given: the mark it wants in the store now, and whether a caller waits for it.
    Mark { wanted: Option<u64>, waiting: bool },
    /// The store finds its worker.
    Worker(WorkerView),
}

/// What a source needs whose worker the store finds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerView {
    /// A caller found no worker.
    pub(crate) wanted: bool,
    /// The generator has no worker.
    pub(crate) idle: bool,
    /// The highest mark that it was given.
    pub(crate) mark: u64,
}

/// What a source of snowflakes has to do.
#[derive(Clone, Debug)]
pub(crate) enum SnowflakeAction {
    /// The mark stands here: start above it.
    Start(u64),
    /// The mark was raised to here.
    Mark(u64),
    /// Begin with this worker, whose ticks below `start` belong to earlier owners, until this boot time, and not later than at this wall
    /// time: the clock may be wrong.
    Begin { worker: u64, start: u64, mark: u64, until_ms: u64, wall_ms: i64 },
    /// The lease was renewed: its mark, and the boot time until which it may be used.
    Renewed { mark: u64, until_ms: u64 },
    /// The lease is over: stop, until the next worker begins.
    Lapse,
}
