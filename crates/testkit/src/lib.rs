//! What the tests of several crates share. No program depends on it.
//!
//! * [`silent_port`] keeps ports at which nobody listens.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

pub mod silent_port;
