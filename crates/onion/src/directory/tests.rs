//! Tests of directory documents and path selection in a network with its own authority.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use anabranch_multipath::Time;
use anabranch_multipath::seed::{Stream, stream};
use anabranch_testkit::authority::{Authority, TestRelay, microdescriptor, unsigned_consensus};

use super::bridges::BridgeIdentity;
use super::cache::Cache;
use super::descriptor::Description;
use super::fetch::{
    AuthorityIdentity, Directory, Event, Failure, JobDocument, KeptDocument, Source,
};
use super::http::{RequestReader, ResponseReader, get};
use super::network::{Network, NoRelay, Path, Position, RelayRestrictions, Target};
use crate::moment::Moment;
use crate::test_keys::relay_keys;
use crate::wire::netdoc::{DocumentError, Unproven, parse_certs, parse_microdescs};
use crate::wire::text::hex;

const NOW: u64 = 1_800_000_000;
const WEB: Target = Target { port: 443, v6: false };

/// Properties of a test relay: flags, bandwidth, first two bytes of its address, and further
/// lines.
pub(crate) type Sketch<'a> = (&'a str, u32, &'a str, &'a str);

struct World {
    network: Network,
    consensus: String,
    cert: String,
    microdescs: String,
    authority: [u8; 20],
}

impl World {
    /// Draws a path to port 443 through `guard`.
    fn path(
        &self,
        guard: [u8; 20],
        restrictions: &RelayRestrictions,
        rng: &mut Stream,
    ) -> Result<Path, NoRelay> {
        self.network.path(WEB, restrictions, rng, |exit, _| {
            Some(guard).filter(|guard| self.network.agree(guard, exit))
        })
    }
}

const GUARD: &str = "Fast Guard Running Stable V2Dir Valid";
const MIDDLE: &str = "Fast Running Stable V2Dir Valid";
const EXIT: &str = "Exit Fast Running Stable V2Dir Valid";
const OPEN: &str = "p accept 80,443\n";

fn id(place: usize) -> [u8; 20] {
    [u8::try_from(place).unwrap() + 1; 20]
}

