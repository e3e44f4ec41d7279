//! What Prometheus reads of a running splitter, against what the splitter itself tells.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod running;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;

use running::{PATIENCE, Running};
use serde_json::Value;

/// An address that is free now.
fn free() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// The value of each series.
fn scrape(address: &str) -> BTreeMap<String, f64> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("openmetrics-text"), "{head}");
    assert!(!page.contains("127.0.0."), "no address of anybody: {page}");
    let series = page.lines().filter(|line| !line.starts_with('#'));
    let value = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    series.map(value).collect()
}

#[test]
fn a_scrape_says_what_the_events_say() {
    let address = free();
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
    // All is quiet now, so what is told next still holds when it is read.
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
            let told: f64 = path[member].as_f64().unwrap();
            assert!(told > 0.0, "{member}");
            assert_eq!(page[&format!("anabranch_{series}")], told, "{series}");
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
