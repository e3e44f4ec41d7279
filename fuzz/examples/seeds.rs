//! Writes the hand-made seeds of every corpus: `cargo run -p anabranch-fuzz --example seeds`.
//!
//! Inputs that a fuzzer has found have other names (a hash, or the fault) and are not changed.

use std::error::Error;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anabranch_capture::{Row, TraceFacts, TraceWriter};
use anabranch_fuzz::documents::NOW;
use anabranch_fuzz::onion_services::CIRCUIT;
use anabranch_links::{Context, StreamLink};
use anabranch_multipath::Time;
use anabranch_multipath::seed::stream;
use anabranch_onion::directory::bandwidth::BandwidthHistory;
use anabranch_onion::directory::descriptor::{Description, RelayDocuments};
use anabranch_onion::directory::http;
use anabranch_onion::directory::policy::ExitPolicy;
use anabranch_onion::directory::reply::{Encoding, Reply};
use anabranch_onion::handshake::{Kind, ntor, ntor_v3};
use anabranch_onion::wire::ancestors::{Ancestor, AncestorLink};
use anabranch_onion::wire::conflux::{ConfluxLink, DesiredUx, put_switch};
use anabranch_onion::wire::crypto::CurveKeys;
use anabranch_onion::wire::extend::{Extend, Target, put_create2};
use anabranch_onion::wire::hsdesc;
use anabranch_onion::wire::keys::RelayKeys;
use anabranch_onion::wire::link;
use anabranch_onion::wire::message::{Answer, Begin, put_resolved, put_xon};
use anabranch_onion::wire::resilient::{LegSwitch, Received, ResilientLink};
use anabranch_os::packet::write as write_packet;
use anabranch_testkit::authority::{
    Authority, TestRelay, exit_microdescriptor, unsigned_consensus,
};
use anabranch_testkit::onion_service;

#[path = "seeds/cells.rs"]
mod cells;
#[path = "seeds/more.rs"]
mod more;
#[path = "seeds/proxies.rs"]
mod proxies;
#[path = "seeds/tcp.rs"]
mod tcp;
#[path = "seeds/tunnel.rs"]
mod tunnel;

