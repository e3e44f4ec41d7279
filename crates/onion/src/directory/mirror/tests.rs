use std::net::Ipv4Addr;
use std::sync::OnceLock;

use anabranch_multipath::seed::stream;

use super::*;
use crate::authority::{About, Authority, Judgement, Room, Settings};
use crate::directory::cache::Cache;
use crate::directory::descriptor::{Description, RelayDocuments};
use crate::directory::http::{RequestReader, ResponseReader, get};
use crate::test_keys::relay_keys;
use crate::wire::dirkeys::IdentityKey;
use crate::wire::keys::RelayKeys;
use crate::wire::netdoc::parse_certs;
use crate::wire::text::signed_digest;

const NOW: u64 = 1_800_000_000;
const INTERVAL: u64 = 60;

/// An authority, and a cache that serves the authority's documents.
struct World {
    authority: Authority,
    cache: Cache,
}

fn identity() -> &'static IdentityKey {
    static KEY: OnceLock<IdentityKey> = OnceLock::new();
    KEY.get_or_init(|| IdentityKey::generate(&mut stream(1, 0, "identity")).unwrap())
}

fn relay(number: u64) -> &'static RelayKeys {
    relay_keys(number, "relay")
}

/// Returns the documents that the relay `number` publishes. They contain no statistics about
/// clients, so the text depends only on the arguments.
fn published(number: u64, now: u64) -> RelayDocuments {
    let address = Ipv4Addr::new(192, 0, u8::try_from(number).unwrap(), 1);
    let at = std::net::SocketAddrV4::new(address, 9001);
    let description = Description::new(format!("relay{number}"), at, "Anabranch on Linux".into());
    description.publish(relay(number), now).unwrap()
}

impl World {
    fn new() -> World {
        let about = About {
            nickname: "auth".to_owned(),
            identity: identity().identity(),
            relay: relay(0).rsa_identity(),
            address: Ipv4Addr::new(192, 0, 2, 99),
            dir_port: 9030,
            or_port: 9001,
            contact: "somebody".to_owned(),
        };
        let keys = identity().certify(&mut stream(1, 0, "signing"), NOW - 100, NOW + 90_000);
        let judgement = Judgement { young: true, ..Judgement::default() };
        let settings = Settings { interval: INTERVAL, judgement, ..Settings::default() };
        let authority = Authority::new(about, settings, keys.unwrap());
        World { authority, cache: Cache::default() }
    }

    /// Uploads the documents of `relays` to the authority, and makes a consensus.
    fn publish(&mut self, now: u64, relays: &[u64]) {
        for number in relays {
            let RelayDocuments { server, extra } = published(*number, now);
            self.authority.upload(now, &(server.clone() + &extra), None).unwrap();
            let digests = [&server, &extra].map(|text| signed_digest(text));
            let id = relay(*number).rsa_identity();
            self.cache.relay(id, (&server, digests[0]), Some((&extra, digests[1])));
        }
        for probe in self.authority.probes(now, Room { running: 100, others: 100 }) {
            self.authority.probed(now, &probe.target, true);
        }
        let documents = self.authority.publish(now).unwrap();
        self.cache.consensus(&documents.ns, vec![identity().identity()]);
    }

    fn certs(&self) -> Vec<AuthorityCert> {
        parse_certs(self.authority.certificate()).unwrap().0
    }

    fn newest(&self) -> u64 {
        self.authority.documents().times.unwrap().valid_after
    }
}

fn answer(cache: &Cache, path: &str) -> Result<Response, Failure> {
    let request = RequestReader::new(0).push(&get(path)).unwrap().unwrap();
    let mut reader = ResponseReader::new(1 << 20);
    reader.push(&cache.answer(&request)).unwrap();
    reader.finish().map_err(Failure::Http)
}

/// A relay with a mirror, and the cache from which the relay answers requests.
struct Relay {
    mirror: Mirror,
    cache: Cache,
    texts: [String; 3],
    millis: u64,
}

