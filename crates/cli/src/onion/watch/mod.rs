//! Output for the operator of a relay or an authority: lines of text, or JSON objects with
//! `--json`. A relay on a terminal has a live view.

mod draw;
mod model;

use std::net::SocketAddr;
use std::sync::Arc;

use anabranch_multipath::Time;
use anabranch_onion::clocks::{ClockEvidence, Verdict};
use anabranch_onion::relay::Stats;
use anabranch_onion::wire::text::hex;
use anabranch_onion::{Event, LossyStats};
use anabranch_router::onion::relay::{Numbers, Watch};
use anabranch_router::onion::reload::{Names, Outcome, in_words};
use anabranch_router::onion::skew::Skew;
use anabranch_router::onion::{MptcpCounts, QuicCounts};
use serde_json::{Value, json};

pub(super) use self::model::{Limit, Model};
use super::log::Log;
use super::sets;
use crate::screen::has_terminal;
use crate::screen::live::LiveView;

/// Output of a running program: its log and, for a relay on a terminal, a live view.
pub(super) struct Screen {
    log: Arc<Log>,
    /// Live view of a relay, if there is one.
    live: LiveView<Model>,
    model: Option<Model>,
}

impl Screen {
    /// Creates a screen without a view.
    pub(super) fn of(log: Arc<Log>) -> Screen {
        let live = LiveView::new(log.journal().clone());
        Screen { log, live, model: None }
    }

    /// Creates a screen with a view of `model` if the output is text, not only warnings are
    /// wanted, and standard output is a terminal. Otherwise creates a screen without a view.
    pub(super) fn live(log: Arc<Log>, model: Model) -> Screen {
        let model = Some(model).filter(|_| log.prints_text() && has_terminal());
        Screen { model, ..Screen::of(log) }
    }

    /// Prints the event with the name `event` and the message `text`. The event has this name both
    /// in text output and in JSON output.
    pub(super) fn print(&mut self, event: &str, text: &str) {
        self.report(&event_object(event, text), &format!("{event}: {text}"));
    }

    /// Prints a warning.
    pub(super) fn warn(&mut self, text: &str) {
        self.trouble(&event_object("trouble", text), text);
    }

    fn report(&mut self, event: &Value, text: &str) {
        self.log.log_json(event);
        let now = self.log.now();
        match self.live.view() {
            Some(view) => view.change(|model| model.recent.keep(now, text.to_owned())),
            None => self.log.line(text),
        }
    }

    fn trouble(&mut self, event: &Value, text: &str) {
        let now = self.log.now();
        let Some(view) = self.live.view() else { return self.log.warn(event, text) };
        self.log.log_json(event);
        view.change(|model| model.recent.warn(now, text.to_owned()));
        view.keep(&format!("warning: {text}"));
    }
}

impl Watch for Screen {
    fn listening(&mut self, at: &[SocketAddr]) {
        let at: Vec<String> = at.iter().map(ToString::to_string).collect();
        self.print("listening", &at.join(", "));
        if let Some(model) = self.model.take() {
            self.live.begin(self.log.flush(), model);
        }
    }

    fn event(&mut self, _: Time, event: &Event) {
        match event {
            Event::LinkOpen { .. } => {}
            Event::Violation { neighbour, violation, .. } => {
                let by = neighbour
                    .rsa
                    .map_or_else(String::new, |rsa| format!(", by relay {}", hex(&rsa)));
                self.print("violation", &format!("{violation}{by}"));
            }
            Event::OutOfMemory => {
                let text = "queued data reached the limit of --memory, so the relay closed the \
                            circuit that had waited longest or held most data";
                self.print("out_of_memory", text)
            }
        }
    }

    fn numbers(&mut self, now: Time, numbers: &Numbers) {
        self.log.log_json(&object(numbers));
        if let Some(view) = self.live.view() {
            view.change(|model| model.renew(now, numbers));
            view.redraw();
        }
    }

    fn note(&mut self, text: &str) {
        self.print("note", text);
    }

    fn clock(&mut self, skew: &Skew) {
        match skew.is_trouble() {
            true => self.trouble(&clock(skew), &skew.to_string()),
            false => self.report(&clock(skew), &skew.to_string()),
        }
    }

    fn reloaded(&mut self, outcome: &Outcome) {
        match outcome {
            Ok(names) => self.report(&reloaded(names), &in_words(outcome)),
            Err(_) => self.warn(&in_words(outcome)),
        }
    }
}

/// Returns the JSON object of the event `event` with the message `text`.
fn event_object(event: &str, text: &str) -> Value {
    json!({"event": event, "what": text})
}

