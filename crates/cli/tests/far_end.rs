//! Tests of `anabranch split --key` and `anabranch merge` over paths with delays and losses. They
//! check which datagrams arrive, in which order and on which path, and what strangers and
//! observers learn.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod between;
mod program;
mod running;

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use between::{Between, Conditions};
use program::Program;
use running::socks::{Manner, Socks};
use serde_json::Value;
use tempfile::TempDir;

const PATHS: [&str; 3] = ["a=addr:127.0.0.2", "b=addr:127.0.0.3", "c=addr:127.0.0.4"];
const PATIENCE: Duration = Duration::from_secs(20);

fn anabranch(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_anabranch")).args(arguments).output().unwrap()
}

/// Lock that lets one test run at a time, because the tests measure time and each has its own
/// network.
static TURN: Mutex<()> = Mutex::new(());

/// A far end, the network in front of it, a splitter in front of that network, and an echo server.
struct World {
    folder: TempDir,
    far_at: String,
    server: UdpSocket,
    far: Program,
    between: Between,
    near: Program,
    /// Address for datagrams of client programs.
    listen: SocketAddr,
    _turn: MutexGuard<'static, ()>,
}

fn unequal() -> Conditions {
    let delays = [5, 15, 35].map(Duration::from_millis).to_vec();
    Conditions { delays, ..Conditions::default() }
}

