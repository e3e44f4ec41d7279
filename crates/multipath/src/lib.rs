//! The shared vocabulary of everything that splits and merges.

pub mod seed;
mod time;

pub use time::Time;
