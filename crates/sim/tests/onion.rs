//! Small onion networks in virtual time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_onion::LossyCongestion;
use anabranch_onion::conflux::LegScheduler;
use anabranch_sim::onion::{
    ClientHostSettings, ClientLoad, Common, Cpu, Crypto, LinkLayer, NetworkDocuments, OnionNetwork,
    Pause, RelayDescription, RequestTime, Scenario, WebTimes,
};
use anabranch_sim::{ConnId, HostId, HostSettings, Latencies, LineSettings};

const MS: Duration = Duration::from_millis(1);

fn host(megabits: u64) -> HostSettings {
    let rate = NonZeroU64::new(megabits * 1_000_000).unwrap();
    HostSettings::symmetric(LineSettings::with_queue(rate, 50 * MS))
}

/// Returns the documents of six relays. Two of the relays are exits.
fn documents() -> NetworkDocuments {
    static MADE: OnceLock<NetworkDocuments> = OnceLock::new();
    let describe =
        |place| RelayDescription { exit: place >= 4, bandwidth: 10_000_000, lossy: false };
    let relays: Vec<RelayDescription> = (0..6).map(describe).collect();
    MADE.get_or_init(|| NetworkDocuments::new(&relays, &BTreeMap::new())).clone()
}

/// Returns the documents of the same relays, which grant lossy circuits.
fn lossy_documents() -> NetworkDocuments {
    static MADE: OnceLock<NetworkDocuments> = OnceLock::new();
    let describe =
        |place| RelayDescription { exit: place >= 4, bandwidth: 10_000_000, lossy: true };
    let relays: Vec<RelayDescription> = (0..6).map(describe).collect();
    MADE.get_or_init(|| NetworkDocuments::new(&relays, &BTreeMap::new())).clone()
}

fn scenario(common: Common, loads: &[ClientLoad]) -> Scenario {
    let documents = if common.udp_or.is_some() { lossy_documents() } else { documents() };
    let client =
        |load: &ClientLoad| ClientHostSettings { host: host(50), loads: vec![*load], pins: None };
    Scenario {
        common,
        documents,
        relays: vec![host(80); 6],
        servers: vec![host(1000)],
        clients: loads.iter().map(client).collect(),
        latencies: Latencies::uniform(20 * MS),
        paths: Vec::new(),
    }
}

fn run(scenario: &Scenario, seconds: u64) -> OnionNetwork {
    let mut network = OnionNetwork::new(scenario);
    network.run_until(Time::from_secs(seconds));
    network
}

fn one() -> ClientLoad {
    ClientLoad { pause: Pause::UpTo(Duration::from_secs(5)), ..ClientLoad::web() }
}

#[test]
fn a_client_downloads_a_page_through_three_relays() {
    let network = run(&scenario(Common::default(), &[one()]), 30);
    let downloads: Vec<_> = network.downloads().collect();
    assert!(downloads.len() > 3, "{downloads:?}");
    for download in downloads {
        assert!(download.complete && download.received == 320 << 10, "{download:?}");
        // Four hops of 20 ms there and back for BEGIN, and again for the request.
        let ttfb = download.ttfb().unwrap();
        assert!(ttfb >= 16 * 20 * MS, "{ttfb:?}");
        assert!(download.ttlb().unwrap() < Duration::from_secs(5), "{download:?}");
    }
    assert_eq!(network.relays().map(|relay| relay.violations()).sum::<u64>(), 0);
    let relayed: Vec<u64> = network.relays().map(|relay| relay.stats().relayed).collect();
    assert!(relayed.iter().filter(|&&cells| cells > 1_000).count() >= 2, "{relayed:?}");
}

#[test]
fn a_host_sends_segments_of_its_mtu_to_hosts_that_have_it_too() {
    let packets = |exit: u16| {
        let mut scenario = scenario(Common::default(), &[one()]);
        scenario.servers[0].mtu = u16::MAX;
        scenario.relays.iter_mut().skip(4).for_each(|relay| relay.mtu = exit);
        let network = run(&scenario, 30);
        assert!(network.downloads().count() > 3);
        // The server follows the six relays.
        let [up, _] = network.simulation().stats(HostId(6));
        up.bytes / up.packets
    };
    let [usual, large] = [packets(1500), packets(u16::MAX)];
    assert!(usual < 1500 && large > 5 * usual, "mean lengths of packets: {usual}, {large}");
}

