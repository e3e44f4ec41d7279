//! Files that describe emulated networks: accepted ones are consistent.

use std::collections::BTreeSet;

use anabranch_emulator::{Cable, Expect, Program, Topology};

use crate::input::check_message;

/// Checks that an accepted topology is consistent, and that an error is one plain line.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Topology::parse(text, "fuzz.toml") {
        Ok(topology) => is_sound(&topology),
        Err(error) => check_message(&error, text),
    }
}

fn is_sound(topology: &Topology) {
    assert!(!topology.hosts.is_empty(), "a network has a host");
    let hosts: BTreeSet<&str> = topology.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(hosts.len(), topology.hosts.len(), "two hosts of one name");
    let links: BTreeSet<&str> = topology.links.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(links.len(), topology.links.len(), "two links of one name");
    topology.links.iter().for_each(|link| can_be_laid(link, topology.hosts.len()));
    assert!(topology.events.is_sorted_by_key(|event| event.at), "{:?}", topology.events);
    let programs: BTreeSet<&str> = topology.programs.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(programs.len(), topology.programs.len(), "two programs of one name");
    topology.programs.iter().for_each(|program| can_be_run(program, topology.hosts.len()));
    assert!(topology.events.iter().all(|event| event.link < topology.links.len()));
}

fn can_be_laid(link: &Cable, hosts: usize) {
    let [one, other] = [link.ends[0].host, link.ends[1].host];
    assert!(one != other && one.max(other) < hosts, "{link:?}");
    assert!((1..16).contains(&link.name.len()) && !link.name.contains('/'), "{link:?}");
    assert!((1280..=65_535).contains(&link.mtu), "{link:?}");
    assert_eq!(link.mtu as usize, link.forward.mtu.max(link.back.mtu), "{link:?}");
}

fn can_be_run(program: &Program, hosts: usize) {
    assert!(program.host < hosts && !program.command.is_empty(), "{program:?}");
    assert!(!program.name.contains('/') && !program.name.starts_with('.'), "{program:?}");
    assert!(program.background || program.expect != Expect::Running, "{program:?}");
}
