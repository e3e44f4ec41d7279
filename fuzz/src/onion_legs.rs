//! A relay whose client links circuits to sets, and sends any message on the legs, in any order.
//! Messages are LINK, its acknowledgement, SWITCH, those for resilient legs, EXTEND2 and cells to
//! forward where legs merge, and messages of streams. Nothing panics. The data that waits for
//! other legs, or that is stored for retransmission, is bounded. After a client has disconnected,
//! nothing is left of it; a set that may outlive its legs is closed after 20 s.

use std::net::SocketAddr;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_onion::handshake::Kind;
use anabranch_onion::wire::cell::Command;
use anabranch_onion::wire::conflux::{ConfluxLink, DesiredUx, SetNonce, put_switch};
use anabranch_onion::wire::extend::{Extend, Target};
use anabranch_onion::wire::message::{self, Begin, Message, RelayCommand};
use anabranch_onion::wire::resilient::{LegSwitch, Received, ResilientLink, put_gone};

use crate::input::{Input, any_command};
use crate::onion_relay::{IDS, MAX_CELLS, World, other_relay};

/// Minimum reorder budget of a set in bytes; the memory of this relay, 400 cells, is less.
const MAX_REORDERED: usize = 1 << 20;

/// Number of sets in a script.
const NONCES: usize = 2;

/// Checks a script of a client's messages.
pub fn check(input: &[u8]) {
    let mut world = play(input);
    world.closes();
    for seconds in [1, 30] {
        world.now += Duration::from_secs(seconds);
        world.collect();
    }
    let stats = world.relay.stats();
    assert_eq!((stats.sets, stats.legs, stats.reordered), (0, 0, 0), "nothing is left of the sets");
}

fn play(input: &[u8]) -> World {
    let mut input = Input::new(input);
    let mut world = World::new(other_relay());
    for id in IDS {
        world.hostile.create_leg(&mut world.relay, Time::ZERO, id);
    }
    world.collect();
    while !input.is_empty() && !world.hostile.gone {
        step(&mut world, &mut input);
        world.collect();
        let stats = world.relay.stats();
        assert!(stats.cells <= MAX_CELLS, "more cells wait than may");
        assert!(stats.reordered <= MAX_REORDERED, "{} bytes wait for other legs", stats.reordered);
        assert!(stats.legs <= IDS.len() && stats.sets <= NONCES, "a set without a nonce");
    }
    world
}

fn step(world: &mut World, input: &mut Input<'_>) {
    let leg = IDS[input.below(IDS.len())];
    match input.below(12) {
        0 => world.hostile.create_leg(&mut world.relay, world.now, leg),
        1 => send_message(world, leg, RelayCommand::CONFLUX_LINK, 0, &link(input)),
        2 => send_message(world, leg, RelayCommand::CONFLUX_LINKED_ACK, 0, &[]),
        3 => {
            let by = input.pick(&[0, 1, 2, 3, 31, 500, 1 << 20, u32::MAX]);
            send_message(world, leg, RelayCommand::CONFLUX_SWITCH, 0, &put_switch(by));
        }
        4 => message(world, input, leg),
        5 => world.answer_stream(input),
        6 => world.bytes(input),
        7 => world.now += Duration::from_millis(1 << input.below(16)),
        8 => send_message(world, leg, RelayCommand::ANCESTOR_LINK, 0, &link_ours(input)),
        9 => of_legs(world, input, leg),
        10 => {
            let message =
                Message { command: RelayCommand::EXTEND2, stream: 0, data: &beyond(input) };
            world.hostile.send_message(
                &mut world.relay,
                world.now,
                leg,
                Command::RELAY_EARLY,
                message,
            );
        }
        _ => {
            let command = if input.byte() == 1 { Command::RELAY_EARLY } else { Command::RELAY };
            for _ in 0..1 << input.below(8) {
                world.hostile.pass(&mut world.relay, world.now, leg, command);
            }
        }
    }
}

