//! Bytes and what they mean. The only module that imports `tor-*` crates: whatever changes there
//! from one of their versions to the next stays in here.

pub mod ancestors;
pub mod cell;
pub mod conflux;
pub mod crypto;
pub mod dirkeys;
pub mod extend;
pub mod family;
pub mod hsdesc;
mod key_error;
pub mod keys;
pub mod link;
pub mod message;
pub mod netdoc;
pub mod rend;
pub mod resilient;
pub mod tag;
pub mod text;
mod x509;