fn world(sketches: &[Sketch<'_>]) -> World {
    world_at(sketches, NOW)
}

/// Creates a world like [`world`]. Its consensus is valid from one minute before `now`.
fn world_at(sketches: &[Sketch<'_>], now: u64) -> World {
    world_at_for(sketches, now, 9000)
}

/// Creates the usual world. Its authority's certificate is valid for ten days.
fn long_certified() -> World {
    world_at_for(&USUAL, NOW, 10 * 86_400)
}

/// Creates a world like [`world_at`]. Its authority's certificate is valid for `certified` seconds
/// after `NOW`.
fn world_at_for(sketches: &[Sketch<'_>], now: u64, certified: u64) -> World {
    static AUTHORITY: OnceLock<[Authority; 1]> = OnceLock::new();
    let authorities =
        AUTHORITY.get_or_init(|| [Authority::generate("auth0", &mut stream(1, 0, "network"))]);
    // The TAP key is required, but not used.
    let tap = relay_keys(2, "tap").tap_public();
    let listed: Vec<TestRelay> = sketches
        .iter()
        .enumerate()
        .map(|(place, &(flags, bandwidth, net, rest))| TestRelay {
            nickname: format!("relay{place}"),
            rsa_identity: id(place),
            microdesc: {
                let ed = [u8::try_from(place).unwrap() + 100; 32];
                microdescriptor(&tap, &[9; 32], &ed, rest)
            },
            at: format!("{net}.{place}.1 9001"),
            flags: flags.to_owned(),
            protocols: protocols(net).to_owned(),
            bandwidth,
        })
        .collect();
    let times = [now - 60, now + 60, now + 120];
    let unsigned = unsigned_consensus(authorities, &listed, times, "");
    let consensus = unsigned.clone() + &authorities[0].signature(&unsigned);
    let cert = authorities[0].certificate(NOW - 9000, NOW + certified);
    let (certs, _) = parse_certs(&cert).unwrap();
    let authority = authorities[0].identity();
    let proven = Unproven::parse(&consensus).unwrap().prove(&[authority], &certs, now).unwrap();
    let microdescs: String = listed.into_iter().map(|one| one.microdesc).collect();
    let mut network = Network::new(proven);
    for (microdesc, _) in parse_microdescs(&microdescs).unwrap().0 {
        assert!(network.learn(microdesc));
    }
    World { network, consensus, cert, microdescs, authority }
}

/// Returns a relay's subprotocols by its address. Relays in 10.0.0.0 and above run our software;
/// relays in 20.0.0.0 and above also support lossy circuits.
fn protocols(net: &str) -> &'static str {
    match net.split('.').next().and_then(|first| first.parse::<u8>().ok()) {
        Some(20..) => "Anabranch=1-4 Conflux=1 FlowCtrl=1-2 Link=4-5 Relay=2-4",
        Some(10..) => "Anabranch=1-3 Conflux=1 FlowCtrl=1-2 Link=4-5 Relay=2-4",
        _ => "Conflux=1 FlowCtrl=1-2 Link=4-5 Relay=2-4",
    }
}

/// Creates a network of relays. All bytes of a relay's identity are its index plus 1.
pub(crate) fn network_of(sketches: &[Sketch<'_>]) -> Network {
    world(sketches).network
}

/// Creates a network in which paths can be built.
pub(crate) fn usual_network() -> Network {
    usual().network
}

/// Creates a network whose relays are all in one /16.
pub(crate) fn network_of_one_subnet() -> Network {
    let near = USUAL.map(|(flags, bandwidth, _, rest)| (flags, bandwidth, "1.1", rest));
    world(&near).network
}

fn usual() -> World {
    world(&USUAL)
}

/// The only exit of the usual network that has IPv6.
pub(crate) const DUAL_EXIT: [u8; 20] = [6; 20];

const USUAL: [Sketch<'_>; 7] = [
    (GUARD, 100, "1.1", ""),
    (GUARD, 300, "2.2", ""),
    (MIDDLE, 100, "3.3", ""),
    (MIDDLE, 100, "4.4", ""),
    (EXIT, 100, "5.5", OPEN),
    (EXIT, 300, "6.6", "p accept 80,443\np6 accept 443\n"),
    ("BadExit Exit Fast Running Valid", 900, "7.7", "p accept 1-65535\n"),
];

#[test]
fn a_path_has_a_guard_a_middle_and_an_exit_that_takes_the_port() {
    let world = usual();
    let mut rng = stream(3, 0, "paths");
    let mut exits = BTreeMap::new();
    for _ in 0..2000 {
        let path = world.path(id(0), &RelayRestrictions::default(), &mut rng).unwrap();
        assert_eq!(path[0], id(0));
        assert!(path[1] != path[0] && path[1] != path[2]);
        *exits.entry(path[2]).or_insert(0) += 1;
    }
    assert_eq!(exits.keys().copied().collect::<Vec<_>>(), [id(4), id(5)]);
    let share = f64::from(exits[&id(5)]) / 2000.0;
    assert!((0.71..0.79).contains(&share), "three quarters of the bandwidth, and {share} of paths");
    let ssh = Target { port: 22, v6: false };
    let none = world.network.path(ssh, &RelayRestrictions::default(), &mut rng, |_, _| Some(id(0)));
    assert_eq!(none, Err(NoRelay(Position::Exit(ssh))));
}

#[test]
fn the_same_seed_gives_the_same_paths() {
    let world = usual();
    let paths = |seed| {
        let mut rng = stream(seed, 0, "paths");
        let one = || world.path(id(0), &RelayRestrictions::default(), &mut rng).unwrap();
        std::iter::repeat_with(one).take(50).collect::<Vec<_>>()
    };
    assert_eq!(paths(1), paths(1));
    assert_ne!(paths(1), paths(2));
}

#[test]
fn relays_of_one_family_or_subnet_are_not_in_one_path() {
    let family = |id: [u8; 20]| format!("family ${}\n", hex(&id));
    let (with_middle, with_guard) = (family(id(1)), family(id(0)));
    let mut world = world(&[
        (GUARD, 1, "1.1", &with_middle),
        (MIDDLE, 1, "2.2", &with_guard),
        (MIDDLE, 1, "1.1", ""),
        (MIDDLE, 1, "4.4", ""),
        (EXIT, 1, "5.5", OPEN),
    ]);
    let mut rng = stream(4, 0, "paths");
    for _ in 0..200 {
        let path = world.path(id(0), &RelayRestrictions::default(), &mut rng).unwrap();
        assert_eq!(path[1], id(3), "the only one that is neither related nor near");
    }
    world.network.share_subnets = true;
    let middles: Vec<[u8; 20]> = (0..200)
        .map(|_| world.path(id(0), &RelayRestrictions::default(), &mut rng).unwrap()[1])
        .collect();
    assert!(middles.contains(&id(2)) && !middles.contains(&id(1)));
}

#[test]
fn a_family_that_only_one_side_claims_is_none() {
    let claimed = format!("family ${}\n", "02".repeat(20));
    let world =
        world(&[(GUARD, 1, "1.1", &claimed), (MIDDLE, 1, "2.2", ""), (EXIT, 1, "5.5", OPEN)]);
    let path = world.path(id(0), &RelayRestrictions::default(), &mut stream(5, 0, "paths"));
    assert_eq!(path, Ok([id(0), id(1), id(2)]));
}

#[test]
fn wishes_are_kept_or_the_path_is_not_had() {
    let world = usual();
    let mut rng = stream(6, 0, "paths");
    let restrictions = RelayRestrictions {
        exit: vec![id(4)],
        middle: vec![id(3)],
        ..RelayRestrictions::default()
    };
    assert_eq!(world.path(id(1), &restrictions, &mut rng), Ok([id(1), id(3), id(4)]));
    let without = RelayRestrictions { exclude: vec![id(4), id(5)], ..RelayRestrictions::default() };
    assert!(world.path(id(1), &without, &mut rng).is_err());
}

#[test]
fn whether_there_is_a_path_at_all_is_known_with_the_position_that_nobody_fits() {
    let (network, restrictions) = (usual().network, RelayRestrictions::default());
    let none = |network: &Network, target, restrictions: &RelayRestrictions| {
        network.has_path(target, restrictions).err().map(|NoRelay(position)| position)
    };
    assert_eq!(none(&network, WEB, &restrictions), None);
    let ssh = Target { port: 22, v6: false };
    assert_eq!(none(&network, ssh, &restrictions), Some(Position::Exit(ssh)));
    let v6 = Target { port: 80, v6: true };
    assert_eq!(none(&network, v6, &restrictions), Some(Position::Exit(v6)));
    assert_eq!(
        none(&network, WEB, &restrictions.without(&[id(4), id(5)])),
        Some(Position::Exit(WEB))
    );
    assert_eq!(none(&network, WEB, &restrictions.without(&[id(4)])), None);
    assert_eq!(none(&network_of_one_subnet(), WEB, &restrictions), Some(Position::Guard));
    let one = RelayRestrictions {
        middle: vec![id(4)],
        exit: vec![id(4)],
        ..RelayRestrictions::default()
    };
    assert_eq!(none(&network, WEB, &one), Some(Position::Middle));
    let mut near = network_of_one_subnet();
    near.share_subnets = true;
    assert_eq!(none(&near, WEB, &restrictions), None);
}

#[test]
fn relays_that_a_user_names_and_the_consensus_does_not_list_are_known() {
    let restrictions = RelayRestrictions {
        exit: vec![id(4), [99; 20]],
        entry: vec![id(0)],
        ..RelayRestrictions::default()
    };
    assert_eq!(restrictions.unlisted(&usual().network), [("exit", vec![[99; 20]])]);
}

#[test]
fn a_network_is_enough_when_most_of_its_weight_is_known() {
    let world = usual();
    assert!(world.network.is_enough());
    assert_eq!(world.network.missing().count(), 0);
    let mut bare = Network::new(world.network.consensus().clone());
    assert!(!bare.is_enough());
    assert_eq!(bare.missing().count(), 7);
    let known = parse_microdescs(&world.microdescs).unwrap().0;
    known.into_iter().skip(1).for_each(|(one, _)| assert!(bare.learn(one)));
    assert!(bare.is_enough(), "300 of 400 for guards");
    assert!(bare.clone().renewed(bare.consensus().clone()).is_enough(), "what is known stays");
}

#[test]
fn a_cache_gives_what_it_has_by_every_path_that_clients_use() {
    let world = usual();
    let mut cache = Cache::default();
    let asked = |cache: &Cache, path: &str| {
        let request = RequestReader::new(0).push(&get(path)).unwrap().unwrap();
        let mut reader = ResponseReader::new(1 << 20);
        reader.push(&cache.answer(&request)).unwrap();
        let response = reader.finish().unwrap();
        (response.status, String::from_utf8(response.body).unwrap())
    };
    let path = "/tor/status-vote/current/consensus-microdesc";
    assert_eq!(asked(&cache, path).0, 404);
    cache.consensus(&world.consensus, vec![world.authority]);
    let (certs, _) = parse_certs(&world.cert).unwrap();
    let (id, key) = certs[0].keys();
    let (id, key) = (crate::wire::text::hex(&id), crate::wire::text::hex(&key));
    cache.certs(certs);
    let (parsed, _) = parse_microdescs(&world.microdescs).unwrap();
    parsed.iter().for_each(|(one, text)| cache.microdesc(one, text));
    for ask in [path.to_owned(), format!("{path}.z"), format!("{path}/{}+AAAAAA", &id[..6])] {
        let want =
            if ask.contains('+') { (404, String::new()) } else { (200, world.consensus.clone()) };
        assert_eq!(asked(&cache, &ask), want, "{ask}");
    }
    assert_eq!(asked(&cache, &format!("{path}/{id}.z")), (200, world.consensus.clone()));
    for ask in
        [format!("fp/{id}"), format!("sk/{key}"), format!("fp-sk/{id}-{key}"), "all".to_owned()]
    {
        assert_eq!(asked(&cache, &format!("/tor/keys/{ask}.z")), (200, world.cert.clone()));
    }
    let digests: Vec<String> =
        parsed.iter().map(|(one, _)| super::fetch::base64(&one.digest)).collect();
    let ask = format!("/tor/micro/d/{0}-AAAA-{0}.z", digests[..2].join("-"));
    let mut both = [&parsed[0], &parsed[1]];
    both.sort_by_key(|(one, _)| one.digest);
    assert_eq!(asked(&cache, &ask), (200, both[0].1.to_owned() + both[1].1), "each once");
    assert_eq!(asked(&cache, "/tor/keys/authority").0, 404, "we are none");
    assert_eq!(asked(&cache, "/tor/keys/x").0, 400);
    cache.own_certs(parse_certs(&world.cert).unwrap().0);
    assert_eq!(asked(&cache, "/tor/keys/authority"), (200, world.cert.clone()));
    for ask in ["/", "/tor/keys/fp/AA", "/tor/micro/d/AAAA", "/tor/server/authority", "/tor/x"] {
        assert_eq!(asked(&cache, ask).0, 404, "{ask}");
    }
    let flood = format!("/tor/micro/d/{}", ["A"; 501].join("-"));
    assert_eq!(asked(&cache, &flood).0, 400);
}

#[test]
fn a_relay_gives_its_own_documents_by_every_name_and_none_that_others_have_of_it_for_new() {
    let mut cache = Cache::default();
    let asked = |cache: &Cache, path: &str| {
        let request = RequestReader::new(0).push(&get(path)).unwrap().unwrap();
        let mut reader = ResponseReader::new(1 << 20);
        reader.push(&cache.answer(&request)).unwrap();
        String::from_utf8(reader.finish().unwrap().body).unwrap()
    };
    let (id, own) = (hex(&[1; 20]), [1; 20]);
    cache.we_are(own);
    assert_eq!(asked(&cache, "/tor/server/authority"), "");
    cache.relay(own, ("new", [11; 20]), Some(("new extra", [12; 20])));
    cache.server([2; 20], ("other", [13; 20]));
    let edition = cache.edition();
    cache.server(own, ("old", [14; 20]));
    cache.extra(own, ("old extra", [15; 20]));
    assert!(cache.edition() > edition);
    cache.keep_relays(&[[2; 20]].into());
    for (path, text) in [
        ("server/authority", "new"),
        (&format!("server/fp/{id}"), "new"),
        (&format!("server/d/{}", hex(&[14; 20])), "old"),
        ("server/all", "newother"),
        ("extra/authority", "new extra"),
        ("extra/all", "new extra"),
        (&format!("extra/d/{}", hex(&[15; 20])), "old extra"),
    ] {
        assert_eq!(asked(&cache, &format!("/tor/{path}")), text, "{path}");
    }
    assert_eq!((cache.servers(), cache.extras()), ("newother".into(), "new extra".into()));
}

#[test]
fn a_certificate_that_was_there_before_is_no_news() {
    let world = usual();
    let mut cache = Cache::default();
    cache.certs(parse_certs(&world.cert).unwrap().0);
    let from = parse_certs(&world.cert).unwrap().0[0].holds().0;
    let status = |since: u64| {
        let date = super::civil::http_date(since);
        let text = format!("GET /tor/keys/all HTTP/1.0\r\nIf-Modified-Since: {date}\r\n\r\n");
        let request = RequestReader::new(0).push(text.as_bytes()).unwrap().unwrap();
        cache.find(&request).status()
    };
    assert_eq!([from - 1, from, from + 1].map(status), [200, 200, 304]);
}

#[test]
fn caches_fetch_in_the_half_interval_after_a_consensus_was_fresh() {
    let mut rng = stream(3, 0, "renewal");
    let mut draw = |interval: u64, now: u64| {
        let times = [NOW - interval, NOW, NOW + 2 * interval];
        super::fetch::cache_renewal(times, now, &mut rng)
    };
    for (interval, slack) in [(3600, 120), (60, 3), (10, 1)] {
        for _ in 0..50 {
            let at = draw(interval, NOW - 1);
            assert!((NOW + slack..NOW + slack + interval / 2).contains(&at), "{interval}: {at}");
        }
    }
    assert!((NOW + 6000..NOW + 7200).contains(&draw(3600, NOW + 6000)), "who comes late asks soon");
}

/// Makes a client's requests to `cache`, until none is left or the next one must wait.
fn bootstrap(directory: &mut Directory, cache: &Cache, now: u64) -> Vec<Event> {
    bootstrap_at(directory, cache, 0, now)
}

/// Makes requests as [`bootstrap`] does, at `millis` milliseconds of the directory's clock.
fn bootstrap_at(directory: &mut Directory, cache: &Cache, millis: u64, now: u64) -> Vec<Event> {
    let mut rng = stream(8, 0, "fetch");
    let mut events = Vec::new();
    for _ in 0..20 {
        let Some(job) = directory.poll(at(millis, now), &mut rng) else { break };
        let request = RequestReader::new(0).push(&get(&job.path)).unwrap().unwrap();
        let mut reader = ResponseReader::new(job.limit);
        reader.push(&cache.answer(&request)).unwrap();
        let outcome = reader.finish().map_err(Failure::Http);
        events.extend(directory.done(job.number, outcome, at(millis, now), &mut rng));
    }
    events
}

fn filled(world: &World) -> Cache {
    let mut cache = Cache::default();
    cache.consensus(&world.consensus, vec![world.authority]);
    cache.certs(parse_certs(&world.cert).unwrap().0);
    let (parsed, _) = parse_microdescs(&world.microdescs).unwrap();
    parsed.iter().for_each(|(one, text)| cache.microdesc(one, text));
    cache
}

/// Returns the moment `millis` milliseconds after the start, with the Unix time `unix`.
fn at(millis: u64, unix: u64) -> Moment {
    Moment { now: Time::from_millis(millis), unix }
}

/// Returns the milliseconds until the directory may make a request.
fn pause(directory: &Directory, millis: u64, unix: u64) -> u64 {
    let at = at(millis, unix);
    directory.next_timeout(at).since(at.now).as_millis() as u64
}

fn client(world: &World) -> Directory {
    Directory::new(vec![AuthorityIdentity { v3: world.authority, by_circuit: true }], false)
}

#[test]
fn a_client_comes_to_a_network_that_it_can_use_and_keeps_it() {
    let world = usual();
    let mut directory = client(&world);
    let events = bootstrap(&mut directory, &filled(&world), NOW);
    assert!(directory.is_ready(NOW));
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Ready)).count(), 1);
    let mut kept = [String::new(), String::new(), String::new()];
    for event in events {
        match event {
            Event::Certificates(text) => kept[0] = text,
            Event::Consensus(text, signers) => {
                assert_eq!(signers, [world.authority]);
                kept[1] = text;
            }
            Event::Microdesc(_, text) => kept[2] += &text,
            Event::Ready => {}
            Event::Bridge(..) | Event::Damaged(..) | Event::Late(..) | Event::Failed(..) => {
                panic!("{event:?}")
            }
        }
    }
    let mut rng = stream(9, 0, "restore");
    let mut again = client(&world);
    again.restore(&kept[0], &kept[1], &kept[2], NOW, &mut rng);
    assert!(again.is_ready(NOW) && again.poll(at(0, NOW), &mut rng).is_none());
    let late = NOW + 100_000;
    let mut expired = client(&world);
    expired.restore(&kept[0], &kept[1], &kept[2], late, &mut rng);
    assert!(!expired.is_ready(late), "what has expired is not taken up");
    assert_eq!(
        again.poll(at(0, NOW + 110), &mut rng).unwrap().want,
        JobDocument::Consensus,
        "it renews"
    );
}