/// A receiver delays the acknowledgement of a short segment. A server that sent segments of 32 KiB
/// would wait 40 ms for most of the 64, and the download would take twice as long.
#[test]
fn a_download_takes_no_longer_with_long_segments() {
    let last_byte = |mtu: u16| {
        let load = ClientLoad { bytes: 2 << 20, ..one() };
        let mut scenario = scenario(Common::default(), &[load]);
        scenario.servers[0].mtu = mtu;
        scenario.relays.iter_mut().skip(4).for_each(|relay| relay.mtu = mtu);
        let network = run(&scenario, 60);
        let mut times: Vec<Duration> = network.downloads().filter_map(|it| it.ttlb()).collect();
        times.sort();
        times[times.len() / 2]
    };
    let [usual, long] = [1500, u16::MAX].map(last_byte);
    assert!(long < usual.mul_f64(1.3), "{usual:?}, {long:?}");
}

/// A record cannot be read before its end. So long records are late at the far end of a slow line.
#[test]
fn the_first_byte_waits_for_the_end_of_its_record() {
    let first_byte = |record: usize| {
        let mut scenario = scenario(Common { record, ..Common::default() }, &[one()]);
        // The exit gets a long piece of the answer at once, and sends it at 8 Mbit/s.
        scenario.servers[0].mtu = u16::MAX;
        scenario.relays.iter_mut().skip(4).for_each(|relay| {
            *relay = HostSettings { mtu: u16::MAX, up: host(8).up, ..*relay };
        });
        let network = run(&scenario, 30);
        let mut times: Vec<Duration> = network.downloads().filter_map(|it| it.ttfb()).collect();
        times.sort();
        times[times.len() / 2]
    };
    let [short, long] = [first_byte(4_048), first_byte(16 << 10)];
    // The additional 12 KiB take 12 ms at 8 Mbit/s. And each of the three links sends the end of a
    // record of 16 KiB a round trip of 40 ms after its first ten segments.
    assert!(long > short + 110 * MS && long < short + 160 * MS, "{short:?}, {long:?}");
}

#[test]
fn a_web_server_takes_its_time_to_accept_and_to_prepare() {
    let first_byte = |web: WebTimes| {
        let load = ClientLoad { request: RequestTime::Alternating, ..one() };
        let network = run(&scenario(Common { web, ..Common::default() }, &[load]), 60);
        let times: Vec<Duration> = network.downloads().filter_map(|it| it.ttfb()).collect();
        times.iter().skip(1).sum::<Duration>() / (times.len() as u32 - 1)
    };
    let none = first_byte(WebTimes::default());
    // Half of the requests wait for the server to accept their connection.
    let looks = first_byte(WebTimes { look: 400 * MS, ..WebTimes::default() });
    assert!(looks > none + 25 * MS && looks < none + 250 * MS, "{none:?}, {looks:?}");
    let prepares = first_byte(WebTimes { mebibyte: 320 * MS, ..WebTimes::default() });
    assert!(prepares > none + 95 * MS && prepares < none + 110 * MS, "{none:?}, {prepares:?}");
}

/// Arms of UDP-OR designs: congestion control, number of legs, and schedule.
const UDP: [(LossyCongestion, usize, Option<&str>); 4] = [
    (LossyCongestion::BBR, 1, None),
    (LossyCongestion::CUBIC, 1, None),
    (LossyCongestion::CUBIC, 2, Some("round-robin 1p")),
    (LossyCongestion::BBR, 2, Some("eta 1p")),
];

fn udp((congestion, legs, schedule): (LossyCongestion, usize, Option<&str>)) -> Common {
    let dealing = schedule.and_then(|text| LegScheduler::read(text, 8));
    Common { udp_or: Some(congestion), legs, dealing, ..Common::default() }
}

