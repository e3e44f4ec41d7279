//! One JSON object a line (`docs/formats.md`).

use anabranch_drive::clock::Clock;
use anabranch_drive::onion::client::{Happening, Refused, Status};
use anabranch_drive::onion::dirclient::Fetched;
use anabranch_drive::onion::reload::in_words;
use anabranch_onion::Event;
use serde_json::{Value, json};

use super::super::log::stamped;
use super::super::relay::{clock, reloaded};
use crate::screen::lines::Lines;

/// Tells it.
pub(super) fn tell(out: &Lines, clock: &Clock, happening: &Happening) {
    let lost = |lines| stamped(clock, json!({"event": "lost", "lines": lines}));
    out.say(&stamped(clock, value(happening)), lost);
}

/// The same as an object.
pub(super) fn value(happening: &Happening) -> Value {
    match happening {
        Happening::Listening(at) => {
            let at: Vec<String> = at.iter().map(ToString::to_string).collect();
            json!({"event": "listening", "addresses": at})
        }
        Happening::Ready(relays) => json!({"event": "ready", "relays": relays}),
        Happening::Built(circuit, path, cgo) => {
            json!({"event": "circuit_built", "circuit": circuit, "path": path, "cgo": cgo})
        }
        Happening::Closed(circuit, cause) => {
            json!({"event": "circuit_closed", "circuit": circuit, "cause": cause})
        }
        Happening::Status(status) => numbers(status),
        Happening::Core(Event::LinkOpen { .. }) => json!({"event": "link_open"}),
        Happening::Core(Event::OutOfMemory) => json!({"event": "out_of_memory"}),
        Happening::Core(Event::Violation { violation, .. }) => {
            json!({"event": "violation", "what": violation.to_string()})
        }
        Happening::Refused(refused) => {
            let Refused { port, why, .. } = refused;
            let what = refused.to_string();
            json!({"event": "refused", "port": port, "why": why.word(), "what": what})
        }
        Happening::Fetched(Fetched { what, from, by_circuit, is_good }) => json!({
            "event": "directory", "what": what, "from": from, "by_circuit": by_circuit,
            "good": is_good,
        }),
        Happening::Clock(skew) => clock(skew),
        Happening::Reloaded(Ok(names)) => reloaded(names),
        Happening::Reloaded(outcome) => json!({"event": "trouble", "what": in_words(outcome)}),
        Happening::Trouble(text) => json!({"event": "trouble", "what": text}),
    }
}

fn numbers(status: &Status) -> Value {
    let (built, building) = status.circuits();
    json!({
        "event": "numbers", "circuits": built, "building": building, "programs": status.programs,
        "streams": status.streams, "links": status.links, "received": status.wire[0],
        "sent": status.wire[1], "padding_received": status.padding[0],
        "padding_sent": status.padding[1],
    })
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::status;
    use super::*;

    #[test]
    fn numbers_count_circuits_that_are_built_and_that_are_not() {
        let value = value(&Happening::Status(Box::new(status(2, [1000, 100]))));
        let read = ["circuits", "building", "streams", "received", "padding_sent"]
            .map(|name| value[name].as_u64().unwrap());
        assert_eq!(read, [2, 1, 3, 1000, 4]);
    }
}
