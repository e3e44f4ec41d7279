//! Tests of `anabranch status`, which lists the running programs and changes nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ports;
mod program;
mod running;

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ports::free_ports;
use program::{NOBODY, Program};
use running::{PATIENCE, Running};
use serde_json::Value;
use tempfile::TempDir;

/// Returns a command of the program with `folder` as its runtime folder. So a test sees only its
/// own programs.
fn anabranch(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.env("RUNTIME_DIRECTORY", folder);
    command
}

fn status(folder: &Path, options: &[&str]) -> String {
    let output = anabranch(folder).arg("status").args(options).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the status of the program with the process ID `pid`, once `wanted` accepts it.
fn run_status(folder: &Path, pid: u32, wanted: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = status(folder, &["--json"]);
        let runs = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        if let Some(run) = runs.into_iter().find(|run| run["pid"] == pid && wanted(run)) {
            return run;
        }
        assert!(Instant::now() < deadline, "{text}");
        sleep(Duration::from_millis(50));
    }
}

fn splitter(folder: &Path) -> Running {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut command = anabranch(folder);
    command.args(["split", "--json", "--listen", "127.0.0.1:0", "--every", "1p"]);
    command.args(["--to", &server.local_addr().unwrap().to_string(), "--same-egress"]);
    command.args(["--schedule", "round-robin", "--path", "a=addr:127.0.0.2"]);
    Running::spawn(command.args(["--path", "b=addr:127.0.0.3"]), server)
}

#[test]
fn a_splitter_tells_its_paths_shares_and_last_answers_to_its_owner_alone() {
    let folder = TempDir::new().unwrap();
    let mut running = splitter(folder.path());
    let listen = running.next("listening")["listen"].as_str().unwrap().to_owned();
    let pid = running.child.id();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    for _ in 0..4 {
        running.exchange(&client, &listen);
    }
    let run = run_status(folder.path(), pid, |run| run["stats"]["paths"][1]["down_packets"] == 2);
    assert_eq!(
        (&run["kind"], &run["listening"]["listen"]),
        (&"split".into(), &listen.as_str().into())
    );
    assert!(run["answers"]["a"].as_f64().unwrap() >= run["started"].as_f64().unwrap());
    let text = status(folder.path(), &[]);
    let mine = text.split("\nsplit").find(|part| part.contains(&listen)).unwrap();
    assert!(
        mine.contains("sessions: 1") && mine.contains("50 %") && mine.contains(" s ago"),
        "{text}"
    );
    for entry in fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
    }
    running.interrupt();
    running.ended();
    assert!(!status(folder.path(), &[]).contains(&format!("split {pid} ")));
    assert!(!folder.path().exists(), "the folder goes with the last run");
}

#[test]
fn a_far_end_tells_where_it_listens_and_for_whom() {
    let folder = TempDir::new().unwrap();
    let [far, home] = ["far.key", "home.key"].map(|name| folder.path().join(name));
    let made = anabranch(folder.path()).arg("key").args([&far, &home]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut command = anabranch(folder.path());
    command.args(["merge", "--json", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9", "--key"]);
    let mut merge = Program::of(command.arg(&far));
    let listen = merge.next("listening")["listen"].as_str().unwrap().to_owned();
    run_status(folder.path(), merge.child.id(), |run| {
        run["listening"]["listen"] == listen.as_str()
    });
    assert!(status(folder.path(), &[]).contains(&format!("{listen} for 127.0.0.1:9")));
}

#[test]
fn a_killed_run_is_not_told_of() {
    let folder = TempDir::new().unwrap();
    let mut running = splitter(folder.path());
    running.next("listening");
    let pid = running.child.id();
    run_status(folder.path(), pid, |_| true);
    running.signal("-KILL");
    running.child.wait().unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "its socket is still there");
    assert!(!status(folder.path(), &["--json"]).contains(&format!("\"pid\":{pid},")));
}

#[test]
fn a_client_and_a_relay_tell_where_they_listen() {
    let folder = TempDir::new().unwrap();
    let network = folder.path().join("network.txt");
    fs::write(&network, NOBODY).unwrap();
    let of = |kind: &str, more: &[&str]| {
        let ([port], data) = (free_ports(), folder.path().join(kind));
        let mut command = anabranch(folder.path());
        command.args([kind, "--json", "--listen", &format!("127.0.0.1:{port}"), "--data"]);
        command.arg(data);
        command.arg("--authorities").arg(&network).args(more);
        let mut program = Program::of(&mut command);
        program.next("listening");
        program
    };
    let client = of("client", &[]);
    let relay = of("relay", &["--nickname", "river", "--address", "127.0.0.1", "--allow-private"]);
    let listens = |run: &Value| run["listening"]["event"] == "listening";
    run_status(folder.path(), client.child.id(), listens);
    run_status(folder.path(), relay.child.id(), |run| {
        listens(run) && run["numbers"]["circuits"] == 0
    });
    let text = status(folder.path(), &[]);
    assert!(
        text.contains("client ") && text.contains("relay ") && text.contains("127.0.0.1:"),
        "{text}"
    );
}

/// Returns the output of a program to a file that counts as systemd's journal.
fn journalled(folder: &Path, words: &[&str], until: &str) -> String {
    use std::os::unix::fs::MetadataExt;
    let file = folder.join("journal");
    let out = fs::File::create(&file).unwrap();
    let about = out.metadata().unwrap();
    let mut command = anabranch(folder);
    command.env("JOURNAL_STREAM", format!("{}:{}", about.dev(), about.ino())).args(words);
    command.stdin(std::process::Stdio::null()).stderr(out.try_clone().unwrap()).stdout(out);
    let mut child = command.spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !fs::read_to_string(&file).unwrap().contains(until) {
        assert!(Instant::now() < deadline, "{}", fs::read_to_string(&file).unwrap());
        sleep(Duration::from_millis(20));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    child.wait().unwrap();
    fs::read_to_string(&file).unwrap()
}

#[test]
fn every_line_in_the_journal_bears_its_priority() {
    let folder = TempDir::new().unwrap();
    let one =
        ["split", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9", "--path", "a=addr:127.0.0.2"];
    let split = journalled(folder.path(), &one, "nothing is split");
    assert!(
        split.contains("<6>listening on ") && split.contains("<4>warning: nothing is split"),
        "{split}"
    );
    let network = folder.path().join("network.txt");
    fs::write(&network, NOBODY).unwrap();
    let data = folder.path().join("data");
    let [network, data] = [&network, &data].map(|path| path.to_str().unwrap());
    let client = ["client", "--listen", "127.0.0.1:0", "--data", data, "--authorities", network];
    let client = journalled(folder.path(), &client, "SOCKS and HTTP CONNECT proxy");
    let refused = journalled(folder.path(), &["split", "--path", "a"], "anabranch: ");
    assert!(refused.starts_with("<3>anabranch: "), "{refused}");
    for line in [split, client, refused].iter().flat_map(|text| text.lines()) {
        assert!(["<3>", "<4>", "<6>"].iter().any(|priority| line.starts_with(priority)), "{line}");
    }
}
