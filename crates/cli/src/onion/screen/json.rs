//! A client's events as JSON objects, one per line (`docs/formats.md`).

use anabranch_router::onion::client::{ClientEvent, RefusedRequest, Status};
use anabranch_router::onion::dirclient::FetchReport;
use anabranch_router::onion::reload::in_words;
use serde_json::{Value, json};

use super::super::log::Stamp;
use super::super::sets;
use super::super::watch::{clock, reloaded};
use crate::screen::lines::Lines;

/// Prints an event as a line of JSON, with the name and the time from `stamp`.
pub(super) fn report(out: &Lines, stamp: &Stamp, event: &ClientEvent) {
    let lost = |lines| stamp.on(json!({"event": "lost", "lines": lines}));
    out.print(&stamp.on(value(event)), lost);
}

/// Returns `event` as a JSON object.
pub(super) fn value(event: &ClientEvent) -> Value {
    match event {
        ClientEvent::Listening(at) => {
            let at: Vec<String> = at.iter().map(ToString::to_string).collect();
            json!({"event": "listening", "addresses": at})
        }
        ClientEvent::Ready(relays) => json!({"event": "ready", "relays": relays}),
        ClientEvent::Built(circuit, path, cgo) => {
            json!({"event": "circuit_built", "circuit": circuit, "path": path, "cgo": cgo})
        }
        ClientEvent::Linked(circuit, design, rtt) => json!({
            "event": "circuit_linked", "circuit": circuit, "multipath": design,
            "seconds": rtt.as_secs_f64(),
        }),
        ClientEvent::Closed(circuit, path, cause) => {
            json!({"event": "circuit_closed", "circuit": circuit, "path": path, "cause": cause})
        }
        ClientEvent::Status(status) => numbers(status),
        ClientEvent::LinkOpen(name) => json!({"event": "link_open", "relay": name}),
        ClientEvent::OutOfMemory => json!({"event": "out_of_memory"}),
        ClientEvent::Violation(name, violation) => {
            json!({"event": "violation", "relay": name, "what": violation.to_string()})
        }
        ClientEvent::Refused(refused) => {
            let RefusedRequest { port, why, .. } = refused;
            let what = refused.to_string();
            json!({"event": "refused", "port": port, "why": why.word(), "what": what})
        }
        ClientEvent::Fetched(FetchReport { what, from, by_circuit, is_good }) => json!({
            "event": "directory", "what": what, "from": from, "by_circuit": by_circuit,
            "good": is_good,
        }),
        ClientEvent::Clock(skew) => clock(skew),
        ClientEvent::Reloaded(Ok(names)) => reloaded(names),
        ClientEvent::Reloaded(outcome) => json!({"event": "trouble", "what": in_words(outcome)}),
        ClientEvent::Trouble(text) => json!({"event": "trouble", "what": text}),
    }
}

fn numbers(status: &Status) -> Value {
    let (built, building) = status.circuits();
    json!({
        "event": "numbers", "circuits": built, "building": building,
        "multipath": status.design.name(), "programs": status.programs,
        "streams": status.streams, "links": status.links, "received": status.wire[0],
        "sent": status.wire[1], "padding_received": status.padding[0],
        "padding_sent": status.padding[1], "memory": status.memory, "waiting": status.waiting[0],
        "tap": status.tap.map(|tap| tap.to_string()), "early_records": status.early.opened,
        "early_failed": status.early.failed, "quic_links": status.quic.map(|[links, _]| links),
        "quic_circuits": status.quic.map(|[_, circuits]| circuits),
        "reordered": status.waiting[1], "reordered_most": status.most_reordered,
        "sets": status.sets.iter().map(sets::of_client).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anabranch_onion::clocks::{ClockEvidence, Verdict};
    use anabranch_onion::conflux::ConfluxFault;
    use anabranch_onion::{CircuitFault, Violation};
    use anabranch_router::onion::client::RefusalReason;
    use anabranch_router::onion::reload::Names;
    use anabranch_router::onion::skew::Skew;

    use super::super::model::tests::{status, with_set};
    use super::*;
    use crate::screen::earlier::assert_readable;

    #[test]
    fn numbers_count_circuits_that_are_built_and_that_are_not() {
        let value = value(&ClientEvent::Status(Box::new(status(2, [1000, 100]))));
        let read = ["circuits", "building", "streams", "received", "padding_sent"]
            .map(|name| value[name].as_u64().unwrap());
        assert_eq!(read, [2, 1, 3, 1000, 4]);
    }

    #[test]
    fn a_set_has_its_queue_and_each_leg_its_relays_share_and_window() {
        let value = value(&ClientEvent::Status(Box::new(with_set(2, [1000, 100]))));
        let set = &value["sets"][0];
        assert_eq!((&set["set"], &set["schedule"]), (&json!(4), &json!("lowrtt --every 1p")));
        assert_eq!((&set["reordered"], &set["reordered_most"]), (&json!(12_000), &json!(40_000)));
        let [first, second] = [0, 1].map(|leg| &set["legs"][leg]);
        assert_eq!(first["relays"][0], json!({"nickname": "guard4", "fingerprint": "AA"}));
        assert_eq!((&first["received"], &first["share_received"]), (&json!(15_420), &json!(0.75)));
        assert_eq!((&first["rtt_ms"], &first["least_rtt_ms"]), (&json!(40.0), &json!(38.0)));
        assert_eq!((&first["window"], &first["inflight"]), (&json!(124), &json!(31)));
        let linking = (&second["leg"], &second["state"], &second["rtt_ms"]);
        assert_eq!(linking, (&json!(1), &json!("linking"), &Value::Null));
    }

    #[test]
    fn programs_that_read_earlier_lines_can_read_todays() {
        let fault = CircuitFault::from(ConfluxFault::Unreadable);
        let fetched = FetchReport {
            what: "consensus",
            from: Some("auth1".to_owned()),
            by_circuit: false,
            is_good: true,
        };
        let names = Names { changed: vec!["legs"], restart: vec![] };
        let verdict = Verdict::Ours(-300, ClockEvidence::Authority([7; 20]));
        let skew = Skew { verdict, name: "auth1".to_owned() };
        let path = vec!["guard4".to_owned()];
        let events = [
            ClientEvent::Listening(vec!["127.0.0.1:9050".parse().unwrap()]),
            ClientEvent::Fetched(fetched),
            ClientEvent::Ready(9),
            ClientEvent::LinkOpen("guard4".to_owned()),
            ClientEvent::Built(4, path.clone(), true),
            ClientEvent::Linked(4, "conflux", Duration::from_millis(40)),
            ClientEvent::Refused(RefusedRequest {
                port: Some(25),
                why: RefusalReason::Unanswered,
                cure: None,
            }),
            ClientEvent::Clock(skew),
            ClientEvent::Violation("guard4".to_owned(), Violation::Circuit(fault)),
            ClientEvent::OutOfMemory,
            ClientEvent::Reloaded(Ok(names)),
            ClientEvent::Trouble("no authority answers".to_owned()),
            ClientEvent::Closed(4, path, "the link is gone".to_owned()),
            ClientEvent::Status(Box::new(with_set(2, [1000, 100]))),
        ];
        let lost = json!({"event": "lost", "lines": 3});
        let objects = events.iter().map(value).chain([lost]);
        let stamp = Stamp::new(None);
        let lines = objects.map(|object| stamp.on(object));
        let lines: Vec<Value> = lines.map(|line| serde_json::from_str(&line).unwrap()).collect();
        let earlier = include_str!("../../../../../tests/formats/0e0b824b/events/client.jsonl");
        assert_readable(earlier, &lines);
    }
}