#[test]
fn who_enters_by_bridges_asks_nobody_else_and_first_who_they_are() {
    let (world, mut rng) = (usual(), stream(10, 0, "bridges"));
    let keys = relay_keys(10, "bridge");
    let at_bridge = "192.0.2.7:443".parse().unwrap();
    let text = Description::new("river".to_owned(), at_bridge, "ours".to_owned());
    let text = text.sign(keys, NOW).unwrap();
    let mut cache = filled(&world);
    cache.we_are(keys.rsa_identity());
    cache.relay(keys.rsa_identity(), (&text, [1; 20]), None);
    let named = |rsa| BridgeIdentity { addresses: vec![at_bridge.into()], rsa, ed25519: None };
    let mut directory = client(&world);
    directory.by_bridges(vec![named(Some([9; 20])), named(Some(keys.rsa_identity()))]);
    let mut asked = Vec::new();
    while let Some(job) = directory.poll(at(0, NOW), &mut rng) {
        asked.push(job);
    }
    let places: Vec<Source> = asked.iter().map(|job| job.source).collect();
    assert_eq!(places, [Source::Bridge(0), Source::Bridge(1)], "and nobody for the consensus");
    for job in asked {
        directory.done(job.number, Err(Failure::Unreachable), at(0, NOW), &mut rng);
    }
    assert_eq!(pause(&directory, 0, NOW), 500);
    let events = bootstrap_at(&mut directory, &cache, 500, NOW);
    let stranger = Failure::Document(DocumentError::WrongIdentity);
    assert!(events.iter().any(|event| matches!(event, Event::Bridge(1, _))));
    assert!(events.iter().any(
        |event| matches!(event, Event::Failed(JobDocument::Bridge(0), _, why) if *why == stranger)
    ));
    assert!(directory.is_ready(NOW), "and all else comes by the one that is known: {events:?}");
    let next = directory.poll(at(600, NOW + 110), &mut rng).unwrap();
    assert_eq!((next.want, next.source), (JobDocument::Consensus, Source::Cache));
    directory.restart_with(vec![AuthorityIdentity { v3: [7; 20], by_circuit: true }], false);
    let next = directory.poll(at(600, NOW + 110), &mut rng).unwrap();
    assert_eq!((next.want, next.source), (JobDocument::Consensus, Source::Cache));
}

