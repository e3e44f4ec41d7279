//! What a client's user sees: lines for people, or JSON lines for machines.

use std::io::Write;

use anabranch_drive::onion::client::Happening;
use anabranch_onion::Event;
use serde_json::{Value, json};

/// Prints a happening as a line, unless it is of no use to a person.
pub(super) fn plain(happening: &Happening, quiet: bool) {
    let line = match happening {
        Happening::Trouble(text) => return complain(text),
        Happening::Core(Event::Violation { violation, .. }) => {
            return complain(&format!("a relay broke the protocol: {violation}"));
        }
        Happening::Core(Event::OutOfMemory) => {
            return complain("cells filled the memory that they may have: a circuit was closed");
        }
        _ if quiet => return,
        Happening::Listening(at) => {
            let at: Vec<String> = at.iter().map(ToString::to_string).collect();
            format!("programs may come by SOCKS5 or HTTP CONNECT: {}", at.join(", "))
        }
        Happening::Ready(relays) => format!("ready: {relays} relays are known"),
        Happening::Built(..)
        | Happening::Closed(..)
        | Happening::Numbers(_)
        | Happening::Core(Event::LinkOpen { .. }) => return,
    };
    // Nobody may be there to read it.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Prints a happening as one JSON object on a line.
pub(super) fn json(happening: &Happening) {
    if let Some(value) = value(happening) {
        let mut out = std::io::stdout();
        let _ = writeln!(out, "{value}").and_then(|()| out.flush());
    }
}

fn value(happening: &Happening) -> Option<Value> {
    Some(match happening {
        Happening::Listening(at) => {
            json!({"event": "listening", "addresses": at.iter().map(ToString::to_string).collect::<Vec<_>>()})
        }
        Happening::Ready(relays) => json!({"event": "ready", "relays": relays}),
        Happening::Built(circuit, path, cgo) => {
            json!({"event": "circuit_built", "circuit": circuit, "path": path, "cgo": cgo})
        }
        Happening::Closed(circuit, cause) => {
            json!({"event": "circuit_closed", "circuit": circuit, "cause": cause})
        }
        Happening::Numbers([built, building, programs, links]) => json!({
            "event": "numbers", "circuits": built, "building": building,
            "programs": programs, "links": links,
        }),
        Happening::Core(Event::LinkOpen { .. }) => json!({"event": "link_open"}),
        Happening::Core(Event::OutOfMemory) => json!({"event": "out_of_memory"}),
        Happening::Core(Event::Violation { violation, .. }) => {
            json!({"event": "violation", "what": violation.to_string()})
        }
        Happening::Trouble(text) => json!({"event": "trouble", "what": text}),
    })
}

fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "anabranch: {text}");
}
