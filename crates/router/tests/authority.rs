//! A directory authority on real sockets: the descriptors that it accepts and refuses, the files
//! that it keeps, and the errors that prevent its start.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anabranch_multipath::seed::stream;
use anabranch_onion::authority::{self as core, First, Judgement, Rules};
use anabranch_onion::directory::descriptor::Description;
use anabranch_onion::directory::http::{Response, ResponseReader, get, post};
use anabranch_onion::wire::dirkeys::IdentityKey;
use anabranch_onion::wire::keys::RelayKeys;
use anabranch_onion::wire::netdoc::{Unproven, parse_certs};
use anabranch_onion::wire::text::hex;
use anabranch_router::onion::authority::{self, AuthorityError, AuthorityEvent, Running, Settings};
use anabranch_router::onion::dirclient::{DirClient, unix};
use anabranch_router::onion::embedded;

const CONSENSUS: &str = "/tor/status-vote/current/consensus-microdesc";
/// Maximum time to wait. Rounds are ten seconds apart, and a busy machine may miss one.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running authority, with its events.
struct World {
    dirclient: Option<DirClient>,
    running: Option<Running>,
    events: Receiver<AuthorityEvent>,
    at: SocketAddr,
}

impl World {
    fn start(data: &Path) -> World {
        World::try_start(settings(data, 0)).unwrap()
    }

    fn try_start(settings: Settings) -> Result<World, AuthorityError> {
        let (sender, events) = channel();
        let notify = Box::new(move |one: AuthorityEvent| drop(sender.send(one)));
        let (dirclient, running) = authority::start(settings, notify)?;
        // In the program, the authority's own relay publishes this.
        dirclient.publish(description());
        let at = running.at[0];
        Ok(World { dirclient: Some(dirclient), running: Some(running), events, at })
    }

    fn publish(&self, body: &str) -> Response {
        ask(self.at, &post("/tor/", "authority", body.as_bytes()))
    }

    /// Waits for an event that `wanted` accepts.
    fn wait(&self, wanted: impl Fn(&AuthorityEvent) -> bool) -> AuthorityEvent {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let event = self.events.recv_timeout(left).expect("it is told in time");
            if wanted(&event) {
                return event;
            }
        }
    }

    /// Stops the authority. Returns the events that were not read yet.
    fn stop(mut self) -> Vec<AuthorityEvent> {
        drop(self.dirclient.take());
        self.running.take().unwrap().join();
        self.events.try_iter().collect()
    }
}

fn settings(data: &Path, port: u16) -> Settings {
    keys_in(data);
    let core = core::Settings {
        interval: 10,
        first: First { relays: 0, seconds: 0 },
        judgement: Judgement { young: true, ..Judgement::default() },
        rules: Rules { allow_private: true, ..Rules::default() },
        ..core::Settings::default()
    };
    let (listen, at) = ((Ipv4Addr::LOCALHOST, port), SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9001));
    let description = Description::new("auth".to_owned(), at, "Anabranch".to_owned());
    let (keys, listen) = (Arc::new(relay(0)), vec![listen.into()]);
    Settings::new(&description, keys, listen, data.to_owned(), core)
}

/// Writes an identity key to the folder `data`. The key is made only once, because this takes
/// seconds.
fn keys_in(data: &Path) {
    static KEY: OnceLock<String> = OnceLock::new();
    let pem = KEY.get_or_init(|| {
        IdentityKey::generate(&mut stream(1, 0, "identity")).unwrap().to_pem().unwrap()
    });
    let folder = data.join("keys");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).unwrap();
    let path = folder.join("authority_identity_key");
    if !path.exists() {
        fs::write(path, pem).unwrap();
    }
}

fn relay(seed: u64) -> RelayKeys {
    RelayKeys::generate(&mut stream(seed, 0, "relay"), unix()).unwrap()
}

fn describe(keys: &RelayKeys, published: u64) -> String {
    description().sign(keys, published).unwrap()
}