#[test]
fn a_consensus_that_is_not_proven_is_not_taken_and_the_next_try_waits() {
    let world = usual();
    let mut forged = filled(&world);
    forged
        .consensus(&world.consensus.replace("Bandwidth=300", "Bandwidth=9"), vec![world.authority]);
    let mut directory = client(&world);
    let events = bootstrap(&mut directory, &forged, NOW);
    let refused = |event: &Event| {
        matches!(event, Event::Failed(_, _, Failure::Document(DocumentError::BadSignature)))
    };
    assert!(events.iter().any(refused), "{events:?}");
    assert!(directory.network().is_none());
    let pause = pause(&directory, 0, NOW);
    assert!((1..=500).contains(&pause), "{pause} ms");
    let mut rng = stream(10, 0, "fetch");
    assert!(directory.poll(at(pause - 1, NOW), &mut rng).is_none());
    assert!(directory.poll(at(pause, NOW), &mut rng).is_some());
}

#[test]
fn pauses_grow_and_end_with_the_first_success() {
    let world = usual();
    let mut directory = client(&world);
    let mut rng = stream(11, 0, "fetch");
    let (mut now, mut pauses) = (0, Vec::new());
    for _ in 0..12 {
        let job = directory.poll(at(now, NOW), &mut rng).unwrap();
        directory.done(job.number, Err(Failure::Unreachable), at(now, NOW), &mut rng);
        pauses.push(pause(&directory, now, NOW));
        now += pauses.last().unwrap();
    }
    assert!(pauses[0] <= 500 && pauses[4] >= 4_000 && pauses[11] <= 8_000, "{pauses:?}");
    let cache = filled(&world);
    let job = directory.poll(at(now, NOW), &mut rng).unwrap();
    let request = RequestReader::new(0).push(&get(&job.path)).unwrap().unwrap();
    let mut reader = ResponseReader::new(job.limit);
    reader.push(&cache.answer(&request)).unwrap();
    directory.done(job.number, Ok(reader.finish().unwrap()), at(now, NOW), &mut rng);
    assert_eq!(pause(&directory, now, NOW), 0);
}