impl Relay {
    fn new() -> Relay {
        let mirror = Mirror::new(vec![identity().identity()]);
        Relay { mirror, cache: Cache::default(), texts: Default::default(), millis: 0 }
    }

    fn take(&mut self, documents: Vec<Document>) {
        for document in documents {
            match document {
                Document::Consensus(text, signers) => {
                    self.cache.consensus(&text, signers);
                    self.cache.keep_relays(&self.mirror.relays());
                    self.texts[0] = text;
                }
                Document::Server(id, digest, text) => {
                    self.cache.server(id, (&text, digest));
                    self.texts[1].push_str(&text);
                }
                Document::Extra(id, digest, text) => {
                    self.cache.extra(id, (&text, digest));
                    self.texts[2].push_str(&text);
                }
            }
        }
    }

    /// Makes requests until the mirror needs no more. Returns the requests' names, and the number
    /// of failures.
    fn catch_up(&mut self, world: &World, now: u64) -> (Vec<&'static str>, usize) {
        let (mut rng, mut asked, mut failed) = (stream(1, 0, "mirror"), Vec::new(), 0);
        while let Some(wanted) = self.mirror.poll(self.millis, world.newest()) {
            asked.push(wanted.name());
            let path = wanted.path();
            let outcome = answer(&world.cache, &path);
            let done = self.mirror.done(outcome, &world.certs(), self.millis, now, &mut rng);
            failed += usize::from(done.is_err());
            self.take(done.unwrap_or_default());
        }
        (asked, failed)
    }
}

fn texts(cache: &Cache, path: &str) -> String {
    let response = answer(cache, path).unwrap();
    assert_eq!(response.status, 200, "{path}");
    String::from_utf8(response.body).unwrap()
}

#[test]
fn a_mirror_comes_to_answer_what_its_authority_does() {
    let (mut world, mut relay) = (World::new(), Relay::new());
    world.publish(NOW, &[0, 1, 2]);
    let every = ["consensus with descriptors", "server descriptors", "extra-info documents"];
    assert_eq!(relay.catch_up(&world, NOW + 1), (every.to_vec(), 0));
    assert!(relay.mirror.is_whole(0, world.newest()));
    let id = hex(&self::relay(1).rsa_identity());
    let digest = hex(&signed_digest(&published(1, NOW).server));
    for path in [
        "/tor/status-vote/current/consensus",
        "/tor/status-vote/current/consensus.z",
        "/tor/server/all",
        &format!("/tor/server/fp/{id}"),
        &format!("/tor/server/d/{digest}.z"),
        "/tor/extra/all",
        &format!("/tor/extra/fp/{id}.z"),
    ] {
        assert_eq!(texts(&relay.cache, path), texts(&world.cache, path), "{path}");
    }
    // One relay publishes again. The consensus and two documents are fetched. The old descriptor
    // remains available by its digest.
    world.publish(NOW + INTERVAL, &[1]);
    assert_eq!(relay.catch_up(&world, NOW + INTERVAL + 1), (every.to_vec(), 0));
    let newer = published(1, NOW + INTERVAL).server;
    assert_eq!(texts(&relay.cache, &format!("/tor/server/fp/{id}")), newer);
    assert_eq!(texts(&relay.cache, &format!("/tor/server/d/{digest}")), published(1, NOW).server);
    assert_eq!(texts(&relay.cache, "/tor/server/all"), texts(&world.cache, "/tor/server/all"));
}