type Outcome = Result<(), Box<dyn Error>>;
type Seeds = Vec<(&'static str, Vec<u8>)>;

fn main() -> Outcome {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").ok_or("run it by cargo")?;
    let corpus = Path::new(&root).join("corpus");
    let packets = [quic(), wireguard(), dns(), mosh()].concat();
    write(&corpus.join("recognise"), &packets)?;
    write(&corpus.join("quic_packets"), &quic())?;
    write(&corpus.join("dns_wireguard_mosh"), &[wireguard(), dns(), mosh()].concat())?;
    write(&corpus.join("camouflage"), &camouflage())?;
    write(&corpus.join("conflux"), &sets())?;
    write(&corpus.join("consensuses"), &consensuses())?;
    write(&corpus.join("core_driver"), &scripts())?;
    write(&corpus.join("covers"), &covers())?;
    write(&corpus.join("directory"), &directory()?)?;
    write(&corpus.join("documents"), &documents()?)?;
    write(&corpus.join("ip_packets"), &ip_packets()?)?;
    write(&corpus.join("socks"), &proxies())?;
    write(&corpus.join("proxy_clients"), &proxies::answers())?;
    write(&corpus.join("lossy_cells"), &cells::lossy())?;
    write(&corpus.join("lossy_relay"), &cells::lossy_relay())?;
    write(&corpus.join("more_packets"), &more::seeds())?;
    write(&corpus.join("mosh_login"), &logins())?;
    write(&corpus.join("onion_cells"), &cells::of_a_link())?;
    write(&corpus.join("pluggable"), &pluggable())?;
    write(&corpus.join("proxy_requests"), &proxy_requests())?;
    write(&corpus.join("onion_legs"), &legs())?;
    write(&corpus.join("onion_messages"), &messages())?;
    write(&corpus.join("onion_relay"), &neighbours())?;
    write(&corpus.join("onion_services"), &services())?;
    write(&corpus.join("quic_moves"), &moves())?;
    write(&corpus.join("tcp_segments"), &tcp::segments())?;
    write(&corpus.join("texts"), &texts())?;
    write(&corpus.join("tls_link"), &handshakes()?)?;
    write(&corpus.join("tls_records"), &records())?;
    write(&corpus.join("toml_keys"), &settings())?;
    write(&corpus.join("topology"), &topologies())?;
    write(&corpus.join("tunnel"), &tunnel::sessions())?;
    write(&corpus.join("carrier"), &tunnel::carriers())?;
    write(&corpus.join("unordered"), &unordered())?;
    write(&corpus.join("uploads"), &uploads())?;
    write(&corpus.join("wg_quick"), &tunnels())?;
    traces(&corpus.join("trace_reader"))
}

/// Returns seeds of `conflux`: data of LINK and SWITCH, and scripts of two ends of a set with two
/// bytes per step.
fn sets() -> Seeds {
    let (nonce, ux) = ([7; 32].into(), DesiredUx::HighThroughput);
    let link = ConfluxLink { nonce, sent: 1, received: 2, ux }.write();
    let switch = [&put_switch(124)[..], &[0; 494]].concat();
    let ancestor = |design, dealing: &str| {
        AncestorLink { design, nonce, dealing: dealing.to_owned() }.write().unwrap_or_default()
    };
    let dealing = "lowrtt 1p".to_owned();
    let resilient = ResilientLink { merged: false, resumes: true, nonce, serial: 3, dealing };
    let merged = ResilientLink { merged: true, ..resilient.clone() };
    // Three legs are launched and linked. Then both ends send on all legs, and cells are
    // delivered.
    let mut legs = vec![14, 0, 14, 0, 14, 0];
    for (what, leg) in [(7, 0), (6, 0), (7, 0), (7, 1), (6, 1), (7, 1), (7, 2), (6, 2), (7, 2)] {
        legs.extend([what, leg]);
    }
    for turn in 0..60u8 {
        legs.extend([turn % 2, turn % 3, 5 + turn % 7, turn / 2 % 3]);
    }
    let seed = |which: u8, data: &[u8]| [&[which][..], data].concat();
    let cut = [&legs[..], &[12, 0, 0, 1, 7, 1, 7, 2]].concat();
    let odd = [&legs[..24], &[13, 1, 7, 1, 29, 2, 7, 2]].concat();
    vec![
        ("link", seed(0, &link)),
        ("switch", seed(0, &switch)),
        ("counted", seed(1, &legs)),
        ("explicit", seed(2, &legs)),
        ("adaptive", seed(3, &legs)),
        ("runs", seed(4, &legs)),
        ("link-resilient", seed(0, &resilient.write().unwrap_or_default())),
        ("link-merged", seed(0, &merged.write().unwrap_or_default())),
        ("leg-switch", seed(0, &LegSwitch { singly: true, number: 9 }.write())),
        ("received", seed(0, &Received { answers_probe: false, count: 31 }.write())),
        ("link-2013", seed(0, &ancestor(Ancestor::Conflux2013, ""))),
        ("link-mtor", seed(0, &ancestor(Ancestor::MTor, "weights:1,2,3,4,5,6,7,8 100ms"))),
        ("cut", seed(1, &cut)),
        ("injected", seed(1, &odd)),
    ]
}

/// Returns seeds of `onion_services`: descriptors, requests, and messages of services and clients.
fn services() -> Seeds {
    let made = onion_service::descriptor([[1; 32], [2; 32]], NOW + 86_400, 7, &[3; 500]);
    let odd = made.replace("revision-counter 7", "revision-counter 7 more");
    let put = http::post("/tor/hs/3/publish", "127.0.0.1", made.as_bytes());
    let ask = http::get(&format!("/tor/hs/3/{}", hsdesc::put_blinded_key(&[9; 32])));
    let kinds: [(&'static str, u8, Vec<u8>); 8] = [
        ("descriptor", 0, made.clone().into()),
        ("descriptor-odd", 0, odd.into()),
        ("publish", 1, put),
        ("ask", 1, ask),
        ("establish-intro", 2, onion_service::establish_intro(3, &CIRCUIT, None)),
        (
            "establish-intro-limited",
            2,
            onion_service::establish_intro(3, &CIRCUIT, Some([25, 200])),
        ),
        ("introduce1", 3, onion_service::introduce1(3, b"sealed")),
        ("rendezvous1", 3, vec![5; 84]),
    ];
    kinds.into_iter().map(|(name, kind, data)| (name, [&[kind][..], &data].concat())).collect()
}

fn write(folder: &Path, seeds: &Seeds) -> Outcome {
    fs::create_dir_all(folder)?;
    seeds.iter().try_for_each(|(name, bytes)| Ok(fs::write(folder.join(name), bytes)?))
}

/// Returns a packet with a long header: first byte, version, both IDs, the fields before the
/// length, and a payload of `length` zeros.
fn long(first: u8, version: u32, before_length: &[u8], length: u16) -> Vec<u8> {
    let mut packet = vec![first];
    packet.extend(version.to_be_bytes());
    packet.extend(b"\x08\x83\x94\xc8\xf0\x3e\x51\x57\x08\x04scid");
    packet.extend(before_length);
    packet.extend((0x4000 | length).to_be_bytes());
    packet.resize(packet.len() + usize::from(length), 0);
    packet
}

fn quic() -> Seeds {
    let initial = long(0xc3, 1, &[0], 1200);
    let handshake = long(0xe1, 1, &[], 60);
    let short = [&b"\x43\x83\x94\xc8\xf0\x3e\x51\x57\x08"[..], &[0xa5; 30]].concat();
    let negotiation =
        [&b"\x80\0\0\0\0\x04scid\x08\x83\x94\xc8\xf0\x3e\x51\x57\x08"[..], &[0, 0, 0, 1]];
    vec![
        ("quic-initial-v1", initial.clone()),
        ("quic-initial-v1-token", long(0xc3, 1, b"\x05token", 1200)),
        ("quic-initial-v2", long(0xd3, 0x6b33_43cf, &[0], 1200)),
        ("quic-handshake", handshake.clone()),
        ("quic-0rtt", long(0xd1, 1, &[], 100)),
        ("quic-retry", long(0xf0, 1, b"a token and its tag.", 16)),
        ("quic-version-negotiation", negotiation.concat()),
        ("quic-short", short.clone()),
        ("quic-coalesced", [initial, handshake.clone(), short].concat()),
        ("quic-padded", [handshake, vec![0; 100]].concat()),
        ("quic-length-beyond-the-end", long(0xe1, 1, &[], 60)[..40].to_vec()),
        ("quic-id-too-long", [&b"\xc3\0\0\0\x01\x15"[..], &[7; 40]].concat()),
    ]
}

/// Returns seeds of `tls_link`: the first flights of our client and server, sent to either role,
/// and records after a handshake.
fn handshakes() -> Result<Seeds, Box<dyn Error>> {
    let context = Context::new(1_800_000_000)?;
    let (mut client, mut server) = (context.connect()?, context.accept()?);
    let (mut hello, mut answer) = (Vec::new(), Vec::new());
    client.transmit(Time::ZERO, &mut hello);
    server.receive(Time::ZERO, &hello)?;
    server.transmit(Time::ZERO, &mut answer);
    // Two choices (handshake finished, client attacked), then pieces: length minus one, and bytes.
    let script = |finished: u8, client: u8, bytes: &[u8]| {
        let pieces = bytes.chunks(200).flat_map(|p| [&[p.len() as u8 - 1], p].concat());
        [finished, client].into_iter().chain(pieces).collect::<Vec<_>>()
    };
    Ok(vec![
        ("hello-to-a-server", script(0, 0, &hello)),
        ("answer-to-a-client", script(0, 1, &answer)),
        ("hello-to-a-client", script(0, 1, &hello)),
        ("alert-to-an-open-server", script(1, 0, b"\x15\x03\x03\0\x02\x01\0")),
        (
            "record-to-an-open-client",
            script(1, 1, &[&b"\x17\x03\x03\0\x20"[..], &[7; 32]].concat()),
        ),
        ("http", script(0, 0, b"GET / HTTP/1.0\r\n\r\n")),
    ])
}

/// Returns seeds of `tls_records`: suite and role, then steps of a peer with the keys. A step is
/// an action, a length, the action's arguments, and the pieces of two deliveries.
fn records() -> Seeds {
    let step =
        |what: u8, length: u8, taken: &[u8]| [&[what, length][..], taken, &[30, 30]].concat();
    let data = step(0, 3, b"abc\x05");
    let ticket = step(3, 8, &[4, 0, 0, 4, 1, 2, 3, 4]);
    let play =
        |suite: u8, role: u8, steps: &[&[u8]]| [&[suite, role][..], &steps.concat()].concat();
    let update = step(2, 1, b"");
    vec![
        ("data", play(0, 0, &[&data, &data, &data, &data, &data, &data, &data])),
        ("updates", play(1, 1, &[&data, &update, &data, &update, &update, &data])),
        ("tickets", play(2, 1, &[&ticket, &data, &ticket, &update, &data])),
        ("ticket-to-a-server", play(0, 0, &[&data, &ticket])),
        ("half-a-message", play(0, 1, &[&step(3, 2, &[24, 0]), &data])),
        ("update-and-more", play(0, 1, &[&step(3, 6, &[24, 0, 0, 1, 1, 4]), &data])),
        ("goodbye", play(1, 0, &[&data, &step(4, 2, &[1, 0]), &data])),
        ("alert", play(1, 0, &[&data, &step(4, 2, &[2, 80]), &data])),
        ("no-type", play(2, 0, &[&step(5, 4, &[0, 0, 0, 0, 0])])),
        ("garbage", play(2, 0, &[&data, &step(6, 5, b"\x17\x03\x03\0\x20"), &data])),
        ("changed", play(0, 1, &[&data, &step(7, 50, &[40, 8]), &data])),
    ]
}

/// Returns seeds of `unordered`: pieces of a stream, numbered cells, and scripts of a sender with
/// its receiver.
fn unordered() -> Seeds {
    let seed = |which: u8, data: &[&[u8]]| [&[which][..], &data.concat()].concat();
    let take = |at: u8, bytes: &[u8]| [&[2, at, bytes.len() as u8][..], bytes].concat();
    let (forget, advance) = ([1, 20, 10], [0, 25, 4]);
    let [send, storm, update]: [&[u8]; 3] = [&[0, 4], &[0, 4, 0, 4, 0, 4], &[3, 2]];
    let (show, change) = ([4, 12, 255, 0], [5, 0, 1, 200, 60, 7]);
    let (deliver, garbage) = ([2, 90], [6, 0, 40, 1, 3, 23, 3, 3]);
    vec![
        ("pieces", seed(0, &[&take(30, b"later"), &take(15, b"sooner, over all of it"), &advance])),
        ("retaken", seed(0, &[&take(20, b"wrong"), &forget, &take(20, b"right"), &advance])),
        ("numbers", seed(1, &[&[0xff; 40], &[0; 10]])),
        ("low-numbers", seed(1, &[&[0; 7], &[9], &[0; 24], &[0, 1, 0, 0, 0, 0, 0, 0, 2, 28]])),
        ("early", seed(2, &[&[0], send, &show, &deliver, &show, &deliver])),
        ("changed", seed(2, &[&[1], storm, &change, &show, &change, &deliver, &show])),
        ("rekeyed", seed(2, &[&[2], storm, update, send, &show, &deliver, &show, update, &show])),
        ("garbage", seed(2, &[&[0], send, &garbage, &show, &garbage, &deliver])),
        // Circuit, number (an eighth of the byte is the distance from the expected one), command.
        ("cells", seed(3, &[&[1, 2, 1, 1, 18, 0, 1, 10, 0, 2, 2, 1, 1, 26, 0, 1, 2, 0]])),
        ("cells-reborn", seed(3, &[&[1, 2, 1, 1, 10, 2, 1, 0, 1, 1, 2, 0, 1, 2, 0]])),
        ("cells-wrong", seed(3, &[&[1, 2, 1, 1, 1, 9, 9, 0]])),
    ]
}

/// Returns seeds of `onion_messages`: messages, each after a byte that selects its parser.
fn messages() -> Seeds {
    let seed = |which: u8, data: &[u8]| [&[which][..], data].concat();
    let info = link::Info { unix: Some(1_800_000_000), seen: None, own: Vec::new() };
    let keys = CurveKeys::from([7; 32]);
    let mut rng = anabranch_multipath::seed::stream(1, 0, "seeds");
    let extended = ntor_v3::CIRCUIT;
    let v3 = ntor_v3::Client::start(&mut rng, [1; 32], *keys.public(), &[1, 1, 0], extended);
    let target = Target {
        addresses: vec![([192, 0, 2, 7], 9001).into()],
        rsa: [3; 20],
        ed25519: Some([4; 32]),
    };
    let wish = Extend { target, kind: Kind::NTOR, handshake: vec![5; 84] };
    let begin = Begin { host: "example.com".into(), port: 443, flags: 1 };
    vec![
        ("extend", seed(0, &wish.write())),
        ("create", seed(0, &put_create2(Kind::NTOR, &[5; 84]))),
        ("begin", seed(1, &begin.write().unwrap_or_default())),
        ("resolved", seed(1, &put_resolved(&[(Answer::Later, 60)]))),
        ("sendme", seed(1, &[&[1, 0, 20][..], &[9; 20]].concat())),
        ("xon", seed(1, &put_xon(1000))),
        ("netinfo", seed(2, &link::put_netinfo(&info))),
        ("padding", seed(2, &link::put_padding(link::Padding::Start(1500, 9500)))),
        ("versions", seed(2, &link::put_versions(&[4, 5]))),
        ("challenge", seed(2, &link::put_challenge(&[1; 32]))),
        ("certs", seed(3, &link::put_certs(&[(4, vec![1; 140]), (2, vec![0x30; 100])]))),
        ("ntor", seed(4, &ntor::Client::start(&mut rng, [1; 20], *keys.public()).1)),
        ("ntor-v3", seed(4, &v3.map(|(_, message)| message).unwrap_or_default())),
        ("answer", seed(5, &[7; 64])),
        ("extensions", seed(6, &[2, 1, 0, 2, 1, 31])),
        ("relay-cell", seed(7, &[2, 0, 0, 0, 1, 0, 0, 0, 0, 1, 242])),
    ]
}

/// Returns seeds of `proxy_requests`: requests of programs, each after a byte with the length of
/// the pieces.
fn proxy_requests() -> Seeds {
    let seed = |text: &[u8]| [&[3], text].concat();
    vec![
        ("socks-name", seed(b"\x05\x01\0\x05\x01\0\x03\x0bexample.com\x01\xbbGET")),
        ("socks-user", seed(b"\x05\x02\0\x02\x01\x01u\x01p\x05\x01\0\x01\x7f\0\0\x01\0\x50")),
        ("socks-resolve", seed(b"\x05\x01\0\x05\xf0\0\x03\x01x\0\0")),
        ("socks-ptr-v6", seed(&[&b"\x05\x01\0\x05\xf1\0\x04"[..], &[1; 18]].concat())),
        ("socks-bind", seed(b"\x05\x01\0\x05\x02\0\x01\x7f\0\0\x01\0\x50")),
        ("socks4", seed(b"\x04\x01\0\x50\x7f\0\0\x01")),
        (
            "connect",
            seed(b"CONNECT example.com:443 HTTP/1.1\r\nProxy-Authorization: x\r\n\r\nrest"),
        ),
        ("connect-v6", seed(b"CONNECT [2001:db8::1]:80 HTTP/1.0\r\n\r\n")),
        ("get", seed(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")),
    ]
}

/// Returns seeds of `onion_legs`: scripts of a client with sets. The target defines the bytes.
fn legs() -> Seeds {
    let link = |leg: u8, received: u8| [leg, 1, 0, 0, received, 2, 0];
    let send = |leg: u8, command: u8, times: u8, data: &[u8]| {
        let length = (data.len() as u16).to_be_bytes();
        [&[leg, 4, command, 1], &length[..], data, &[times]].concat()
    };
    let linked = [&link(0, 0)[..], &link(1, 0), &[0, 2, 1, 2]].concat();
    let begun = [&linked[..], &send(0, 0, 0, &[]), &[0, 5, 0, 1]].concat();
    let (data, switch) = (send(0, 1, 6, &[7; 400]), [1, 3, 4]);
    let other = send(1, 1, 4, &[8; 400]);
    let bytes = [0, 6, 0, 0xff, 0xff, 0xff, 0xff];
    // Two resilient legs: they are linked and acknowledged, then the first one sends a message and
    // is lost.
    let ours = |leg: u8| [leg, 8, 0, 0, 1 + leg];
    let notice = |leg: u8, what: u8, number: u8, is_set: u8| [leg, 9, number, is_set, what];
    let both = [&ours(0)[..], &ours(1), &notice(0, 0, 0, 0), &notice(1, 0, 0, 0)].concat();
    let number = [&[0, 0, 0, 1][..], &[7; 40]].concat();
    let gone = [&send(0, 1, 0, &number)[..], &notice(1, 4, 0, 0), &notice(1, 3, 1, 0)].concat();
    vec![
        ("linked", linked.clone()),
        ("ours", [&both[..], &gone].concat()),
        ("ours-odd", [&both[..], &notice(0, 1, 3, 0), &notice(0, 2, 1, 0), &[0, 7, 15]].concat()),
        ("download", [&begun[..], &bytes, &[0, 7, 9], &bytes].concat()),
        ("upload", [&begun[..], &data, &switch, &other].concat()),
        ("gap", [&begun[..], &switch, &other, &other, &other, &[0, 7, 15]].concat()),
        ("late", [&begun[..], &data, &link(2, 1), &[2, 2], &send(2, 1, 2, &[9; 300])].concat()),
    ]
}

/// Returns seeds of `onion_relay`: scripts of a hostile neighbour. The target defines the bytes.
fn neighbours() -> Seeds {
    // Creates a circuit. Then each message has: circuit, kind of step, index of the command,
    // stream, early, length, repetitions, data.
    let create = [1, 4];
    let send = |command: u8, stream: u8, early: u8, times: u8, data: &[u8]| {
        let length = (data.len() as u16).to_be_bytes();
        [&[1, 2, command, stream, early], &length[..], &[times], data].concat()
    };
    let begin = send(0, 1, 0, 0, b"192.0.2.1:80\0");
    let (connected, bytes) = ([0, 5, 0, 1], [0, 6, 0, 0xff, 0xff, 0, 9]);
    let script = |parts: &[&[u8]]| parts.concat();
    let wish = Extend {
        target: Target {
            addresses: vec![([192, 0, 2, 7], 9001).into()],
            rsa: [3; 20],
            ed25519: Some([4; 32]),
        },
        kind: Kind::NTOR,
        handshake: vec![5; 84],
    };
    // Two circuits meet at a rendezvous point, and one carries data for the other.
    let comes = |command: u8, data: &[u8]| {
        let length = (data.len() as u16).to_be_bytes();
        [&[0, 2, command, 0, 0], &length[..], &[0], data].concat()
    };
    let (waits, meets) = (send(16, 0, 0, 0, &[9; 20]), comes(19, &[9; 84]));
    vec![
        ("rendezvous", script(&[&create, &waits, &[0, 4], &meets, &comes(14, &[7; 400])])),
        ("download", script(&[&create, &begin, &connected, &bytes, &bytes])),
        ("upload", script(&[&create, &begin, &connected, &send(1, 1, 0, 5, &[7; 498])])),
        ("directory", script(&[&create, &send(9, 2, 0, 0, b""), &connected, &bytes])),
        ("resolve", script(&[&create, &send(7, 1, 0, 0, b"example.com\0"), &[0, 5, 2]])),
        ("extend", script(&[&create, &send(10, 0, 1, 0, &wish.write())])),
        ("sendme", script(&[&create, &send(4, 0, 0, 0, &[&[1, 0, 20][..], &[9; 20]].concat())])),
        (
            "flood",
            script(&[&create, &send(9, 1, 0, 0, b""), &[0, 5, 0, 0], &send(1, 1, 0, 7, &[7; 498])]),
        ),
        ("raw", script(&[&[0, 0, 20], &[9; 20], &[0, 7, 15]])),
        ("cell", script(&[&[0, 1, 2, 5, 0, 20], &[1; 20], &[0, 1, 2, 4, 0, 1, 0]])),
    ]
}

/// Returns seeds of `quic_moves`: steps on the links of a client whose circuits move. A step has
/// its kind, a link, an end, and the kind's arguments. The TLS link is number 0, the QUIC link
/// number 1.
fn moves() -> Seeds {
    let write = |side: u8| [4, 0, side, 0, 0x1f, 0];
    let fetch = |side: u8| [0, 1, side, 7];
    let deliver = |side: u8, stream: u8| [2, 1, side, stream, 4];
    let lose = |side: u8| [7, 1, side];
    let settle = [8, 0, 0];
    let minute = [&[6, 0, 0, 16][..], &settle].concat();
    let script = |parts: &[&[u8]]| parts.concat();
    let build = [5, 0, 0, 1];
    let lost = |side: u8, first: u8| {
        let (up, down) = (fetch(side), deliver(1 - side, 0));
        script(&[&write(side), &write(side), &up, &down, &up, &lose(first), &lose(1 - first)])
    };
    let again = script(&[&lost(0, 0), &settle, &minute, &build, &settle, &lost(1, 1), &settle]);
    let forged = |what: &[u8]| [&[1], &lost(1, 0)[..], &[10, 0, 1], what, &settle].concat();
    // Circuit IDs, number, ends, counts.
    let list = [0, 1, 0, 1, 0, 0, 5, 0, 2, 0, 1];
    vec![
        ("upload", [&[0], &lost(0, 1)[..], &settle].concat()),
        ("download", [&[0], &lost(1, 0)[..], &settle].concat()),
        ("again", [&[0], &again[..]].concat()),
        ("forged-list", forged(&list)),
        ("forged-cells", forged(&[0, 1, 0, 1, 0, 1, 5, 5, 1, 1, 9, 0])),
        ("altered", [&[1], &write(1)[..], &fetch(1), &[9, 1, 0, 0, 2], &deliver(0, 0)].concat()),
    ]
}

/// Returns seeds of `consensuses`: a table and a document, with one relay each.
fn consensuses() -> Seeds {
    let weights = "bandwidth-weights Wgg=6146 Wgd=0 Wee=10000";
    let table = format!(
        "# valid-after 2015-10-10 02:00:00\n# params a=1\n# {weights}\n#fp\tnick\n{}\tone\t192.0.2.1\t9001\t0\tSE\t50\t0\t\
         Exit Fast Guard Stable V2Dir\t0.4\taccept 80,443\t${}\n",
        "01".repeat(20),
        "02".repeat(20)
    );
    let document = format!(
        "network-status-version 3\nvalid-after 2022-11-19 10:00:00\nparams a=1\nr seele AAoQ1DAR6kkoo19hBAX5K0QztNw \
         FF26jNpQfRpYdz65WYv+O9pFPtY 2022-11-19 03:58:26 192.0.2.2 9001 0\ns Fast Guard Stable V2Dir\nw Bandwidth=270\n\
         p reject 1-65535\n{weights}\ndirectory-signature sha256 A B\n"
    );
    vec![("table", table.into_bytes()), ("document", document.into_bytes())]
}

/// Returns seeds of `documents`: one correctly signed document of each kind, after the byte that
/// selects the kind.
fn documents() -> Result<Seeds, Box<dyn Error>> {
    let mut rng = stream(1, 0, "documents");
    let relay = RelayKeys::generate(&mut rng, NOW)?;
    let authorities = [Authority::generate("auth0", &mut rng)];
    let (tap, ntor, ed) = (relay.tap_public(), relay.ntor().1, relay.ed_identity());
    let microdesc = exit_microdescriptor(&tap, &ntor, &ed);
    let listed = TestRelay::exit("one", relay.rsa_identity(), microdesc.clone());
    let times = [NOW - 60, NOW + 60, NOW + 120];
    let unsigned = unsigned_consensus(&authorities, &[listed], times, "circwindow=900");
    let consensus = unsigned.clone() + &authorities[0].signature(&unsigned);
    let description = Description {
        nickname: "one".to_owned(),
        address: Ipv4Addr::new(192, 0, 2, 1),
        orport: 9001,
        dir_port: 0,
        v6: None,
        platform: "Anabranch".to_owned(),
        protocols: "Link=4-5 Relay=2-4".to_owned(),
        bandwidth: [1; 3],
        history: BandwidthHistory::default(),
        uptime: 1,
        contact: None,
        family: Vec::new(),
        family_keys: Vec::new(),
        policy: ExitPolicy::reject_all(),
        directory_cache: true,
        bridge: None,
    };
    let seed = |kind: u8, text: &[u8]| [&[kind], text].concat();
    let keys = relay.files()?;
    Ok(vec![
        ("consensus", seed(0, consensus.as_bytes())),
        ("certificate", seed(1, authorities[0].certificate(NOW - 60, NOW + 60).as_bytes())),
        ("microdescriptors", seed(2, microdesc.repeat(2).as_bytes())),
        ("descriptor", seed(3, description.sign(&relay, NOW)?.as_bytes())),
        ("rsa-key", seed(4, &keys[0].content)),
        ("ntor-key", seed(4, &keys[2].content)),
        ("ed25519-key", seed(4, &keys[3].content)),
        (
            "answer",
            seed(5, &Reply::ok(&b"the same again, ".repeat(20), Encoding::Identity).bytes()),
        ),
        (
            "answer-deflated",
            seed(5, &Reply::ok(&b"the same again, ".repeat(20), Encoding::Deflate).bytes()),
        ),
        ("request", seed(6, &http::get("/tor/micro/d/abc-def.z"))),
        ("request-post", seed(6, &http::post("/tor/", "127.0.0.1", b"router"))),
        ("exit-policy", seed(7, b"reject private:*\naccept 192.0.2.0/24:80-443\nreject [::]/0:*")),
    ])
}

/// Returns seeds of `directory`: requests to a cache, and the answers of authorities to a cache's
/// requests, each after the byte that selects its kind.
fn directory() -> Result<Seeds, Box<dyn Error>> {
    let keys = RelayKeys::generate(&mut stream(2, 0, "directory"), NOW)?;
    let at = std::net::SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 9001);
    let description = Description::new("one".to_owned(), at, "Anabranch".to_owned());
    let RelayDocuments { server, extra } = description.publish(&keys, NOW)?;
    let seed = |kind: u8, text: &[u8]| [&[kind], text].concat();
    let ask = |path: &str| seed(0, &http::get(path));
    let [one, two, three] = ["01", "22", "33"].map(|byte| byte.repeat(20));
    let consensus = "network-status-version 3\nvote-status consensus\nconsensus-method 33\n\
        valid-after 2027-01-15 07:00:00\n";
    let named = server.lines().find_map(|line| line.strip_prefix("extra-info-digest "));
    Ok(vec![
        ("consensus", ask("/tor/status-vote/current/consensus/AAAAAA.z")),
        ("consensus-diff", ask("/tor/status-vote/current/consensus-microdesc/diff/00/AAAAAA")),
        ("server-all", ask("/tor/server/all.z")),
        ("server-authority", ask("/tor/server/authority")),
        ("server-fp", ask(&format!("/tor/server/fp/{one}+{two}+{one}.z"))),
        ("server-d", ask(&format!("/tor/server/d/{two}.z"))),
        ("extra-d", ask(&format!("/tor/extra/d/{three}+x"))),
        ("extra-fp", ask(&format!("/tor/extra/fp/{one}"))),
        ("micro", ask(&format!("/tor/micro/d/{}-{0}.z", "A".repeat(43)))),
        ("keys", ask("/tor/keys/fp-sk/AA-BB.z")),
        ("documents", seed(1, (server.clone() + &extra + "@note\n" + &server).as_bytes())),
        ("consensus-text", seed(2, consensus.as_bytes())),
        ("extra-digests", seed(3, named.unwrap_or_default().as_bytes())),
    ])
}

fn wireguard() -> Seeds {
    let message = |kind: u8, length: usize| {
        let mut bytes = vec![0xa5; length];
        bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
        bytes
    };
    vec![
        ("wireguard-initiation", message(1, 148)),
        ("wireguard-response", message(2, 92)),
        ("wireguard-cookie", message(3, 64)),
        ("wireguard-keepalive", message(4, 32)),
        ("wireguard-data", message(4, 160)),
    ]
}

fn dns() -> Seeds {
    let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07example\x03org\0\0\x01\0\x01".to_vec();
    let mut edns = query.clone();
    edns[11] = 1;
    edns.extend([0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0]);
    let mut response = query.clone();
    response[2] = 0x81;
    vec![("dns-query", query), ("dns-query-edns", edns), ("dns-response", response)]
}

fn mosh() -> Seeds {
    let datagram = |nonce: u64| [&nonce.to_be_bytes()[..], &[0xa5; 60]].concat();
    vec![("mosh-client", datagram(3)), ("mosh-server", datagram(1 << 63 | 3))]
}

/// Returns seeds of `ip_packets`: packets, each after its length.
fn ip_packets() -> Result<Seeds, Box<dyn Error>> {
    let udp = |from: &str, to: &str, length: usize| -> Result<Vec<u8>, Box<dyn Error>> {
        let mut packet = Vec::new();
        write_packet(&mut packet, from.parse()?, to.parse()?, 0b10, &vec![0xa5; length])?;
        Ok(packet)
    };
    let four = udp("192.0.2.1:5000", "198.51.100.1:443", 40)?;
    let six = udp("[2001:db8::1]:5000", "[2001:db8::2]:443", 40)?;
    let mut first = four.clone();
    first[6] = 0x20;
    let mut last = [&four[..20], &[7; 16]].concat();
    last[..8].copy_from_slice(&[0x45, 0, 0, 36, 0, 0, 0, 6]);
    let mut part6 = six.clone();
    part6[6] = 44;
    part6[4..6].copy_from_slice(&56u16.to_be_bytes());
    part6.splice(40..40, [17, 0, 0, 1, 0, 0, 0, 5]);
    let mut tcp = four.clone();
    tcp[9] = 6;
    let echo = [&four[..9], &[1], &four[10..20], &[8, 0, 0, 0, 0, 1, 0, 1]].concat();
    let script = |packets: &[&[u8]]| -> Vec<u8> {
        let length = |packet: &[u8]| (packet.len() as u16).to_be_bytes();
        packets.iter().flat_map(|packet| [&length(packet)[..], packet].concat()).collect()
    };
    Ok(vec![
        ("udp4", script(&[&four])),
        ("udp6", script(&[&six])),
        ("parts4", script(&[&first, &last])),
        ("part6", script(&[&part6, &part6])),
        ("others", script(&[&tcp, &echo, &four[..30]])),
    ])
}

/// Returns seeds of `core_driver`: scripts of events. A client's batch has: event, client, length,
/// count, kind and mark of each datagram, then whether it is truncated, whether it is empty, and
/// its ECN bits.
fn scripts() -> Seeds {
    // Three paths of one port, none for handshakes, round robin, runs of 3 packets, the protocol
    // is recognised.
    let settings = [2, 0, 0, 0, 0, 0, 1, 7, 3, 2, 3, 0];
    // The same, but the last path is separate for handshakes.
    let apart = [2, 2, 0, 0, 0, 0, 1, 7, 3, 2, 3, 0];
    let resolved = [8, 0, 0];
    let client = |kind: u8, length: u8, count: u8| {
        let mut event = vec![0, 0, length, count - 1];
        event.extend([kind, 0].repeat(usize::from(count)));
        event.extend([0, 0, 0]);
        event
    };
    let server = |number: u8, kind: u8, length: u8| vec![5, number, length, 0, kind, 0, 0, 0, 0];
    let wait = |millis: u16| [&[13][..], &(millis / 4).to_be_bytes()].concat();
    let quic = [
        client(1, 0, 1),
        resolved.to_vec(),
        wait(20),
        server(0, 1, 0),
        client(2, 0, 1),
        client(3, 0, 2),
        wait(20),
        server(0, 3, 0),
        client(3, 0, 8),
        wait(20),
        server(1, 3, 0),
        client(1, 0, 1),
    ];
    let tunnel = [
        client(6, 2, 1),
        resolved.to_vec(),
        client(7, 6, 12),
        wait(40),
        server(0, 7, 6),
        server(1, 7, 6),
        vec![10, 1, 1],
        client(7, 6, 12),
        vec![9, 0, 3, 1],
        wait(2000),
        client(7, 6, 12),
        vec![10, 1, 0],
        wait(3000),
        client(7, 5, 1),
    ];
    let no_path = [
        client(7, 6, 2),
        resolved.to_vec(),
        vec![10, 0, 1],
        vec![10, 1, 1],
        vec![10, 2, 1],
        client(7, 6, 12),
        wait(500),
        vec![10, 2, 0],
        wait(4000),
    ];
    // More datagrams than a session may queue.
    let flood = [no_path[..5].concat(), client(7, 6, 12).repeat(14), vec![10, 2, 0]];
    let silence: Vec<Vec<u8>> =
        (0..64).flat_map(|_| [client(7, 6, 1), wait(100), server(0, 7, 6)]).collect();
    // The second of three paths becomes the first of two. Then a late answer for session 0
    // arrives.
    let late = [6, 0, 7, 0, 0, 0, 0, 0];
    let change = [&[15, 7, 1, 0, 0, 0, 0, 1, 7, 3, 2, 3, 0, 1, 2][..], &late].concat();
    let reconfigure =
        [client(7, 6, 12), resolved.to_vec(), wait(20), change, client(7, 6, 12), wait(3000)];
    let open = [client(7, 6, 4), resolved.to_vec(), server(0, 7, 6), server(1, 7, 6)].concat();
    vec![
        ("quic", [&settings[..], &quic.concat()].concat()),
        ("quic-apart", [&apart[..], &quic.concat()].concat()),
        ("tunnel", [&settings[..], &tunnel.concat()].concat()),
        ("tunnel-apart", [&apart[..], &tunnel.concat()].concat()),
        ("no-path", [&settings[..], &no_path.concat()].concat()),
        ("flood", [&settings[..], &flood.concat()].concat()),
        ("reconfigure", [&settings[..], &reconfigure.concat()].concat()),
        ("silence", [&settings[..], &open, &silence.concat()].concat()),
    ]
}

/// Returns seeds of `socks`: two bytes that choose the pieces, and replies of a proxy.
fn proxies() -> Seeds {
    let says =
        |name, stride: u8, parts: &[&[u8]]| (name, [&[7, stride][..], &parts.concat()].concat());
    let relay = b"\x05\0\0\x01\xc0\0\x02\x09\x04\xd2";
    let from_server = b"\0\0\0\x01\xc0\0\x02\x01\x01\xbbfine";
    let fragment = b"\0\0\x01\x01\xc0\0\x02\x01\x01\xbbpart";
    let named = b"\0\0\0\x03\x04name\x01\xbbpayload";
    let six = b"\0\0\0\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x01\xbbfine";
    vec![
        says("open", 10, &[b"\x05\0", relay]),
        says("login", 10, &[b"\x05\x02\x01\0", relay]),
        says("login-refused", 10, &[b"\x05\x02\x01\x01"]),
        says("no-udp", 10, &[b"\x05\0\x05\x07\0\x01\0\0\0\0\0\0"]),
        says("unknown-reply", 10, &[b"\x05\0\x05\xee\0\x01\0\0\0\0\0\0"]),
        says("relay-by-name", 10, &[b"\x05\0\x05\0\0\x03\x04name\0\x09"]),
        says("relay-v6", 10, &[b"\x05\0\x05\0\0\x04", &[0; 16], b"\0\x09"]),
        says("http", 10, &[b"HTTP/1.0 400 Bad Request\r\n\r\n"]),
        says("datagrams", 14, &[from_server, from_server, b"\0\0\0\x01\xc0\0\x02\x01\x01\xbbf"]),
        says("fragments", 14, &[from_server, fragment, from_server]),
        says("named", 18, &[named]),
        says("datagrams-v6", 26, &[six, six]),
    ]
}

/// Returns seeds of `pluggable`. The first byte selects the check.
fn pluggable() -> Seeds {
    let id = "0123456789ABCDEF0123456789ABCDEF01234567";
    let bridge = format!("obfs4 192.0.2.1:443 {id} cert=ab+/cd iat-mode=0");
    let cookie = format!("{}{}", "\u{1}".repeat(33), "x".repeat(40));
    let server = "TOR_PT_MANAGED_TRANSPORT_VER=1\nTOR_PT_STATE_LOCATION=/s\nTOR_PT_SERVER_TRANSPORTS=a,b\n\
                  TOR_PT_SERVER_BINDADDR=a-[::]:443\nTOR_PT_SERVER_TRANSPORT_OPTIONS=a:k=x\\;y;b:l=2\n\
                  TOR_PT_ORPORT=127.0.0.1:9001\nTOR_PT_EXTENDED_SERVER_PORT=127.0.0.1:9\nTOR_PT_AUTH_COOKIE_FILE=/c";
    let named = format!("192.0.2.1:443 {id} ed25519:{}", "A".repeat(43));
    let texts: [(&str, u8, &str); 15] = [
        ("bridge", 0, &bridge),
        ("bridge-ed25519", 0, &named),
        ("bridge-plain", 0, "Bridge [2001:db8::1]:9001"),
        ("smethod-args", 1, "a\\,b=c\\=d,cert=ab=="),
        ("socks-args", 2, "k=v;l=m\\;n"),
        ("client-lines", 3, "VERSION 1\nPROXY DONE\nCMETHOD a socks5 127.0.0.1:9\nCMETHODS DONE\n"),
        (
            "server-lines",
            3,
            "VERSION 1\nSMETHOD a 0.0.0.0:9 ARGS:k=v\nLOG SEVERITY=info MESSAGE=\"x\\n\"\nSMETHODS DONE\n",
        ),
        (
            "client-environment",
            4,
            "TOR_PT_MANAGED_TRANSPORT_VER=1\nTOR_PT_STATE_LOCATION=/s\nTOR_PT_CLIENT_TRANSPORTS=a",
        ),
        ("server-environment", 4, server),
        ("cookie", 5, &cookie),
        ("plugin", 6, "ClientTransportPlugin obfs3,obfs4 exec /usr/bin/obfs4proxy -x"),
        ("offer", 6, "obfs4 0.0.0.0:443 iat-mode=1 exec /usr/bin/obfs4proxy"),
        ("plugin-proxy", 6, "snowflake socks5 127.0.0.1:1984"),
        ("transport", 7, "\u{5}\u{2}\u{1}\0\u{5}\0\0\u{1}\0\0\0\0\0\0hello"),
        ("transport-plain", 7, "\u{5}\0\u{5}\u{4}\0\u{3}\u{1}a\0\0"),
    ];
    texts.map(|(name, kind, text)| (name, [&[kind], text.as_bytes()].concat())).to_vec()
}

/// Returns seeds of `camouflage`. The first byte selects the check. Steps of a network are a kind
/// (plus 126 for the downlink), a connection, and the kind's arguments.
fn camouflage() -> Seeds {
    let text = |text: &str| [&[0], text.as_bytes()].concat();
    let noise: Vec<u8> = (0..120u8).map(|n| n.wrapping_mul(97)).collect();
    // Length that is replayed, length of the noise after it, the noise, the order, and a pause.
    let one = |kept: u8, order: u8| [&[0, kept, 120][..], &noise, &[order, 9]].concat();
    let strangers = [one(0, 0), one(56, 1), one(80, 1), one(24, 2)].concat();
    let server = |joined: u8| [&[2, 0, 0, joined, 0, 120][..], &noise, &[20, 1, 60, 7, 7]].concat();
    let (write, down, pass) = ([6, 0, 40, 0], [132, 0, 200, 0], [10, 0, 3]);
    let (open, kill, change) = ([0, 1], [5, 0, 3], [130, 0, 1, 0, 64]);
    let (cut, wait, one_told, tight) = ([1, 1, 0, 40], [9, 0, 60, 0], [5, 1, 1], [11, 0, 0, 90]);
    let steps = [
        &write[..],
        &down,
        &open,
        &pass,
        &kill,
        &down,
        &cut,
        &change,
        &wait,
        &pass,
        &one_told,
        &tight,
        &write,
        &wait,
        &wait,
        &pass,
        &[8, 0],
    ]
    .concat();
    let network = |profile: u8| [&[3, profile, 0][..], &steps, &steps, &steps].concat();
    vec![
        ("key", text("AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA")),
        ("profile", text("nosteg-short")),
        ("shapes", text("# one\nshape a-1\nup 700 0\ndown 9000 2\nup 1 3000\ndown 2 250\n")),
        ("strangers", [&[1, 0, 0][..], &strangers].concat()),
        ("strangers-rr", [&[1, 2, 1][..], &strangers].concat()),
        ("foreign-server", server(0)),
        ("foreign-server-late", server(1)),
        ("network", network(0)),
        ("network-short", network(1)),
        ("network-rr", network(2)),
        ("network-embed", network(6)),
        ("network-site", network(7)),
        ("network-opaque-short", network(8)),
        ("network-image", network(9)),
        ("reset", [&[3, 0, 3][..], &steps, &[13, 0, 255]].concat()),
    ]
}

/// Returns seeds of `covers`. The first byte selects the check.
fn covers() -> Seeds {
    let list = format!("[{}1]", format!("\"{}\",", "aB3_".repeat(60)).repeat(6));
    let har = format!(
        r#"{{"log":{{"entries":[{{"startedDateTime":"2026-03-01T10:00:01.5+01:00","request":
        {{"method":"GET","url":"https://a/b?c","headers":[{{"name":"Host","value":"a"}}]}},
        "response":{{"status":200,"httpVersion":"h2","headers":[{{"name":"content-type",
        "value":"application/json"}}],"content":{{"text":{list:?}}}}}}}]}}}}"#
    );
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n\
         {:x}\r\n{list}\r\n0\r\n\r\n",
        list.len()
    );
    let ask = format!("GET /a?b HTTP/1.1\r\nHost: a\r\nCookie: {}\r\n\r\n", "a1B2".repeat(160));
    let tcp = capture(&[(true, 7, ask.as_bytes()), (false, 90, answer.as_bytes())]);
    let profile = r#"{"format":"anabranch covers","version":1,"finder":1,"request":[["Host","a"]],
        "objects":[{"path":"/a","headers":[["Content-Type","image/jpeg"]],"bytes":9,"slots":
        {"hiding":"image","hides":600,"body":"00000","browser":true}}],"pages":[{"path":"/",
        "objects":[0],"pause_ms":7}],"left_out":{"no GET":2}}"#;
    let page = "<!doctype html><base href=/><img src=../a.jpg?x><a href='b#c'><script src=\"//x\">";
    let noise: Vec<u8> =
        (0..3_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let seeds: [(_, u8, &[u8]); 7] = [
        ("har", 0, har.as_bytes()),
        ("capture", 1, &tcp),
        ("shape", 2, &tcp),
        ("page", 3, page.as_bytes()),
        ("profile", 3, profile.as_bytes()),
        ("json", 4, list.as_bytes()),
        ("noise", 6, &noise),
    ];
    seeds.map(|(name, kind, bytes)| (name, [&[kind], bytes].concat())).to_vec()
}

