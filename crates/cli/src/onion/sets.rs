//! Sets of circuits (circuits that carry the same streams together) as JSON objects
//! (`docs/formats.md`), for clients and relays.

use std::time::Duration;

use anabranch_onion::wire::cell::CELL;
use anabranch_onion::{LegNumbers, SetNumbers};
use anabranch_router::onion::client::{LegPath, RelayName, SetStatus};
use serde_json::{Value, json};

/// Returns a set of circuits as a JSON object, as the exit relay at their end sees it. The object
/// contains nothing that identifies the client.
pub(super) fn of_exit(seen: &SetNumbers) -> Value {
    let legs = seen.legs.iter().zip(seen.shares());
    let leg = |(leg, shares): (&LegNumbers, [f64; 2])| {
        let mut value = leg_value(leg, shares);
        value["cells_received"] = json!(leg.cells[0]);
        value["cells_sent"] = json!(leg.cells[1]);
        value
    };
    set_value(seen, legs.map(leg).collect())
}

/// Returns a set of circuits as a JSON object, as the client that built them sees it.
pub(super) fn of_client(set: &SetStatus) -> Value {
    let SetStatus { number, seen, places } = set;
    let legs = places.iter().zip(seen.legs.iter().zip(seen.shares()));
    let leg = |(place, (leg, shares)): (&LegPath, (&LegNumbers, [f64; 2]))| {
        let mut value = leg_value(leg, shares);
        value["leg"] = json!(place.leg);
        value["circuit"] = json!(leg.circuit);
        value["relays"] = place.relays.iter().map(relay).collect();
        value["received"] = json!(leg.cells[0] * CELL as u64);
        value["sent"] = json!(leg.cells[1] * CELL as u64);
        value
    };
    let mut value = set_value(seen, legs.map(leg).collect());
    value["set"] = json!(number);
    value
}

fn relay(RelayName { nickname, fingerprint }: &RelayName) -> Value {
    json!({"nickname": nickname, "fingerprint": fingerprint})
}

fn set_value(seen: &SetNumbers, legs: Vec<Value>) -> Value {
    json!({
        "design": seen.design, "schedule": seen.schedule, "streams": seen.streams,
        "reordered": seen.reordered, "reordered_most": seen.most_reordered,
        "reorder_limit": seen.budget, "kept": seen.kept, "resting": seen.paused, "legs": legs,
    })
}

fn leg_value(leg: &LegNumbers, [received, sent]: [f64; 2]) -> Value {
    let ms = |rtt: Option<Duration>| rtt.map(|rtt| rtt.as_secs_f64() * 1e3);
    json!({
        "state": if leg.is_linked { "linked" } else { "linking" }, "share_received": received,
        "share_sent": sent, "rtt_ms": ms(leg.rtt), "least_rtt_ms": ms(leg.least_rtt),
        "window": leg.window, "inflight": leg.inflight, "queued": leg.queued,
    })
}
