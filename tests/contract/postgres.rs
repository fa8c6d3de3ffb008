//! What only PostgreSQL has.
