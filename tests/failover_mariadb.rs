//! A primary and its replica.
