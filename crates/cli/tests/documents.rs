//! Tests that run the commands in the README and the guides. A splitter runs with `--check`. Far
//! ends, relays, clients, authorities and `up` run until they listen. Reports, man pages,
//! completions and `status` run to their end.
//!
//! The interfaces and servers in the commands are not on this machine. So paths are replaced by
//! loopback addresses, and names by the loopback address. A unit test of the parser
//! (`src/documents.rs`) checks that the unchanged commands parse.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod guide;
mod ports;
mod program;

use std::fs;
use std::path::Path;
use std::process::Command;

use ports::free_ports;
use program::{NOBODY, Program};
use tempfile::TempDir;

const TUNNEL: &str = "[Interface]\nPrivateKey = UEFTU1dPUkQtT0YtVEhFLVRFU1QtTk9ULUEtS0VZISE=\n\
    Address = 10.8.0.2/32\n[Peer]\nPublicKey = Tk9CT0RZUy1QVUJMSUMtS0VZLUZPUi1URVNUUy1PTkU=\n\
    AllowedIPs = 10.8.0.0/24\nEndpoint = 127.0.0.9:51820\n";

/// Returns a folder with the files that the commands name.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["home.conf", "tunnel.conf", "vpn.conf"] {
        fs::write(at(name), TUNNEL).unwrap();
    }
    let keys = ["key".to_owned(), "far.key".to_owned(), "home.key".to_owned()];
    run(folder.path(), &keys).unwrap();
    let corpus = guide::root().join("fuzz/corpus/covers");
    // The first byte selects the type of the fuzzer's input, so it is removed.
    for (name, seed) in [("ssh.pcap", "shape"), ("www/list.json", "json")] {
        fs::create_dir_all(at("www")).unwrap();
        fs::write(at(name), &fs::read(corpus.join(seed)).unwrap()[1..]).unwrap();
    }
    let example = fs::read_to_string(guide::root().join("examples/tunnel.toml")).unwrap();
    let (settings, _) = example.split_once("[[path]]").unwrap();
    let settings = settings.replace("vpn.example.net", "127.0.0.1").replace("51820\"", "4\"");
    let paths = "[[path]]\nname = \"a\"\naddress = \"127.0.0.2\"\n";
    for name in ["home.toml", "tunnel.toml"] {
        fs::write(at(name), format!("{settings}{paths}")).unwrap();
    }
    folder
}

/// Returns `word` adapted to this machine. `at` distinguishes paths.
fn here(word: &str, at: usize) -> String {
    let loopback = format!("addr:127.0.0.{}", 2 + at);
    match word {
        "auto" => format!("p{at}={loopback}"),
        "/etc/wireguard/home.conf" => "home.conf".to_owned(),
        "/etc/wireguard/split.conf" => "new.conf".to_owned(),
        "split.conf" => format!("split{at}.conf"),
        _ => match word.split_once('=') {
            Some((name, kind)) if kind.starts_with("socks5:") => format!("{name}={loopback}"),
            Some((name, kind)) if ["if:", "wg:"].iter().any(|of| kind.starts_with(of)) => {
                let (_, rest) = kind.split_once(',').unwrap_or_default();
                let comma = if rest.is_empty() { "" } else { "," };
                format!("{name}={loopback}{comma}{rest}")
            }
            _ if word.contains(".net:") => format!("127.0.0.1:{}", 4 + at),
            _ => word.to_owned(),
        },
    }
}

fn run(folder: &Path, words: &[String]) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    let output = command.args(words).current_dir(folder).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(stdout) } else { Err(errors) }
}

#[test]
fn every_split_of_the_documents_can_begin() {
    let folder = folder();
    let splits = guide::commands().into_iter().filter(|typed| {
        let has = |word: &str| typed.words.iter().any(|own| own == word);
        typed.words[0] == "anabranch"
            && typed.words[1] == "split"
            && !has("--tun")
            && !has("--restore")
    });
    let mut count = 0;
    for (at, typed) in splits.enumerate() {
        let mut words = Vec::new();
        for (n, word) in typed.words[1..].iter().enumerate() {
            words.push(if word == "split.conf" { here(word, at) } else { here(word, n) });
        }
        words.retain(|word| word != "--check");
        words.extend(["--check".to_owned(), "--same-egress".to_owned()]);
        let result = run(folder.path(), &words);
        let stdout = result.unwrap_or_else(|error| panic!("{}: {words:?}: {error}", typed.place));
        assert!(stdout.contains("schedule  "), "{}: {stdout}", typed.place);
        count += 1;
    }
    assert!(count > 10, "only {count} splits were found");
}

