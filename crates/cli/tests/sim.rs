//! Tests of `anabranch sim` on small networks: its output and files, and its refusals.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const SCENARIO: &str = "seeds = [1, 2]\nduration = '8s'\ndelay = '10ms'\n\
    [relays]\ncount = 4\nexits = 1\n[clients]\nweb = 1\nbulk = 1\n";

fn sim(folder: &Path, text: &str, arguments: &[&str]) -> Output {
    fs::write(folder.join("s.toml"), text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.args(["sim", "s.toml", "--quiet"]).args(arguments).current_dir(folder);
    command.stdin(Stdio::null()).output().unwrap()
}

fn json(folder: &Path, text: &str, arguments: &[&str]) -> Value {
    let output = sim(folder, text, &[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn results_depend_on_scenario_and_seed_alone() {
    let folder = TempDir::new().unwrap();
    let both = json(folder.path(), SCENARIO, &["--out", "d.parquet"]);
    let runs = both["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    assert_ne!(runs[0]["hash"], runs[1]["hash"]);
    assert!(runs.iter().all(|run| run["bulk"]["downloads"].as_u64().unwrap() > 0), "{both}");
    assert!(runs.iter().all(|run| run["bulk"]["failed"] == 0), "{both}");
    assert!(fs::metadata(folder.path().join("d.parquet")).unwrap().len() > 500);
    // The second seed is simulated alone, and then with the cryptography of circuits.
    let alone = json(folder.path(), SCENARIO, &["--seed", "2"]);
    assert_eq!(alone["runs"][0], runs[1]);
    let full = json(folder.path(), &format!("crypto = 'full'\n{SCENARIO}"), &["--seed", "2"]);
    assert_eq!(full["runs"][0], runs[1]);
}

#[test]
fn bad_input_is_refused_before_anything_runs() {
    let folder = TempDir::new().unwrap();
    let refused = |text: &str, arguments: &[&str], wanted: &str| {
        let output = sim(folder.path(), text, arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(wanted) && output.stdout.is_empty(), "{message}");
    };
    refused(&SCENARIO.replace("web = 1\nbulk = 1", "web = 0"), &[], "s.toml:7: there is no client");
    refused(&SCENARIO.replace("'10ms'", "'-10ms'"), &[], "s.toml:3: ");
    refused(&SCENARIO.replace("web = 1", "web = 1\nrate = 0"), &[], "s.toml:9: ");
    refused(SCENARIO, &["--out", "no/where.parquet"], "does not exist");
    fs::write(folder.path().join("mine"), "mine").unwrap();
    refused(SCENARIO, &["--out", "mine"], "already exists");
    assert_eq!(fs::read_to_string(folder.path().join("mine")).unwrap(), "mine");
}

/// Returns a table of relays: guards, exits and others. One exit permits only port 80.
fn consensus() -> String {
    let mut text = "# valid-after 2026-04-18 23:00:00\n# params cc_alg=2\n\
        # bandwidth-weights Wgg=5888 Wgd=1040 Wgm=5888 Wmg=4112 Wmd=1040 Wme=0 Wmm=10000 Wee=10000 \
        Wed=7920 Weg=7920 Wem=10000 Wbd=1040 Wbe=0 Wbg=4112 Wbm=10000 Wdb=10000 Web=10000 Wgb=10000 \
        Wmb=10000\n#fp\tnick\tip\n"
        .to_owned();
    for place in 0..24 {
        let id = format!("{place:02X}").repeat(20);
        let (flags, policy) = match place % 4 {
            0 => ("Exit Fast Running Stable V2Dir Valid", "accept 80,443"),
            1 | 2 => ("Fast Guard Running Stable V2Dir Valid", ""),
            _ => ("Fast Running Valid", ""),
        };
        let (weight, ip) = (1000 + 100 * place, format!("10.{place}.0.1"));
        text +=
            &format!("{id}\tr{place}\t{ip}\t9001\t0\tSE\t{weight}\t0\t{flags}\t0.4\t{policy}\t\n");
    }
    text
}

const SAMPLED: &str = "duration = '8s'\ndelay = '10ms'\n[relays]\nconsensus = 'c.tsv'\n\
    count = 12\n[clients]\nbulk = 1\n";

#[test]
fn a_network_is_sampled_from_a_consensus_beside_the_scenario() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("c.tsv"), consensus()).unwrap();
    let first = json(folder.path(), SAMPLED, &[]);
    assert!(first["runs"][0]["bulk"]["downloads"].as_u64().unwrap() > 0, "{first}");
    assert_eq!(json(folder.path(), SAMPLED, &[]), first);
    let other = json(folder.path(), &format!("network = 2\n{SAMPLED}"), &[]);
    assert_ne!(other["runs"][0]["hash"], first["runs"][0]["hash"]);
    let refused = |text: &str, wanted: &str| {
        let output = sim(folder.path(), text, &["--out", "d.parquet"]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(wanted) && message.lines().count() == 1, "{message}");
        assert!(!folder.path().join("d.parquet").exists(), "nothing half written");
    };
    refused(&SAMPLED.replace("12", "25"), "s.toml:5: `count` is 25, but only 24 relays");
    // The consensus is incomplete: its last line ends in the middle.
    let text = consensus();
    fs::write(folder.path().join("c.tsv"), &text[..text.len() - 9]).unwrap();
    refused(SAMPLED, "s.toml:4: c.tsv: the file ends within a line");
    fs::write(folder.path().join("c.tsv"), "hello\n").unwrap();
    refused(SAMPLED, "s.toml:4: c.tsv: the file is neither a consensus");
    refused(SAMPLED, "choose another file");
}

/// A scenario with rates and delays from lists, so that its networks differ.
const DRAWN: &str = "duration = '8s'\ndelay = ['5ms', '20ms']\n\
    [relays]\ncount = 4\nexits = 1\nrate = ['5mbit', '20mbit']\n[clients]\nbulk = 1\n";

fn sweep(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.args(["sim", "sweep"]).args(arguments).current_dir(folder);
    command.stdin(Stdio::null()).output().unwrap()
}

/// Returns the last line of a sweep, which has the number of its simulations and their hash.
fn swept(folder: &Path, arguments: &[&str]) -> Value {
    let output = sweep(folder, &[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn a_sweep_has_one_hash_for_any_number_of_workers_and_grows() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    fs::write(at.join("one.toml"), DRAWN).unwrap();
    fs::write(at.join("two.toml"), format!("{DRAWN}legs = 2\n")).unwrap();
    let arms = ["one.toml", "two.toml"];
    let of = |into: &str, more: &[&str]| swept(at, &[&[into], &arms[..], more].concat());
    let first = of("a", &["--networks", "2", "--workers", "1"]);
    assert_eq!(first["runs"], 4);
    assert_eq!(of("b", &["--networks", "2", "--workers", "3"]), first);
    // Networks are added to the existing ones. The same command again changes nothing.
    assert_eq!(of("c", &[])["runs"], 2);
    assert_eq!(of("c", &["--networks", "2"]), first);
    let before = fs::read(at.join("c/units.jsonl")).unwrap();
    assert_eq!(of("c", &["--networks", "2"]), first);
    assert_eq!(fs::read(at.join("c/units.jsonl")).unwrap(), before);
    let mut files: Vec<_> = fs::read_dir(at.join("c/runs")).unwrap().collect();
    assert_eq!(files.len(), 4, "{files:?}");
    assert!(files.remove(0).unwrap().file_name().to_str().unwrap().ends_with(".parquet"));
    // The first folder is of another build, and the second one is of other scenarios.
    let journal = String::from_utf8(before).unwrap();
    fs::write(at.join("c/units.jsonl"), journal.replacen("SHA-256 ", "SHA-256 0", 1)).unwrap();
    let refused = |words: &[&str], wanted: &str| {
        let output = sweep(at, words);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(wanted) && message.lines().count() == 1, "{message}");
    };
    refused(&["c", "one.toml", "two.toml"], "belongs to an experiment of another build");
    refused(&["a", "one.toml"], "belongs to an experiment with other settings (arms");
    refused(&["d", "one.toml", "./one.toml"], "two scenarios are called `one`");
    refused(&["d", "one.toml", "--run", "two"], "this sweep has no simulation `two`; --list");
    refused(&["d", "none.toml"], "none.toml: No such file or directory: name a scenario file");
    assert!(!at.join("d").exists(), "nothing half written");
    refused(&["one.toml", "one.toml"], "one.toml: ");
}

#[test]
fn a_folder_with_other_files_is_refused_and_stays_as_it_is() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    fs::write(at.join("one.toml"), DRAWN).unwrap();
    fs::create_dir_all(at.join("photos/runs")).unwrap();
    fs::write(at.join("photos/summer.jpg"), "mine").unwrap();
    let listing = |folder: &str| {
        let entries = fs::read_dir(at.join(folder)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let both = || ["photos", "photos/runs"].map(listing);
    let refused = |words: &[&str], named: &str| {
        let before = both();
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        command.args(words).current_dir(at).stdin(Stdio::null());
        let output = command.output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        let wanted = format!(
            "photos: the folder contains \"{named}\" but no units.jsonl, so it is not a folder of \
             results: choose a new or an empty folder"
        );
        assert!(message.contains(&wanted) && message.lines().count() == 1, "{message}");
        assert_eq!(both(), before);
    };
    let sweep = ["sim", "sweep", "photos", "one.toml"];
    refused(&sweep, "summer.jpg");
    refused(&[&sweep[..], &["--list"]].concat(), "summer.jpg");
    refused(&[&sweep[..], &["--run", "one-n1-s1"]].concat(), "summer.jpg");
    // Sweeps write the folder `runs`, so the other file is named.
    let wide = ["experiment", "wide", "photos"];
    refused(&wide, "summer.jpg");
    fs::rename(at.join("photos/summer.jpg"), at.join("photos/runs/summer.jpg")).unwrap();
    refused(&sweep, "runs/summer.jpg");
    // An experiment never has this folder without its journal.
    refused(&wide, "runs");
    // Downloads that `--run` has written to a folder are accepted.
    fs::remove_file(at.join("photos/runs/summer.jpg")).unwrap();
    assert_eq!(swept(at, &["photos", "one.toml"])["runs"], 1);
}

#[test]
fn a_run_of_a_sweep_can_be_carried_out_in_another_folder() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    fs::write(at.join("one.toml"), DRAWN).unwrap();
    let words = |into: &'static str, more: &[&'static str]| {
        let output = sweep(at, &[&[into, "one.toml", "--networks", "2"], more].concat());
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (code, listed) = words("a", &["--list"]);
    assert_eq!((code, &*listed), (Some(0), "one-n1-s1\none-n2-s1\n"));
    let journal = fs::read_to_string(at.join("a/units.jsonl")).unwrap();
    assert_eq!(journal.lines().count(), 1, "nothing was run");
    let (code, printed) = words("b", &["--run", "one-n2-s1"]);
    assert_eq!(code, Some(0), "{printed}");
    let report: Value = serde_json::from_str(&printed).unwrap();
    let header: Value = serde_json::from_str(&journal).unwrap();
    assert_eq!(report["header"], header);
    assert!(at.join("b/runs/one-n2-s1.parquet").exists() && !at.join("b/units.jsonl").exists());
    // The record of the other folder continues the first folder.
    fs::write(at.join("a/units.jsonl"), format!("{journal}{}\n", report["record"])).unwrap();
    assert_eq!(words("a", &["--list"]).1, "one-n1-s1\n");
    let (code, printed) = words("b", &["--run", "two"]);
    assert!(
        code == Some(2) && printed.contains("this sweep has no simulation `two`; --list"),
        "{printed}"
    );
}

/// The experiment is reduced to ten clients for ten seconds on one network.
#[test]
fn the_wide_experiment_makes_everything_and_goes_on() {
    let folder = TempDir::new().unwrap();
    let at = folder.path().join("wide");
    let notes = folder.path().join("notes.md");
    let mark = "anabranch experiment wide";
    let marks = format!(
        "<!-- {mark}: from here to the end mark, all is generated -->\n\n<!-- end of {mark} -->\n"
    );
    fs::write(&notes, marks).unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        command.args(["experiment", "wide"]).arg(&at).args(["--into", notes.to_str().unwrap()]);
        command.args(words).stdin(Stdio::null()).output().unwrap()
    };
    let small = ["--clients", "10", "--seconds", "10", "--warm-up", "0", "--two-paths"];
    let small = [&small[..], &["--networks", "1", "--runs", "1"]].concat();
    let output = run(&small);
    assert!(output.status.success(), "{output:?}");
    let journal = fs::read_to_string(at.join("units.jsonl")).unwrap();
    // The journal has a header, two designs with one path, five designs with three schedules each,
    // and four UDP designs.
    assert_eq!(journal.lines().count(), 1 + 2 + 15 + 4);
    for file in ["wide.parquet", "figure-2.svg", "figure-3.svg", "figure-4.svg", "wide.html"] {
        assert!(fs::metadata(at.join(file)).unwrap().len() > 500, "{file}");
    }
    let text = fs::read_to_string(&notes).unwrap();
    for wanted in [
        "| mudp-or × 2, eta |",
        "cannot be judged: no downloads to compare",
        "smaller than the full one: 10 instead of 228 clients; 10 simulated seconds instead of two",
        "| tor-fixed |",
    ] {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    // There is nothing left to do, and other settings are refused.
    assert!(run(&small).status.success());
    assert_eq!(fs::read_to_string(at.join("units.jsonl")).unwrap(), journal);
    let output = run(&["--clients", "20"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("with other settings"));
}
