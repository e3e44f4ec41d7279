//! `anabranch status`: lists the running instances of this program, each with the status that it
//! publishes.

pub(crate) mod pace;

use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anabranch_os::status::{self, StatusSocket};
use anabranch_pages::figures::scaled;
use anabranch_pages::legible;
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::text::{percent, table};

/// Names of the events of onion programs (client, relay, authority) that are published. For each
/// name, the status has the latest event.
#[cfg(feature = "onion")]
const KEPT: [&str; 9] = [
    "listening",
    "fingerprint",
    "network",
    "ready",
    "consensus",
    "numbers",
    "clock",
    "refused",
    "trouble",
];

/// List the running Anabranch programs: splitters, far ends, clients, relays and authorities.
///
/// Each program publishes its status at a socket in the folder XDG_RUNTIME_DIR; for root's
/// programs the folder is /run/anabranch. So you see only your own programs. Root sees the
/// programs of all users and services.
///
/// If NAME is given, the exit code is 1 if no running program has this name or process ID.
#[derive(clap::Args)]
pub(crate) struct StatusArgs {
    /// Show only the program with this name (its option --name) or with this process ID.
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Print JSON: one line with one object for each program (docs/formats.md).
    #[arg(long)]
    json: bool,
}

impl StatusArgs {
    /// Queries all instances, and prints their status.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let texts = status::ask().map_err(Failure::trouble)?;
        let runs = texts.iter().filter_map(|text| serde_json::from_str::<Value>(text).ok());
        let runs: Vec<Value> = runs.filter(|run| is_wanted(run, self.name.as_deref())).collect();
        if let Some(name) = self.name.filter(|_| runs.is_empty()) {
            return Err(Failure::trouble(format!(
                "no running anabranch program has the name or process ID '{name}': run 'anabranch \
                 status' to list the running programs"
            )));
        }
        let runs = runs.into_iter();
        let fields: Vec<String> =
            runs.map(|run| if self.json { run.to_string() } else { words(&run, now()) }).collect();
        let text = match (fields.is_empty(), self.json) {
            (true, true) => return Ok(()),
            (true, false) => "no anabranch programs of this user are running (root sees the \
                              programs of all users)"
                .to_owned(),
            (false, _) => fields.join("\n"),
        };
        writeln!(out, "{text}").or_else(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Ok(()),
            _ => Err(Failure::trouble(error)),
        })
    }
}

/// Returns whether the running program `run` has the name `name`. Every program is accepted if
/// `name` is `None`.
fn is_wanted(run: &Value, name: Option<&str>) -> bool {
    name.is_none_or(|name| {
        run["name"] == name || name.parse().is_ok_and(|pid: u64| run["pid"] == pid)
    })
}

/// Checks the name that a user gives to a running program (`--name`), which appears in lines and
/// tables.
///
/// # Errors
/// The name is empty, longer than 32 bytes, or has characters other than letters, digits, `_.-`.
pub(crate) fn run_name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    match (1..=32).contains(&text.len()) && text.chars().all(plain) {
        true => Ok(text.to_owned()),
        false => Err("use 1 to 32 letters, digits, '_', '.' and '-'".to_owned()),
    }
}

/// Returns the current time in seconds since 1970.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// The status of this running program, published on a socket for `anabranch status`.
pub(crate) struct PublishedStatus {
    socket: StatusSocket,
    fields: Map<String, Value>,
}

impl PublishedStatus {
    /// Publishes the status of a running program of the kind `kind`, with its name (`--name`) and
    /// its file of settings, if it has them. Returns `None` if the status cannot be published. The
    /// program then continues without a published status.
    pub(crate) fn named(
        kind: &str,
        name: Option<&str>,
        file: Option<&Path>,
    ) -> Option<PublishedStatus> {
        let socket = StatusSocket::open(kind).ok().flatten()?;
        let mut fields = Map::new();
        fields.insert("kind".to_owned(), json!(kind));
        fields.insert("pid".to_owned(), json!(std::process::id()));
        fields.insert("version".to_owned(), json!(env!("CARGO_PKG_VERSION")));
        fields.insert("started".to_owned(), json!(now()));
        let file = file.map(|file| std::path::absolute(file).unwrap_or_else(|_| file.to_owned()));
        fields.insert("name".to_owned(), json!(name));
        fields.insert("file".to_owned(), json!(file));
        let mut run_status = PublishedStatus { socket, fields };
        run_status.post();
        Some(run_status)
    }

    /// Sets the value `name` of the status, and publishes the status.
    pub(crate) fn set(&mut self, name: &str, value: Value) {
        self.fields.insert(name.to_owned(), value);
        self.post();
    }