#[test]
fn streams_over_lossy_circuits_do_not_wait_for_the_exit_s_connection() {
    for arm in UDP {
        let network = run(&scenario(udp(arm), &[one()]), 30);
        let downloads: Vec<_> = network.downloads().collect();
        assert!(downloads.len() > 3, "{arm:?}: {downloads:?}");
        for download in &downloads {
            assert!(download.complete && download.received == 320 << 10, "{arm:?}: {download:?}");
        }
        // The circuit for the first download may still have to be built. The request leaves with
        // the SYN: three hops of 20 ms to the exit, two for its connection to the server, and five
        // for request and answer.
        let ttfb = downloads[1].ttfb().unwrap();
        println!("{arm:?}: {ttfb:?}, {:?}", downloads[1].ttlb());
        assert!((10 * 20 * MS..12 * 20 * MS).contains(&ttfb), "{arm:?}: {ttfb:?}");
        assert_eq!(network.relays().map(|relay| relay.violations()).sum::<u64>(), 0);
        let lossy: u64 = network.relays().map(|relay| relay.stats().lossy.sent).sum();
        assert!(lossy > 5_000, "{arm:?}: {lossy} lossy cells");
    }
}

#[test]
fn runs_over_lossy_circuits_are_functions_of_their_seeds() {
    let hash = |seed, crypto| {
        let common = Common { seed, crypto, ..udp(UDP[3]) };
        let network = run(&scenario(common, &[one(), ClientLoad::bulk()]), 12);
        assert!(network.downloads().count() > 2);
        network.trace()
    };
    assert_eq!(hash(1, Crypto::Full), hash(1, Crypto::Full));
    assert_eq!(hash(1, Crypto::Full), hash(1, Crypto::Elided));
    assert_ne!(hash(1, Crypto::Full), hash(2, Crypto::Full));
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let hash = |seed| {
        let common = Common { seed, ..Common::default() };
        let network = run(&scenario(common, &[one(), ClientLoad::bulk()]), 12);
        assert!(network.downloads().count() > 2);
        network.trace()
    };
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}

#[test]
fn elided_cryptography_changes_no_event() {
    for (seed, legs) in [(1, 1), (2, 1), (3, 2)] {
        let run_with = |crypto| {
            let common = Common { seed, legs, crypto, ..Common::default() };
            let network = run(&scenario(common, &[one(), ClientLoad::bulk()]), 12);
            let downloads: Vec<_> = network.downloads().copied().collect();
            (downloads, network.trace())
        };
        let (full, trace) = run_with(Crypto::Full);
        assert!(full.len() > 2 && full.iter().all(|download| download.complete), "{full:?}");
        assert_eq!((full, trace), run_with(Crypto::Elided), "seed {seed}, {legs} legs");
    }
}

#[test]
fn cells_overtake_lost_ones_of_other_circuits_on_unordered_links() {
    let lossy = |link, crypto| {
        let common = Common { link, crypto, ..Common::default() };
        let mut scenario = scenario(common, &[ClientLoad::bulk(), ClientLoad::bulk(), one()]);
        for relay in &mut scenario.relays {
            (relay.up.loss, relay.down.loss) = (0.01, 0.01);
        }
        let network = run(&scenario, 25);
        assert_eq!(network.relays().map(|relay| relay.violations()).sum::<u64>(), 0);
        let downloads: Vec<_> = network.downloads().copied().collect();
        assert!(downloads.len() > 3 && downloads.iter().all(|one| one.complete), "{downloads:?}");
        let early = network.relays().map(|relay| relay.early()).sum::<u64>();
        (early, downloads, network.trace())
    };
    let (none, _, ordered) = lossy(LinkLayer::Tls, Crypto::Full);
    let unordered = lossy(LinkLayer::Utls, Crypto::Full);
    assert!(none == 0 && unordered.0 > 100_000, "{none} {}", unordered.0);
    assert_ne!(unordered.2, ordered);
    assert_eq!(lossy(LinkLayer::Utls, Crypto::Elided), unordered);
}

