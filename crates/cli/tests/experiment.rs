//! `anabranch experiment`: what cannot be is refused and leaves nothing; tables and pages are made of what is there.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::json;

fn overhead(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.args(["experiment", "overhead"]).arg(folder).args(words);
    command
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
    let lines: Vec<String> =
        [header].into_iter().chain(runs).map(|line| format!("{line}\n")).collect();
    fs::write(folder.join("units.jsonl"), lines.concat()).unwrap();
}

#[test]
fn table_page_and_markdown_are_made_of_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    journal(folder.path());
    let notes = folder.path().join("notes.md");
    let name = "anabranch experiment overhead";
    let text = format!(
        "# Mine\n<!-- {name}: from here to the end mark, all is generated -->\n<!-- end of {name} -->\nend\n"
    );
    fs::write(&notes, text).unwrap();
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
