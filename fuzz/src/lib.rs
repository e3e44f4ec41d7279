//! Fuzz targets: properties that must hold for any input, however malformed.
//!
//! Each module is one target: its `check` takes arbitrary bytes and panics if a property is
//! violated. libFuzzer drives it (`make fuzz`, files in `fuzz_targets/`). `tests/replay.rs` runs it
//! on the committed corpus with the stable compiler, as a regression test.
//!
//! To add a target, write its module, and add its line to [`TARGETS`], its `[[bin]]`, its file in
//! `fuzz_targets/`, and its seeds to `examples/seeds.rs`.

pub mod camouflage;
pub mod carrier;
pub mod censor;
pub mod conflux;
pub mod consensuses;
pub mod core_driver;
pub mod covers;
pub mod directory;
pub mod dns_wireguard_mosh;
pub mod documents;
mod input;
pub mod ip_packets;
pub mod lossy_cells;
pub mod lossy_relay;
pub mod more_packets;
pub mod mosh_login;
pub mod onion_cells;
pub mod onion_legs;
pub mod onion_messages;
pub mod onion_relay;
pub mod onion_services;
pub mod pluggable;
pub mod proxy_clients;
pub mod proxy_requests;
pub mod quic_cells;
pub mod quic_moves;
pub mod quic_packets;
pub mod recognise;
pub mod socks;
pub mod tcp_segments;
pub mod texts;
pub mod tls_link;
pub mod tls_records;
pub mod toml_keys;
pub mod topology;
pub mod trace_reader;
pub mod tunnel;
pub mod unordered;
pub mod uploads;
pub mod wg_quick;

/// Function that checks an input, and panics if a property is violated.
pub type Check = fn(&[u8]);

/// Every target: its name, which is also the name of its corpus, and its check.
pub const TARGETS: &[(&str, Check)] = &[
    ("camouflage", camouflage::check),
    ("carrier", carrier::check),
    ("censor", censor::check),
    ("conflux", conflux::check),
    ("consensuses", consensuses::check),
    ("core_driver", core_driver::check),
    ("covers", covers::check),
    ("directory", directory::check),
    ("dns_wireguard_mosh", dns_wireguard_mosh::check),
    ("documents", documents::check),
    ("ip_packets", ip_packets::check),
    ("lossy_cells", lossy_cells::check),
    ("lossy_relay", lossy_relay::check),
    ("more_packets", more_packets::check),
    ("mosh_login", mosh_login::check),
    ("onion_cells", onion_cells::check),
    ("onion_legs", onion_legs::check),
    ("onion_messages", onion_messages::check),
    ("onion_relay", onion_relay::check),
    ("onion_services", onion_services::check),
    ("pluggable", pluggable::check),
    ("proxy_clients", proxy_clients::check),
    ("proxy_requests", proxy_requests::check),
    ("quic_cells", quic_cells::check),
    ("quic_moves", quic_moves::check),
    ("quic_packets", quic_packets::check),
    ("recognise", recognise::check),
    ("socks", socks::check),
    ("tcp_segments", tcp_segments::check),
    ("texts", texts::check),
    ("tls_link", tls_link::check),
    ("tls_records", tls_records::check),
    ("toml_keys", toml_keys::check),
    ("topology", topology::check),
    ("trace_reader", trace_reader::check),
    ("tunnel", tunnel::check),
    ("unordered", unordered::check),
    ("uploads", uploads::check),
    ("wg_quick", wg_quick::check),
];
