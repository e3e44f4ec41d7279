//! Tests of SIGHUP to a splitter. The configuration file is read again, and sessions continue.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod running;

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;

use running::socks::{Manner, Socks};
use running::{PATIENCE, Running};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A splitter in front of a server, its configuration file, and a client.
struct ReloadWorld {
    folder: TempDir,
    running: Running,
    client: UdpSocket,
    listen: String,
}

fn settings(server: &UdpSocket, more: &str, paths: &str) -> String {
    let to = server.local_addr().unwrap();
    let path = |(name, octet)| format!("[[path]]\nname = '{name}'\naddress = '127.0.0.{octet}'\n");
    let paths = paths.chars().zip("23456789".chars());
    let paths: String = paths.filter(|(name, _)| *name != '-').map(path).collect();
    format!("to = '{to}'\nschedule = 'round-robin'\nevery = '1p'\njson = true\n{more}\n{paths}")
}

impl ReloadWorld {
    /// Starts a splitter with the paths a and b.
    fn new() -> ReloadWorld {
        ReloadWorld::with("")
    }

    fn with(more: &str) -> ReloadWorld {
        let folder = TempDir::new().unwrap();
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let file = folder.path().join("split.toml");
        fs::write(&file, settings(&server, more, "ab")).unwrap();
        let options = ["--listen", "127.0.0.1:0", "--same-egress"];
        let mut running = Running::of_file(&file, server, &options);
        let listen = running.next("listening")["listen"].as_str().unwrap().to_owned();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        ReloadWorld { folder, running, client, listen }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("split.toml")
    }

    /// Writes `paths` to the file, with a hyphen for a path that is left out. Then sends SIGHUP to
    /// the splitter.
    fn reload(&mut self, more: &str, paths: &str) {
        fs::write(self.file(), settings(&self.running.server, more, paths)).unwrap();
        self.running.signal("-HUP");
    }

    /// Returns the addresses that the server sees during this number of exchanges.
    fn seen(&self, exchanges: usize) -> BTreeSet<SocketAddr> {
        (0..exchanges).map(|_| self.running.exchange(&self.client, &self.listen)).collect()
    }

    /// Returns the warning that the splitter prints instead of new settings.
    fn refused(&mut self) -> String {
        self.running.next("warning")["text"].as_str().unwrap().to_owned()
    }
}

fn names(about: &Value) -> Vec<&str> {
    let paths = about["paths"].as_array().unwrap();
    paths.iter().map(|path| path["name"].as_str().unwrap()).collect()
}

#[test]
fn a_session_goes_on_under_new_paths_and_a_path_that_stays_keeps_its_port() {
    let mut scene = ReloadWorld::new();
    let before = scene.seen(10);
    assert_eq!(before.len(), 2);
    scene.reload("", "a-c");
    let about = scene.running.next("reloaded");
    assert_eq!(names(&about), ["a", "c"]);
    let after = scene.seen(10);
    assert_eq!(after.len(), 2);
    let stays: Vec<_> = before.intersection(&after).map(|address| address.ip()).collect();
    assert_eq!(stays, ["127.0.0.2".parse::<std::net::IpAddr>().unwrap()], "{before:?} {after:?}");
    scene.running.interrupt();
    let summary = scene.running.next("summary");
    let up = |path: &Value| path["up_packets"].as_u64().unwrap();
    assert_eq!((up(&summary["paths"][0]), up(&summary["paths"][1])), (10, 5), "{summary}");
    assert_eq!(up(&summary["removed"]), 5, "{summary}");
    assert_eq!(summary["sessions"], json!(1), "one session all the time");
}

#[test]
fn proxies_come_stay_and_go() {
    let (one, two) = (Socks::start(Manner::Open), Socks::start(Manner::Open));
    let through =
        |name: &str, proxy: &Socks| format!("[[path]]\nname = '{name}'\nsocks5 = '{}'\n", proxy.at);
    let mut scene = ReloadWorld::new();
    let adopt = |scene: &mut ReloadWorld, paths: &str, proxies: &str| {
        let text = settings(&scene.running.server, "", paths) + proxies;
        fs::write(scene.file(), text).unwrap();
        scene.running.signal("-HUP");
        scene.running.next("reloaded");
    };
    adopt(&mut scene, "a", &through("x", &one));
    let first = scene.seen(8);
    assert_eq!(first.len(), 2, "{first:?}");
    adopt(&mut scene, "a-c", &(through("y", &two) + &through("x", &one)));
    // The splitter connects to the new proxy when the first datagram needs it.
    let second = scene.seen(16);
    assert_eq!((second.len(), second.intersection(&first).count()), (4, 2), "{first:?} {second:?}");
    adopt(&mut scene, "a", &through("y", &two));
    let third = scene.seen(8);
    assert_eq!((third.len(), third.intersection(&second).count()), (2, 2), "{third:?}");
    assert!(third.iter().all(|address| !one.outer().contains(address)), "{third:?}");
}