/// Returns the sources that a directory asks, one after another, while all its requests fail.
fn asked_in_vain(directory: &mut Directory, now: u64, times: usize) -> Vec<Source> {
    let mut rng = stream(12, 0, "fetch");
    let mut millis = 0;
    let mut asked = Vec::new();
    while asked.len() < times {
        millis += pause(directory, millis, now);
        let job = directory.poll(at(millis, now), &mut rng).unwrap();
        directory.done(job.number, Err(Failure::Unreachable), at(millis, now), &mut rng);
        asked.push(job.source);
    }
    asked
}

#[test]
fn authorities_are_asked_by_circuits_and_by_their_ports_only_if_that_fails_at_the_beginning() {
    let world = usual();
    let (circuit, port) = (Source::Authority(0), Source::Plain(0));
    let asked = asked_in_vain(&mut client(&world), NOW, 6);
    assert_eq!(asked, [circuit, circuit, port, circuit, circuit, port]);
    let without = AuthorityIdentity { v3: world.authority, by_circuit: false };
    assert_eq!(asked_in_vain(&mut Directory::new(vec![without], false), NOW, 3), [port; 3]);
}

#[test]
fn an_authority_that_is_reached_and_silent_is_not_asked_by_its_port() {
    let (world, mut rng, mut now) = (usual(), stream(11, 0, "fetch"), 0);
    let mut directory = client(&world);
    for _ in 0..4 {
        let job = loop {
            match directory.poll(at(now, NOW), &mut rng) {
                Some(job) => break job,
                None => now += 1000,
            }
        };
        assert_eq!(job.source, Source::Authority(0));
        let events = directory.done(job.number, Err(Failure::Silent), at(now, NOW), &mut rng);
        let failure = events.iter().find_map(|event| match event {
            Event::Failed(_, _, failure) => Some(failure.to_string()),
            _ => None,
        });
        assert!(failure.is_some_and(|text| text.contains("before its first consensus")));
    }
}