#[test]
fn reports_man_pages_and_completions_of_the_documents_are_made() {
    let folder = folder();
    let trace = guide::root().join("docs/results/page-loads/split.parquet");
    fs::copy(trace, folder.path().join("home.parquet")).unwrap();
    let of_guards = guide::root().join("lab/tests/data/client-trace.parquet");
    fs::copy(of_guards, folder.path().join("guards.parquet")).unwrap();
    let mut count = 0;
    for typed in guide::commands() {
        let ours = typed.words[0] == "anabranch";
        if !ours || !["report", "generate", "status"].contains(&typed.words[1].as_str()) {
            continue;
        }
        if let Err(error) = run(folder.path(), &typed.words[1..]) {
            panic!("{}: {error}", typed.place);
        }
        count += 1;
    }
    assert!(count > 2, "only {count} were found");
}

/// Returns `word`, an argument of a program that listens, with addresses of this machine.
fn served(word: &str) -> String {
    let [port] = free_ports();
    match word {
        "127.0.0.1:51820" | "home=127.0.0.1:51820" | "office=192.0.2.7:51820" => word.to_owned(),
        _ if word.starts_with("0.0.0.0:") || word.starts_with("[::]:") => {
            format!("127.0.0.1:{port}")
        }
        _ if word.starts_with("192.0.2.") => "127.0.0.1".to_owned(),
        _ => word.to_owned(),
    }
}

/// Returns the third-party program that a transport starts (`NAME exec PROGRAM ...`), if it is not
/// installed.
fn absent(word: &str) -> Option<&str> {
    let (_, program) = word.split_once(" exec ")?;
    let program = program.split_whitespace().next()?;
    (!Path::new(program).exists()).then_some(program)
}

#[test]
fn programs_of_the_documents_that_serve_begin_and_end() {
    let folder = folder();
    fs::write(folder.path().join("network.txt"), format!("{NOBODY}\n")).unwrap();
    let mut seen = Vec::new();
    for typed in guide::commands() {
        let kind = typed.words.get(1).map_or("", String::as_str);
        let serves = ["merge", "up", "authority", "relay", "client", "pt"].contains(&kind);
        // Interfaces need root, so the interop tests create them.
        let elsewhere = |word: &String| word.ends_with(".toml") || word == "--tun";
        if typed.words[0] != "anabranch" || !serves || typed.words.iter().any(elsewhere) {
            continue;
        }
        let mut words: Vec<String> = typed.words[1..].iter().map(|word| served(word)).collect();
        if words.get(1).is_some_and(|word| word == "crawl") {
            // This machine may have no browser.
            if let Some(at) = words.iter().position(|word| word == "--browser") {
                words.drain(at..at + 2);
            }
            if let Err(error) = run(folder.path(), &words) {
                panic!("{}: {words:?}: {error}", typed.place);
            }
            continue;
        }
        if let Some(stranger) = words.iter().find_map(|word| absent(word)) {
            println!("skipped: {}: {stranger} is not on this machine", typed.place);
            continue;
        }
        words.push("--json".to_owned());
        let more: &[&str] = match kind {
            "up" | "client" => &["--listen", "127.0.0.1:0"],
            "relay" | "authority" => &["--allow-private"],
            _ => &[],
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        command.args(&words).args(more).current_dir(folder.path()).env("HOME", folder.path());
        let mut program = Program::of(command.env_remove("XDG_STATE_HOME"));
        program.next("listening");
        program.signal("-INT");
        let (status, errors) = program.ended();
        assert_eq!(status.code(), Some(0), "{}: {words:?}: {errors}", typed.place);
        seen.push(kind.to_owned());
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen, ["authority", "client", "merge", "pt", "relay", "up"]);
}
