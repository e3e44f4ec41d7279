//! Tests of `anabranch anonymity` on a small consensus that is made here: its output, and its
//! refusals.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Returns a table of 300 relays of similar weights. A third are guards, and a third are exits.
fn table() -> String {
    let mut text = "# valid-after 2019-12-14 21:00:00\n# params a=1\n\
        # bandwidth-weights Wgg=10000 Wee=10000 Wmm=10000\n#fp\t\n"
        .to_owned();
    for place in 0..300 {
        let (flags, policy) = match place % 3 {
            0 => ("Fast Guard Running Stable V2Dir Valid", "reject 1-65535"),
            1 => ("Exit Fast Running Stable Valid", "accept 80,443"),
            _ => ("Fast Running Valid", "reject 1-65535"),
        };
        text += &format!(
            "{:040X}\tr{place}\t{}.{}.0.1\t9001\t0\tSE\t{}\t0\t{flags}\t0.4\t{policy}\t\n",
            1 + place * 7,
            1 + place / 250,
            place % 250,
            50 + place % 9
        );
    }
    text
}

fn anonymity(arguments: &[&str], consensus: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .arg("anonymity")
        .args(arguments)
        .arg(consensus)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn written(folder: &TempDir, text: &str) -> PathBuf {
    let file = folder.path().join("consensus.tsv");
    fs::write(&file, text).unwrap();
    file
}

fn json(arguments: &[&str], consensus: &Path) -> Value {
    let output = anonymity(&[arguments, &["--json"]].concat(), consensus);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn each_analysis_prints_a_table_and_json() {
    let folder = TempDir::new().unwrap();
    let file = written(&folder, &table());
    let paths = ["paths", "--circuits", "200", "--draws", "3", "--entries", "0.2"];
    let year = ["year", "--clients", "300", "--draws", "2", "--days", "30,60"];
    let fingerprints = ["fingerprints", "--clients", "2000", "--draws", "2"];
    for arguments in [&paths[..], &year[..], &fingerprints[..]] {
        let output = anonymity(arguments, &file);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}");
        assert!(
            text.starts_with("consensus of 2019-12-14 21:00:00: 300 relays, 100 of them"),
            "{text}"
        );
        assert!(text.contains("does not list relay families"), "{text}");
    }
    let paths = json(&paths, &file);
    assert_eq!(paths["rows"].as_array().unwrap().len(), 3);
    let any = &paths["rows"][2]["any"];
    let [closed, drawn] = ["closed", "drawn"].map(|name| any[name].as_f64().unwrap());
    assert!((closed - 0.1 * (1.0 - 0.8f64.powi(3))).abs() < 0.01 && (closed - drawn).abs() < 0.05);
    let year = json(&year, &file);
    assert_eq!(year["rows"].as_array().unwrap().len(), 4);
    assert!(year["rows"][3]["legs"].is_null(), "COMB");
    let last = |row: usize| year["rows"][row]["any_ever"][1]["mean"].as_f64().unwrap();
    assert!(last(0) < last(1) && last(1) < last(2), "{year}");
    let fingerprints = json(&fingerprints, &file);
    assert_eq!(fingerprints["rows"][0]["formula"], 20.0);
}

#[test]
fn a_consensus_may_come_by_standard_input_and_threads_change_nothing() {
    let folder = TempDir::new().unwrap();
    let file = written(&folder, &table());
    let arguments = ["year", "--clients", "5000", "--draws", "2", "--json"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .arg("anonymity")
        .args(arguments)
        .args(["--threads", "3", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(table().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let one = anonymity(&[&arguments[..], &["--threads", "1"]].concat(), &file);
    assert!(output.status.success() && output.stdout == one.stdout);
}

#[test]
fn what_makes_no_sense_is_refused_in_one_line() {
    let folder = TempDir::new().unwrap();
    let good = table();
    let half = &good[..good.len() / 2];
    let few: String = good.lines().take(7).map(|line| format!("{line}\n")).collect();
    let cases: [(&str, &[&str], &str); 14] = [
        (&few, &["paths"], "(entry relays), but the consensus has only 1: lower"),
        (&few, &["year"], "(entry relays), but the consensus has only 1: lower"),
        (&few, &["fingerprints"], "(entry relays), but the consensus has only 1: lower"),
        (half, &["fingerprints"], "its end is missing"),
        (half, &["paths"], "its end is missing"),
        ("hello\n", &["year"], "neither"),
        (&good, &["paths", "--entries=1.5"], "between 0 and 1"),
        (&good, &["paths", "--exits=-0.1"], "between 0 and 1"),
        (&good, &["paths", "--port=25"], "no exit of the consensus allows port 25"),
        (&good, &["paths", "--legs=9"], "from 1 to 8"),
        (&good, &["year", "--share=nan"], "between 0 and 1"),
        (&good, &["year", "--clients=0"], "the number of clients is 0"),
        (&good, &["year", "--days=90,30"], "in ascending order"),
        (&good, &["fingerprints", "--clients=0"], "the number of clients is 0"),
    ];
    for (text, arguments, says) in cases {
        let output = anonymity(arguments, &written(&folder, text));
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.lines().count() == 1 && message.contains(says), "{arguments:?}: {message}");
        assert!(output.stdout.is_empty());
    }
    let packed = folder.path().join("packed.xz");
    fs::write(&packed, [0xfd, b'7', b'z', b'X', b'Z', 0, 1]).unwrap();
    for (file, says) in
        [(packed, "its end is missing"), (folder.path().join("none"), "No such file")]
    {
        let output = anonymity(&["paths"], &file);
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && message.contains(says), "{message}");
    }
}

/// Runs `anabranch experiment anonymity` with `consensuses`, with settings small enough for a
/// test.
fn experiment(folder: &Path, consensuses: &[&Path], words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.args(["experiment", "anonymity"]).arg(folder);
    consensuses.iter().for_each(|file| {
        command.arg("--consensus").arg(file);
    });
    let small = ["--clients", "100", "--draws", "2", "--fingerprints", "300"];
    let small = if consensuses.is_empty() { &[][..] } else { &small[..] };
    command.args(small).args(words).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn the_experiment_makes_everything_and_goes_on_where_it_was_stopped() {
    let folder = TempDir::new().unwrap();
    let first = written(&folder, &table());
    let second = folder.path().join("later.tsv");
    let later = table().replace("2019-12-14", "2026-04-18");
    let later = later.replace("a=1", "guard-n-primary-guards-to-use=2");
    fs::write(&second, later).unwrap();
    let place = folder.path().join("results");
    let notes = folder.path().join("notes.md");
    let mark = "anabranch experiment anonymity";
    let marks = format!(
        "<!-- {mark}: from here to the end mark, all is generated -->\n<!-- end of {mark} -->\n"
    );
    fs::write(&notes, marks).unwrap();
    let into = ["--into", notes.to_str().unwrap(), "--threads", "2"];
    let output = experiment(&place, &[&first, &second], &into);
    assert!(output.status.success(), "{output:?}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.contains("9.8 %") && stdout.contains("exponentially"), "{stdout}");
    let read = |name: &str| fs::read_to_string(place.join(name)).unwrap();
    let (page, picture, journal) = (read("anonymity.html"), read("year.svg"), read("units.jsonl"));
    let markdown = fs::read_to_string(&notes).unwrap();
    for wanted in ["2019-12-14T21", "2026-04-18T21", "no families", "around twice", "COMB"] {
        assert!(page.contains(wanted), "{wanted}");
        assert!(markdown.contains(wanted), "{wanted}");
    }
    assert!(!page.contains("<script") && !page.contains("http:") && !page.contains("NaN"));
    assert!(picture.starts_with("<svg xmlns=") && picture.matches("class=\"band").count() == 16);
    assert!(fs::metadata(place.join("anonymity.parquet")).unwrap().len() > 1000);

    let lines: Vec<&str> = journal.lines().collect();
    fs::write(place.join("units.jsonl"), lines[..9].join("\n") + "\n{\"unit\": \"cut").unwrap();
    let output = experiment(&place, &[&first, &second], &into);
    assert!(output.status.success(), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr.lines().count(), lines.len() - 9, "what was there is not done again");
    assert_eq!(read("units.jsonl"), journal, "and the rest comes out the same");
    assert_eq!(read("anonymity.html"), page);
    let output = experiment(&place, &[], &["--report"]);
    assert!(output.status.success() && read("anonymity.html") == page, "{output:?}");
}

#[test]
fn an_experiment_that_cannot_be_is_refused_in_one_line_and_makes_nothing() {
    let folder = TempDir::new().unwrap();
    let good = written(&folder, &table());
    let cut = folder.path().join("cut.tsv");
    fs::write(&cut, &table()[..table().len() / 2]).unwrap();
    let few = folder.path().join("few.tsv");
    fs::write(&few, table().lines().take(7).map(|line| format!("{line}\n")).collect::<String>())
        .unwrap();
    let none = folder.path().join("none.tsv");
    let place = folder.path().join("results");
    let cases: [(&[&Path], &str); 4] = [
        (&[&good, &cut], "its end is missing"),
        (&[&good, &good], "two files hold the same consensus"),
        (&[&none], "No such file"),
        (&[&few], "a client would use 5 guards (entry relays), but the consensus has only 1"),
    ];
    for (consensuses, says) in cases {
        let output = experiment(&place, consensuses, &[]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.lines().count() == 1 && message.contains(says), "{message}");
        assert!(!place.exists(), "{message}");
    }
}

/// Creates an archive like those of CollecTor, with one consensus for each of `days`.
fn archive(folder: &TempDir, days: &[&str]) -> PathBuf {
    let file = folder.path().join("2019-12.tar");
    let mut builder = tar::Builder::new(fs::File::create(&file).unwrap());
    for day in days {
        let text = table().replace("2019-12-14", day);
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        let name = format!("consensuses/{day}-21-00-00-consensus");
        builder.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap();
    file
}

#[test]
fn the_experiment_takes_consensuses_of_an_archive_by_their_hours() {
    let folder = TempDir::new().unwrap();
    let month = archive(&folder, &["2019-12-13", "2019-12-14", "2019-12-15"]);
    let of = |hour: &str| PathBuf::from(format!("{}@{hour}", month.display()));
    let (first, second) = (of("2019-12-15T21"), of("2019-12-13T21"));
    let place = folder.path().join("results");
    let output = experiment(&place, &[&first, &second], &["--threads", "2"]);
    assert!(output.status.success(), "{output:?}");
    let page = fs::read_to_string(place.join("anonymity.html")).unwrap();
    assert!(page.contains("2019-12-15T21") && page.contains("2019-12-13T21"), "{page}");
    assert!(!page.contains("2019-12-14T21"), "it was not asked for");

    let plain = PathBuf::from(format!("{}@2019-12-14T21", written(&folder, &table()).display()));
    for (given, says) in [
        (&month, "choose one by its hour, such as @2019-12-13T21"),
        (&of("2019-12-16T21"), "none of the archive's 3 consensuses"),
        (&of("May"), "@May: expected a date and an hour"),
        (&plain, "archive to choose from: leave out @2019-12-14T21"),
    ] {
        let output = experiment(&folder.path().join("none"), &[given], &[]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.lines().count() == 1 && message.contains(says), "{message}");
    }
}
