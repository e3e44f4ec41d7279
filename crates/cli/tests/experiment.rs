//! `anabranch experiment`: what cannot be is refused and leaves nothing; tables and pages are made of what is there.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

fn experiment(name: &str, folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.args(["experiment", name]).arg(folder).args(words);
    command
}

fn overhead(folder: &Path, words: &[&str]) -> Command {
    experiment("overhead", folder, words)
}

/// The one line of a refusal.
fn refusal(output: Output) -> String {
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

/// A journal of three downloads, as a run writes it.
fn journal(folder: &Path) {
    let run = |every: u32, mbits: u64, down: [u64; 3]| {
        json!({
            "unit": format!("quinn/equal/3/{every}/{mbits}"), "system": "quinn", "net": "equal", "paths": 3,
            "every": every, "repetition": 0, "weights": [0.3, 0.3, 0.4], "started": 1.7e9,
            "seconds": 10.0, "bytes": mbits * 1_250_000, "longest_gap": 0.1, "up": [1, 1, 1],
            "down": down, "error": "",
            "machine": {"steal": 0.0, "pressure": 0.5, "load": 1.0, "late": 0.1},
        })
    };
    let header = json!({
        "experiment": "overhead", "version": 1, "seed": 1, "seconds": 10.0, "bytes": null, "splitter": [],
    });
    let runs = [run(0, 90, [9, 0, 0]), run(100, 60, [3, 3, 4]), run(100, 63, [3, 3, 4])];
    write(folder, &header, &runs);
}

fn write(folder: &Path, header: &Value, records: &[Value]) {
    let lines = [header].into_iter().chain(records).map(|line| format!("{line}\n"));
    fs::write(folder.join("units.jsonl"), lines.collect::<String>()).unwrap();
}

/// A Markdown file into which the results of an experiment go.
fn notes(folder: &Path, name: &str) -> PathBuf {
    let file = folder.join("notes.md");
    let name = format!("anabranch experiment {name}");
    let text = format!(
        "# Mine\n<!-- {name}: from here to the end mark, all is generated -->\n<!-- end of {name} -->\nend\n"
    );
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn table_page_and_markdown_are_made_of_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    journal(folder.path());
    let notes = notes(folder.path(), "overhead");
    let words = ["--report", "--into", notes.to_str().unwrap()];
    let output = overhead(folder.path(), &words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains("quinn   20/20/20 ms  3      100 ms  61.5 (60.0–63.0)  68.3 %"),
        "{said}"
    );
    let page = fs::read_to_string(folder.path().join("overhead.html")).unwrap();
    for wanted in ["What splitting costs", "68.3 % (66.7–70.0, 2 runs)", "QUIC: ngtcp2: nothing"]
    {
        assert!(page.contains(wanted), "{wanted}\n{page}");
    }
    assert!(!page.contains("<script") && !page.contains("http:"), "{page}");
    let notes = fs::read_to_string(notes).unwrap();
    assert!(notes.starts_with("# Mine\n") && notes.ends_with("-->\nend\n"), "{notes}");
    assert!(notes.contains("| 100 ms | 61.5 (60.0–63.0), 68.3 % |"), "{notes}");
    assert!(folder.path().join("overhead.parquet").exists());
}

/// Two repetitions of all ways, as a run writes them: quic-go's first byte comes 140 ms later with its handshake by
/// the VPN.
fn fetches() -> Vec<Value> {
    let fetch = |server: &str, access: &str, n: u32, first_byte: f64, direct: u64| {
        let through = first_byte > 0.0;
        json!({
            "unit": format!("{server}/{access}/{n}"), "server": server, "access": access, "repetition": n,
            "started": 1.7e9, "through": through, "first_byte": first_byte, "seconds": 1.0,
            "bytes": if through { 10_000_000 } else { 0 }, "direct": [0, direct], "vpn": [0, 10_000_000 - direct],
            "censored": u32::from(!through), "error": if through { "" } else { "timeout" },
            "machine": {"steal": 0.0, "pressure": 0.5, "load": 1.0, "late": 0.1},
        })
    };
    let of = |n| {
        let later = f64::from(n) * 0.01;
        [
            fetch("quic-go", "open", n, 0.06, 10_000_000),
            fetch("quic-go", "direct", n, 0.0, 0),
            fetch("quic-go", "vpn", n, 0.2 + later, 0),
            fetch("quic-go", "handshake", n, 0.2 + later, 9_900_000),
            fetch("tls", "open", n, 0.1, 10_000_000),
            fetch("tls", "direct", n, 0.0, 0),
        ]
    };
    (0..2).flat_map(of).collect()
}

#[test]
fn a_censor_that_is_got_around_is_reported_with_what_it_costs() {
    let folder = tempfile::tempdir().unwrap();
    let header = json!({
        "experiment": "circumvention", "seed": 1, "program": "anabranch 1.2.3, SHA-256 0a", "machine": "mine",
        "programs": {"quic-client": "0b"},
    });
    write(folder.path(), &header, &fetches());
    let notes = notes(folder.path(), "circumvention");
    let words = ["--report", "--into", notes.to_str().unwrap()];
    let output = experiment("circumvention", folder.path(), &words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("QUIC: quic-go: the first byte comes 145 (140–150) ms later"), "{said}");
    let notes = fs::read_to_string(notes).unwrap();
    let origin = "Program: anabranch 1.2.3, SHA-256 0a. Machine: mine. Peers: quic-client 0b.";
    for wanted in [
        "| QUIC: quic-go | yes | yes | 99.00 (99.00–99.00) % | 145 (140–150) | 0 (0–0) |",
        "| TLS over TCP: OpenSSL | yes | – | – | – | – |",
        "| QUIC: quic-go | into the censor | 0 of 2 | – | – | – | – | 2 of 2 |",
        origin,
    ] {
        assert!(notes.contains(wanted), "{wanted}\n{notes}");
    }
    let page = fs::read_to_string(folder.path().join("circumvention.html")).unwrap();
    assert!(page.contains(origin) && page.contains("0 of 2 came through"), "{page}");
    assert!(!page.contains("<script") && !page.contains("http:"), "{page}");
    assert!(folder.path().join("circumvention.parquet").exists());
}

#[test]
fn a_journal_of_another_build_is_not_gone_on_with() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: it takes root to get that far");
    }
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    for name in ["wireguard-go", "wg", "openssl", "nft"] {
        fs::copy("/bin/true", bin.join(name)).unwrap();
    }
    let header = json!({"experiment": "circumvention", "program": "anabranch 0.0.1, SHA-256 0a"});
    write(folder.path(), &header, &[]);
    let before = fs::read(folder.path().join("units.jsonl")).unwrap();
    let words = ["--peers", "tls", "--programs", bin.to_str().unwrap()];
    let output = experiment("circumvention", folder.path(), &words).output().unwrap();
    if String::from_utf8_lossy(&output.stderr).contains("namespace") {
        return println!("skipped: no namespaces");
    }
    let message = refusal(output);
    for wanted in
        ["units.jsonl: belongs to a run of another build, peer or machine", "not noted there"]
    {
        assert!(message.contains(wanted), "{wanted} in {message}");
    }
    assert_eq!(fs::read(folder.path().join("units.jsonl")).unwrap(), before);
}