/// Returns a scenario with QUIC links, whose relays lose one packet in a hundred. Circuits are
/// replaced soon, because those that are made before there is a QUIC link do not use it.
fn quic(common: Common, loads: &[ClientLoad]) -> Scenario {
    let dirtiness = Some(Duration::from_secs(5));
    let mut scenario = scenario(Common { link: LinkLayer::Quic, dirtiness, ..common }, loads);
    for relay in &mut scenario.relays {
        (relay.up.loss, relay.down.loss) = (0.01, 0.01);
    }
    scenario
}

/// Returns the bytes that reached relays in UDP datagrams and in TCP segments, without headers.
fn received(network: &OnionNetwork) -> [u64; 2] {
    let relays = network.relays().map(|relay| relay.received());
    relays.fold([0, 0], |sum, it| [sum[0] + it[0], sum[1] + it[1]])
}

#[test]
fn a_client_downloads_pages_over_quic_links() {
    let mut network = OnionNetwork::new(&quic(Common::default(), &[one()]));
    network.run_until(Time::from_secs(30));
    let before = received(&network);
    network.run_until(Time::from_secs(60));
    let downloads: Vec<_> = network.downloads().collect();
    assert!(downloads.len() > 6, "{downloads:?}");
    for download in downloads {
        assert!(download.complete && download.received == 320 << 10, "{download:?}");
    }
    assert_eq!(network.relays().map(|relay| relay.violations()).sum::<u64>(), 0);
    let after = received(&network);
    let [quic, tcp] = [0, 1].map(|kind| after[kind] - before[kind]);
    println!("{quic} bytes by QUIC, {tcp} bytes by TCP; before {before:?}");
    assert!(quic > tcp && before[1] > 0, "{quic} {tcp} {before:?}");
}

#[test]
fn runs_over_quic_links_are_functions_of_their_seeds() {
    let hash = |seed, crypto| {
        let common = Common { seed, crypto, ..Common::default() };
        let network = run(&quic(common, &[one(), ClientLoad::bulk()]), 15);
        assert!(network.downloads().filter(|download| download.complete).count() > 2);
        assert!(received(&network)[0] > 100_000);
        network.trace()
    };
    assert_eq!(hash(1, Crypto::Full), hash(1, Crypto::Full));
    assert_eq!(hash(1, Crypto::Full), hash(1, Crypto::Elided));
    assert_ne!(hash(1, Crypto::Full), hash(2, Crypto::Full));
}

#[test]
fn lossy_circuits_use_the_datagrams_of_quic_links() {
    let network = run(&quic(udp(UDP[0]), &[one()]), 30);
    let downloads: Vec<_> = network.downloads().collect();
    assert!(downloads.len() > 3, "{downloads:?}");
    for download in &downloads {
        assert!(download.complete && download.received == 320 << 10, "{download:?}");
    }
    let lossy: u64 = network.relays().map(|relay| relay.stats().lossy.sent).sum();
    assert!(lossy > 5_000, "{lossy} lossy cells");
    let [quic, tcp] = received(&network);
    assert!(quic > tcp, "{quic} bytes by QUIC, {tcp} by TCP");
}

#[test]
fn relays_without_time_to_spare_are_slower() {
    let time = |cpu| {
        let common = Common { cpu, ..Common::default() };
        let network = run(&scenario(common, &[ClientLoad::bulk()]), 30);
        let (count, busy) =
            (network.downloads().count(), network.relays().map(|relay| relay.busy()));
        (count, busy.sum::<Duration>())
    };
    let (infinite, none) = time(None);
    let (quick, some) = time(Some(Cpu::default()));
    let slow = Cpu { cell: Duration::from_micros(500), ..Cpu::default() };
    let (slow, _) = time(Some(slow));
    assert_eq!(none, Duration::ZERO);
    assert!(some > Duration::from_millis(1), "{some:?}");
    assert!(infinite >= quick && quick > 2 * slow && slow > 0, "{infinite} {quick} {slow}");
}

