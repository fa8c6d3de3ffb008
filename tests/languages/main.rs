//! Keymill in several languages on one table, beside programs of other authors, and the vectors that each language runs.

mod cosid_jdbc;
mod jpa;
mod polyglot;
mod vectors;