    /// Publishes an event of an onion program, if it is in [`KEPT`].
    #[cfg(feature = "onion")]
    pub(crate) fn event(&mut self, event: &Value) {
        if let Some(name) = event["event"].as_str().filter(|name| KEPT.contains(name)) {
            let mut kept = event.clone();
            kept["at"] = json!(now());
            let name = name.to_owned();
            self.set(&name, kept);
        }
    }

    fn post(&mut self) {
        let text = serde_json::to_string(&self.fields)
            .expect("the keys are strings, so JSON can hold them");
        self.socket.post(text);
    }
}

/// Describes a running program. The program may belong to another user, so control characters in
/// its texts are escaped before they reach the terminal.
fn words(run: &Value, now: f64) -> String {
    let text = |value: &Value| legible(value.as_str().unwrap_or("?"));
    let since = span(now - run["started"].as_f64().unwrap_or(now));
    let name = run["name"].as_str().map_or(String::new(), |name| format!(" '{}'", legible(name)));
    let file = run["file"].as_str().map_or(String::new(), |file| format!(", {}", legible(file)));
    let head = format!("{}{name} {} ({since}{file}): ", text(&run["kind"]), run["pid"]);
    let body = match run["kind"].as_str() {
        Some("split") => of_split(run, now),
        Some("merge") => of_merge(run),
        _ => of_onion(run, now),
    };
    head + &body
}

fn of_merge(run: &Value) -> String {
    let text = |value: &Value| legible(value.as_str().unwrap_or("?"));
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let servers: Vec<_> =
        list(&run["listening"]["servers"]).iter().map(|server| text(&server["at"])).collect();
    let head = format!("{} for {}", text(&run["listening"]["listen"]), servers.join(", "));
    let mut rows = vec![["  client", "path", "state", "in", "out"].map(str::to_owned).to_vec()];
    let mut streams = Vec::new();
    for client in list(&run["stats"]["clients"]) {
        for path in list(&client["paths"]) {
            let bytes = |way: &str| scaled(path[way].as_f64().unwrap_or(0.0), "B");
            let state = if path["up"] == true { "up" } else { "silent" };
            let from = legible(path["from"].as_str().unwrap_or("-"));
            let from = if path["stream"].is_object() { format!("tcp {from}") } else { from };
            streams.push(path["stream"].clone());
            rows.push(vec![
                format!("  {}", text(&client["name"])),
                from,
                state.to_owned(),
                bytes("in_bytes"),
                bytes("out_bytes"),
            ]);
        }
    }
    add_streams(&mut rows, &streams);
    if rows.len() == 1 { head } else { format!("{head}\n{}", table(&rows)) }
}

/// Appends two columns if some paths are TCP connections: bytes that wait for room in the
/// connection, and packets dropped because they waited too long. `streams` has one value for each
/// row below the headings.
fn add_streams(rows: &mut [Vec<String>], streams: &[Value]) {
    if !streams.iter().any(Value::is_object) {
        return;
    }
    rows[0].extend(["queue", "too old"].map(str::to_owned));
    for (row, stream) in rows[1..].iter_mut().zip(streams) {
        let queue = stream["queued_bytes"].as_f64().map(|bytes| scaled(bytes, "B"));
        let aged = stream["aged"].as_f64().map(|packets| scaled(packets, ""));
        row.extend([queue, aged].map(|cell| cell.unwrap_or("-".to_owned())));
    }
}