#[test]
fn what_is_not_there_cannot_be_reported() {
    let folder = tempfile::tempdir().unwrap();
    let message = refusal(overhead(folder.path(), &["--report"]).output().unwrap());
    assert!(message.contains("units.jsonl: No such file"), "{message}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn without_the_peers_it_says_which_and_where_to_get_them_and_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("results");
    let mut command = overhead(&target, &["--peers", "quinn,mosh"]);
    let nowhere = ["PATH", "HOME", "XDG_CACHE_HOME"].map(|name| (name, "/nowhere"));
    let message = refusal(command.envs(nowhere).output().unwrap());
    let root = rustix::process::geteuid().is_root();
    let expected: &[&str] = match root {
        false => &["sudo anabranch experiment overhead"],
        true => &["missing: ", "quinn-server", "quic-client", "setup --area experiments"],
    };
    for wanted in expected {
        assert!(message.contains(wanted), "{wanted} in {message}");
    }
    assert!(!target.exists(), "nothing was created");
}

#[test]
fn words_that_make_no_sense_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("results");
    for (words, wanted) in [
        (["--peers", "quick"], "is none of wireguard, mosh"),
        (["--every", "soon"], "a number of milliseconds from 1 to 60000, or never"),
        (["--networks", "flat"], "is none of equal, unequal"),
    ] {
        let message = refusal(overhead(&target, &words).output().unwrap());
        assert!(message.contains(wanted), "{message}");
    }
    assert!(!target.exists());
}