/// Returns the data of EXTEND2 for a set: to a relay that may or may not be reachable, or of any
/// length.
fn beyond(input: &mut Input<'_>) -> Vec<u8> {
    let target = Target {
        addresses: vec![SocketAddr::from(([192, 0, 2, 7], 9001))],
        rsa: [input.byte() & 1; 20],
        ed25519: None,
    };
    let mut data = Extend { target, kind: Kind::NTOR, handshake: vec![0; 84] }.write();
    if input.byte() == 7 {
        data.truncate(input.below(100));
    }
    data
}

/// Returns the data of LINK for one of two sets, as a new or an existing one, with a correct or
/// any number; or data of any length.
fn link(input: &mut Input<'_>) -> Vec<u8> {
    let nonce = SetNonce::from([input.byte() & 1; 32]);
    let [sent, received] = [(); 2].map(|()| input.pick(&[0, 0, 0, 1, 2, u64::MAX]));
    let ux = input.pick(&[DesiredUx::None, DesiredUx::MinLatency, DesiredUx::HighThroughput]);
    let mut data = ConfluxLink { nonce, sent, received, ux }.write().to_vec();
    if input.byte() == 7 {
        data.truncate(input.below(51));
    }
    data
}

/// Returns the data of LINK for a set with resilient legs, which merge here or continue from here.
fn link_ours(input: &mut Input<'_>) -> Vec<u8> {
    let nonce = SetNonce::from([input.byte() & 1; 32]);
    let (resumes, last) = (input.byte() == 1, input.byte());
    let (merged, serial) = (last & 0x80 != 0, u32::from(last & 3));
    let link = ResilientLink { merged, resumes, nonce, serial, dealing: String::new() };
    link.write().unwrap_or_default()
}

/// Sends a message for resilient legs.
fn of_legs(world: &mut World, input: &mut Input<'_>, leg: u32) {
    let number = input.pick(&[0, 1, 2, 3, 31, 500, 1 << 20, u32::MAX]);
    let is_set = input.byte() == 1;
    let (command, data) = match input.below(5) {
        0 => (RelayCommand::ANCESTOR_LINKED_ACK, Vec::new()),
        1 => {
            let switch = LegSwitch { singly: is_set, number };
            (RelayCommand::RESILIENT_SWITCH, switch.write().to_vec())
        }
        2 => {
            let received = Received { answers_probe: is_set, count: number };
            (RelayCommand::RESILIENT_RECEIVED, received.write().to_vec())
        }
        3 => (RelayCommand::RESILIENT_GONE, put_gone(number).to_vec()),
        _ => (RelayCommand::RESILIENT_PROBE, Vec::new()),
    };
    send_message(world, leg, command, 0, &data);
}

/// Sends a message of a stream or of the set, once or many times.
fn message(world: &mut World, input: &mut Input<'_>, leg: u32) {
    let command = any_command(input);
    let stream = input.pick(&[0, 1, 2, 3]);
    let length = usize::from(input.word()) % (message::DATA + 1);
    let data = match command {
        RelayCommand::BEGIN => {
            Begin { host: "192.0.2.1".to_owned(), port: 80, flags: 0 }.write().unwrap_or_default()
        }
        _ => input.take(length).to_vec(),
    };
    for _ in 0..1 << input.below(8) {
        send_message(world, leg, command, stream, &data);
    }
}

fn send_message(world: &mut World, leg: u32, command: RelayCommand, stream: u16, data: &[u8]) {
    let message = Message { command, stream, data };
    world.hostile.send_message(&mut world.relay, world.now, leg, Command::RELAY, message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_link_legs_and_let_messages_wait() {
        let linked = play(include_bytes!("../corpus/onion_legs/linked")).relay.stats();
        assert_eq!((linked.sets, linked.legs), (1, 2));
        let ours = play(include_bytes!("../corpus/onion_legs/ours")).relay.stats();
        assert_eq!((ours.sets, ours.legs, ours.violations), (1, 1, 0), "{ours:?}");
        let gap = play(include_bytes!("../corpus/onion_legs/gap")).relay.stats();
        assert!(gap.streams == 1 && gap.reordered > 0, "{gap:?}");
        let merged = play(include_bytes!("../corpus/onion_legs/merged")).relay.stats();
        assert_eq!((merged.sets, merged.legs, merged.violations), (1, 2, 0), "{merged:?}");
    }
}
