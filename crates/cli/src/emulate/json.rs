//! JSON interface of an emulation for other programs, as specified in `docs/emulator.md`.
//!
//! ```json
//! {"event":"ready","hosts":{"client":{"netns":"/proc/7/fd/3"}},"links":["p0"],"tcp":"cubic"}
//! {"set":"p0","loss":0.5,"delay_back":"30ms"}      answered by {"event":"set","link":"p0"}
//! {"get":"stats"}                                  answered by {"event":"stats","links":{...}}
//! {"event":"program","program":"load","state":"ended","code":0,"signal":null,"expected":true}
//! ```
//!
//! The answer to an invalid command is `{"event":"error","message":...}`. Such a command changes
//! nothing.

use std::io::{self, Write};

use anabranch_emulator::{EDIT_KEYS, Edit, Network, Notice, Program, ProgramEnd};
use anabranch_os::toml_keys;
use serde_json::{Map, Value, json};

use super::user_ns;
use super::work::{Interface, sentence};
use crate::failure::Failure;

/// JSON interface of an emulation, for other programs: prints events as JSON lines, and reads
/// commands from standard input.
pub(super) struct Json {
    /// Whether the user is not root, so that the hosts are in a user namespace that this program
    /// has created.
    pub(super) rootless: bool,
}

impl Interface for Json {
    fn listens(&self) -> bool {
        true
    }

    fn ready(&mut self, network: &Network) -> Result<(), Failure> {
        let hosts: Map<String, Value> = network
            .hosts()
            .map(|(name, namespace)| (name.to_owned(), json!({"netns": namespace.path()})))
            .collect();
        let links: Vec<String> = network.stats().into_keys().collect();
        let mut event = json!({
            "event": "ready",
            "hosts": hosts,
            "links": links,
            "tcp": network.congestion_control(),
        });
        if self.rootless {
            event["userns"] = user_ns().into();
        }
        print(&event)
    }

    fn execute(&mut self, network: &Network, line: &str) -> Result<(), Failure> {
        if line.trim().is_empty() {
            return Ok(());
        }
        let error = |message| json!({"event": "error", "message": message});
        print(&answer(network, line).unwrap_or_else(error))
    }

    fn show(&mut self, program: &Program, notice: &Notice) -> Result<(), Failure> {
        let name = &program.name;
        print(&match notice {
            Notice::Started(_, pid) => {
                json!({"event": "program", "program": name, "state": "started", "pid": pid})
            }
            Notice::Line { error, text, .. } => {
                let stream = if *error { "stderr" } else { "stdout" };
                json!({"event": "output", "program": name, "stream": stream, "line": text})
            }
            Notice::Ended(_, ended) => {
                let mut event = outcome(program, ended);
                (event["event"], event["program"]) = ("program".into(), name.as_str().into());
                event
            }
        })
    }

    fn end(&mut self, network: &Network, ends: &[(&Program, ProgramEnd)]) -> Result<(), Failure> {
        let mut event = stats("end", network);
        let ends =
            ends.iter().map(|(program, ended)| (program.name.clone(), outcome(program, ended)));
        event["programs"] = ends.collect::<Map<String, Value>>().into();
        print(&event)
    }
}

/// Prints `event` as one line, and flushes the output. If standard output is closed, returns an
/// error, which ends the program.
fn print(event: &Value) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{event}").and_then(|()| out.flush()).map_err(Failure::trouble)
}

fn stats(event: &str, network: &Network) -> Value {
    json!({"event": event, "links": network.stats()})
}

fn outcome(program: &Program, ended: &ProgramEnd) -> Value {
    let (state, code, signal) = match ended {
        ProgramEnd::Code(code) => ("ended", Some(code), None),
        ProgramEnd::Signal(signal) => ("ended", None, Some(signal)),
        ProgramEnd::Stopped => ("stopped", None, None),
        ProgramEnd::NotStarted => ("not-started", None, None),
        ProgramEnd::Failed(_) => ("failed", None, None),
    };
    let expected = program.is_expected(ended);
    let mut value = json!({"state": state, "code": code, "signal": signal, "expected": expected});
    if let ProgramEnd::Failed(_) = ended {
        value["message"] = sentence(program, ended).into();
    }
    value
}

/// Executes the command in `line`. Returns the answer to print, or the error message.
fn answer(network: &Network, line: &str) -> Result<Value, String> {
    let mut command: Map<String, Value> = serde_json::from_str(line).map_err(|error| {
        format!(
            "a line on standard input is not a command, because it is not a JSON object: {}",
            toml_keys::in_plain_words(&error.to_string())
        )
    })?;
    match (command.remove("get"), command.remove("set")) {
        (Some(Value::String(what)), None) if what == "stats" => Ok(stats("stats", network)),
        (None, Some(Value::String(link))) => set(network, link, command),
        _ => Err(r#"a command is {"get":"stats"} or {"set":"LINK", ...}"#.to_owned()),
    }
}

fn set(network: &Network, link: String, properties: Map<String, Value>) -> Result<Value, String> {
    if let Some(key) = properties.keys().find(|key| !EDIT_KEYS.contains(&key.as_str())) {
        return Err(format!(
            "unknown key `{key}`{}",
            toml_keys::hint(key, EDIT_KEYS.iter().copied())
        ));
    }
    let edit: Edit = serde_json::from_value(properties.into())
        .map_err(|error| toml_keys::in_plain_words(&error.to_string()))?;
    network.change(&link, &edit).map_err(|error| error.to_string())?;
    Ok(json!({"event": "set", "link": link}))
}
