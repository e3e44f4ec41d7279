//! Tests of `anabranch emulate` from its users' view: messages, the JSON protocol, and that no
//! interfaces or processes remain.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy only knows the tests themselves")]

mod tools;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const TOPOLOGY: &str = "\
[[host]]
name = 'a'
[[host]]
name = 'b'
[[link]]
name = 'p0'
ends = [{ host = 'a', address = ['10.7.0.1/24'] }, { host = 'b', address = ['10.7.0.2/24'] }]
delay = '5ms'
";

fn anabranch() -> Command {
    Command::new(env!("CARGO_BIN_EXE_anabranch"))
}

/// Writes `text` to a topology file, and runs `anabranch emulate` with it.
fn run_on(text: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.toml");
    fs::write(&file, text).unwrap();
    anabranch().arg("emulate").arg(file).output().unwrap()
}

/// Returns a topology of two routers, each with a default route to the other.
fn ring_of_routers() -> String {
    let all = "routes = ['0.0.0.0/0'],";
    TOPOLOGY
        .replace("name = 'a'", "name = 'a'\nforward = true")
        .replace("name = 'b'", "name = 'b'\nforward = true")
        .replace("address", &format!("{all} address"))
}

/// A running emulation of [`TOPOLOGY`] that is controlled by JSON.
struct Emulation {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    ready: Value,
}

