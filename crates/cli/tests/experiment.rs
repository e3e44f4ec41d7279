//! Tests of `anabranch experiment`. Impossible requests are refused without files that remain.
//! Tables and pages are made from the existing measurements.

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

/// Returns wrapped prose as one line.
fn unwrapped(prose: &str) -> String {
    prose.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn overhead(folder: &Path, words: &[&str]) -> Command {
    experiment("overhead", folder, words)
}

/// Returns the line with which the program refuses a request.
fn refusal(output: Output) -> String {
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

/// Returns the record of a download, as the experiment writes it.
fn download(every: u32, mbits: u64, down: [u64; 3]) -> Value {
    json!({
        "unit": format!("quinn/equal/3/{every}/{mbits}"), "system": "quinn", "net": "equal", "paths": 3,
        "every": every, "repetition": 0, "weights": [0.3, 0.3, 0.4], "started": 1.7e9,
        "seconds": 10.0, "bytes": mbits * 1_250_000, "longest_gap": 0.1, "up": [1, 1, 1],
        "down": down, "error": "",
        "machine": {"steal": 0.0, "pressure": 0.5, "load": 1.0, "late": 0.1},
    })
}

/// Writes a journal with three downloads.
fn journal(folder: &Path) {
    let header = json!({
        "experiment": "overhead", "version": 1, "seed": 1, "seconds": 10.0, "bytes": null, "splitter": [],
    });
    let runs = [(0, 90, [9, 0, 0]), (100, 60, [3, 3, 4]), (100, 63, [3, 3, 4])];
    write(folder, &header, &runs.map(|(every, mbits, down)| download(every, mbits, down)));
}

/// Returns the page and the Markdown that an experiment makes from its journal.
fn reported(name: &str, folder: &Path, words: &[&str]) -> (String, String) {
    let notes = notes(folder, name);
    let words = [&["--report", "--into", notes.to_str().unwrap()], words].concat();
    let output = experiment(name, folder, &words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let page = fs::read_to_string(folder.join(format!("{name}.html"))).unwrap();
    (page, fs::read_to_string(notes).unwrap())
}

/// Asserts that the metadata of a table contain the splitter's arguments `words`. Parquet does not
/// compress the metadata of a file.
fn tells_the_splitters_words(table: &Path, words: &str) {
    let table = fs::read(table).unwrap();
    let has = |text: &str| table.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(has("anabranch.splitter") && has(words));
}

fn write(folder: &Path, header: &Value, records: &[Value]) {
    let lines = [header].into_iter().chain(records).map(|line| format!("{line}\n"));
    fs::write(folder.join("units.jsonl"), lines.collect::<String>()).unwrap();
}

/// Creates a Markdown file that can receive the results of an experiment.
fn notes(folder: &Path, name: &str) -> PathBuf {
    let file = folder.join("notes.md");
    let name = format!("anabranch experiment {name}");
    let text = format!(
        "# Mine\n<!-- {name}: from here to the end mark, all is generated -->\n<!-- end of {name} \
         -->\nend\n"
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
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(
        stdout.contains("quinn   20/20/20 ms  3      100 ms  61.5 (60.0–63.0)  68.3 %"),
        "{stdout}"
    );
    let page = fs::read_to_string(folder.path().join("overhead.html")).unwrap();
    for wanted in
        ["What splitting costs", "68.3 % (66.7–70.0, 2 downloads)", "QUIC: ngtcp2: not measured"]
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
fn a_report_is_of_the_journals_settings_and_tells_the_splitters_words() {
    let folder = tempfile::tempdir().unwrap();
    let header = json!({
        "experiment": "overhead", "version": 2, "seed": 9, "seconds": 6.0, "bytes": null,
        "splitter": ["--in-order", "30ms"],
    });
    write(folder.path(), &header, &[download(0, 90, [9, 0, 0]), download(100, 60, [3, 3, 4])]);
    let others = ["--seconds", "20", "--seed", "3", "--split=--quic-tuples=7"];
    let (page, notes) = reported("overhead", folder.path(), &others);
    let sentence = "2 measurements of 6 s each; repetitions interleaved, seed 9; in split \
                    measurements `anabranch split` also had the arguments `--in-order 30ms`.";
    assert!(unwrapped(&notes).contains(sentence), "{notes}");
    for wanted in [
        "2 downloads, 6 s each",
        "<code>anabranch split --in-order 30ms</code>",
        "without the further options of the split measurements",
        "experiment overhead, seed 9.",
    ] {
        assert!(page.contains(wanted), "{wanted}\n{page}");
    }
    assert!(!page.contains("quic-tuples") && !notes.contains("quic-tuples"));
    tells_the_splitters_words(&folder.path().join("overhead.parquet"), "--in-order 30ms");

    let header = json!({"experiment": "overhead", "seed": 9, "seconds": 600.0, "bytes": 2e9});
    write(folder.path(), &header, &[download(0, 90, [9, 0, 0])]);
    let (_, notes) = reported("overhead", folder.path(), &[]);
    let sentence =
        "1 measurements of 2 GB each, 600 s at most (Mosh: 60 s); repetitions interleaved, seed 9.";
    assert!(notes.contains(sentence), "{notes}");
}

#[test]
fn quic_that_was_not_split_has_no_share_and_no_line_and_the_reason_stands_there() {
    let folder = tempfile::tempdir().unwrap();
    let header = json!({"experiment": "overhead", "seed": 1, "seconds": 10.0, "bytes": null});
    let uneven = [download(0, 90, [9, 0, 0]), download(100, 75, [8, 1, 1])];
    write(folder.path(), &header, &uneven);
    let (page, notes) = reported("overhead", folder.path(), &[]);
    let why =
        "no valid download, because the paths carried too unequal shares of the bytes: 10–80 %";
    assert!(notes.contains(&format!("| 100 ms | 75.0, {why}, *0/1* |")), "{notes}");
    assert!(notes.contains(&format!("| QUIC: quinn | {why} | ≥ 80 % |")), "{notes}");
    assert!(page.contains(why) && page.contains("class=\"dot p1 small\""), "{page}");
    assert!(!page.contains("class=\"line") && !page.contains("83.3 %"), "{page}");
}

/// Returns the records of two repetitions with each route, as the experiment writes them. With the
/// handshake through the VPN, quic-go's first byte arrives 140 ms later.
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
        "experiment": "circumvention", "seed": 9, "bytes": 5_000_000, "splitter": ["--in-order", "30ms"],
        "program": "anabranch 1.2.3, SHA-256 0a", "machine": "mine", "programs": {"quic-client": "0b"},
    });
    write(folder.path(), &header, &fetches());
    let notes = notes(folder.path(), "circumvention");
    let words = ["--report", "--into", notes.to_str().unwrap(), "--bytes", "5", "--seed", "1"];
    let output = experiment("circumvention", folder.path(), &words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(
        stdout.contains("QUIC: quic-go: the first byte arrives 145 (140–150) ms later"),
        "{stdout}"
    );
    let notes = fs::read_to_string(notes).unwrap();
    let origin =
        "Program: anabranch 1.2.3, SHA-256 0a. Machine: mine. Other programs: quic-client 0b.";
    for wanted in [
        "| QUIC: quic-go | yes | yes | 99.00 (99.00–99.00) % | 145 (140–150) | 0 (0–0) |",
        "| TLS over TCP: OpenSSL | yes | – | – | – | – |",
        "| QUIC: quic-go | through the censor | 0 of 2 | – | – | – | – | 2 of 2 |",
        "12 fetches of 5,000,000 bytes (from the TLS server: of a short page), 2 repetitions, \
         interleaved, seed 9; in split measurements `anabranch split` also had the arguments \
         `--in-order 30ms`.",
        origin,
    ] {
        assert!(unwrapped(&notes).contains(wanted), "{wanted}\n{notes}");
    }
    let page = fs::read_to_string(folder.path().join("circumvention.html")).unwrap();
    assert!(page.contains(origin) && page.contains("0 of 2 fetches succeeded"), "{page}");
    assert!(page.contains("12 fetches of 5,000,000 bytes") && page.contains("seed 9."), "{page}");
    assert!(
        page.contains("<code>anabranch split --handshake vpn --in-order 30ms</code>"),
        "{page}"
    );
    assert!(!page.contains("<script") && !page.contains("http:"), "{page}");
    tells_the_splitters_words(&folder.path().join("circumvention.parquet"), "--in-order 30ms");
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
        ["units.jsonl: the file belongs to an experiment of another build", "not noted in the file"]
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
        false => &["sudo ", "experiment overhead", "--peers quinn,mosh"],
        true => &["missing programs: ", "quinn-server", "quic-client", "setup --area experiments"],
    };
    for wanted in expected {
        assert!(message.contains(wanted), "{wanted} in {message}");
    }
    assert!(!target.exists(), "nothing was created");
}

/// Runs an experiment as a user who is not root. Returns `None` if this machine allows no such
/// user.
fn by_another(name: &str, folder: &Path, words: &[&str]) -> Option<Output> {
    let own = experiment(name, folder, words);
    let mut command = Command::new("unshare");
    command.arg("--user").arg(own.get_program()).args(own.get_args());
    let home = [("HOME", "/srv/anna"), ("PATH", "/usr/bin:/bin")];
    let output = command.envs(home).env_remove("XDG_CACHE_HOME").output().ok()?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (!stderr.starts_with("unshare:")).then_some(output)
}

#[test]
fn who_is_not_root_is_told_the_whole_line_that_root_has_to_say() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("my set");
    let words = ["--seed", "9", "--split=--every=1s"];
    let Some(output) = by_another("pages", &target, &words) else {
        return println!("skipped: no namespaces of users");
    };
    let expected = format!(
        "sudo {} experiment pages '{}' --seed 9 '--split=--every=1s' --programs \
         /srv/anna/.cache/anabranch/peers/bin --web /srv/anna/.cache/anabranch/web\n",
        env!("CARGO_BIN_EXE_anabranch"),
        target.display()
    );
    let message = refusal(output);
    assert!(message.ends_with(&expected), "{message}");
    // The proposed command does not repeat folders that the user has given. Only the experiment
    // with page loads has a folder of web sites.
    let named = ["--programs", "/opt/peers", "--web", "/srv/web"];
    let message = refusal(by_another("pages", &target, &named).unwrap());
    assert!(message.ends_with("--programs /opt/peers --web /srv/web\n"), "{message}");
    let message = refusal(by_another("overhead", &target, &["--short"]).unwrap());
    assert!(
        message.ends_with("--short --programs /srv/anna/.cache/anabranch/peers/bin\n"),
        "{message}"
    );
    assert!(!target.exists());
}

#[test]
fn words_that_make_no_sense_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("results");
    for (words, wanted) in [
        (["--peers", "quick"], "write one of wireguard, mosh"),
        (["--every", "soon"], "a number of milliseconds from 1 to 60000, or never"),
        (["--networks", "flat"], "write equal (all paths have the same delay) or unequal"),
    ] {
        let message = refusal(overhead(&target, &words).output().unwrap());
        assert!(message.contains(wanted), "{message}");
    }
    assert!(!target.exists());
}

