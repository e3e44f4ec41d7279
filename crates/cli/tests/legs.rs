//! Tests of a download over two circuits of a set, with Tor's design and with ours. The outputs of
//! `--json`, `--metrics` and `--trace` of a client must agree for each leg (circuit of the set).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ports;
mod program;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;

use anabranch_capture::{SizeUnit, Trace};
use ports::free_ports;
use program::{PATIENCE, Program};
use serde_json::Value;
use tempfile::TempDir;

/// Size of the download in bytes. Each leg must carry at least `LEAST` bytes of it.
const DOWNLOAD: usize = 8_000_000;
const LEAST: u64 = 400_000;

/// A client in its own network, with its folder and files.
struct Client {
    /// The network's relays and authority.
    _network: Program,
    program: Program,
    socks: SocketAddr,
    metrics: String,
    trace: PathBuf,
    folder: TempDir,
}

impl Client {
    /// Starts a client that uses sets of circuits of this design.
    fn start(design: &str) -> Client {
        let folder = TempDir::new().unwrap();
        let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let up = ["up", "--json", "--listen", "127.0.0.1:0", "--data", &place("up")];
        let mut network = Program::start(&up);
        let line = network.next("network")["authority"].as_str().unwrap().to_owned();
        network.next("ready");
        let [port] = free_ports();
        let (trace, metrics) = (place("guards.parquet"), format!("127.0.0.1:{port}"));
        let mut program = Program::start(
            &[
                ["client", "--json", "--listen", "127.0.0.1:0", "--legs", "2"],
                [
                    "--authority",
                    line.trim_start_matches("DirAuthority "),
                    "--data",
                    &place("client"),
                    "--memory",
                    "64",
                ],
            ]
            .concat()
            .into_iter()
            .chain(["--metrics", &metrics, "--trace", &trace, "--multipath", design])
            .collect::<Vec<_>>(),
        );
        let listening = program.next("listening");
        let socks = listening["addresses"][0].as_str().unwrap().parse().unwrap();
        program.next("ready");
        let trace = PathBuf::from(trace);
        Client { _network: network, program, socks, metrics, trace, folder }
    }

    /// Downloads `bytes` bytes from a server on this machine.
    fn download(&self, bytes: usize) {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let serving = thread::spawn(move || server.accept().unwrap().0.write_all(&vec![7; bytes]));
        let mut stream = TcpStream::connect(self.socks).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let wish = [&[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1][..], &port.to_be_bytes()].concat();
        stream.write_all(&wish).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..4], [5, 0, 5, 0], "the stream is open");
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert!(got.len() == bytes && got.iter().all(|byte| *byte == 7), "{} bytes", got.len());
        serving.join().unwrap().unwrap();
    }

    /// Waits until both legs of the busiest set are linked and the set carries nothing. Returns
    /// that set.
    fn still(&mut self) -> Value {
        let mut before = Value::Null;
        loop {
            let numbers = self.program.next("numbers");
            let sets = numbers["sets"].as_array().unwrap();
            let busiest =
                sets.iter().max_by_key(|set| by_leg(set).values().map(|legs| legs[0]).sum::<u64>());
            let Some(set) = busiest else { continue };
            let linked =
                set["legs"].as_array().unwrap().iter().filter(|leg| leg["state"] == "linked");
            if linked.count() == 2 && set["streams"] == 0 && by_leg(set) == by_leg(&before) {
                return set.clone();
            }
            before.clone_from(set);
        }
    }

    fn scrape(&self) -> String {
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

/// Returns the bytes received and sent by each leg, from the JSON object `set`.
fn by_leg(set: &Value) -> BTreeMap<u64, [u64; 2]> {
    let legs = set["legs"].as_array().into_iter().flatten();
    let bytes = |leg: &Value| ["received", "sent"].map(|way| leg[way].as_u64().unwrap());
    legs.map(|leg| (leg["leg"].as_u64().unwrap(), bytes(leg))).collect()
}

/// Returns the bytes received and sent by each leg of the set number `set`, from a trace.
fn by_path(trace: &Path, set: u64) -> BTreeMap<u64, [u64; 2]> {
    let trace = Trace::open(trace).unwrap();
    assert_eq!(trace.facts().unit, SizeUnit::Cell);
    let mut paths = BTreeMap::<u64, [u64; 2]>::new();
    let visit = |row: &anabranch_capture::Row<'_>| {
        if row.load == set as i64 {
            let bytes = paths.entry(row.path as u64).or_default();
            bytes[usize::from(row.size > 0)] += u64::from(row.size.unsigned_abs());
        }
    };
    trace.for_each(visit).unwrap();
    paths
}