impl Emulation {
    /// Starts the emulation. Returns `None` if this machine lacks a requirement.
    fn start() -> Option<Emulation> {
        let check = anabranch().args(["emulate", "check"]).output().unwrap();
        if !check.status.success() {
            eprintln!("skipped:\n{}", String::from_utf8_lossy(&check.stdout));
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.toml");
        fs::write(&file, TOPOLOGY).unwrap();
        let mut process = anabranch()
            .args(["emulate", "--json"])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut emulation = Emulation { process, input, output, ready: Value::Null };
        emulation.ready = emulation.event();
        assert_eq!(emulation.ready["event"], "ready");
        Some(emulation)
    }

    fn event(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn ask(&mut self, command: &str) -> Value {
        writeln!(self.input.as_mut().unwrap(), "{command}").unwrap();
        self.event()
    }

    fn netns(&self, host: &str) -> String {
        self.ready["hosts"][host]["netns"].as_str().unwrap().to_owned()
    }

    /// Returns a command that runs inside the host `host`.
    fn inside(&self, host: &str, command: &[&str]) -> Command {
        let mut inside = Command::new("nsenter");
        inside.arg(format!("--net={}", self.netns(host))).args(command);
        inside
    }

    fn ping(&self) -> bool {
        let mut ping = self.inside("a", &["ping", "-c1", "-W1", "10.7.0.2"]);
        ping.stdout(Stdio::null()).status().unwrap().success()
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns whether a process of this machine is in the network namespace with this inode number.
fn is_inhabited(inode: u64) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes.map(|path| path.join("ns/net")).any(|ns| inode_of(&ns) == Some(inode))
}

fn inode_of(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|metadata| metadata.ino())
}

fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(30), "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn bad_input_is_one_message_and_exit_code_2() {
    let cases = [
        (TOPOLOGY.replace("delay", "dleay"), "t.toml:8: unknown key `dleay` in [link]; did you"),
        (TOPOLOGY.replace("5ms", "5"), "t.toml:8: `delay`: `5` is not a time"),
        (
            TOPOLOGY.replace("'5ms'", "-5"),
            "t.toml:8: `delay`: `-5` is not a time from 0 to 1000000s; write",
        ),
        (
            TOPOLOGY.replace("delay = '5ms'", "rate = 0"),
            "t.toml:8: `rate`: `0` is not a rate above zero; write",
        ),
        (
            TOPOLOGY.replace("'p0'", "'all'"),
            "t.toml:6: the kernel reserves the name `all`, so no interface can have it",
        ),
        (TOPOLOGY.replace("0.2/24", "0.1/24"), "t.toml:7: the hosts `a` and `b`, which the link `"),
        (TOPOLOGY.replace("10.7.0.1/24", "127.0.0.1/8"), "t.toml:7: `127.0.0.1/8` is a loopback"),
        (
            ring_of_routers(),
            "t.toml:9: no host has the address 192.0.2.1, and packets to it would go round",
        ),
        (TOPOLOGY.replace("host = 'b'", "host = 'c'"), "t.toml:7: there is no host `c`"),
        ("[[host]\n".to_owned(), "t.toml:1: "),
    ];
    for (text, message) in cases {
        let output = run_on(&text);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(message) && errors.lines().count() == 1, "{errors}");
        assert!(output.stdout.is_empty());
    }
    let missing = anabranch().args(["emulate", "/nowhere.toml"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn without_privilege_it_names_the_command_that_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a topology.toml");
    fs::write(&file, TOPOLOGY).unwrap();
    // The program has no capability, and can create no user namespace.
    let script = "echo 0 >/proc/sys/user/max_user_namespaces || exit 77; \
                  exec setpriv --bounding-set=-all --inh-caps=-all \"$@\"";
    let program = env!("CARGO_BIN_EXE_anabranch");
    let mut poor = Command::new("unshare");
    poor.args(["--user", "--map-root-user", "sh", "-c", script, "sh", program, "emulate"]);
    let output = poor.arg(&file).args(["--", "sh", "-c", "exit 3"]).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    if output.status.code() == Some(77) || !errors.starts_with("anabranch: ") {
        return eprintln!("skipped: privileges cannot be dropped here: {errors}");
    }
    assert_eq!(output.status.code(), Some(2));
    let message = format!(
        "anabranch: cannot make a network namespace: Operation not permitted; \
         it needs root: sudo {program} emulate '{}' -- sh -c 'exit 3'\n",
        file.display()
    );
    assert_eq!(errors, message);
}

#[test]
fn commands_change_the_links_and_stats_count_them() {
    if !tools::are_here(&["ping"]) {
        return;
    }
    let Some(mut emulation) = Emulation::start() else { return };
    assert!(emulation.ping());
    assert_eq!(emulation.ask(r#"{"set":"p0","loss":1.0}"#), json!({"event":"set","link":"p0"}));
    assert!(!emulation.ping());
    emulation.ask(r#"{"set":"p0","loss":0}"#);
    assert!(emulation.ping());
    let stats = emulation.ask(r#"{"get":"stats"}"#);
    let forward = &stats["links"]["p0"]["forward"];
    assert_eq!(stats["event"], "stats");
    // An ICMP echo of ping's default size is 84 bytes.
    assert_eq!((&forward["units"], &forward["bytes"]), (&json!(3), &json!(252)));
    assert_eq!(forward["dropped"]["lost"], 1);
    assert_eq!(stats["links"]["p0"]["back"]["units"], 2);
}

#[test]
fn a_wrong_command_is_answered_and_changes_nothing() {
    if !tools::are_here(&["ping"]) {
        return;
    }
    let Some(mut emulation) = Emulation::start() else { return };
    for (command, message) in [
        ("nonsense", "not a JSON object"),
        (r#"{"set":"p9","loss":0}"#, "no link `p9`"),
        (r#"{"set":"p0","los":1}"#, "did you mean `loss`?"),
        (r#"{"set":"p0","loss":7,"down":true}"#, "7 is not a probability"),
        (r#"{"set":"p0","rate":0}"#, "`0` is not a rate above zero; write"),
        (r#"{"get":"all"}"#, "a command is"),
    ] {
        let answer = emulation.ask(command);
        assert_eq!(answer["event"], "error");
        assert!(answer["message"].as_str().unwrap().contains(message), "{answer}");
    }
    assert!(emulation.ping());
}

#[test]
fn the_end_of_its_input_and_signals_end_it_with_the_counters() {
    for signal in [None, Some("-INT"), Some("-TERM")] {
        let Some(mut emulation) = Emulation::start() else { return };
        match signal {
            None => drop(emulation.input.take()),
            Some(name) => {
                let pid = emulation.process.id().to_string();
                assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
            }
        }
        let end = emulation.event();
        assert_eq!(
            (&end["event"], &end["links"]["p0"]["back"]["units"]),
            (&json!("end"), &json!(0))
        );
        assert!(emulation.process.wait().unwrap().success());
    }
}

#[test]
fn a_killed_emulator_leaves_neither_namespaces_nor_interfaces() {
    let Some(mut emulation) = Emulation::start() else { return };
    let inode = inode_of(Path::new(&emulation.netns("a"))).unwrap();
    let mut dweller = emulation.inside("a", &["sleep", "60"]).spawn().unwrap();
    eventually("a process lives in the host", || is_inhabited(inode));
    emulation.process.kill().unwrap();
    emulation.process.wait().unwrap();
    // A process that still runs in a host keeps its namespace, but the links are gone.
    let mut links = Command::new("nsenter");
    links.arg(format!("--net=/proc/{}/ns/net", dweller.id())).args(["ip", "-o", "link"]);
    let links = links.output().unwrap();
    let left = String::from_utf8(links.stdout).unwrap();
    assert!(left.contains("lo:") && !left.contains("p0"), "{left}");
    dweller.kill().unwrap();
    dweller.wait().unwrap();
    eventually("nobody lives in the host", || !is_inhabited(inode));
}
