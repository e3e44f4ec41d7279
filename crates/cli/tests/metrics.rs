//! Tests that the counters for Prometheus agree with the splitter's own output.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ports;
mod program;
mod running;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};

use ports::{free_address, free_ports};
use program::{NOBODY, Program};
use running::{PATIENCE, Running};
use serde_json::Value;
use tempfile::TempDir;

/// Value of the header Accept of a Prometheus without support for OpenMetrics.
const TEXT: &str = "text/plain;version=0.0.4";
/// Value of the header Accept of a Prometheus with support for OpenMetrics.
const OPEN: &str = "application/openmetrics-text;version=1.0.0;q=0.75,\
                    text/plain;version=0.0.4;q=0.25,*/*;q=0.1";

/// Returns the head and the body of the answer to a request with the header Accept `accept`.
fn page(address: &str, accept: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(!page.contains("127.0.0."), "no address of anybody: {page}");
    (head.to_owned(), page.to_owned())
}

/// Returns the value of each series.
fn scrape(address: &str) -> BTreeMap<String, f64> {
    let (head, page) = page(address, OPEN);
    assert!(head.contains("openmetrics-text"), "{head}");
    let series = page.lines().filter(|line| !line.starts_with('#'));
    let value = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    series.map(value).collect()
}

#[test]
fn a_scrape_says_what_the_events_say() {
    let address = free_address();
    let paths = ["a=addr:127.0.0.2", "b=addr:127.0.0.3"];
    let mut running = Running::with("127.0.0.1", &paths, &["--json", "--metrics", &address]);
    let listen = running.next("listening")["listen"].as_str().unwrap().to_owned();
    for _ in 0..3 {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        for _ in 0..7 {
            running.exchange(&client, &listen);
        }
    }
    // No traffic passes now, so the next counters still apply when they are read.
    running.next("stats");
    let stats = running.next("stats");
    let page = scrape(&address);
    for path in stats["paths"].as_array().unwrap() {
        let name = path["name"].as_str().unwrap();
        for (series, member) in [
            (format!("path_packets_total{{path=\"{name}\",direction=\"up\"}}"), "up_packets"),
            (format!("path_packets_total{{path=\"{name}\",direction=\"down\"}}"), "down_packets"),
            (format!("path_bytes_total{{path=\"{name}\",direction=\"up\"}}"), "up_bytes"),
            (format!("path_bytes_total{{path=\"{name}\",direction=\"down\"}}"), "down_bytes"),
            (format!("path_switches_total{{path=\"{name}\"}}"), "switches"),
        ] {
            let value: f64 = path[member].as_f64().unwrap();
            assert!(value > 0.0, "{member}");
            assert_eq!(page[&format!("anabranch_{series}")], value, "{series}");
        }
        let rtt = page[&format!("anabranch_path_rtt_seconds{{path=\"{name}\"}}")];
        assert!((rtt * 1e3 - path["rtt_ms"].as_f64().unwrap()).abs() < 1e-9);
        assert_eq!(page[&format!("anabranch_path_up{{path=\"{name}\"}}")], 1.0);
    }
    assert_eq!(Value::from(page["anabranch_sessions"] as u64), stats["sessions"]);
    assert_eq!(page["anabranch_sessions_opened_total"], 3.0);
}

#[test]
fn an_address_that_is_taken_is_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["split", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9"])
        .args(["--path", "a=addr:127.0.0.2", "--metrics", &address])
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.starts_with(&format!("anabranch: --metrics: cannot listen on {address}: ")));
    assert_eq!(message.lines().count(), 1, "{message}");
}

/// Returns the page that `curl` receives from `address`, and its content type. Returns `None`, and
/// prints a message, if curl is not installed.
fn curl(address: &str, accept: Option<&str>) -> Option<(String, String)> {
    let header = accept.map(|accept| format!("Accept: {accept}"));
    let header = header.iter().flat_map(|header| ["--header", header.as_str()]);
    let url = format!("http://{address}/metrics");
    let words = ["--silent", "--show-error", "--fail", "--write-out", "\n%{content_type}", &url];
    let output = match Command::new("curl").args(header).args(words).output() {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: curl: {error}");
            return None;
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let (page, kind) = text.rsplit_once('\n').unwrap();
    Some((kind.to_owned(), page.to_owned()))
}

/// Requests both formats with curl, and checks each page by the rules of its format.
fn judge(address: &str, whose: &str) {
    let (head, text) = page(address, TEXT);
    assert!(head.contains(TEXT.split(';').next().unwrap()), "{head}");
    assert!(text.contains("anabranch_build_info{version="), "{text}");
    prometheus_own_checker_agrees(&text, whose);
    is_open(&page(address, OPEN).1, whose);
    let plain = "text/plain; version=0.0.4; charset=utf-8";
    for (accept, wanted) in [
        (None, plain),
        (Some(TEXT), plain),
        (Some(OPEN), "application/openmetrics-text; version=1.0.0; charset=utf-8"),
    ] {
        let Some((kind, page)) = curl(address, accept) else { return };
        assert_eq!(kind, wanted, "{whose}: {accept:?}");
        assert_eq!(page.ends_with("# EOF\n"), wanted != plain, "{whose}: {accept:?}");
        match wanted == plain {
            true => prometheus_own_checker_agrees(&page, whose),
            false => is_open(&page, whose),
        }
    }
}

/// Checks a page in the older format with Prometheus' own checker, which reads only that format.
/// Without the checker (`scripts/promtool`), prints a message.
fn prometheus_own_checker_agrees(page: &str, whose: &str) {
    let program = std::env::var_os("PROMTOOL").unwrap_or_else(|| "promtool".into());
    let mut promtool = Command::new(program);
    promtool.args(["check", "metrics"]).stdin(Stdio::piped());
    promtool.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = match promtool.spawn() {
        Ok(promtool) => promtool,
        Err(error) => {
            println!("skipped: promtool (package prometheus) on {whose}: {error}");
            return;
        }
    };
    promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.is_empty(), "{whose}: {text}\n{page}");
}