fn bound() -> UdpSocket {
    let socket = between::roomy();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn keys(folder: &Path) -> [String; 2] {
    let files = ["far.key", "home.key"].map(|name| folder.join(name).display().to_string());
    let made = anabranch(&["key", &files[0], &files[1]]);
    assert!(made.status.success(), "{made:?}");
    files
}

fn start_far(listen: &str, server: SocketAddr, key: &str, options: &[&str]) -> Program {
    let to = server.to_string();
    let fixed = ["merge", "--json", "--listen", listen, "--to", &to, "--key", key];
    Program::start(&[&fixed[..], &["--schedule", "uniform", "--seed", "7"], options].concat())
}

fn start_near(far: SocketAddr, key: &str, options: &[&str]) -> Program {
    start_near_by(&PATHS, far, key, options)
}

fn start_near_by(paths: &[&str], far: SocketAddr, key: &str, options: &[&str]) -> Program {
    let to = far.to_string();
    let fixed = ["split", "--json", "--listen", "127.0.0.1:0", "--to", &to, "--key", key];
    let schedule = ["--schedule", "uniform", "--seed", "7"];
    let paths = paths.iter().flat_map(|path| ["--path", path]).collect::<Vec<_>>();
    Program::start(&[&fixed[..], &schedule, &paths, options].concat())
}

fn listening(program: &mut Program) -> SocketAddr {
    program.next("listening")["listen"].as_str().unwrap().parse().unwrap()
}

impl World {
    fn start(conditions: Conditions, every: &str) -> World {
        World::with(conditions, &["--every", every])
    }

    fn with(conditions: Conditions, options: &[&str]) -> World {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = TempDir::new().unwrap();
        let [far_key, home_key] = keys(folder.path());
        let server = bound();
        let mut far = start_far("127.0.0.1:0", server.local_addr().unwrap(), &far_key, options);
        let far_at = listening(&mut far);
        let between = Between::start(far_at, conditions);
        let mut near = start_near(between.at, &home_key, options);
        let listen = listening(&mut near);
        near.find("far_end", |event| event["state"] == "up");
        World {
            folder,
            far_at: far_at.to_string(),
            server,
            far,
            between,
            near,
            listen,
            _turn: turn,
        }
    }

    fn key(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Sends `count` datagrams to the server and back, one per millisecond. Returns the numbers
    /// that arrived at the server and at the client, in the order of arrival. Ends when all are
    /// back, or two seconds after the last one was sent.
    fn exchange(&self, client: &UdpSocket, count: u32) -> [Vec<u32>; 2] {
        let sent = Arc::new(AtomicBool::new(false));
        let (server, over) = (self.server.try_clone().unwrap(), Arc::clone(&sent));
        let echo = thread::spawn(move || {
            let mut come = Vec::new();
            receive(&server, count, &over, |datagram, from| {
                come.push(number(datagram));
                server.send_to(datagram, from).unwrap();
            });
            come
        });
        let (sender, listen, over) = (client.try_clone().unwrap(), self.listen, Arc::clone(&sent));
        let sending = thread::spawn(move || {
            let start = Instant::now();
            for number in 0..count {
                let due = start + Duration::from_millis(number.into());
                thread::sleep(due.saturating_duration_since(Instant::now()));
                sender.send_to(&datagram(number), listen).unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
        let mut back = Vec::new();
        receive(client, count, &sent, |datagram, _| back.push(number(datagram)));
        sending.join().unwrap();
        [echo.join().unwrap(), back]
    }

    /// Checks that all datagrams arrive in both directions, in order.
    fn passes(&self, client: &UdpSocket, count: u32) {
        self.exchange_awake(client, count, |numbers, _| match numbers.len() == count as usize {
            true => late(numbers, count as usize / 100),
            false => Some(format!("{} of {count} came", numbers.len())),
        });
    }

    /// Repeats an exchange of `count` datagrams, up to ten times, until `fault` finds no fault.
    /// `fault` is called with the numbers that arrived at the server, and with those that came
    /// back.
    ///
    /// If the machine stops for longer than the difference between the paths, some datagrams are
    /// late. If it stops for longer than the buffers last, some are lost. So a failed exchange
    /// proves nothing, and is repeated.
    fn exchange_awake(
        &self,
        client: &UdpSocket,
        count: u32,
        fault: impl Fn(&[u32], bool) -> Option<String>,
    ) {
        let mut attempts = Vec::new();
        for _ in 0..10 {
            let awake = LatenessProbe::watch();
            let ways = self.exchange(client, count);
            let stopped = awake.longest_stop();
            for numbers in &ways {
                let come: BTreeSet<u32> = numbers.iter().copied().collect();
                assert_eq!(come.len(), numbers.len(), "some came twice");
            }
            let faults: Vec<String> =
                ways.iter().zip([false, true]).filter_map(|(way, back)| fault(way, back)).collect();
            if faults.is_empty() {
                return;
            }
            assert!(
                stopped >= STOPPED,
                "up, back: {faults:?}; the machine stopped for {stopped:?}"
            );
            attempts.push((faults, stopped));
        }
        panic!("the machine stopped in every exchange: {attempts:?}");
    }

    /// Ends the splitter and the far end. Returns their summaries.
    fn end(mut self) -> [Value; 2] {
        self.near.signal("-INT");
        let near = self.near.next("summary");
        self.far.next("ended");
        self.far.signal("-INT");
        [near, self.far.next("summary")]
    }
}

/// Receives up to `count` datagrams, while `over` is false and for two seconds after the last
/// datagram.
fn receive(
    socket: &UdpSocket,
    count: u32,
    over: &AtomicBool,
    mut each: impl FnMut(&[u8], SocketAddr),
) {
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let (mut left, mut last, mut buffer) = (count, Instant::now(), [0; 2048]);
    while left > 0 && !(over.load(Ordering::Relaxed) && last.elapsed() > Duration::from_secs(2)) {
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            each(&buffer[..length], from);
            (left, last) = (left - 1, Instant::now());
        }
    }
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
}

fn number(datagram: &[u8]) -> u32 {
    u32::from_be_bytes(datagram[..4].try_into().unwrap())
}

/// Returns a datagram that begins with a rising number, like WireGuard's.
fn datagram(number: u32) -> Vec<u8> {
    let mut bytes = vec![7; 600];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Returns each path's share of the counter `field`.
fn shares(paths: &Value, field: &str) -> Vec<f64> {
    let counts = paths.as_array().unwrap().iter().map(|path| path[field].as_f64().unwrap());
    let counts: Vec<f64> = counts.collect();
    counts.iter().map(|count| count / counts.iter().sum::<f64>()).collect()
}

/// Returns a description of the fault if more than `most` datagrams arrived after a later one.
fn late(numbers: &[u32], most: usize) -> Option<String> {
    let late = numbers.windows(2).filter(|two| two[0] > two[1]).count();
    (late > most).then(|| format!("{late} of {} late", numbers.len()))
}

/// Delay of a thread from which the machine counts as having stopped. The delays of the paths of
/// [`unequal`] differ by as much.
const STOPPED: Duration = Duration::from_millis(10);

/// A thread that sleeps for a millisecond at a time, and measures how late it wakes.
struct LatenessProbe {
    over: Arc<AtomicBool>,
    thread: thread::JoinHandle<Duration>,
}

impl LatenessProbe {
    fn watch() -> LatenessProbe {
        const NAP: Duration = Duration::from_millis(1);
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !until.load(Ordering::Relaxed) {
                let asleep = Instant::now();
                thread::sleep(NAP);
                longest = longest.max(asleep.elapsed().saturating_sub(NAP));
            }
            longest
        });
        LatenessProbe { over, thread }
    }

    fn longest_stop(self) -> Duration {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

#[test]
fn all_arrives_in_order_both_ways_and_each_path_carries_its_share_each_way() {
    // If runs are counted in packets, a path's share does not depend on the load of this machine.
    for (every, least) in [("20ms", 0.1), ("7p", 0.27)] {
        let world = World::start(unequal(), every);
        world.passes(&bound(), 3000);
        let [near, far] = world.end();
        for (paths, field) in [
            (&near["paths"], "up_packets"),
            (&near["paths"], "down_packets"),
            (&far["clients"][0]["paths"], "in_packets"),
            (&far["clients"][0]["paths"], "out_packets"),
        ] {
            let shares = shares(paths, field);
            assert!(shares.iter().all(|share| *share > least), "{every} {field} {shares:?}");
        }
        assert_eq!(near["paths"][0]["copies"], 0, "nothing is copied before a far end");
    }
}

#[test]
fn what_is_lost_on_a_path_is_lost_and_the_rest_is_in_order() {
    for loss in [0.01, 0.05] {
        let world = World::start(Conditions { loss, ..unequal() }, "20ms");
        // Five standard deviations below the expected number of 3,000 datagrams, after one
        // direction and after both.
        let least = [1.0 - loss, (1.0 - loss) * (1.0 - loss)]
            .map(|share: f64| 3000.0 * share - 5.0 * (3000.0 * share * (1.0 - share)).sqrt());
        world.exchange_awake(&bound(), 3000, |numbers, is_back| {
            let (received, least) = (numbers.len() as f64, least[usize::from(is_back)]);
            late(numbers, 30)
                .or((received < least).then(|| format!("{received} of {least:.0} came")))
        });
    }
}

#[test]
fn both_ends_delay_before_the_split_and_keep_the_order() {
    let options = ["--every", "grow:10-50ms", "--redraw", "1s", "--jitter", "30-90ms"];
    // The paths have equal delays, so only the delay before the split could change the order.
    let delays = vec![Duration::from_millis(5); 3];
    let world = World::with(Conditions { delays, ..Conditions::default() }, &options);
    let client = bound();
    world.passes(&client, 400);
    let (start, mut room) = (Instant::now(), [0; 2_000]);
    client.send_to(&datagram(7), world.listen).unwrap();
    let (length, from) = world.server.recv_from(&mut room).unwrap();
    let up = start.elapsed();
    world.server.send_to(&room[..length], from).unwrap();
    client.recv_from(&mut room).unwrap();
    // The minimum is the least delay before the split, plus the delay of the path.
    let least = Duration::from_millis(30 + 5);
    assert!(up >= least && start.elapsed() - up >= least, "{up:?} {:?}", start.elapsed());
    for summary in world.end() {
        assert_eq!(summary["hurried"], 0, "{summary}");
    }
}

#[test]
fn a_path_that_is_cut_is_noticed_by_both_ends_and_comes_back() {
    let mut world = World::start(unequal(), "20ms");
    let client = bound();
    world.passes(&client, 200);
    world.between.change(|conditions| conditions.cut = vec![1]);
    world.exchange(&client, 4000);
    let of_b = |state: &str| {
        let state = state.to_owned();
        move |event: &Value| event["path"] == "b" && event["state"] == *state
    };
    let down = world.near.find("path", of_b("down"));
    assert_eq!(down["reason"], "unheard");
    world.far.find("path", |event| event["path"] == 1 && event["state"] == "down");
    // The path carries nothing while it is cut.
    world.passes(&client, 1000);
    world.between.change(|conditions| conditions.cut.clear());
    world.exchange(&client, 2500);
    world.near.find("path", of_b("up"));
    world.far.find("path", |event| event["path"] == 1 && event["state"] == "up");
    world.passes(&client, 1000);
}

#[test]
fn a_far_end_that_is_killed_and_started_again_is_found_again() {
    let mut world = World::start(unequal(), "20ms");
    let client = bound();
    world.passes(&client, 200);
    world.far.signal("-KILL");
    world.far.ended();
    let server = world.server.local_addr().unwrap();
    world.far = start_far(&world.far_at, server, &world.key("far.key"), &["--every", "20ms"]);
    listening(&mut world.far);
    world.exchange(&client, 5000);
    world.far.next("began");
    world.passes(&client, 500);
    // A far end that announces its end is found again sooner.
    world.far.signal("-INT");
    world.near.find("far_end", |event| event["state"] == "left");
    world.far = start_far(&world.far_at, server, &world.key("far.key"), &["--every", "20ms"]);
    world.near.find("far_end", |event| event["state"] == "up");
    world.passes(&client, 500);
}

#[test]
fn a_client_that_moves_is_followed() {
    let world = World::start(unequal(), "20ms");
    let client = bound();
    world.passes(&client, 200);
    world.between.change(|conditions| conditions.moves += 1);
    world.exchange(&client, 2500);
    world.passes(&client, 500);
}

#[test]
fn two_programs_and_two_splitters_are_told_apart() {
    let mut world = World::start(unequal(), "20ms");
    // The key of another splitter is added to the far end's file. The running far end has not read
    // it.
    let other = world.key("other.key");
    let public = anabranch(&["key", &other]).stdout;
    let public = String::from_utf8(public).unwrap().trim().to_owned();
    let far_key = world.key("far.key");
    let far_public = String::from_utf8(anabranch(&["key", &far_key]).stdout).unwrap();
    anabranch(&["key", &far_key, "--peer", &format!("other={public}")]);
    anabranch(&["key", &other, "--peer", &format!("far={}", far_public.trim())]);
    world.far.signal("-INT");
    world.near.find("far_end", |event| event["state"] == "left");
    let server = world.server.local_addr().unwrap();
    world.far = start_far(&world.far_at, server, &far_key, &[]);
    listening(&mut world.far);
    world.near.find("far_end", |event| event["state"] == "up");
    let second_between = Between::start(world.far_at.parse().unwrap(), unequal());
    let mut second = start_near(second_between.at, &other, &[]);
    let second_listen = listening(&mut second);
    second.find("far_end", |event| event["state"] == "up");
    // Two programs use the first splitter, and one uses the second.
    let programs = [(bound(), world.listen), (bound(), world.listen), (bound(), second_listen)];
    let mut seen = Vec::new();
    for (place, (program, listen)) in programs.iter().enumerate() {
        program.send_to(&datagram(place as u32), listen).unwrap();
        let mut buffer = [0; 2048];
        let (_, from) = world.server.recv_from(&mut buffer).unwrap();
        assert_eq!(number(&buffer), place as u32);
        seen.push(from);
    }
    seen.iter().zip(1000..).for_each(|(program, number)| {
        world.server.send_to(&datagram(number), program).unwrap();
    });
    for ((program, _), expected) in programs.iter().zip(1000..) {
        let mut buffer = [0; 2048];
        program.recv(&mut buffer).unwrap();
        assert_eq!(number(&buffer), expected);
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 3, "each has an address of its own at the server");
}

#[test]
fn a_proxy_is_a_path_to_a_far_end_like_any_other() {
    let mut world = World::start(unequal(), "7p");
    let proxy = Socks::start(Manner::Noisy);
    let paths = [format!("prx=socks5:{}", proxy.at), "b=addr:127.0.0.3".to_owned()];
    world.near.signal("-INT");
    world.far.next("ended");
    let far_at = world.far_at.parse().unwrap();
    let paths = paths.each_ref().map(String::as_str);
    let key = world.key("home.key");
    world.near = start_near_by(&paths, far_at, &key, &["--every", "7p", "--same-egress"]);
    world.listen = listening(&mut world.near);
    world.near.find("far_end", |event| event["state"] == "up");
    // The proxy of the tests needs milliseconds for a datagram, so some datagrams are late.
    let come = world.exchange(&bound(), 150).map(|numbers| numbers.len());
    assert_eq!(come, [150, 150]);
    let [near, _] = world.end();
    for field in ["up_packets", "down_packets"] {
        let shares = shares(&near["paths"], field);
        assert!(shares.iter().all(|share| *share > 0.3), "{field} {shares:?}");
    }
}

#[test]
fn one_of_several_servers_is_chosen_by_name_and_an_unknown_one_is_told() {
    let folder = TempDir::new().unwrap();
    let [far_key, home_key] = keys(folder.path());
    let servers = [bound(), bound()];
    let named = ["one", "two"].iter().zip(&servers);
    let named: Vec<String> =
        named.map(|(name, server)| format!("{name}={}", server.local_addr().unwrap())).collect();
    let fixed = ["merge", "--json", "--listen", "127.0.0.1:0", "--key", &far_key];
    let mut far = Program::start(&[&fixed[..], &["--to", &named[0], "--to", &named[1]]].concat());
    let at = listening(&mut far);
    let mut near = start_near(at, &home_key, &["--behind", "two"]);
    let listen = listening(&mut near);
    bound().send_to(b"to the second", listen).unwrap();
    assert_eq!(far.next("began")["server"], "two");
    assert_eq!(servers[1].recv(&mut [0; 64]).unwrap(), 13);
    drop(near);
    let _near = start_near(at, &home_key, &["--behind", "three"]);
    assert_eq!(far.next("no_server")["server"], "three");
}

#[test]
fn an_observer_of_a_path_finds_no_field_of_the_session_and_none_that_counts() {
    let world = World::start(unequal(), "20ms");
    world.exchange(&bound(), 6000);
    let seen = world.between.seen();
    for (path, seen) in &seen {
        for packets in [&seen.up, &seen.down] {
            let packets: Vec<&Vec<u8>> =
                packets.iter().filter(|packet| packet.len() > 600).collect();
            assert!(packets.len() > 1200, "path {path}: {}", packets.len());
            let sizes: BTreeSet<usize> = packets.iter().map(|packet| packet.len()).collect();
            assert_eq!(sizes.len(), 1, "one size within, one size without");
            for place in 0..packets[0].len() {
                is_noise(&packets, place);
            }
        }
    }
}

/// Asserts that the bytes at the offset `place` are uniformly distributed, and neither rise nor
/// repeat.
fn is_noise(packets: &[&Vec<u8>], place: usize) {
    let mut counts = [0u32; 256];
    packets.iter().for_each(|packet| counts[usize::from(packet[place])] += 1);
    let mean = packets.len() as f64 / 256.0;
    let chi: f64 = counts.iter().map(|&n| (f64::from(n) - mean).powi(2) / mean).sum();
    // With 255 degrees of freedom, one of 10^5 uniform offsets exceeds 356. There are 4,000
    // offsets.
    assert!(chi < 400.0, "byte {place}: {chi}");
    let rises = packets.windows(2).filter(|two| two[0][place] < two[1][place]).count();
    let share = rises as f64 / packets.len() as f64;
    // The standard deviation is below 0.01 with 1,200 packets.
    assert!((0.43..0.57).contains(&share), "byte {place} rises in {share} of all packets");
}

#[test]
fn strangers_and_replays_are_not_answered() {
    let world = World::start(unequal(), "20ms");
    let client = bound();
    world.exchange(&client, 300);
    let stranger = bound();
    stranger.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let seen = world.between.seen();
    let mut sent = 0;
    for packet in seen.values().flat_map(|seen| seen.up.iter().chain(&seen.down)) {
        stranger.send_to(packet, &world.far_at).unwrap();
        stranger.send_to(&packet[1..], &world.far_at).unwrap();
        sent += 2;
        if sent % 64 == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
    for length in 0..300usize {
        let noise: Vec<u8> = (0..length).map(|n| (n * 37 + length) as u8).collect();
        stranger.send_to(&noise, &world.far_at).unwrap();
    }
    assert!(stranger.recv(&mut [0; 2048]).is_err(), "nobody answers");
    // The strangers have not redirected any traffic.
    world.passes(&client, 300);
    let [_, far] = world.end();
    assert!(far["strangers"].as_u64().unwrap() >= 400, "{far}");
}

#[test]
fn a_key_that_the_far_end_does_not_know_gets_no_answer_and_the_user_one_line() {
    let world = World::start(unequal(), "20ms");
    let folder = TempDir::new().unwrap();
    let [_, wrong] = keys(folder.path());
    let between = Between::start(world.far_at.parse().unwrap(), unequal());
    let mut near = start_near(between.at, &wrong, &[]);
    let event = near.find("far_end", |event| event["state"] == "unanswered");
    let text = event["text"].as_str().unwrap();
    assert!(
        text.contains(&format!("no answer from {} for 10 s: check key, port", between.at)),
        "{text}"
    );
    let seen = between.seen();
    assert!(seen.values().all(|seen| seen.down.is_empty()) && !seen.is_empty());
}

#[test]
fn padded_packets_have_few_sizes() {
    let world = World::with(unequal(), &["--every", "20ms", "--pad", "128,640,1200"]);
    let client = bound();
    client.send_to(b"short", world.listen).unwrap();
    world.server.recv_from(&mut [0; 64]).unwrap();
    world.passes(&client, 300);
    let handshakes = 24;
    let sizes = world.between.seen().into_values().flat_map(|seen| [seen.up, seen.down].concat());
    let other = sizes.filter(|packet| ![128, 640, 1200].contains(&packet.len())).count();
    assert!(other < handshakes, "{other} packets of other sizes");
}

#[test]
fn decoys_go_both_ways_within_their_budget_and_no_program_sees_one() {
    let world = World::with(unequal(), &["--every", "20ms", "--decoys", "20%"]);
    let client = bound();
    world.passes(&client, 4000);
    let [near, far] = world.end();
    let (ours, theirs) = (&near["far_end"]["decoys"], &far["clients"][0]["decoys"]);
    let number = |of: &Value, name: &str| of[name].as_u64().unwrap();
    let carried = |paths: &Value, name: &str| {
        paths.as_array().unwrap().iter().map(|path| number(path, name)).sum::<u64>()
    };
    for (sent, received, carried) in [
        ((ours, "up"), (theirs, "in"), carried(&near["paths"], "up_bytes")),
        ((theirs, "out"), (ours, "down"), carried(&far["clients"][0]["paths"], "out_bytes")),
    ] {
        let count = |(of, way): (&Value, &str), what| number(of, &format!("{way}_{what}"));
        let [packets, bytes] = ["packets", "bytes"].map(|what| count(sent, what));
        assert!(packets > 50, "{sent:?}");
        assert!(5 * bytes <= carried && 20 * bytes >= carried, "{bytes} of {carried}");
        // The last packets may be in flight when both programs are stopped.
        assert!(count(received, "packets") + 100 >= packets, "{sent:?} {received:?}");
        assert!(count(received, "bytes") <= bytes);
    }
}

#[test]
fn what_a_tunnel_is_told_fits_through_the_paths() {
    let folder = TempDir::new().unwrap();
    let [_, key] = keys(folder.path());
    let check = |options: &[&str]| {
        let fixed =
            ["split", "--check", "--json", "--listen", "127.0.0.1:1", "--to", "127.0.0.1:9"];
        let checked = anabranch(&[&fixed[..], &["--path", PATHS[0]], options].concat());
        let about: Value = serde_json::from_slice(&checked.stdout).unwrap();
        about["udp_payload"].as_u64().unwrap()
    };
    let plain = check(&[]);
    assert_eq!(check(&["--key", &key]), plain - 33);
    assert_eq!(check(&["--key", &key, "--pad", "1200"]), plain - 35);
}

#[test]
fn what_cannot_be_is_refused_in_one_line_without_a_secret() {
    let folder = TempDir::new().unwrap();
    let [far, home] = keys(folder.path());
    let path = |name: &str| folder.path().join(name);
    let open: PathBuf = path("open.key");
    fs::copy(&home, &open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    let alone = path("alone.key").display().to_string();
    anabranch(&["key", &alone]);
    let open = open.display().to_string();
    let absent = path("absent.key").display().to_string();
    let split = ["split", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9", "--path", PATHS[0]];
    let merge = ["merge", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9"];
    for (command, options, words) in [
        (&split[..], &["--key", &open][..], "chmod 600"),
        (&split, &["--key", &absent], "'anabranch key"),
        (&split, &["--key", &alone], "needs exactly one [[peer]] entry"),
        (&split, &["--key", &home, "--handshake", "a"], "all look alike"),
        (&split, &["--key", &home, "--in-order", "30ms"], "restore the order"),
        (&split, &["--key", &home, "--protocol", "quic"], "every protocol is split"),
        (&split, &["--schedule", "lowrtt"], "only with a far end (--key)"),
        (&split, &["--behind", "x"], "add --key FILE"),
        (&split, &["--pad", "64"], "add --key FILE"),
        (&split, &["--decoys", "10%"], "would take them for data: add --key FILE"),
        (&split, &["--key", &home, "--decoys", "0%"], "'0%' allows no decoys"),
        (&split, &["--key", &home, "--decoys", "-5%"], "'-5%' allows no decoys"),
        (&split, &["--key", &home, "--decoys", "101%"], "100% at most"),
        (&split, &["--key", &home, "--decoys", "10"], "such as 10% or 2.5%"),
        (
            &split,
            &["--key", &home, "--decoys", "9%", "--schedule", "lowrtt"],
            "choose another schedule",
        ),
        (&merge, &["--key", &far, "--decoys", "-1%"], "'-1%' allows no decoys"),
        (&merge, &["--key", &far, "--decoys", "200%"], "100% at most"),
        (
            &merge,
            &["--key", &far, "--decoys", "9%", "--schedule", "pull"],
            "choose another schedule",
        ),
        (&merge, &[], "--key is missing"),
        (&merge, &["--key", &far, "--redraw", "0s"], "'0s' is not a duration of silence"),
        (&merge, &["--key", &far, "--jitter", "20ms"], "delays all datagrams equally"),
        (
            &merge,
            &["--key", &far, "--jitter", "0-500ms"],
            "choose delays below 499.5 ms (both ends",
        ),
        (
            &split,
            &["--key", &home, "--jitter", "0-500ms"],
            "choose delays below 499.5 ms (both ends",
        ),
        (&merge, &["--key", &alone], "lists no splitter that may connect"),
        (
            &merge,
            &["--key", &far, "--to", "x=127.0.0.1:8", "--to", "x=127.0.0.1:7"],
            "the name 'x'",
        ),
        (&["key", &far, &home], &[], "exists"),
        (&["key", &far, "--peer", "home"], &[], "write NAME=PUBLIC"),
        (&["key"], &[], "FILE"),
    ] {
        let refused = anabranch(&[command, options].concat());
        let message = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{options:?}: {message}");
        assert!(message.contains(words) && message.lines().count() == 1, "{options:?}: {message}");
        let secret = fs::read_to_string(&home).unwrap();
        let secret = secret.lines().find(|line| line.starts_with("private")).unwrap().to_owned();
        assert!(!message.contains(&secret[12..30]));
    }
}

#[test]
fn neither_a_server_that_is_gone_nor_a_datagram_too_long_for_a_packet_ends_a_session() {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = TempDir::new().unwrap();
    let [far_key, home_key] = keys(folder.path());
    let server = bound();
    let address = server.local_addr().unwrap();
    drop(server);
    let mut far = start_far("127.0.0.1:0", address, &far_key, &[]);
    let mut near = start_near(listening(&mut far), &home_key, &[]);
    let (listen, client) = (listening(&mut near), bound());
    near.find("far_end", |event| event["state"] == "up");
    client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let ask = |datagram: &[u8]| {
        client.send_to(datagram, listen).unwrap();
        _ = client.recv(&mut [0; 64]);
    };
    (0..3).for_each(|_| ask(b"is anybody there"));
    assert_eq!(far.next("server_refused")["server"], address.to_string());
    let server = UdpSocket::bind(address).unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    // The longest UDP payload. With 33 more bytes it exceeds a datagram, so it is sent in two
    // packets.
    let long: Vec<u8> = (0..65_507_u32).map(|byte| byte as u8).collect();
    ask(&long);
    ask(b"and now");
    let mut room = [0; 65_536];
    let (length, _) = server.recv_from(&mut room).unwrap();
    assert!(room[..length] == long, "{length} bytes came");
    let (length, from) = server.recv_from(&mut room).unwrap();
    assert_eq!(&room[..length], b"and now");
    server.send_to(b"yes", from).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(client.recv(&mut [0; 64]).unwrap(), 3);
    near.signal("-INT");
    let summary = near.next("summary");
    let too_big = |path: &Value| path["drops"]["too_big"].as_u64().unwrap();
    let paths = summary["paths"].as_array().unwrap();
    assert_eq!(paths.iter().map(too_big).sum::<u64>(), 0, "{summary}");
    drop(turn);
}

#[test]
fn clients_and_servers_come_and_go_while_it_runs() {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = TempDir::new().unwrap();
    let [far_key, home_key] = keys(folder.path());
    let servers = [bound(), bound()];
    let [one, two] = servers.each_ref().map(|server| server.local_addr().unwrap());
    let file = folder.path().join("far.toml");
    let write = |to: String| {
        let text = format!("listen = '127.0.0.1:0'\nto = {to}\nkey = '{far_key}'\njson = true\n");
        fs::write(&file, text).unwrap();
    };
    write(format!("['one={one}']"));
    let mut far = Program::start(&["merge", &file.display().to_string()]);
    let at = listening(&mut far);
    let mut near = start_near(at, &home_key, &["--behind", "one"]);
    let listen = listening(&mut near);
    let client = bound();
    let passes = || {
        client.send_to(b"there", listen).unwrap();
        let (length, from) = servers[0].recv_from(&mut [0; 64]).unwrap();
        servers[0].send_to(b"and back", from).unwrap();
        assert_eq!((length, client.recv(&mut [0; 64]).unwrap()), (5, 8));
    };
    passes();
    let known = fs::read_to_string(&far_key).unwrap();
    let second = folder.path().join("second.key").display().to_string();
    let made = anabranch(&["key", &second]);
    let public = String::from_utf8(made.stdout).unwrap();
    let public = public.split_whitespace().find(|word| word.len() == 44).unwrap().to_owned();
    assert!(anabranch(&["key", &far_key, "--peer", &format!("second={public}")]).status.success());
    write(format!("['one={one}', 'two={two}']"));
    far.signal("-HUP");
    let reloaded = far.next("reloaded");
    assert_eq!(reloaded["clients"], serde_json::json!(["home", "second"]));
    assert_eq!(reloaded["listen"], at.to_string(), "it listens where it did");
    passes();
    // The second splitter reaches the new server.
    let far_public = near_peer(&home_key);
    assert!(anabranch(&["key", &second, "--peer", &format!("far={far_public}")]).status.success());
    let mut other = start_near(at, &second, &["--behind", "two"]);
    let other_at = listening(&mut other);
    other.find("far_end", |event| event["state"] == "up");
    bound().send_to(b"to the second", other_at).unwrap();
    assert_eq!(servers[1].recv(&mut [0; 64]).unwrap(), 13);
    // Invalid settings change nothing.
    fs::write(&file, "listen = 7").unwrap();
    far.signal("-HUP");
    let warning = far.next("warning")["text"].as_str().unwrap().to_owned();
    assert!(
        warning.contains("far.toml:1") && warning.ends_with("the current settings stay"),
        "{warning}"
    );
    passes();
    // Removing a key ends the session of that key.
    write(format!("['one={one}', 'two={two}']"));
    fs::write(&far_key, known).unwrap();
    far.signal("-HUP");
    assert_eq!(far.next("reloaded")["clients"], serde_json::json!(["home"]));
    other.find("far_end", |event| event["state"] == "left");
    passes();
    drop(turn);
}

/// Returns the public key of the other end in a key file.
fn near_peer(file: &str) -> String {
    let text = fs::read_to_string(file).unwrap();
    let line = text.lines().find(|line| line.starts_with("public = ")).unwrap();
    line.split('"').nth(1).unwrap().to_owned()
}

/// A program whose output is written to a file, as lines or as JSON.
struct LoggingProgram {
    child: Child,
    file: PathBuf,
}

impl LoggingProgram {
    fn start(file: PathBuf, arguments: &[&str]) -> LoggingProgram {
        let out = fs::File::create(&file).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        command.args(arguments).stdin(Stdio::null());
        command.stdout(out.try_clone().unwrap()).stderr(out);
        LoggingProgram { child: command.spawn().unwrap(), file }
    }

    /// Waits until the output contains `words`.
    fn says(&self, words: &str) {
        let end = Instant::now() + PATIENCE;
        while !fs::read_to_string(&self.file).unwrap().contains(words) {
            assert!(Instant::now() < end, "'{words}' was not said");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends the program. Returns its whole output.
    fn end(mut self) -> String {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
        fs::read_to_string(&self.file).unwrap()
    }
}

impl Drop for LoggingProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the secrets in a key file, as they are written there.
fn secrets(file: &str) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let secret = |line: &str| line.starts_with("private") || line.starts_with("psk");
    let quoted = text.lines().filter(|line| secret(line)).filter_map(|line| line.split('"').nth(1));
    quoted.map(str::to_owned).collect()
}

#[test]
fn no_key_and_no_byte_of_a_datagram_is_in_any_log() {
    const INSIDE: &str = "what-nobody-may-read";
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for json in [false, true] {
        let folder = TempDir::new().unwrap();
        let file = |name: &str| folder.path().join(name);
        let [far_key, home_key] = keys(folder.path());
        let server = bound();
        let to = server.local_addr().unwrap().to_string();
        let [far_port, near_port] = [bound(), bound()].map(|s| s.local_addr().unwrap().to_string());
        let format = if json { "--json" } else { "--verbose" };
        let merge = ["merge", format, "--listen", &far_port, "--to", &to, "--key", &far_key];
        let far = LoggingProgram::start(file("far.log"), &merge);
        far.says("listening");
        let split =
            ["split", format, "--listen", &near_port, "--to", &far_port, "--key", &home_key];
        let paths: Vec<&str> = PATHS.iter().flat_map(|path| ["--path", *path]).collect();
        let near = LoggingProgram::start(file("near.log"), &[&split[..], &paths].concat());
        near.says("listening");
        let client = bound();
        let mut buffer = [0; 2_000];
        for _ in 0..20 {
            client.send_to(&INSIDE.repeat(20).into_bytes(), &near_port).unwrap();
            let (length, from) = server.recv_from(&mut buffer).unwrap();
            server.send_to(&buffer[..length], from).unwrap();
            assert_eq!(client.recv(&mut buffer).unwrap(), INSIDE.len() * 20);
        }
        let output = [near.end(), far.end()].concat();
        assert!(output.lines().count() > 4, "{output}");
        let hidden = [secrets(&far_key), secrets(&home_key)].concat();
        assert!(hidden.len() >= 4, "two private keys and the secret of both, twice");
        let hex: String = INSIDE.bytes().map(|byte| format!("{byte:02x}")).collect();
        let inside = [INSIDE.to_owned(), hex, "d2hhdC1ub2JvZHktbWF5LXJlYWQ".to_owned()];
        for word in hidden.iter().chain(&inside) {
            assert!(!output.contains(word.as_str()), "{word} in {output}");
        }
    }
}
