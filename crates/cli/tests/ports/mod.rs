//! Free ports of this machine, for programs that a test starts with a given port.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::net::{TcpListener, UdpSocket};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};

/// First port to try. It is below the kernel's ephemeral ports (32768 and more), so that no other
/// connection takes the port before the test's program binds it.
const FIRST: usize = 10_000;
const COUNT: usize = 22_000;

/// Returns ports that are free for TCP and UDP. This process returns no port twice.
pub fn free_ports<const WANTED: usize>() -> [u16; WANTED] {
    [(); WANTED].map(|()| free_port())
}

/// Returns a loopback address with a free port.
pub fn free_address() -> String {
    format!("127.0.0.1:{}", free_port())
}

fn free_port() -> u16 {
    static GIVEN: AtomicUsize = AtomicUsize::new(0);
    // Processes with consecutive IDs begin with different ports.
    let first = process::id() as usize * 100;
    let next = || first + GIVEN.fetch_add(1, Ordering::Relaxed);
    let mut ports = (0..COUNT).map(|_| u16::try_from(FIRST + next() % COUNT).unwrap());
    let is_free = |port: &u16| {
        let at = ("127.0.0.1", *port);
        TcpListener::bind(at).is_ok() && UdpSocket::bind(at).is_ok()
    };
    ports.find(is_free).expect("a port that is free")
}
