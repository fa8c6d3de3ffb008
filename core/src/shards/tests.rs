//! The machine against databases that are played.