#[test]
fn a_client_uses_the_relays_that_it_may_use_and_makes_its_second_download() {
    let load = ClientLoad { second: Some(100_000), ..one() };
    let mut pinned = scenario(Common::default(), &[load]);
    pinned.clients[0].pins = Some([vec![1], vec![2], vec![5]]);
    let network = run(&pinned, 30);
    let sizes: Vec<u64> = network.downloads().map(|download| download.received).collect();
    assert!(sizes.len() > 3, "{sizes:?}");
    let alternate = [320 << 10, 100_000].into_iter().cycle();
    assert!(sizes.iter().zip(alternate).all(|(size, expected)| *size == expected), "{sizes:?}");
    let relayed: Vec<bool> = network.relays().map(|relay| relay.stats().relayed > 1_000).collect();
    assert!(relayed[1] && relayed[2] && !relayed[0] && !relayed[3], "{relayed:?}");
}

/// Checks that an optimistic request, in every second repetition, saves a round trip until the
/// first byte.
#[test]
fn requests_with_the_opening_of_the_stream_save_a_round_trip() {
    let pause = Pause::Between(50 * MS, 250 * MS);
    let request = RequestTime::Alternating;
    let load = ClientLoad { pause, request, second: Some(100_000), ..one() };
    let network = run(&scenario(Common::default(), &[load]), 40);
    let downloads: Vec<_> = network.downloads().skip(4).collect();
    assert!(downloads.len() > 20 && downloads.iter().all(|one| one.complete), "{downloads:?}");
    for pair in downloads.chunks_exact(4) {
        let first_byte = |place: usize| pair[place].ttfb().unwrap();
        // BEGIN and its answer take six hops of 20 ms, and the connection to the server two more.
        let saved = first_byte(0).saturating_sub(first_byte(2));
        assert!((6 * 20 * MS..8 * 20 * MS).contains(&saved), "{saved:?}");
        assert!(pair.iter().map(|one| one.received).eq([320 << 10, 100_000, 320 << 10, 100_000]));
    }
    // A repetition's second download begins without a pause, the next repetition after a pause.
    for pair in downloads.windows(2).step_by(2) {
        assert_eq!(pair[1].asked, pair[0].ended);
    }
    let pauses = downloads[1..].windows(2).step_by(2).map(|two| two[1].asked.since(two[0].ended));
    let pauses: Vec<Duration> = pauses.collect();
    assert!(pauses.iter().all(|it| (50 * MS..250 * MS).contains(it)), "{pauses:?}");
}

#[test]
fn exponential_pauses_have_their_mean() {
    let load = ClientLoad { pause: Pause::Exponential(2000 * MS), bytes: 1000, ..one() };
    let loads = [load; 8];
    let network = run(&scenario(Common::default(), &loads), 300);
    let mut pauses = Vec::new();
    for client in network.clients() {
        let two = client.downloads().windows(2);
        pauses.extend(two.map(|two| two[1].asked.since(two[0].ended).as_secs_f64()));
    }
    let mean = pauses.iter().sum::<f64>() / pauses.len() as f64;
    let short = pauses.iter().filter(|pause| **pause < 2.0).count() as f64 / pauses.len() as f64;
    assert!(pauses.len() > 500 && (1.8..2.2).contains(&mean), "{} {mean}", pauses.len());
    // Of an exponential distribution 63 % are below the mean; of a uniform one, half.
    assert!((0.58..0.68).contains(&short), "{short}");
}

/// Cells that wait in a relay can still be overtaken by others, and those in TCP cannot. So relays
/// leave few bytes to TCP before it can send them.
#[test]
fn connections_of_relays_have_few_unsent_bytes() {
    let mut scenario = scenario(Common::default(), &[ClientLoad::bulk(); 12]);
    scenario.relays.iter_mut().for_each(|relay| relay.up = host(20).up);
    let mut network = OnionNetwork::new(&scenario);
    let mut most = 0;
    for step in 0..1_000 {
        network.run_until(Time::from_millis(10 * step));
        for relay in (0..6).map(HostId) {
            let tcp = network.simulation().tcp(relay);
            let unsent = |conn| tcp.view(network.now(), ConnId(conn)).map(|view| view.notsent);
            most = (0..200).filter_map(unsent).max().unwrap_or_default().max(most);
        }
    }
    // A batch of 32 KiB is written while fewer than 32 KiB are unsent.
    assert!((16 << 10..66 << 10).contains(&most), "{most}");
}