#[test]
fn caches_are_asked_for_news_and_authorities_by_circuits_if_none_helps() {
    let world = usual();
    let mut directory = client(&world);
    bootstrap(&mut directory, &filled(&world), NOW);
    let asked = asked_in_vain(&mut directory, NOW + 110, 8);
    assert_eq!(asked[..5], [Source::Cache; 5]);
    assert_eq!(asked[5..], [Source::Authority(0), Source::Cache, Source::Authority(0)]);
}

/// Restores a stored consensus `late` seconds after it expired (valid-until). Returns the
/// directory, its events, and the time.
fn restored(world: &World, late: u64) -> (Directory, Vec<Event>, u64) {
    let now = NOW + 120 + late;
    let (mut directory, mut rng) = (client(world), stream(13, 0, "fetch"));
    let (consensus, microdescs) = (&world.consensus, &world.microdescs);
    let events = directory.restore(&world.cert, consensus, microdescs, now, &mut rng);
    (directory, events, now)
}

#[test]
fn damage_of_kept_documents_is_reported_and_what_is_good_among_it_is_used() {
    let world = usual();
    let (cert, consensus, microdescs) = (&world.cert[..], &world.consensus[..], &world.microdescs);
    let restored = |[cert, consensus, microdescs]: [&str; 3]| {
        let mut directory = client(&world);
        let mut rng = stream(13, 0, "fetch");
        let events = directory.restore(cert, consensus, microdescs, NOW, &mut rng);
        let damage = events.iter().filter_map(|event| match event {
            Event::Damaged(kept, why) => Some((*kept, why.clone())),
            _ => None,
        });
        (damage.collect::<Vec<_>>(), directory.is_ready(NOW))
    };
    assert_eq!(restored([cert, consensus, microdescs]), (Vec::new(), true));
    assert_eq!(restored(["", "", ""]), (Vec::new(), false), "nothing is no damage");
    assert_eq!(restored(["", consensus, microdescs]), (Vec::new(), false), "it is not proven");
    for (place, kept) in
        [KeptDocument::Certificates, KeptDocument::Consensus, KeptDocument::Microdescs]
            .into_iter()
            .enumerate()
    {
        let mut texts = [cert, consensus, microdescs];
        texts[place] = "nonsense\n";
        let (damage, _) = restored(texts);
        assert!(matches!(&damage[..], [(found, _)] if *found == kept), "{kept:?}: {damage:?}");
    }
    // A well-formed consensus with changed content.
    let bent = consensus.replacen("Bandwidth=", "Bandwidth=1", 1);
    let damage = vec![(KeptDocument::Consensus, DocumentError::BadSignature)];
    assert_eq!(restored([cert, &bent, microdescs]), (damage, false));
    // A further microdescriptor without valid keys: all others are used.
    let more = format!("{microdescs}onion-key\nntor-onion-key x\n");
    let (damage, ready) = restored([cert, consensus, &more]);
    assert!(matches!(&damage[..], [(KeptDocument::Microdescs, _)]) && ready, "{damage:?}");
}

