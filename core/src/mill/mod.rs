//! A mill: configuration, keeper thread, sources; and its second life in a forked child.

mod engine;
mod shared;

pub(crate) use engine::Engine;
pub(crate) use shared::{SharedMill, SharedSource, Way};
