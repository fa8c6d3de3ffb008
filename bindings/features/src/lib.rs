//! No code: `Cargo.toml` names features.