/// Returns a pcap file of raw IPv4 packets with TCP segments. Each segment is given by its
/// direction (true for the uplink), its sequence number and its payload.
fn capture(segments: &[(bool, u32, &[u8])]) -> Vec<u8> {
    let head: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 101];
    let mut file: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (second, &(up, sequence, payload)) in (1u32..).zip(segments) {
        let [near, far] = if up { [1, 2] } else { [2, 1] };
        let ports = if up { [0x9c, 0x40, 0, 80] } else { [0, 80, 0x9c, 0x40] };
        let length = (40 + payload.len()) as u16;
        let [high, low] = length.to_be_bytes();
        let ip = [0x45, 0, high, low, 0, 0, 0, 0, 64, 6, 0, 0, 192, 0, 2, near, 192, 0, 2, far];
        let tcp = [0, 0, 0, 0, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0];
        let packet = [&ip[..], &ports, &sequence.to_be_bytes(), &tcp, payload].concat();
        for word in [second, 0, u32::from(length), u32::from(length)] {
            file.extend(word.to_le_bytes());
        }
        file.extend(packet);
    }
    file
}

fn texts() -> Seeds {
    let texts = [
        ("path-interface", "wlan=if:wlan0"),
        ("path-all", "six=if:eth0,addr:2001:db8::7,ports:2"),
        ("path-ports", "rot=ports:8"),
        ("path-tunnel", "vpn=wg:/etc/wireguard/vpn.conf,ports:2"),
        ("path-proxy", "prx=socks5:proxy.example.net:1080,if:wwan0"),
        ("path-proxy-login", "prx=socks5:anna@[2001:db8::1]:1080"),
        ("path-proxy-password", "prx=if:eth0,socks5:anna:a,b@c@192.0.2.1:1080"),
        ("path-proxy-file", "prx=socks5:anna:@secret.txt@192.0.2.1:1080"),
        ("target-name", "vpn.example.net:51820"),
        ("target-v6", "[2001:db8::1]:443"),
        ("ports-range", "5000-5010"),
        ("prefix-v4", "10.0.0.2/24"),
        ("prefix-v6", "2001:db8::1/64"),
        ("every-packets", "~50p"),
        ("every-time", "~100ms"),
        ("every-never", "never"),
        ("schedule-weighted", "weighted:0.5"),
        ("schedule-weights", "weights:0.6,0.3,0.1"),
        ("schedule-rtt", "lowest-rtt"),
        ("schedule-eta", "eta"),
        ("schedule-mix", "mix:1.5"),
        ("schedule-tiny", "weights:1e-310,0"),
    ];
    texts.map(|(name, text)| (name, text.as_bytes().to_vec())).to_vec()
}