fn description() -> Description {
    let at = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9);
    Description::new("relay".to_owned(), at, "Anabranch".to_owned())
}

fn ask(at: SocketAddr, request: &[u8]) -> Response {
    let mut socket = TcpStream::connect(at).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(request).unwrap();
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).unwrap();
    let mut reader = ResponseReader::new(1 << 24);
    reader.push(&bytes).unwrap();
    reader.finish().unwrap()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    folder
}

#[test]
fn good_descriptors_are_taken_and_bad_ones_refused_with_reasons() {
    let data = folder();
    let world = World::start(data.path());
    let (now, keys) = (unix(), relay(1));
    let good = describe(&keys, now - 60);
    assert_eq!(world.publish(&good).status, 200);
    let unsigned = good.split("router-sig-ed25519").next().unwrap();
    let thief = RelayKeys::from_files(|name| {
        let from = if name == "secret_id_key" { &keys } else { &relay(2) };
        let files = from.files().unwrap();
        files.iter().find(|file| file.name == name).map(|file| file.content.clone())
    });
    for (what, text, status) in [
        ("replayed", good.clone(), 200),
        ("an older one", describe(&keys, now - 120), 200),
        ("expired", describe(&relay(3), now - 100_000), 400),
        ("of the future", describe(&relay(3), now + 100_000), 400),
        ("unsigned", unsigned.to_owned(), 400),
        ("changed", good.replace("Anabranch", "Anabrunch"), 400),
        ("contradictory", good.clone() + &good, 400),
        ("two identities mixed", describe(&thief.unwrap(), now), 400),
        ("oversized", good.replace("platform", &format!("platform {}", "x".repeat(30_000))), 400),
        ("nothing", String::new(), 400),
    ] {
        let response = world.publish(&text);
        assert_eq!(response.status, status, "{what}: {}", response.reason);
        assert!(status == 200 || response.reason.len() > 10, "{what}: {}", response.reason);
    }
    let all = get(&format!("/tor/server/fp/{}", hex(&keys.rsa_identity())));
    let all = ask(world.at, &all);
    assert_eq!(String::from_utf8(all.body).unwrap(), good, "what was known stays");
    assert_eq!(ask(world.at, &get("/tor/nothing")).status, 404);
    assert_eq!(ask(world.at, &post("/tor/other", "authority", b"x")).status, 404);
    assert_eq!(ask(world.at, b"BREW / HTTP/1.0\r\n\r\n").status, 400);
    world.stop();
}

#[test]
fn visitors_who_say_too_much_or_nothing_disturb_nobody() {
    let data = folder();
    let world = World::start(data.path());
    let silent: Vec<TcpStream> = (0..150).map(|_| TcpStream::connect(world.at).unwrap()).collect();
    let mut flood = TcpStream::connect(world.at).unwrap();
    let head = b"POST /tor/ HTTP/1.0\r\nContent-Length: 99999999\r\n\r\n";
    flood.write_all(head).unwrap();
    let mut answer = String::new();
    flood.shutdown(Shutdown::Write).unwrap();
    flood.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 400 the HTTP message is longer than"), "{answer}");
    assert_eq!(ask(world.at, &get("/tor/keys/all")).status, 200);
    drop(silent);
    world.stop();
}

#[test]
fn a_restart_serves_the_same_consensus_and_knows_the_same_relays() {
    let data = folder();
    let world = World::start(data.path());
    // The authority answers only when there is a consensus. So a tor receives no answer that it
    // would report as an error.
    let first = ask(world.at, &get(CONSENSUS));
    assert_eq!(first.status, 200);
    let certs = ask(world.at, &get("/tor/keys/all")).body;
    let (certs, _) = parse_certs(std::str::from_utf8(&certs).unwrap()).unwrap();
    let text = String::from_utf8(first.body).unwrap();
    let identity = certs[0].keys().0;
    Unproven::parse(&text).unwrap().prove(&[identity], &certs, unix()).unwrap();
    assert_eq!(world.publish(&describe(&relay(1), unix())).status, 200);
    let known = get(&format!("/tor/server/fp/{}", hex(&relay(1).rsa_identity())));
    let before = ask(world.at, &known).body;
    world.stop();
    let world = World::start(data.path());
    assert_eq!(ask(world.at, &known).body, before);
    assert_eq!(ask(world.at, &get(&format!("{CONSENSUS}/{}", hex(&identity)))).status, 200);
    assert_eq!(world.publish(&describe(&relay(1), unix() - 100)).status, 200, "no news");
    world.wait(|event| matches!(event, AuthorityEvent::Consensus(..)));
    let events = world.stop();
    assert!(!events.iter().any(|event| matches!(event, AuthorityEvent::Trouble(_))), "{events:?}");
}

