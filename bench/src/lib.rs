//! Parts that the measuring tools share: the payload that they exchange, their reports, and the
//! reader of `/proc`.
//!
//! * `udp-blast` sends numbered datagrams of many sessions, paced or flat out.
//! * `udp-sink` receives them and reports loss, rate and one-way delay.
//! * `proc-cpu` watches another process.
//! * `bench` runs them around a forwarder and holds the results against the targets.

pub mod payload;
pub mod proc;
pub mod report;
pub mod table;
