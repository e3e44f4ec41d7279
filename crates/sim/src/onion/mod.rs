//! The onion network: the protocol state machines (cores) of relays and clients, unchanged, on
//! simulated hosts.
//!
//! [`NetworkDocuments`] has the relays' keys and the consensus. [`Scenario`] describes a network,
//! and [`OnionNetwork`] runs it: relays and clients with their circuit managers, and web servers.
//! The cores are driven in the same way as in the crate `router`, but with the simulator's TCP
//! instead of sockets, and with unencrypted records instead of TLS. QUIC links use the crate
//! `links`, as in the router.

mod client;
mod documents;
mod early;
mod exits;
mod hosts;
mod links;
mod plan;
mod quic;
mod records;
mod relay;
mod sample;
mod tables;
mod web;
mod world;

pub use client::{ClientHost, ClientLoad, DownloadRecord, Pause, RequestTime};
pub use documents::{Keyring, MAX_RELAYS, MAX_SERVERS, NetworkDocuments, RelayDescription, START};
pub use hosts::LinkLayer;
pub use plan::{MAX_CLIENTS, NetworkPlan, PlanError, PlannedRun, RelaySample, quantiles};
pub use quic::QuicCongestion;
pub use relay::{Cpu, RelayHost};
pub use sample::ConsensusRelays;
pub use tables::{LineRates, PublicRates, QuantileTable, planetlab_delays};
pub use web::{WebServer, WebTimes};
pub use world::{ClientHostSettings, Common, Crypto, OnionHost, OnionNetwork, Scenario};