#[test]
fn files_that_were_cut_in_half_are_named_and_nothing_else_is_lost() {
    let data = folder();
    let world = World::start(data.path());
    assert_eq!(ask(world.at, &get(CONSENSUS)).status, 200);
    let texts = [1, 2].map(|seed| describe(&relay(seed), unix()));
    texts.iter().for_each(|text| assert_eq!(world.publish(text).status, 200));
    world.stop();
    let lost = data.path().join("relays").join(hex(&relay(1).rsa_identity()));
    halve(&lost);
    halve(&data.path().join("consensus-microdesc"));
    let world = World::start(data.path());
    let events = world.events.try_iter().collect::<Vec<_>>();
    let complains = |of: &Path| {
        let of = of.display().to_string();
        events
            .iter()
            .any(|event| matches!(event, AuthorityEvent::Trouble(text) if text.contains(&of)))
    };
    assert!(complains(&lost) && complains(&data.path().join("consensus")), "{events:?}");
    let found = [1, 2].map(|seed| {
        let id = hex(&relay(seed).rsa_identity());
        ask(world.at, &get(&format!("/tor/server/fp/{id}"))).status
    });
    assert_eq!(found, [404, 200], "one is lost, the other is not");
    assert_eq!(world.publish(&texts[0]).status, 200);
    world.stop();
    assert_eq!(fs::read_to_string(&lost).unwrap(), texts[0], "it came again from its relay");
    let stored_relays = data.path().join("relays.json");
    let whole = fs::read(&stored_relays).unwrap();
    halve(&stored_relays);
    let error = World::try_start(settings(data.path(), 0)).err().unwrap().to_string();
    assert!(error.contains("relays.json") && error.contains("restore it from a backup"), "{error}");
    assert_eq!(fs::read(&stored_relays).unwrap().len(), whole.len() / 2, "it is left as it is");
    fs::write(&stored_relays, whole).unwrap();
    World::start(data.path()).stop();
}

fn halve(path: &Path) {
    let whole = fs::read(path).unwrap();
    fs::write(path, &whole[..whole.len() / 2]).unwrap();
}

#[test]
fn a_port_or_a_folder_that_is_taken_is_named() {
    let data = folder();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap();
    let error = World::try_start(settings(data.path(), taken.port())).err().unwrap().to_string();
    assert!(
        error.contains(&taken.to_string()) && error.contains("the port is taken by"),
        "{error}"
    );
    drop(other);
    let world = World::start(data.path());
    let error = World::try_start(settings(data.path(), 0)).err().unwrap().to_string();
    assert!(error.contains("uses this folder"), "{error}");
    world.stop();
    World::start(data.path()).stop();
}

