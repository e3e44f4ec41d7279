//! `anabranch emulate`: an emulated network on this machine.
//!
//! With `--json` it speaks JSON lines. It prints `ready` (hosts and how to enter them), takes `set`
//! and `get`
//! lines on standard input, and prints `end` with the final counters:
//!
//! ```json
//! {"event":"ready","hosts":{"client":{"netns":"/proc/7/fd/3"}},"links":["p0"],"tcp":"cubic"}
//! {"set":"p0","loss":0.5,"delay_back":"30ms"}      answered by {"event":"set","link":"p0"}
//! {"get":"stats"}                                  answered by {"event":"stats","links":{...}}
//! ```
//!
//! `tcp` is the congestion control of the hosts' sockets that go by no emulated link (inside a
//! tunnel, say).
//! Those that do always use cubic.
//!
//! A line that it does not understand is answered by `{"event":"error","message":...}` and changes
//! nothing.

use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::{fmt, fs, thread};

use anabranch_drive::emulate::{self, EDIT_KEYS, Edit, Network, Topology};
use anabranch_drive::toml_keys;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// Emulate a network on this machine: hosts, links with rate, delay, loss and queue
///
/// Hosts are network namespaces without names; enter one with `nsenter --net=PATH`. The
/// network ends, and leaves nothing, on SIGINT, SIGTERM, the end of standard input (with --json),
/// or when this
/// process ends in any other way.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct EmulateArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// The network, in TOML: [[host]] and [[link]] tables
    #[arg(required = true, value_name = "TOPOLOGY.toml")]
    topology: Option<PathBuf>,
    /// Speak JSON lines: events on standard output, commands on standard input
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Action {
    /// Say what this machine lacks for emulated networks
    Check,
}

impl EmulateArgs {
    /// Runs the network until it is told to end.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let rootless = emulate::enter_user_namespace_if_needed();
        match (self.action, self.topology) {
            (Some(Action::Check), _) => check(),
            (None, Some(file)) => run(&file, self.json, rootless),
            (None, None) => Err(Failure::misuse("no topology given")),
        }
    }
}

fn check() -> Result<(), Failure> {
    let needs = emulate::check();
    for need in &needs {
        match &need.missing {
            None => say(format_args!("ok       {}", need.what)),
            Some(why) => say(format_args!("missing  {}: {why}", need.what)),
        }
    }
    let missing = needs.iter().filter(|need| need.missing.is_some()).count();
    if missing == 0 {
        Ok(())
    } else {
        Err(Failure::trouble(format!("{missing} of these are missing")))
    }
}

fn run(file: &Path, json: bool, rootless: bool) -> Result<(), Failure> {
    let name = file.display().to_string();
    let text = fs::read_to_string(file).map_err(|e| Failure::misuse(format!("{name}: {e}")))?;
    let topology = Topology::parse(&text, &name).map_err(Failure::misuse)?;
    let (sender, inputs) = mpsc::channel();
    // Before the network, so that no signal can meet it unprepared.
    watch_signals(sender.clone()).map_err(Failure::trouble)?;
    let network = Network::start(&topology).map_err(Failure::misuse)?;
    if json {
        thread::spawn(move || read_lines(&sender));
        serve(&Session { network, rootless }, &inputs)
    } else {
        wait_for_end(&network, rootless, &inputs)
    }
}

/// What makes the program act.
enum Input {
    Line(String),
    End,
}

fn watch_signals(sender: Sender<Input>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::spawn(move || {
        // Sending fails only when the program is ending anyway.
        signals.forever().for_each(|_| drop(sender.send(Input::End)));
    });
    Ok(())
}

fn read_lines(sender: &Sender<Input>) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        if sender.send(Input::Line(line)).is_err() {
            return;
        }
    }
    let _ = sender.send(Input::End);
}

fn wait_for_end(
    network: &Network,
    rootless: bool,
    inputs: &Receiver<Input>,
) -> Result<(), Failure> {
    let user = if rootless {
        format!(" --user={} --preserve-credentials", user_ns())
    } else {
        String::new()
    };
    for (name, namespace) in network.hosts() {
        say(format_args!("{name}: nsenter{user} --net={}", namespace.path().display()));
    }
    say(format_args!("The network is up; Ctrl-C ends it."));
    // An error means that every sender is gone: the same as an end.
    let _ = inputs.recv();
    for (name, link) in network.stats() {
        for (way, stats) in [("forward", link.forward), ("back", link.back)] {
            let (units, delivered) = (stats.units, stats.delivered.units);
            say(format_args!("{name} {way}: {units} packets entered, {delivered} arrived"));
        }
    }
    Ok(())
}

/// A network that is controlled by JSON lines.
struct Session {
    network: Network,
    rootless: bool,
}

fn serve(session: &Session, inputs: &Receiver<Input>) -> Result<(), Failure> {
    print(&session.ready())?;
    while let Ok(Input::Line(line)) = inputs.recv() {
        if line.trim().is_empty() {
            continue;
        }
        let answer = session.obey(&line);
        print(&answer.unwrap_or_else(|message| json!({"event": "error", "message": message})))?;
    }
    print(&session.stats("end"))
}

/// One line, at once. A reader that went away ends the program.
fn print(event: &Value) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{event}").and_then(|()| out.flush()).map_err(Failure::trouble)
}

impl Session {
    fn ready(&self) -> Value {
        let hosts: Map<String, Value> = self
            .network
            .hosts()
            .map(|(name, namespace)| (name.to_owned(), json!({"netns": namespace.path()})))
            .collect();
        let links: Vec<String> = self.network.stats().into_keys().collect();
        let mut event = json!({
            "event": "ready",
            "hosts": hosts,
            "links": links,
            "tcp": self.network.congestion_control(),
        });
        if self.rootless {
            event["userns"] = user_ns().into();
        }
        event
    }

    fn stats(&self, event: &str) -> Value {
        json!({"event": event, "links": self.network.stats()})
    }

    /// Does what a line says; the answer to print, or what is wrong with it.
    fn obey(&self, line: &str) -> Result<Value, String> {
        let mut command: Map<String, Value> =
            serde_json::from_str(line).map_err(|error| format!("not a JSON object: {error}"))?;
        match (command.remove("get"), command.remove("set")) {
            (Some(Value::String(what)), None) if what == "stats" => Ok(self.stats("stats")),
            (None, Some(Value::String(link))) => self.set(link, command),
            _ => Err(r#"a command is {"get":"stats"} or {"set":"LINK", ...}"#.to_owned()),
        }
    }

    fn set(&self, link: String, properties: Map<String, Value>) -> Result<Value, String> {
        if let Some(key) = properties.keys().find(|key| !EDIT_KEYS.contains(&key.as_str())) {
            return Err(format!("unknown key `{key}`{}", toml_keys::hint(key, EDIT_KEYS)));
        }
        let edit: Edit = serde_json::from_value(properties.into()).map_err(|e| e.to_string())?;
        self.network.change(&link, &edit).map_err(|error| error.to_string())?;
        Ok(json!({"event": "set", "link": link}))
    }
}

fn user_ns() -> String {
    format!("/proc/{}/ns/user", std::process::id())
}

/// A line on standard output. Nobody may be there to read it: that is no reason to panic.
fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{line}");
}