#[test]
fn a_schedule_changes_and_the_seed_that_was_drawn_stays() {
    let mut scene = ReloadWorld::new();
    scene.reload("", "ab");
    let drawn = scene.running.next("reloaded")["seed"].clone();
    scene.reload("seed = 99\nhandshake = 'b'", "ab");
    let about = scene.running.next("reloaded");
    assert_ne!(drawn, json!(99));
    assert_eq!(about["seed"], json!(99));
    assert_eq!(names(&about), ["a", "b"]);
    assert_eq!(scene.seen(4).len(), 1, "all but handshakes goes by the other path");
}

#[test]
fn a_mistake_in_the_file_is_told_with_its_line_and_changes_nothing() {
    let mut scene = ReloadWorld::new();
    let before = scene.seen(4);
    let file = scene.file().display().to_string();
    scene.reload("evry = '1p'", "a");
    let text = scene.refused();
    assert!(text.starts_with(&format!("{file}:5: unknown key `evry`; did you mean")), "{text}");
    assert!(text.ends_with("; the current settings stay"), "{text}");
    scene.reload("schedule = 1", "a");
    assert!(scene.refused().starts_with(&format!("{file}:5: ")));
    scene.reload("handshake = 'z'", "a");
    assert!(scene.refused().starts_with(&format!("{file}: --handshake: there is no path 'z'")));
    fs::remove_file(scene.file()).unwrap();
    scene.running.signal("-HUP");
    assert!(scene.refused().starts_with(&format!("cannot read '{file}': No such file")));
    fs::write(
        scene.file(),
        settings(&scene.running.server, "", "ab") + "[[path]]\nname = 'x'\ninterface = 'none0'\n",
    )
    .unwrap();
    scene.running.signal("-HUP");
    let text = scene.refused();
    assert!(text.contains("path 'x'") && text.contains("none0"), "{text}");
    assert_eq!(scene.seen(4), before);
}

#[test]
fn what_holds_for_a_whole_run_is_not_changed() {
    let folder = TempDir::new().unwrap();
    let more = format!("trace = '{}'", folder.path().join("run.parquet").display());
    let mut scene = ReloadWorld::with(&more);
    for (change, name) in [("fwmark = 7", "fwmark"), ("trace = '/tmp/other.parquet'", "trace")] {
        scene.reload(change, "ab");
        let text = scene.refused();
        assert!(text.starts_with(&format!("'{name}' cannot change")), "{text}");
    }
    scene.reload(&more, "abc");
    let text = scene.refused();
    assert!(text.starts_with("path 'c' is new, but 'trace' and 'pcap' record only"), "{text}");
    scene.reload(&more, "b");
    assert_eq!(names(&scene.running.next("reloaded")), ["b"]);
}

#[test]
fn the_end_of_its_terminal_still_ends_a_run_that_reads_a_file() {
    let folder = TempDir::new().unwrap();
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let file = folder.path().join("split.toml");
    fs::write(&file, settings(&server, "listen = '127.0.0.1:0'", "ab")).unwrap();
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let mut both = fs::File::options();
    let terminal = both.read(true).write(true).open(name.to_str().unwrap()).unwrap();
    // Tests that run under nohup would pass the ignored SIGHUP on to the program.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP", "setsid", "--ctty", env!("CARGO_BIN_EXE_anabranch")]);
    command.arg("split").arg(&file);
    command.args(["--same-egress"]).stdin(terminal);
    let mut running = Running::spawn(&mut command, server);
    drop(command);
    running.next("listening");
    running.signal("-HUP");
    running.next("reloaded");
    drop(master);
    assert!(running.ended().0.success());
}
