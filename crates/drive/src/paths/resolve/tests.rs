//! On loopback, which every machine has; the rest in `crates/cli/tests/bad_input.rs`.

use super::*;

fn specs(texts: &[&str]) -> Vec<PathSpec> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn resolved(texts: &[&str], server: &str) -> Result<Vec<Egress>, PathError> {
    resolve(&specs(texts), &[server.parse().unwrap()], None, false)
}

fn error(texts: &[&str], server: &str) -> String {
    resolved(texts, server).unwrap_err().to_string()
}

#[test]
fn loopback_addresses_that_are_not_listed_are_paths_of_their_own() {
    let ways =
        resolved(&["a=addr:127.0.0.2", "b=addr:127.0.0.3", "c=ports:4"], "127.0.0.1:9").unwrap();
    assert!(ways.iter().all(|way| way.device.as_deref() == Some("lo") && way.mtu.unwrap() > 1500));
    assert_eq!(ways[1].source, Some("127.0.0.3".parse().unwrap()));
    assert_eq!((ways[2].source, ways[2].ports), (None, 4));
    assert!(ways.iter().all(|way| way.note.is_none()));
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    assert_eq!(
        error(&["a=if:nowhere0"], "127.0.0.1:9"),
        "path 'a': there is no interface 'nowhere0'"
    );
}

#[test]
fn an_address_of_another_machine_is_refused() {
    let text = error(&["a=addr:192.0.2.7"], "127.0.0.1:9");
    assert_eq!(text, "path 'a': 192.0.2.7 is no address of this machine");
}

#[test]
fn source_and_server_must_be_of_one_family() {
    let text = error(&["a=addr:127.0.0.2"], "[::1]:9");
    assert_eq!(
        text,
        "path 'a': 127.0.0.2 cannot reach the server ::1: one is IPv4, the other IPv6"
    );
}

#[test]
fn the_next_address_of_the_server_is_tried_where_the_first_does_not_suit() {
    let servers = ["[::1]:9".parse().unwrap(), "127.0.0.1:9".parse().unwrap()];
    let ways = resolve(&specs(&["a=addr:127.0.0.2"]), &servers, None, false).unwrap();
    assert_eq!(ways[0].server, servers[1]);
}

#[test]
fn one_egress_for_two_paths_is_refused_unless_asked_for() {
    let same = ["a=addr:127.0.0.2", "b=if:lo,addr:127.0.0.2"];
    assert!(
        error(&same, "127.0.0.1:9").starts_with("path 'b': leaves by the same interface"),
        "two names, one interface, one address"
    );
    let server = "127.0.0.1:9".parse().unwrap();
    assert_eq!(resolve(&specs(&same), &[server], None, true).unwrap().len(), 2);
    assert!(resolved(&["a=ports:2", "b=ports:3"], "127.0.0.1:9").is_err(), "ports count too");
}

#[test]
fn a_link_local_server_needs_an_interface() {
    assert!(error(&["a=ports:1"], "[fe80::1]:9").contains("write the server's interface after it"));
    assert!(error(&["a=if:lo"], "[fe80::1%4000]:9").contains("not on the link of 'lo'"));
}