#[test]
fn descriptors_of_another_time_are_kept_for_when_the_clock_is_right() {
    let data = folder();
    let world = World::start(data.path());
    assert_eq!(ask(world.at, &get(CONSENSUS)).status, 200);
    world.stop();
    // A clock that was set two days forward or back would find such files.
    let files = [(1, unix() - 172_800), (2, unix() + 172_800)].map(|(seed, then)| {
        let path = data.path().join("relays").join(hex(&relay(seed).rsa_identity()));
        fs::write(&path, describe(&relay(seed), then)).unwrap();
        path
    });
    let world = World::start(data.path());
    world.wait(|event| matches!(event, AuthorityEvent::Consensus(..)));
    let all = String::from_utf8(ask(world.at, &get("/tor/server/all")).body).unwrap();
    assert_eq!(all.matches("\nrouter-signature\n").count(), 1, "ours alone is of these days");
    assert_eq!(
        world.publish(&describe(&relay(2), unix())).status,
        200,
        "it is not held against it"
    );
    let events = world.stop();
    assert!(!events.iter().any(|event| matches!(event, AuthorityEvent::Trouble(_))), "{events:?}");
    assert!(files.iter().all(|path| path.exists()));
}

#[test]
fn the_line_of_a_network_is_read_and_nothing_is_changed() {
    let data = folder();
    let error = embedded::line(data.path()).unwrap_err().to_string();
    assert!(error.contains("authorities") && !data.path().join("authority").exists(), "{error}");
    let world = World::start(&data.path().join("authority"));
    let line = world.running.as_ref().unwrap().line.clone();
    assert_eq!(embedded::line(data.path()).unwrap(), line, "while it runs");
    world.stop();
    assert_eq!(embedded::line(data.path()).unwrap(), line);
}

#[test]
fn who_asks_does_not_wait_for_those_who_publish() {
    let data = folder();
    let (gate, passage) = channel::<()>();
    // The reader of the authority's events stops at the first relay other than the authority's
    // own. A halted terminal has the same effect, and so has a disk that stalls, because the same
    // thread waits for it.
    let (mut relays, strange) = (0, Arc::new(AtomicBool::new(false)));
    let halted = Arc::clone(&strange);
    let notify = Box::new(move |event: AuthorityEvent| {
        relays += usize::from(matches!(event, AuthorityEvent::Relay(..)));
        if relays > 1 && !halted.swap(true, Ordering::SeqCst) {
            let _ = passage.recv();
        }
    });
    let (dirclient, running) = authority::start(settings(data.path(), 0), notify).unwrap();
    dirclient.publish(description());
    let at = running.at[0];
    assert_eq!(ask(at, &get(CONSENSUS)).status, 200);
    let publishing = std::thread::spawn(move || {
        ask(at, &post("/tor/", "authority", describe(&relay(1), unix()).as_bytes())).status
    });
    let end = Instant::now() + PATIENCE;
    while !strange.load(Ordering::SeqCst) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(strange.load(Ordering::SeqCst), "the relay came");
    for path in [CONSENSUS, "/tor/keys/all", "/tor/server/all", "/tor/server/authority"] {
        assert_eq!(ask(at, &get(path)).status, 200, "{path}");
    }
    assert!(!publishing.is_finished());
    drop(gate);
    assert_eq!(publishing.join().unwrap(), 200);
    drop(dirclient);
    running.join();
}

#[test]
fn of_strangers_that_made_way_nothing_is_left() {
    let data = folder();
    let mut settings = settings(data.path(), 0);
    settings.core.rules.per_address = 2;
    let world = World::try_start(settings).unwrap();
    assert_eq!(ask(world.at, &get(CONSENSUS)).status, 200);
    // At most eight relays of an address are kept. No relay answers, because no program listens at
    // this port.
    let publish = |seed| world.publish(&describe(&relay(seed), unix())).status;
    let first: Vec<u16> = (10..17).map(publish).collect();
    assert_eq!(first, [200; 7], "and ours makes eight");
    let end = Instant::now() + PATIENCE;
    while publish(17) != 200 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
    }
    let all = String::from_utf8(ask(world.at, &get("/tor/server/all")).body).unwrap();
    assert_eq!(all.matches("\nrouter-signature\n").count(), 8);
    assert_eq!(fs::read_dir(data.path().join("relays")).unwrap().count(), 8);
    let last = get(&format!("/tor/server/fp/{}", hex(&relay(17).rsa_identity())));
    assert_eq!(ask(world.at, &last).status, 200);
    world.stop();
}
