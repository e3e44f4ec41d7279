//! `anabranch sim` on small networks: what it prints and writes, and what it refuses.

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
    // The second seed by itself, and with the cryptography of circuits.
    let alone = json(folder.path(), SCENARIO, &["--seed", "2"]);
    assert_eq!(alone["runs"][0], runs[1]);
    let full = json(folder.path(), &format!("crypto = 'full'\n{SCENARIO}"), &["--seed", "2"]);
    assert_eq!(full["runs"][0], runs[1]);
}

#[test]
fn bad_input_is_refused_before_anything_runs() {
    let folder = TempDir::new().unwrap();
    let refused = |text: &str, arguments: &[&str], told: &str| {
        let output = sim(folder.path(), text, arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(told) && output.stdout.is_empty(), "{message}");
    };
    refused(&SCENARIO.replace("web = 1\nbulk = 1", "web = 0"), &[], "s.toml:7: nothing happens");
    refused(&SCENARIO.replace("'10ms'", "'-10ms'"), &[], "s.toml:3: ");
    refused(&SCENARIO.replace("web = 1", "web = 1\nrate = 0"), &[], "s.toml:9: ");
    refused(SCENARIO, &["--out", "no/where.parquet"], "does not exist");
    fs::write(folder.path().join("mine"), "mine").unwrap();
    refused(SCENARIO, &["--out", "mine"], "exists already");
    assert_eq!(fs::read_to_string(folder.path().join("mine")).unwrap(), "mine");
}
