//! Bytes and what they mean. The only module that imports `tor-*` crates: whatever changes there from one of their versions to
//! the next stays in here.

pub mod cell;
pub mod crypto;
pub mod extend;
pub mod link;
pub mod message;
