//! Tests of `anabranch authority` from its operator's view: its output, and its messages about bad
//! settings, files and ports.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ports;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use ports::free_ports;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.arg("authority").args(arguments);
    command
}

fn output(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// Returns all arguments that the authority needs, except `--data`.
fn usual(ports: [u16; 2]) -> Vec<String> {
    let [or, dir] = ports.map(|port| format!("127.0.0.1:{port}"));
    let words = ["--nickname", "dam", "--address", "127.0.0.1", "--allow-private", "--json"];
    let at = ["--listen", &or, "--listen-dir", &dir];
    words.into_iter().chain(at).map(str::to_owned).collect()
}

fn start(data: &Path, ports: [u16; 2]) -> Command {
    let usual = usual(ports);
    let mut command = command(&usual.iter().map(String::as_str).collect::<Vec<_>>());
    command.args(["--interval", "10"]);
    command.arg("--data").arg(data).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Reads lines until one contains the event `event`. Returns that line.
fn wait(child: &mut Child, event: &str) -> String {
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let wanted = format!("\"event\":\"{event}\"");
    lines.map(Result::unwrap).find(|line| line.contains(&wanted)).unwrap()
}

fn end(mut child: Child) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn settings_that_make_no_sense_are_told_with_the_remedy() {
    let all =
        ["--nickname", "a", "--address", "127.0.0.1", "--listen", "127.0.0.1:9", "--listen-dir"];
    let with = |more: &[&'static str]| [&all[..], &["127.0.0.1:8"], more].concat();
    for (arguments, wanted) in [
        (vec![], "--listen ADDRESS:PORT is missing"),
        (vec!["--listen", "127.0.0.1:9"], "--listen-dir ADDRESS:PORT is missing"),
        ([&all[..], &["127.0.0.1:0"]].concat(), "need ports from 1 to 65535"),
        (with(&["--interval", "9"]), "--interval 9: write 10 to 86400"),
        (with(&["--valid-intervals", "1"]), "--valid-intervals 1"),
        (with(&["--param", "cc_alg"]), "--param cc_alg: write NAME=VALUE"),
        (with(&["--param", "a b=1"]), "--param a b=1: write NAME=VALUE"),
        (with(&["--ban", "xyz"]), "--ban xyz: this is not the fingerprint of a relay"),
        (with(&["--authority", "x"]), "the only one of its network"),
        (with(&["--contact", "two\nlines"]), "contact must be one line"),
        (with(&["--nickname", "no spaces"]), "cannot be used multiple times"),
    ] {
        let data = tempfile::tempdir().unwrap();
        let data = data.path().join("state");
        let arguments = [&arguments[..], &["--data", data.to_str().unwrap()]].concat();
        let done = output(&arguments);
        let error = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(2), "{error}");
        assert!(error.contains(wanted) && error.lines().count() == 1, "{wanted}: {error}");
        assert!(!data.join("keys/authority_identity_key").exists(), "{wanted}");
    }
}

#[test]
fn its_line_is_printed_and_kept_and_what_is_in_its_way_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (data, ports) = (folder.path().join("state"), free_ports());
    let mut child = start(&data, ports).spawn().unwrap();
    let printed = wait(&mut child, "authority");
    let line = fs::read_to_string(data.join("authorities")).unwrap();
    assert!(printed.contains(line.trim()), "{printed} {line}");
    assert!(line.starts_with(&format!("DirAuthority dam orport={} no-v2 v3ident=", ports[0])));
    wait(&mut child, "listening");
    let refused = |data: &Path, ports: [u16; 2], status: i32, wanted: &str| {
        let done = start(data, ports).output().unwrap();
        let error = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(status), "{error}");
        assert!(error.contains(wanted), "{error}");
    };
    refused(&data, free_ports(), 2, "uses this folder");
    let alongside = folder.path().join("beside");
    let [free, _] = free_ports();
    refused(&alongside, [free, ports[1]], 1, &format!("127.0.0.1:{}: ", ports[1]));
    refused(&alongside, [ports[0], free], 1, &format!("127.0.0.1:{}: ", ports[0]));
    end(child);
    let key = data.join("keys/authority_identity_key");
    let whole = fs::read(&key).unwrap();
    fs::write(&key, &whole[..whole.len() / 2]).unwrap();
    refused(&data, ports, 2, "authority_identity_key");
    fs::write(&key, &whole).unwrap();
    let mut child = start(&data, ports).spawn().unwrap();
    wait(&mut child, "listening");
    end(child);
    assert_eq!(fs::read_to_string(data.join("authorities")).unwrap(), line, "it is the same");
}

#[test]
fn on_a_full_disk_it_makes_no_half_keys_and_goes_on_with_those_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let (data, ports) = (folder.path().join("state"), free_ports());
    // For a writer, a limit on the size of files has the effect of a full disk. It needs no root.
    let full = || {
        let usual = usual(ports);
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 1; trap '' XFSZ; exec \"$0\" authority \"$@\""]);
        command.arg(env!("CARGO_BIN_EXE_anabranch")).args(usual).arg("--data").arg(&data);
        command.args(["--interval", "10"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let done = full().output().unwrap();
    let error = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2), "{error}");
    assert!(error.contains("File too large"), "{error}");
    assert_eq!(fs::read_dir(data.join("keys")).unwrap().count(), 0, "no half keys are left");
    let mut child = start(&data, ports).spawn().unwrap();
    wait(&mut child, "consensus");
    end(child);
    let kept = fs::read(data.join("consensus")).unwrap();
    let mut child = full().spawn().unwrap();
    let printed = wait(&mut child, "trouble");
    assert!(
        printed.contains("File too large") && printed.contains("not saved to disk"),
        "{printed}"
    );
    wait(&mut child, "consensus");
    end(child);
    assert_eq!(fs::read(data.join("consensus")).unwrap(), kept, "the old file stays whole");
}
