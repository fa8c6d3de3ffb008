//! `Shards`: writes of ids whose rows lie on two databases, while a range moves from one to the other.

mod databases;
mod frozen;
mod story;
mod tables;
mod writes;
