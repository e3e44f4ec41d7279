//! Encoding and decoding of cells, messages, keys and documents. Only this module imports `tor-*`
//! crates, so that new versions of those crates affect no other module.

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
pub mod lossy;
pub mod message;
pub mod netdoc;
mod relay_command;
pub mod rend;
pub mod resilient;
pub mod tag;
pub mod text;
mod x509;