fn of_split(run: &Value, now: f64) -> String {
    let about = &run["listening"];
    if about.is_null() {
        return "starting".to_owned();
    }
    let text = |value: &Value| value.as_str().map(legible);
    let ends = match (text(&about["listen"]), text(&about["server"])) {
        (Some(listen), Some(server)) => format!("{listen} for {server}"),
        (Some(listen), None) => listen,
        _ => format!("--tun {}", text(&about["tun"]["name"]).unwrap_or_default()),
    };
    let plan = [&about["schedule"], &about["every"]].map(|value| text(value).unwrap_or_default());
    let sessions = run["stats"]["sessions"].as_u64().unwrap_or(0);
    let silent = run["stats"]["silent"]["seconds"].as_f64().map_or_else(String::new, |seconds| {
        format!(", no answer from a server for {} on any path", span(seconds))
    });
    let head = format!("{ends}, {} every {}, sessions: {sessions}{silent}", plan[0], plan[1]);
    let none = Vec::new();
    let paths = run["stats"]["paths"].as_array().unwrap_or(&none);
    let sum = |way: &str| paths.iter().filter_map(|path| path[way].as_f64()).sum::<f64>();
    let sums = [sum("up_bytes"), sum("down_bytes")];
    let mut rows = vec![
        ["  path", "state", "RTT", "up", "share", "down", "share", "last answer"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(paths.iter().map(|path| row(path, sums, &run["answers"], now)));
    add_streams(&mut rows, &paths.iter().map(|path| path["stream"].clone()).collect::<Vec<_>>());
    if rows.len() == 1 { head } else { format!("{head}\n{}", table(&rows)) }
}

fn row(path: &Value, sums: [f64; 2], answers: &Value, now: f64) -> Vec<String> {
    let name = path["name"].as_str().unwrap_or("?");
    let rtt = path["rtt_ms"].as_f64().map_or("-".to_owned(), |rtt| format!("{rtt:.1} ms"));
    let kind = path["stream"]["kind"].as_str().map(|kind| format!(" {}", legible(kind)));
    let mut row = vec![format!("  {}{}", legible(name), kind.unwrap_or_default())];
    row.push(legible(path["state"].as_str().unwrap_or("?")));
    row.push(rtt);
    for (way, sum) in ["up_bytes", "down_bytes"].into_iter().zip(sums) {
        let bytes = path[way].as_f64().unwrap_or(0.0);
        row.push(scaled(bytes, "B"));
        row.push(if sum > 0.0 { percent(bytes / sum) } else { "-".to_owned() });
    }
    let answer = answers[name].as_f64();
    row.push(answer.map_or("none".to_owned(), |at| format!("{} ago", span(now - at))));
    row
}

fn of_onion(run: &Value, now: f64) -> String {
    let at = &run["listening"]["addresses"];
    let at = at.as_array().map(|all| all.iter().filter_map(Value::as_str).collect::<Vec<_>>());
    let at = at.map(|all| all.join(", "));
    let at = at.or_else(|| run["listening"]["what"].as_str().map(str::to_owned));
    let mut parts = vec![at.map_or("not listening yet".to_owned(), |at| legible(&at))];
    let count = |name: &str| run["numbers"][name].as_f64();
    for (name, unit) in
        [("links", ""), ("circuits", ""), ("streams", ""), ("received", "B"), ("sent", "B")]
    {
        parts.extend(count(name).map(|number| format!("{name}: {}", scaled(number, unit))));
    }
    let mut text = parts.join(", ");
    if let (Some(what), Some(at)) = (run["trouble"]["what"].as_str(), run["trouble"]["at"].as_f64())
    {
        text += &format!("\n  {} ago: {}", span(now - at), long(what));
    }
    text
}

/// Escapes the characters of a text that could control the terminal. Unlike a name, the text is
/// not cut after 60 characters.
fn long(text: &str) -> String {
    text.split(' ').map(legible).collect::<Vec<_>>().join(" ")
}

/// Formats seconds in a unit that suits their size.
fn span(seconds: f64) -> String {
    match seconds.max(0.0) {
        s if s < 100.0 => format!("{s:.0} s"),
        s if s < 6000.0 => format!("{:.0} min", s / 60.0),
        s if s < 360_000.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} d", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runs_name_stands_in_lines() {
        assert_eq!(run_name("home-2.a").as_deref(), Ok("home-2.a"));
        for text in ["", "a b", "\u{1b}[2J", "x".repeat(33).as_str()] {
            assert!(run_name(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_splitter_is_a_line_and_its_paths_a_table() {
        let path = |name: &str, bytes: u64| json!({"name": name, "state": "up", "rtt_ms": 20.55, "up_bytes": bytes, "down_bytes": 0});
        let run = json!({
            "kind": "split", "pid": 7, "started": 1000.0,
            "listening": {"listen": "127.0.0.1:5", "server": "192.0.2.1:6", "schedule": "weighted:4", "every": "100ms"},
            "stats": {"sessions": 1, "paths": [path("wlan", 3000), path("lte\u{1b}[2J", 1000)]},
            "answers": {"wlan": 1290.0, "lte": null},
        });
        let text = words(&run, 1300.0);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[0],
            "split 7 (5 min): 127.0.0.1:5 for 192.0.2.1:6, weighted:4 every 100ms, sessions: 1"
        );
        assert!(lines[2].contains("wlan") && lines[2].contains("75 %"), "{text}");
        assert!(lines[2].ends_with("10 s ago") && lines[3].ends_with("none"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        let mut named = run.clone();
        (named["name"], named["file"]) = (json!("home"), json!("/etc/anabranch/home.toml"));
        let text = words(&named, 1300.0);
        assert!(text.starts_with("split 'home' 7 (5 min, /etc/anabranch/home.toml): "), "{text}");
        assert!(is_wanted(&named, Some("home")) && is_wanted(&named, Some("7")));
        assert!(is_wanted(&run, None) && !is_wanted(&run, Some("home")));
        let begins = json!({"kind": "split", "pid": 7, "started": 1299.0});
        assert_eq!(words(&begins, 1300.0), "split 7 (1 s): starting");
    }

    #[test]
    fn a_far_end_is_a_line_and_its_clients_paths_a_table() {
        let path = json!({"from": "192.0.2.7:5", "up": true, "in_bytes": 1000, "out_bytes": 5});
        let run = json!({
            "kind": "merge", "pid": 9, "started": 0.0,
            "listening": {"listen": "[::]:4500", "servers": [{"name": "", "at": "127.0.0.1:5"}]},
            "stats": {"clients": [{"name": "home", "paths": [path]}]},
        });
        let text = words(&run, 60.0);
        assert!(text.starts_with("merge 9 (60 s): [::]:4500 for 127.0.0.1:5\n"), "{text}");
        assert!(text.ends_with("  home    192.0.2.7:5  up     1.0 kB  5 B"), "{text}");
    }

    #[test]
    fn a_path_that_is_a_stream_shows_its_kind_its_queue_and_what_grew_too_old() {
        let path = |name: &str, stream: Value| json!({"name": name, "state": "up", "rtt_ms": 20.0, "up_bytes": 0, "down_bytes": 0, "stream": stream});
        let stream = json!({"kind": "onion", "queued_bytes": 12_500, "aged": 7});
        let run = json!({
            "kind": "split", "pid": 7, "started": 1000.0,
            "listening": {"listen": "127.0.0.1:5", "server": "192.0.2.1:6", "schedule": "uniform", "every": "~10p"},
            "stats": {"sessions": 1, "paths": [path("u", Value::Null), path("o-1", stream)]},
            "answers": {"u": null, "o-1": 1290.0},
        });
        let text = words(&run, 1300.0);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].ends_with("last answer  queue    too old"), "{text}");
        assert!(lines[2].ends_with("none         -        -"), "{text}");
        assert!(lines[3].starts_with("  o-1 onion  up     20.0 ms"), "{text}");
        assert!(lines[3].ends_with("10 s ago     12.5 kB  7"), "{text}");
        let path = json!({"from": "192.0.2.7:5", "up": true, "in_bytes": 0, "out_bytes": 0, "stream": {"queued_bytes": 900, "aged": 0}});
        let run = json!({
            "kind": "merge", "pid": 9, "started": 0.0,
            "listening": {"listen": "[::]:4500", "servers": []},
            "stats": {"clients": [{"name": "home", "paths": [path]}]},
        });
        let text = words(&run, 60.0);
        assert!(text.contains("tcp 192.0.2.7:5") && text.ends_with("900 B  0"), "{text}");
    }

    /// An earlier version of the program runs, and a newer `anabranch status` shows it.
    #[test]
    fn runs_of_an_earlier_program_are_shown() {
        let text = include_str!("../../../tests/formats/0e0b824b/status.jsonl");
        let runs = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let shown: Vec<String> = runs.map(|run| words(&run, 1_800_000_300.0)).collect();
        let wanted = [
            "split 7 (5 min): 127.0.0.1:51821 for 198.51.100.7:51820, weighted:4 every 100ms, \
             sessions: 1\n  \
               path  state  RTT      up      share  down     share  last answer\n  \
               wlan  up     20.5 ms  3.0 kB  75 %   90.0 kB  75 %   10 s ago\n  \
               lte   up     48.2 ms  1.0 kB  25 %   30.0 kB  25 %   none",
            "merge 9 (5 min): [::]:4500 for 127.0.0.1:51820\n  \
               client  path              state  in      out\n  \
               home    192.0.2.7:5000    up     1.0 kB  30.0 kB\n  \
               home    203.0.113.9:6000  up     500 B   10.0 kB",
            "client 11 (5 min): 127.0.0.1:9050, links: 1, circuits: 2, streams: 3, \
             received: 15.4 kB, sent: 2.1 kB",
            "relay 8 (5 min): 0.0.0.0:9001, links: 12, circuits: 34, streams: 5, \
             received: 2.5 MB, sent: 60.0 kB\n  60 s ago: no authority answers",
        ];
        assert_eq!(shown, wanted);
    }

    #[test]
    fn a_relay_is_a_line_and_its_last_trouble_another() {
        let run = json!({
            "kind": "relay", "pid": 8, "started": 0.0,
            "listening": {"event": "listening", "what": "0.0.0.0:9001"},
            "numbers": {"links": 3, "circuits": 5, "streams": 0, "received": 2_000_000, "sent": 1},
            "trouble": {"what": "no authority answers", "at": 86_400.0},
        });
        assert_eq!(
            words(&run, 2.0 * 86_400.0),
            "relay 8 (48 h): 0.0.0.0:9001, links: 3, circuits: 5, streams: 0, received: 2.0 MB, \
             sent: 1 B\n  \
             24 h ago: no authority answers"
        );
    }
}
