//! A TLS link with arbitrary bytes: no panic, no plain data that was not written, and a fault ends
//! the link.

use std::sync::OnceLock;

use anabranch_links::{Context, Link, State, StreamLink, Tls};
use anabranch_multipath::Time;

use crate::input::Input;

/// Returns a context that is created once, because generating a key takes longer than the rest of
/// a run.
fn context() -> &'static Context {
    static CONTEXT: OnceLock<Context> = OnceLock::new();
    CONTEXT.get_or_init(|| Context::new(1_800_000_000).expect("TLS can be set up"))
}

/// Checks an input. The first byte selects whether a handshake precedes it, and which side is
/// attacked; the rest is data from the network, in pieces.
pub fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (finished, attack_client) = (input.coin(), input.coin());
    let mut client = context().connect().expect("a fresh link");
    let mut server = context().accept().expect("a fresh link");
    if finished {
        handshake(&mut client, &mut server);
    }
    let mut victim = if attack_client { client } else { server };
    while !input.is_empty() {
        let length = 1 + input.below(256);
        let faulty = victim.receive(Time::ZERO, input.take(length)).is_err();
        assert!(!faulty || victim.state() == State::Ended, "a fault ends the link");
        victim.transmit(Time::ZERO, &mut Vec::new());
    }
    // Nobody without the keys can create a record that decrypts.
    assert_eq!(victim.read(&mut Vec::new()), Ok(0), "plain bytes out of nothing");
}

fn handshake(client: &mut Tls, server: &mut Tls) {
    for _ in 0..4 {
        let mut wire = Vec::new();
        client.transmit(Time::ZERO, &mut wire);
        server.receive(Time::ZERO, &wire).expect("an honest client");
        wire.clear();
        server.transmit(Time::ZERO, &mut wire);
        client.receive(Time::ZERO, &wire).expect("an honest server");
    }
    assert_eq!((client.state(), server.state()), (State::Open, State::Open));
}