#[test]
fn what_is_not_proven_is_not_kept() {
    let (mut world, mut relay) = (World::new(), Relay::new());
    world.publish(NOW, &[0, 1]);
    relay.catch_up(&world, NOW + 1);
    let (certs, now) = (world.certs(), NOW + 1);
    let mut fresh = Mirror::new(vec![identity().identity()]);
    let [consensus, servers, extras] = &relay.texts;
    // The consensus.
    let bent = consensus.replacen("w Bandwidth=", "w Bandwidth=9", 1);
    assert_eq!(fresh.take_consensus(&bent, &certs, now), Err(DocumentError::BadSignature));
    let late = fresh.take_consensus(consensus, &certs, NOW + 100_000);
    assert_eq!(late, Err(DocumentError::Expired));
    let mut three = Mirror::new(vec![identity().identity(), [1; 20], [2; 20]]);
    let few = three.take_consensus(consensus, &certs, now);
    assert_eq!(few, Err(DocumentError::TooFewSigners(1, 2)));
    assert!(fresh.take_servers(servers).is_empty(), "nobody names them");
    fresh.take_consensus(consensus, &certs, now).unwrap();
    // Descriptors: one of another relay, a newer one, and one with another relay's signature.
    let strangers = published(9, NOW).server + &published(1, NOW + 5).server;
    assert!(fresh.take_servers(&strangers).is_empty());
    let both: Vec<&str> = divided(servers, "router").collect();
    let cut = |text: &str| text.find("-----BEGIN SIGNATURE").unwrap();
    let mixed = [&both[0][..cut(both[0])], &both[1][cut(both[1])..]].concat();
    assert_eq!(signed_digest(&mixed), signed_digest(both[0]));
    assert!(fresh.take_servers(&mixed).is_empty());
    assert!(fresh.take_extras(extras).is_empty(), "no descriptor names them");
    assert_eq!(fresh.take_servers(servers).len(), 2);
    // Extra-info documents: likewise.
    let both: Vec<&str> = divided(extras, "extra-info").collect();
    let mixed = [&both[0][..cut(both[0])], &both[1][cut(both[1])..]].concat();
    assert!(fresh.take_extras(&(mixed + &published(9, NOW).extra)).is_empty());
    assert_eq!((fresh.take_extras(extras).len(), fresh.take_extras(extras).len()), (2, 0));
    // An older consensus.
    world.publish(NOW + INTERVAL, &[1]);
    let newer = world.authority.documents().ns.clone();
    fresh.take_consensus(&newer, &certs, NOW + INTERVAL).unwrap();
    let older = fresh.take_consensus(consensus, &certs, NOW + INTERVAL);
    assert_eq!(older, Err(DocumentError::Expired));
}

#[test]
fn what_nobody_has_is_asked_for_less_and_less_often_and_keeps_nothing_else_waiting() {
    let (mut world, mut relay) = (World::new(), Relay::new());
    world.publish(NOW, &[0, 1, 2]);
    world.cache.forget_relay(&self::relay(1).rsa_identity());
    let (asked, failed) = relay.catch_up(&world, NOW + 1);
    assert_eq!((asked.len(), failed), (3, 0), "{asked:?}");
    let held = divided(&relay.texts[1], "router").count();
    assert_eq!((held, divided(&relay.texts[2], "extra-info").count()), (2, 2));
    let mut waits = Vec::new();
    for _ in 0..8 {
        waits.push(relay.mirror.wait(relay.millis, world.newest()).unwrap());
        relay.millis += waits[waits.len() - 1];
        assert_eq!(relay.catch_up(&world, NOW + 1).0, ["server descriptors"]);
    }
    assert!(waits[0] <= 1_000 && waits[4] > 20_000 && waits[7] >= 300_000, "{waits:?}");
    // Then the authority has the missing documents.
    world.publish(NOW, &[]);
    let RelayDocuments { server, extra } = published(1, NOW);
    let id = self::relay(1).rsa_identity();
    let digests = [&server, &extra].map(|text| signed_digest(text));
    world.cache.relay(id, (&server, digests[0]), Some((&extra, digests[1])));
    relay.millis += LONGEST_PAUSE;
    let asked = relay.catch_up(&world, NOW + 1).0;
    assert_eq!(asked, ["server descriptors", "extra-info documents"]);
    assert_eq!(relay.mirror.wait(relay.millis, world.newest()), None);
}

