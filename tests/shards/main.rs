//! `Shards`: writes of ids whose rows lie on two databases, while a range moves from one to the other.

mod broken;
mod databases;
mod failover;
mod frozen;
mod galera;
mod pooler;
mod story;
mod tables;
mod writes;