fn logins() -> Seeds {
    // This is not a real key, but letters in order.
    let connect = "MOSH CONNECT 60001 abcdefghijklmnopqrstuv";
    let by_proxy = format!("MOSH IP 2001:db8::1\nhello\r\n\r\n{connect}\r\nbanner\n");
    let by_server = format!("\nMOSH SSH_CONNECTION 192.0.2.7 5000 192.0.2.1 22\r\n{connect}\n");
    vec![
        ("by-proxy", by_proxy.into()),
        ("by-server", by_server.into()),
        ("twice", format!("{connect}\nMOSH CONNECT 60002 vutsrqponmlkjihgfedcba\n").into()),
        ("bad-port", connect.replace("60001", "70000").into()),
        ("bad-key", format!("{connect};\n").into()),
        ("words", "ssh -p 2222 -i 'my key' \\\"".into()),
    ]
}

fn tunnels() -> Seeds {
    // This is not a real key; it only has the length of one.
    let key = format!("{}=", "k".repeat(43));
    let peer = |key: &str| {
        format!("[Peer]\nPublicKey = {key}\nAllowedIPs = 0.0.0.0/0, ::/0\nEndpoint = h:1 # e\n")
    };
    let head = format!("# mine\n[Interface]\nPrivateKey = {key}\nDNS = 10.0.0.1\n");
    let full =
        format!("{head}MTU = 1280\nFwMark = 0xca6c\nTable = auto\nPostUp = a=b\n\n{}", peer(&key));
    vec![
        ("full.conf", full.clone().into()),
        ("crlf.conf", full.replace('\n', "\r\n").into()),
        ("two-peers.conf", format!("{head}{}{}", peer(&key), peer("two")).into()),
        ("peer-first.conf", format!("{}[interface]", peer(&key)).into()),
        ("no-interface.conf", peer(&key).into()),
        ("secret-in-no-key.conf", format!("{head}{key}\n").into()),
        ("unknown-key.conf", format!("{head}PrivateKy = {key}\n").into()),
        ("twice.conf", format!("{head}PrivateKey = {key}\n").into()),
    ]
}

