//! Two ends of a set of circuits: any interleaving of legs is delivered in order. Whatever is
//! injected, the queue stays within its budget, and a closed set holds nothing.

use anabranch_multipath::Time;
use anabranch_onion::conflux::conformance::{Pair, Side};
use anabranch_onion::conflux::{
    Adaptive, CountedNumbering, ExplicitNumbering, Fate, LegScheduler, Numbering, Runs,
};
use anabranch_onion::wire::ancestors::{AncestorLink, DEALING};
use anabranch_onion::wire::conflux::{ConfluxLink, put_switch, read_switch};
use anabranch_onion::wire::message::RelayCommand;
use anabranch_onion::wire::resilient::{LegSwitch, Received, ResilientLink, put_gone, read_gone};

/// Checks an input. The first byte selects its form: the data of LINK or SWITCH messages, or steps
/// of two ends.
pub fn check(input: &[u8]) {
    let Some((&which, data)) = input.split_first() else { return };
    match which % 5 {
        0 => {
            messages(data);
            resilient_messages(data);
        }
        1 => play(data, || Box::new(CountedNumbering::new())),
        2 => play(data, || Box::new(ExplicitNumbering::new())),
        3 => play(data, || Box::new(Adaptive::new())),
        _ => play(data, || Box::new(Runs::new())),
    }
}

fn messages(data: &[u8]) {
    if let Some(link) = ConfluxLink::read(data) {
        assert_eq!(link.write(), data[..50]);
    }
    if let Some(by) = read_switch(data) {
        assert_eq!(put_switch(by), data[..4]);
    }
    if let Some(link) = AncestorLink::read(data) {
        assert!(link.dealing.len() <= DEALING);
        assert!(link.write().is_some_and(|written| data.starts_with(&written)));
        if let Some(dealing) = LegScheduler::read(&link.dealing, 8) {
            assert!(LegScheduler::read(&dealing.to_string(), 8).is_some(), "{dealing}");
        }
    }
}

/// Checks our own messages for sets with resilient legs.
fn resilient_messages(data: &[u8]) {
    if let Some(link) = ResilientLink::read(data) {
        assert!(link.dealing.len() <= DEALING);
        assert!(link.write().is_some_and(|written| data.starts_with(&written)));
    }
    if let Some(switch) = LegSwitch::read(data) {
        assert_eq!(switch.write(), data[..5]);
    }
    if let Some(received) = Received::read(data) {
        assert_eq!(received.write(), data[..5]);
    }
    if let Some(serial) = read_gone(data) {
        assert_eq!(put_gone(serial), data[..4]);
    }
}

/// Executes steps of two bytes: the action, and the leg. Stops when an end refuses a message,
/// because that would close the set, or the leg with its circuit.
fn play(steps: &[u8], make: fn() -> Box<dyn Numbering>) {
    let mut pair = Pair::new(make);
    let mut honest = true;
    for (step, bytes) in steps.as_chunks::<2>().0.iter().enumerate() {
        let now = Time::from_millis(step as u64);
        let [what, leg] = *bytes;
        let side = if what & 1 == 0 { Side::Client } else { Side::Exit };
        if pair.legs() == 0 || what % 16 >= 14 {
            _ = pair.launch(now);
            continue;
        }
        let wire = usize::from(leg) % pair.legs();
        match what % 16 {
            0..=4 => _ = pair.send(side, wire),
            5..=11 => {
                let Err(fault) = pair.deliver(now, side, wire) else { continue };
                assert!(!honest, "an honest end was refused: {fault}");
                return end(&mut pair);
            }
            12 => {
                let lost = [Side::Client, Side::Exit].map(|to| pair.under_way(to, wire) > 0);
                if pair.cut(wire, [lost[0] || lost[1]; 2]).contains(&Fate::Dies) {
                    return end(&mut pair);
                }
            }
            _ => {
                honest = false;
                pair.distrust();
                pair.inject(side, wire, RelayCommand::CONFLUX_SWITCH, &put_switch(what.into()));
            }
        }
        for side in [Side::Client, Side::Exit] {
            let queue = pair.end(side).queue();
            assert!(queue.bytes() <= queue.budget(), "more waits than may");
        }
    }
}

/// Closes both ends; neither may hold data afterwards.
fn end(pair: &mut Pair) {
    for side in [Side::Client, Side::Exit] {
        pair.end(side).die();
        assert_eq!(pair.end(side).bytes(), 0, "accounted for after teardown");
        assert!(pair.end(side).pop().is_none());
        assert!(pair.send(side, 0).is_err());
    }
}