/// Returns the record of a run of the experiment `validation`: emulated, or simulated. A page takes
/// `last` seconds.
fn validation_run(is_simulated: bool, last: f64) -> Value {
    let page = json!({"client": 0, "bulk": false, "asked": 21.0, "first": 0.5, "last": last});
    let file = json!({"client": 1, "bulk": true, "asked": 22.0, "first": 0.5, "last": 3.0});
    let cpu = if is_simulated { 0.0 } else { 0.04 };
    let relay = json!({
        "position": "guard", "rate": 8.0, "delay": 12.5, "sent": 4.0, "used": 0.5, "cpu": cpu,
    });
    json!({
        "unit": format!("tor × 1, {is_simulated}"), "design": "tor", "legs": 1,
        "simulated": is_simulated, "number": 0, "started": 1.7e9, "transfers": [page, file],
        "failed": 0, "error": "", "relays": [relay], "clients_cpu": 0.2, "own_cpu": 0.1,
        "busy": 0.3, "machine": {"steal": 0.0, "pressure": 0.5, "load": 1.0, "late": 0.1},
    })
}

#[test]
fn a_wide_network_is_compared_with_its_simulation() {
    let folder = tempfile::tempdir().unwrap();
    let header = json!({
        "experiment": "validation", "version": 1, "seed": 1, "relays": [9, 9, 6], "servers": 4,
        "clients": [60, 6], "scale": 8, "warm_up": 20, "seconds": 120, "pause": 8.0,
    });
    write(folder.path(), &header, &[validation_run(false, 1.0), validation_run(true, 1.2)]);
    let (page, notes) = reported("validation", folder.path(), &[]);
    for wanted in [
        "| tor × 1 | 320 KiB | median | 1000 | 1000–1000 | 1200 | 1.20 | **no** |",
        "| tor × 1 | 1 MiB | median | 3000 | 3000–3000 | 3000 | 1.00 | yes |",
        "times: 2 of 3 medians; 6 of 9 values if the quartiles are included.",
        "| tor × 1 | 1 | 30 % | 4 % | 4 % | 20 % | 10 % | 0.1 |",
        "9 guards, 9 middles, 6 exits, 4 web servers, 60 web clients",
    ] {
        assert!(unwrapped(&notes).contains(wanted), "{wanted}\n{notes}");
    }
    assert!(page.contains("A wide network, measured and simulated") && !page.contains("**"));
    let tables = ["validation.parquet", "validation-relays.parquet"];
    assert!(tables.iter().all(|table| folder.path().join(table).exists()));
}

#[test]
fn an_impossible_wide_network_is_refused_and_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("results");
    for (words, wanted) in [
        (["--relays", "3"], "`anabranch` needs two guards and two middle relays"),
        (["--designs", "more"], "`more` is not simulated: choose one of tor"),
        (["--clients", "250"], "together may be at most 250"),
        (["--relays", "many"], "--relays"),
    ] {
        let output = experiment("validation", &target, &words).output().unwrap();
        let message = refusal(output);
        assert!(message.contains(wanted), "{message}");
    }
    assert!(!target.exists());
}
