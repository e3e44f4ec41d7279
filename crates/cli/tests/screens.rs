//! Tests of a splitter's output for programs and people, and of its end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod running;

use std::io::{BufRead, Read};
use std::net::UdpSocket;

use running::{PATIENCE, Running};

#[test]
fn a_session_is_told_from_its_opening_to_the_summary() {
    let mut running = Running::start();
    let about = running.next("listening");
    assert_eq!((&about["seed"], &about["paths"][1]["source"]), (&7.into(), &"127.0.0.3".into()));
    let splitter = about["listen"].as_str().unwrap().to_owned();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    for _ in 0..10 {
        running.exchange(&client, &splitter);
    }
    let address = client.local_addr().unwrap().to_string();
    assert_eq!(running.next("opened")["client"], address);
    let session = running.next("session");
    assert_eq!((&session["client"], &session["protocol"]), (&address.into(), &"other".into()));
    assert_eq!(running.next("stats")["sessions"], 1);
    running.interrupt();
    let closed = running.next("closed");
    assert_eq!(closed["reason"], "shutdown");
    let summary = running.next("summary");
    for path in summary["paths"].as_array().unwrap() {
        assert_eq!((&path["up_packets"], &path["down_packets"]), (&5.into(), &5.into()), "{path}");
    }
    let (status, errors) = running.ended();
    assert_eq!((status.code(), errors.as_str()), (Some(0), ""));
}

#[test]
fn a_reader_who_leaves_ends_the_run_quietly() {
    let mut running = Running::start();
    running.next("listening");
    // We close our end, so the next line fails with EPIPE.
    running.lines = None;
    let (status, errors) = running.ended();
    assert_eq!((status.code(), errors.as_str()), (Some(0), ""));
}

/// The output must never contain payload. This run prints all events for people.
#[test]
fn nothing_of_the_payload_is_ever_told() {
    let mut running = Running::with("127.0.0.1", &["a=addr:127.0.0.2"], &[]);
    let mut output = String::new();
    running.lines.as_mut().unwrap().read_line(&mut output).unwrap();
    let listen = output.split_whitespace().find(|word| word.starts_with("127.0.0.1:")).unwrap();
    let listen = listen.trim_end_matches([',', ':', ';']).to_owned();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    running.exchange(&client, &listen);
    running.interrupt();
    let (_, errors) = running.ended();
    running.lines.as_mut().unwrap().read_to_string(&mut output).unwrap();
    assert!(output.contains("session") && output.contains("ended"), "the run was told: {output}");
    let hex: String = "nothing known".bytes().map(|byte| format!("{byte:02x}")).collect();
    for secret in ["nothing known", &hex] {
        assert!(!output.contains(secret) && !errors.contains(secret), "{output}{errors}");
    }
}