fn is_ready(events: &[Event]) -> bool {
    events.iter().any(|event| matches!(event, Event::Ready))
}

fn late(events: &[Event]) -> Option<(u64, bool)> {
    events.iter().find_map(|event| match event {
        Event::Late(seconds, is_used) => Some((*seconds, *is_used)),
        _ => None,
    })
}

#[test]
fn a_kept_consensus_serves_for_a_day_after_its_end_and_that_is_told() {
    let world = long_certified();
    for (seconds, expected) in [(0, None), (1, Some((1, true))), (86_400, Some((86_400, true)))] {
        let (directory, events, now) = restored(&world, seconds);
        assert!(directory.is_ready(now) && is_ready(&events), "{seconds}");
        assert_eq!(late(&events), expected);
    }
    let (directory, events, now) = restored(&world, 86_401);
    assert!(!directory.is_ready(now) && !is_ready(&events));
    assert_eq!(late(&events), Some((86_401, false)));
}

#[test]
fn a_consensus_of_the_day_before_that_a_cache_serves_is_taken_and_one_older_is_not() {
    let world = long_certified();
    for (seconds, good) in [(86_400, true), (86_401, false)] {
        let now = NOW + 120 + seconds;
        let mut directory = client(&world);
        let events = bootstrap(&mut directory, &filled(&world), now);
        assert_eq!((directory.is_ready(now), is_ready(&events)), (good, good), "{events:?}");
        assert_eq!(late(&events), good.then_some((seconds, true)));
    }
}

