//! Parts that the measuring tools share: the payload of datagrams, reports, and a reader of
//! `/proc`.
//!
//! * `udp-blast` sends numbered datagrams of many sessions, at a given rate or as fast as possible.
//! * `udp-sink` receives them and reports loss, rate and one-way delay.
//! * `proc-cpu` watches another process.
//! * `bench` runs these tools around a forwarder, and compares the results with the targets.

pub mod payload;
pub mod proc;
pub mod report;
pub mod table;