/// Returns the relay's counters as a JSON object.
fn object(numbers: &Numbers) -> Value {
    let Numbers { stats, links, transferred, refused, sets: fullest, tap, early, quic, .. } =
        numbers;
    let fullest: Vec<Value> = fullest.iter().map(sets::of_exit).collect();
    json!({
        "tap": tap.map(|tap| tap.to_string()), "unordered_links": stats.unordered_links,
        "early_cells": stats.early_cells, "early_records": early.opened,
        "early_failed": early.failed, "quic": quic.map(|counts| of_quic(stats, counts)),
        "per_circuit": numbers.dedicates_links.then(|| of_dedicated(stats)),
        "lossy": numbers.grants_lossy.then(|| of_lossy(numbers)),
        "mptcp": numbers.mptcp.map(of_mptcp),
        "event": "numbers", "links": links, "circuits": stats.circuits,
        "circuits_made": stats.circuits_made, "circuits_cgo": stats.circuits_cgo,
        "sets": stats.sets, "legs": stats.legs, "reordered": stats.reordered,
        "streams": stats.streams, "cells": stats.cells, "received": transferred[0],
        "sent": transferred[1], "relayed": stats.relayed, "violations": stats.violations,
        "out_of_memory": stats.out_of_memory, "padding_received": stats.padding[0],
        "padding_sent": stats.padding[1],
        "connections_refused": refused, "reordered_most": stats.most_reordered,
        "fullest_sets": fullest,
    })
}

/// Returns the counters of QUIC links as a JSON object.
fn of_quic(stats: &Stats, counts: QuicCounts) -> Value {
    let QuicCounts { endpoints, failed, .. } = counts;
    json!({
        "links": stats.quic_links, "circuits": stats.quic_circuits, "failed": failed,
        "broken": endpoints.broken, "retried": endpoints.retried, "refused": endpoints.refused,
        "moved": stats.moved_circuits,
    })
}

/// Returns the counters of lossy circuits, whose cells travel in datagrams, as a JSON object.
fn of_lossy(numbers: &Numbers) -> Value {
    let LossyStats { sent, received, refused, unknown, dropped, garbage } = numbers.stats.lossy;
    let of_links = numbers.quic.map_or(0, |counts| counts.lossy_dropped);
    json!({
        "circuits_made": numbers.stats.circuits_lossy, "received": received, "sent": sent,
        "dropped": dropped + of_links, "replayed": refused, "unknown": unknown,
        "garbage": garbage,
    })
}

/// Returns, as a JSON object, the counters of links that were opened for a single circuit.
fn of_dedicated(stats: &Stats) -> Value {
    json!({"links": stats.dedicated_links, "shared_circuits": stats.shared_circuits})
}

/// Returns the counters of MPTCP links as a JSON object.
fn of_mptcp(counts: MptcpCounts) -> Value {
    let MptcpCounts { links, subflows, fell_back } = counts;
    json!({"links": links, "subflows": subflows, "fell_back": fell_back})
}

/// Returns, as a JSON object, the result of comparing our clock with those of authorities or
/// relays: which clock is wrong, and by how many seconds.
pub(super) fn clock(skew: &Skew) -> Value {
    let Skew { verdict, name } = skew;
    match verdict {
        Verdict::Ours(ahead, ClockEvidence::Authority(_)) => {
            json!({"event": "clock", "whose": "ours", "ahead_s": ahead, "authority": name})
        }
        Verdict::Ours(ahead, ClockEvidence::Relays(count)) => {
            json!({"event": "clock", "whose": "ours", "ahead_s": ahead, "relays": count})
        }
        Verdict::Right => json!({"event": "clock", "whose": "ours", "ahead_s": 0}),
        Verdict::Theirs(_, ahead) => {
            json!({"event": "clock", "whose": "relay", "ahead_s": ahead, "relay": name})
        }
    }
}

/// Returns, as a JSON object, the names of the changed settings after the file was read again:
/// settings in force now, and settings whose change needs a restart.
pub(super) fn reloaded(names: &Names) -> Value {
    json!({"event": "reloaded", "changed": names.changed, "restart": names.restart})
}

#[cfg(test)]
mod tests {
    use super::model::tests::with_links;
    use super::*;
    use crate::screen::earlier::assert_readable;

    #[test]
    fn programs_that_read_earlier_lines_can_read_todays() {
        let verdict = Verdict::Theirs([7; 20], 3600);
        let skew = Skew { verdict, name: "middle4".to_owned() };
        let numbers = Numbers { dedicates_links: true, ..with_links(20) };
        let changed = Names { changed: vec!["bandwidth_rate"], restart: vec!["orport"] };
        let words = ["listening", "fingerprint", "note", "violation", "out_of_memory", "trouble"];
        let objects = words.map(|event| event_object(event, "what happened"));
        let mut lines: Vec<Value> = objects.to_vec();
        lines.extend([clock(&skew), reloaded(&changed), object(&numbers)]);
        lines.push(json!({"event": "lost", "lines": 3}));
        lines.iter_mut().for_each(|line| line["time"] = json!(20.0));
        let earlier = include_str!("../../../../../tests/formats/0e0b824b/events/relay.jsonl");
        assert_readable(earlier, &lines);
    }
}