/// Asserts that a page follows OpenMetrics 1.0. The page ends with an end mark. Each family is
/// described once, and its samples follow without interruption and have names of its type. A
/// family has a unit exactly if its name ends in a unit.
fn is_open(page: &str, whose: &str) {
    let body = page.strip_suffix("# EOF\n").unwrap_or_else(|| panic!("{whose}: no end: {page}"));
    let (mut known, mut family, mut kind, mut unit) = (BTreeSet::new(), "", "", "");
    for line in body.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", what, name, about] => {
                if name != family {
                    assert!(known.insert(name), "{whose}: {name} is described twice");
                    (family, kind, unit) = (name, "", "");
                }
                match what {
                    "TYPE" => kind = about,
                    "UNIT" => {
                        assert!(name.ends_with(&format!("_{about}")), "{whose}: {line}");
                        unit = about;
                    }
                    "HELP" => {}
                    other => panic!("{whose}: {other}: {line}"),
                }
            }
            _ => {
                let name = line.split(['{', ' ']).next().unwrap();
                let wants_unit = family.ends_with("_bytes") || family.ends_with("_seconds");
                assert!(!unit.is_empty() || !wants_unit, "{whose}: no unit: {line}");
                let ending = name.strip_prefix(family);
                let wanted = match kind {
                    "counter" => "_total",
                    "info" => "_info",
                    "gauge" => "",
                    other => panic!("{whose}: {other}: {line}"),
                };
                assert_eq!(ending, Some(wanted), "{whose}: {line}");
                let value = line.rsplit_once(' ').unwrap().1;
                assert!(value.parse::<f64>().is_ok(), "{whose}: {line}");
            }
        }
    }
    let process = ["cpu_seconds", "resident_memory_bytes", "open_fds", "max_fds"];
    for name in process.into_iter().chain(["start_time_seconds"]) {
        assert!(known.contains(&*format!("process_{name}")), "{whose}: no {name}");
    }
}

#[test]
fn curl_and_prometheus_own_checker_find_nothing_wrong_with_a_splitters_page() {
    let address = free_address();
    let paths = ["a=addr:127.0.0.2", "b=addr:127.0.0.3"];
    let mut running = Running::with("127.0.0.1", &paths, &["--json", "--metrics", &address]);
    let listen = running.next("listening")["listen"].as_str().unwrap().to_owned();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    for _ in 0..8 {
        running.exchange(&client, &listen);
    }
    running.next("stats");
    judge(&address, "split");
}

#[test]
fn curl_and_prometheus_own_checker_find_nothing_wrong_with_a_far_ends_page() {
    let (address, folder) = (free_address(), TempDir::new().unwrap());
    let keys = ["far.key", "home.key"].map(|name| folder.path().join(name).display().to_string());
    let made = Command::new(env!("CARGO_BIN_EXE_anabranch")).arg("key").args(&keys).output();
    assert!(made.unwrap().status.success());
    let words = ["merge", "--json", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9", "--key"];
    let mut far = Program::start(&[&words[..], &[&keys[0], "--metrics", &address]].concat());
    far.next("listening");
    judge(&address, "merge");
}

#[test]
fn curl_and_prometheus_own_checker_find_nothing_wrong_with_a_relays_page() {
    let (address, folder) = (free_address(), TempDir::new().unwrap());
    let network = folder.path().join("network.txt");
    fs::write(&network, NOBODY).unwrap();
    let [port] = free_ports();
    let (listen, data) = (format!("127.0.0.1:{port}"), folder.path().join("relay"));
    let files = [&network, &data].map(|path| path.to_str().unwrap());
    let words = ["relay", "--json", "--nickname", "river", "--address", "127.0.0.1"];
    let more = ["--allow-private", "--listen", &listen, "--metrics", &address];
    let named = ["--authorities", files[0], "--data", files[1]];
    let mut relay = Program::start(&[&words[..], &more, &named].concat());
    relay.next("listening");
    judge(&address, "relay");
}

#[test]
fn curl_and_prometheus_own_checker_find_nothing_wrong_with_a_clients_page() {
    let (address, folder) = (free_address(), TempDir::new().unwrap());
    let network = folder.path().join("network.txt");
    fs::write(&network, NOBODY).unwrap();
    let data = folder.path().join("client");
    let files = [&network, &data].map(|path| path.to_str().unwrap());
    let words = ["client", "--json", "--listen", "127.0.0.1:0", "--metrics", &address];
    let named = ["--authorities", files[0], "--data", files[1]];
    let mut client = Program::start(&[&words[..], &named].concat());
    client.next("listening");
    judge(&address, "client");
}