fn settings() -> Seeds {
    let good = "listen = '127.0.0.1:51820'\nevery = '100ms'\nseed = 7\n\n[[path]]\nname = 'a'\nports = 8\n\
                \n[by_name.x]\nport = 1\n";
    vec![
        ("good.toml", good.into()),
        ("unknown-key.toml", "evry = '1p'\n".into()),
        ("control-in-key.toml", "\"a\\n\\u001b[2J\" = 1\n".into()),
        ("wrong-type.toml", "\n[[path]]\nname = 'a'\nports = 'x'\n".into()),
        ("missing.toml", "[[path]]\nports = 1\n".into()),
        ("no-toml.toml", "[[path]\nname = \n".into()),
    ]
}

fn topologies() -> Seeds {
    let good = "seed = 7\n\n[[host]]\nname = 'client'\naddress = ['10.9.0.1/32']\n\n[[host]]\nname = 'server'\n\
                forward = true\n\n[[link]]\nname = 'p0'\nmtu = 1400\nrate = '100mbit'\nrate_back = '20mbit'\n\
                delay = '10ms'\njitter = '1ms'\nloss = { to_bad = 0.01, to_good = 0.3, loss_bad = 0.5 }\n\
                queue = '250kB'\n\n[[link.ends]]\nhost = 'client'\naddress = ['10.0.0.1/24']\nroutes = ['0.0.0.0/0']\n\
                prefsrc = ['10.0.0.1']\nmetric = 10\n\n[[link.ends]]\nhost = 'server'\naddress = ['10.0.0.2/24']\n";
    vec![
        ("good.toml", good.into()),
        ("no-host.toml", "seed = 1\n".into()),
        ("unknown-host.toml", good.replacen("host = 'client'", "host = 'clinet'", 1).into()),
        ("bad-loss.toml", good.replace("0.01", "7").into()),
        ("huge-rate.toml", good.replace("100mbit", "1e300gbit").into()),
    ]
}