#[test]
fn json_metrics_and_trace_agree_on_the_bytes_of_each_leg() {
    // The networks run one after the other, because both need the same ports.
    agree("conflux");
    // The legs of this set join at one middle relay.
    let set = agree("merged");
    let of = |hop: usize| [0, 1].map(|leg| set["legs"][leg]["relays"][hop]["fingerprint"].clone());
    let [middles, exits] = [of(1), of(2)];
    assert!(middles[0] == middles[1] && exits[0] == exits[1], "{set}");
}

/// Downloads over a set of this design, and checks that all outputs agree on its legs. Returns the
/// JSON object of the set.
fn agree(design: &str) -> Value {
    let mut client = Client::start(design);
    client.download(1000);
    let first = client.still();
    assert_eq!(first["legs"].as_array().unwrap().len(), 2);
    client.download(DOWNLOAD);
    let set = client.still();
    assert_eq!(set["set"], first["set"], "the same carried both");
    let (number, leg_bytes) = (set["set"].as_u64().unwrap(), by_leg(&set));
    assert!(leg_bytes.values().all(|[received, _]| *received >= LEAST), "{set}");
    assert!(
        set["reordered"] == 0 && set["reordered_most"].as_u64() <= set["reorder_limit"].as_u64()
    );
    let guards = [0, 1].map(|leg| &set["legs"][leg]["relays"][0]["fingerprint"]);
    assert_ne!(guards[0], guards[1], "each leg has a guard of its own");
    let page = client.scrape();
    for (leg, [received, sent]) in &leg_bytes {
        for (way, bytes) in [("received", received), ("sent", sent)] {
            let labels = format!("{{set=\"{number}\",leg=\"{leg}\",direction=\"{way}\"}}");
            let line = format!("anabranch_client_leg_bytes_total{labels} {bytes}");
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }
    for word in ["nonce", "127.0.0.", guards[0].as_str().unwrap()] {
        assert!(!page.split_once("\r\n\r\n").unwrap().1.contains(word), "{word}: {page}");
    }
    assert!(!set.to_string().contains("nonce"), "{set}");
    client.program.signal("-TERM");
    let (status, message) = client.program.ended();
    assert!(status.success(), "{message}");
    assert_eq!(by_path(&client.trace, number), leg_bytes);
    let entries = fs::read_dir(client.folder.path()).unwrap();
    let parts = entries
        .filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().ends_with(".part"));
    assert_eq!(parts.count(), 0, "nothing half written is left");
    set
}

#[test]
fn what_a_client_is_not_to_do_is_refused() {
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("old.parquet");
    fs::write(&trace, "old").unwrap();
    let (data, trace) = (folder.path().join("data"), trace.to_str().unwrap().to_owned());
    let refused = |options: &[&str]| {
        let words =
            ["client", "--json", "--authority", program::NOBODY, "--data", data.to_str().unwrap()];
        let mut client = Program::start(&[&words[..], options].concat());
        let (status, message) = client.ended();
        assert_eq!(status.code(), Some(2), "{message}");
        message
    };
    assert!(refused(&["--trace", &trace]).contains("add --replace to replace it"));
    assert!(
        refused(&["--trace", "/nowhere/a.parquet"]).contains("there is no directory '/nowhere'")
    );
    assert!(
        refused(&["--memory", "3"]).contains("--memory 3: write a number of megabytes, 4 or more")
    );
    assert!(
        refused(&["--metrics", "192.0.2.1:1"]).contains("--metrics: cannot listen on 192.0.2.1:1")
    );
    assert!(refused(&["--redraw", "0s"]).contains("--redraw: '0s' is not a duration of silence"));
    assert!(refused(&["--redraw", "1s"]).contains("--redraw needs --schedule"));
    assert!(
        refused(&["--link", "tls-per-circuit"])
            .contains("--link tls-per-circuit is only for relays, because a client has one")
    );
    assert!(refused(&["--link", "carrier"]).contains("[possible values: tls, utls, quic]"));
    assert_eq!(fs::read(&trace).unwrap(), b"old");
}
