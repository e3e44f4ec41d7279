//! Memory cost of idle circuits at a relay. They are created at its core over a link like those
//! between shards, so that neither a TLS session nor a link handshake is included.

use std::io::{self, ErrorKind};
use std::process::ExitCode;
use std::sync::Arc;

use anabranch_bench::proc::Usage;
use anabranch_multipath::{Core as _, Time, seed};
use anabranch_onion::channel::Role;
use anabranch_onion::conflux::ConfluxParams;
use anabranch_onion::handshake::extension::{self, HopRequest};
use anabranch_onion::handshake::{Kind, ntor_v3};
use anabranch_onion::relay::{Config, Output, Relay, ServiceParams};
use anabranch_onion::wire::cell::{CELL, Command, put_fixed};
use anabranch_onion::wire::crypto::CurveKeys;
use anabranch_onion::wire::extend::put_create2;
use anabranch_onion::wire::keys::RelayKeys;
use anabranch_onion::wire::link::Identity;
use anabranch_onion::{LinkCore, LinkId, LinkInput, LinkOutput, circuitmux};
use clap::Parser;

const LINK: LinkId = LinkId::new(0, 1);
/// Bit of the circuit IDs that the link's initiator chooses.
const OURS: u32 = 1 << 31;
/// Time at which the keys are created, in seconds since 1970.
const UNIX: u64 = 1_800_000_000;

/// Create idle circuits in a relay's core, and print their memory. Exit with status 1 if it is
/// above the target.
#[derive(Parser)]
struct Arguments {
    /// Create CIRCUITS circuits of each kind.
    #[arg(long, default_value_t = 10_000)]
    circuits: u32,
    /// Fail if the circuits of a kind need TARGET megabytes or more.
    #[arg(long, default_value_t = 100.0)]
    target: f64,
}

fn main() -> io::Result<ExitCode> {
    let arguments = Arguments::parse();
    let mut missed = false;
    // No relay is dropped, because the next relay would reuse its memory.
    let mut relays = Vec::new();
    for (name, wish) in [
        ("fixed windows, tor1", HopRequest::Plain),
        ("congestion control, tor1", HopRequest::CongestionControl),
        ("congestion control, CGO", HopRequest::Cgo),
    ] {
        let (relay, megabytes) = measure(arguments.circuits, wish)?;
        relays.push(relay);
        let each = megabytes * 1e6 / f64::from(arguments.circuits);
        let verdict = if megabytes < arguments.target { "ok" } else { "MISSED" };
        missed |= megabytes >= arguments.target;
        println!(
            "{} idle circuits ({name}): {megabytes:.1} MB, {each:.0} bytes each; target {} MB: {verdict}",
            arguments.circuits, arguments.target
        );
    }
    Ok(ExitCode::from(u8::from(missed)))
}

/// Creates a relay with `circuits` circuits, and returns the growth of this process in megabytes.
fn measure(circuits: u32, wish: HopRequest) -> io::Result<(Relay, f64)> {
    let mut rng = seed::stream(1, 0, "idle circuits");
    let keys = RelayKeys::generate(&mut rng, UNIX).map_err(io::Error::other)?;
    let (secret, onion_key) = keys.ntor();
    let identity = Identity { rsa: keys.rsa_identity(), ed25519: keys.ed_identity() };
    let rng = Box::new(seed::stream(1, 1, "idle circuits"));
    let config = config(identity, CurveKeys::from(secret));
    let mut relay = Relay::new(config, Role::Client, Role::Client, rng);
    relay.handle_link(Time::ZERO, LinkInput::Sibling { link: LINK, first: false, shard: 1 });
    let before = Usage::of(std::process::id())?.rss;
    let mut rng = seed::stream(1, 2, "idle circuits");
    for number in 0..circuits {
        let message = extension::request(wish);
        let start = ntor_v3::Client::start(
            &mut rng,
            identity.ed25519,
            onion_key,
            &message,
            ntor_v3::CIRCUIT,
        );
        let (_, handshake) = start.ok_or(ErrorKind::InvalidData)?;
        let mut cell = Vec::with_capacity(CELL);
        let body = put_create2(Kind::NTOR_V3, &handshake);
        put_fixed(&mut cell, OURS | (number + 1), Command::CREATE2, &body);
        relay.handle_link(Time::ZERO, LinkInput::Bytes { link: LINK, bytes: &cell });
        answer(&mut relay);
    }
    let made = relay.stats().circuits;
    if made != circuits as usize {
        return Err(io::Error::other(format!("{made} circuits were made of {circuits}")));
    }
    let after = Usage::of(std::process::id())?.rss;
    Ok((relay, after.saturating_sub(before) as f64 / 1e6))
}

/// Fetches the relay's output, as a link would.
fn answer(relay: &mut Relay) {
    while let Some(output) = relay.poll(Time::ZERO) {
        if let Output::Link(LinkOutput::Transmit { link }) = output {
            relay.transmit(Time::ZERO, link, &mut Vec::new(), usize::MAX);
        }
    }
}

fn config(identity: Identity, onion_key: CurveKeys) -> Config {
    Config {
        identity,
        onion_keys: vec![onion_key],
        params: Arc::default(),
        policy: circuitmux::Kind::default(),
        exit: true,
        conflux: ConfluxParams::default(),
        dealing: None,
        directory: true,
        allow_private: false,
        max_cells: 1_000_000,
        max_queue: 50_000,
        services: ServiceParams::default(),
        max_half_open: 64,
        max_streams: 10_000,
        lossy: false,
    }
}