/// Writes seeds of `trace_reader`: a trace with two loads, and the same trace truncated and
/// damaged.
fn traces(folder: &Path) -> Outcome {
    fs::create_dir_all(folder)?;
    let good = folder.join("good.parquet");
    let facts = TraceFacts {
        paths: vec!["wlan".into(), "lte".into()],
        seed: Some(7),
        schedule: Some("round-robin".into()),
        ..TraceFacts::default()
    };
    let mut writer = TraceWriter::create(&good, &facts)?;
    for number in 0..8_i32 {
        writer.push(&Row {
            load: i64::from(number / 4),
            label: ["example.org", ""][number as usize / 4],
            monitored: number < 4,
            run: 0,
            path: (number % 2) as i16,
            time: f64::from(number) / 100.0,
            size: if number % 3 == 0 { -1228 } else { 148 },
        })?;
    }
    writer.finish()?;
    let bytes = fs::read(&good)?;
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 3] ^= 0x41;
    write(
        folder,
        &vec![
            ("cut.parquet", bytes[..bytes.len() - 9].to_vec()),
            ("flipped.parquet", flipped),
            ("footer-only.parquet", [b"PAR1", &bytes[bytes.len() - 400..]].concat()),
        ],
    )
}

/// Returns seeds of `uploads`: documents that any relay may upload to an authority, and other
/// texts that an authority reads.
fn uploads() -> Seeds {
    const OLD: &str = "network-status-version 3\nr a\nr b\ndirectory-footer\n\
        directory-signature a b\nx\n";
    const HEAD: &str = "Tor 0.4.9.11 on Linux\nLink=4-5 Relay=2-4\n";
    let send = |kind: u8, lines: &str| [&[kind][..], lines.as_bytes()].concat();
    let exit = "contact x\nfamily $AAAA other\naccept *:80\naccept *:443\nreject *:*\n\
        ipv6-policy accept 443\ntunnelled-dir-server";
    let odd = "Tor 0 on on\nr x y\nhibernating 1\nextra-info-digest 00\nreject *:*";
    vec![
        ("exit", send(1, &format!("{HEAD}{exit}"))),
        ("middle", send(1, &format!("{HEAD}reject *:*"))),
        ("odd", send(1, odd)),
        ("whole", send(0, &anabranch_fuzz::uploads::signed(&format!("{HEAD}reject *:*")))),
        ("kept", send(3, &anabranch_fuzz::uploads::signed(&format!("{HEAD}reject *:*")))),
        ("diff", send(4, &format!("{OLD}\n----\n{}", OLD.replace("r b", "r c\ns Fast")))),
        ("keys", send(5, "-----BEGIN RSA PRIVATE KEY-----\n----\ndir-key-certificate-version 3\n")),
        ("measured", send(2, &format!("{NOW}\nbw=77 node_id=${} nick=x\n", "AB".repeat(20)))),
    ]
}
