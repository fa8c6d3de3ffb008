//! What only Redis has.
