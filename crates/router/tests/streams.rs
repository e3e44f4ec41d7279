//! Our transport as a library: streams that are dialled, dropped and cut.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{ErrorKind, Read, Write};
use std::thread;
use std::time::Duration;

use anabranch_os::entropy::generator;
use anabranch_router::pt::{ListenSettings, Listener, ServerKey, Stream, dial, listen};

fn settings() -> ListenSettings {
    let key = ServerKey::generate(&mut generator().unwrap());
    ListenSettings::new("127.0.0.1:0".parse().unwrap(), key)
}

fn server(profile: &str) -> Listener {
    let site = Some("127.0.0.1:9".parse().unwrap());
    let settings = ListenSettings { profile: profile.parse().unwrap(), site, ..settings() };
    listen(settings, |_| ()).unwrap()
}

/// Returns `length` bytes that count upwards, so that no two pieces are equal.
fn counted(length: usize) -> Vec<u8> {
    (0u64..).flat_map(u64::to_le_bytes).take(length).collect()
}

fn patient(stream: &Stream) -> &Stream {
    stream.socket().set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

#[test]
fn streams_that_are_dialled_come_whole_both_ways_and_end_in_order() {
    for profile in ["nosteg", "http-opaque"] {
        let server = server(profile);
        for length in [0, 1, 3_000_000] {
            let near = dial(server.bridge()).unwrap();
            let (far, from) = server.accept().unwrap();
            assert!(from.is_some_and(|from| from.ip().is_loopback()));
            let (up, down) = (counted(length), counted(length / 2));
            thread::scope(|scope| {
                for (end, sent, wanted) in [(&near, &up, &down), (&far, &down, &up)] {
                    scope.spawn(move || {
                        { end }.write_all(sent).unwrap();
                        end.finish().unwrap();
                    });
                    scope.spawn(move || {
                        let mut received = Vec::new();
                        patient(end).read_to_end(&mut received).unwrap();
                        assert!(received == *wanted, "{profile}: {} of {length}", received.len());
                    });
                }
            });
        }
    }
}

#[test]
fn what_was_written_goes_though_its_stream_is_dropped() {
    let (server, bytes) = (server("nosteg"), counted(2_000_000));
    let mut near = dial(server.bridge()).unwrap();
    let (far, _) = server.accept().unwrap();
    let mut received = Vec::new();
    thread::scope(|scope| {
        let bytes = &bytes;
        // The stream is dropped at once. The sockets and the link still hold data that are not
        // delivered.
        scope.spawn(move || near.write_all(bytes).unwrap());
        patient(&far).read_to_end(&mut received).unwrap();
    });
    assert!(received == bytes, "{} of {} bytes came", received.len(), bytes.len());
}

#[test]
fn a_cut_passes_for_no_end() {
    let server = server("nosteg");
    let _near = dial(server.bridge()).unwrap();
    let (far, _) = server.accept().unwrap();
    drop(server);
    let error = patient(&far).read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_profile_that_lacks_what_it_wants_is_refused() {
    let settings = ListenSettings { profile: "http-text".parse().unwrap(), ..settings() };
    let error = listen(settings, |_| ()).map(drop).unwrap_err().to_string();
    assert!(error.contains("http-text needs a web server"), "{error}");
}