#[test]
fn who_does_not_answer_is_asked_again_after_a_pause() {
    let mut mirror = Mirror::new(vec![identity().identity()]);
    let mut rng = stream(1, 0, "mirror");
    assert_eq!((mirror.poll(0, 0), mirror.wait(0, 0)), (None, None), "there is no consensus");
    for status in [503, 404, 500] {
        let now = mirror.paused_until;
        assert_eq!(mirror.poll(now, NOW), Some(MirrorRequest::Consensus));
        assert_eq!(mirror.poll(now, NOW), None, "one at a time");
        let response = Response { status, reason: String::new(), body: Vec::new() };
        assert!(mirror.done(Ok(response), &[], now, NOW, &mut rng).is_err());
        assert!(mirror.poll(now, NOW).is_none());
        assert_eq!(mirror.wait(now, NOW), Some(mirror.paused_until - now));
    }
    assert!(mirror.paused_until > 5_000);
}

#[test]
fn a_restart_asks_for_nothing_that_is_on_disk() {
    let (mut world, mut relay) = (World::new(), Relay::new());
    world.publish(NOW, &[0, 1, 2]);
    relay.catch_up(&world, NOW + 1);
    let texts = relay.texts.each_ref().map(|text| &text[..]);
    let mut again = Relay::new();
    let (documents, damage) = again.mirror.restore(texts, &world.certs(), NOW + 2);
    assert_eq!(damage, []);
    assert_eq!(documents.len(), 7);
    again.take(documents);
    assert_eq!(again.catch_up(&world, NOW + 2).0, [""; 0]);
    assert_eq!(again.cache.servers(), relay.cache.servers());
    assert_eq!(again.cache.extras(), relay.cache.extras());
    let mut late = Mirror::new(vec![identity().identity()]);
    let (documents, damage) = late.restore(texts, &world.certs(), NOW + 90_000);
    assert!(documents.is_empty() && damage.is_empty(), "it has expired");
    let nothing = (Vec::new(), Vec::new());
    assert_eq!(late.take_up(texts[1], texts[2]), nothing, "nobody names them yet");
    late.take_consensus(texts[0], &world.certs(), NOW + 2).unwrap();
    let (documents, damage) = late.take_up(texts[1], texts[2]);
    assert_eq!((documents.len(), damage), (6, Vec::new()));
}

#[test]
fn damaged_copies_on_disk_are_reported_and_the_good_among_them_are_used() {
    use KeptDocument::{Extras, ServerConsensus, Servers};
    let (mut world, mut relay) = (World::new(), Relay::new());
    world.publish(NOW, &[0, 1, 2]);
    relay.catch_up(&world, NOW + 1);
    let texts = relay.texts.each_ref().map(|text| &text[..]);
    let restored = |texts: [&str; 3]| {
        let (documents, damage) = Relay::new().mirror.restore(texts, &world.certs(), NOW + 2);
        (documents.len(), damage.into_iter().map(|(kept, _)| kept).collect::<Vec<_>>())
    };
    let [consensus, servers, extras] = texts;
    assert_eq!(restored(["", "", ""]), (0, vec![]));
    assert_eq!(restored(["nonsense", servers, extras]), (0, vec![ServerConsensus]));
    let bent = consensus.replacen("Bandwidth=", "Bandwidth=1", 1);
    assert_ne!(bent, consensus);
    assert_eq!(restored([&bent, servers, extras]), (0, vec![ServerConsensus]));
    assert_eq!(restored([consensus, "nonsense", "\n"]), (1, vec![Servers, Extras]));
    let cut = |text: &str| text[..text.len() - 9].to_owned();
    assert_eq!(restored([consensus, &cut(servers), extras]).1, vec![Servers]);
    assert_eq!(restored([consensus, servers, &cut(extras)]), (6, vec![Extras]));
    let bent = servers.replacen("\nbandwidth ", "\nbandwidth 1", 1);
    assert_ne!(bent, servers);
    assert_eq!(restored([consensus, &bent, extras]).1, vec![Servers]);
}