#[test]
fn the_same_late_consensus_again_is_no_success_and_asking_goes_on_with_pauses() {
    let world = long_certified();
    let (mut directory, _, now) = restored(&world, 3600);
    let mut rng = stream(14, 0, "fetch");
    let mut millis = 0;
    for _ in 0..8 {
        let job = directory.poll(at(millis, now), &mut rng).unwrap();
        assert_eq!(job.want, JobDocument::Consensus);
        let (asked, cache) = (get(&job.path), filled(&world));
        let mut reader = ResponseReader::new(job.limit);
        reader.push(&cache.answer(&RequestReader::new(0).push(&asked).unwrap().unwrap())).unwrap();
        let outcome = reader.finish().map_err(Failure::Http);
        let events = directory.done(job.number, outcome, at(millis, now), &mut rng);
        assert!(matches!(events[..], [Event::Failed(..)]), "{events:?}");
        assert!(directory.is_ready(now), "what is known serves on");
        millis += pause(&directory, millis, now);
    }
    assert!(millis > 60_000, "{millis} ms for 8 requests");
}

#[test]
fn who_knows_but_an_old_network_asks_its_relays_in_turn_with_the_authorities() {
    let world = long_certified();
    let (mut directory, _, now) = restored(&world, 5 * 86_400);
    let asked = asked_in_vain(&mut directory, now, 4);
    let (authority, cache) = (Source::Authority(0), Source::Cache);
    assert_eq!(asked, [authority, cache, authority, cache]);
    let newer = world_at_for(&USUAL, now, 10 * 86_400);
    let events = bootstrap_at(&mut directory, &filled(&newer), 600_000, now);
    assert!(directory.is_ready(now) && is_ready(&events), "{events:?}");
    assert_eq!(late(&events), None);
}

#[test]
fn an_older_consensus_does_not_replace_a_newer_one() {
    let (older, newer) = (world_at(&USUAL, NOW - 50), usual());
    let mut directory = client(&newer);
    bootstrap(&mut directory, &filled(&newer), NOW);
    let ours = |directory: &Directory| directory.network().unwrap().consensus().valid_after;
    let expired = |event: &Event| {
        matches!(event, Event::Failed(_, _, Failure::Document(DocumentError::Expired)))
    };
    // The client fetches early, while both consensuses are still valid. The older one is refused
    // nevertheless.
    let again = bootstrap(&mut directory, &filled(&older), NOW + 69);
    assert!(again.is_empty() || again.iter().any(expired), "{again:?}");
    assert_eq!(ours(&directory), NOW - 60);
    let same = bootstrap(&mut directory, &filled(&newer), NOW + 119);
    assert!(same.iter().any(|event| matches!(event, Event::Consensus(..))), "{same:?}");
}
