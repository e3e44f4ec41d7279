//! Tests that invalid and impossible input is refused: with one clear line on standard error, with
//! exit code 2, and without files that remain.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Maximum time for a run of the program. A resolver without a network may need long before it
/// gives up.
const PATIENCE: Duration = Duration::from_secs(60);
/// A listener that is valid on every machine with a loopback interface.
const LISTEN: &[&str] = &["--listen", "127.0.0.1:0"];
const TO: &[&str] = &["--to", "127.0.0.1:9"];
const PATH: &[&str] = &["--path", "a=addr:127.0.0.2"];

/// Runs `anabranch split` with `arguments` in `folder`, and waits for its end.
fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .arg("split")
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            give_up(child, arguments);
        }
        sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

fn give_up(mut child: Child, arguments: &[&str]) -> ! {
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    panic!("{arguments:?} was not refused: {output:?}");
}

/// Checks the properties that all refusals share. Returns the message.
fn refusal(output: Output) -> String {
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "exit code; {message}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "", "stdout; {message}");
    assert_eq!(message.lines().count(), 1, "lines of the message; {message}");
    assert!(!message.contains("panicked"), "{message}");
    message.trim_end().strip_prefix("anabranch: ").unwrap().to_owned()
}

/// Returns the message with which `arguments` are refused. The command also requests captures, and
/// checks that none of them remains.
fn refused_in(folder: &Path, arguments: &[&[&str]]) -> String {
    let before = listing(folder);
    let captures: &[&str] = &["--trace", "out.parquet", "--pcap", "."];
    let message = refusal(run(folder, &[&arguments.concat(), captures].concat()));
    assert_eq!(listing(folder), before, "files left behind; {message}");
    message
}

fn refused(arguments: &[&[&str]]) -> String {
    refused_in(TempDir::new().unwrap().path(), arguments)
}

fn listing(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Returns the message with which the whole program refuses `arguments`.
fn refused_by_program(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    refusal(command.args(arguments).current_dir(folder).stdin(Stdio::null()).output().unwrap())
}

/// Returns the message about a settings file with this content.
fn refused_file(content: &str) -> String {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("split.toml"), content).unwrap();
    refused_in(folder.path(), &[&["split.toml"]])
}

#[test]
fn a_visit_whose_objects_are_another_hosts() {
    let entry = |url: &str, kind: &str| {
        serde_json::json!({
            "startedDateTime": "2024-05-17T10:00:00Z",
            "request": {"method": "GET", "url": url, "headers": []},
            "response": {"status": 200, "headers": [],
                "content": {"mimeType": kind, "text": "text"}},
        })
    };
    let entries =
        [entry("https://a.net/", "text/html"), entry("https://b.net/1.jpg", "image/jpeg")];
    let folder = TempDir::new().unwrap();
    let file = serde_json::json!({"log": {"version": "1.2", "entries": entries}});
    fs::write(folder.path().join("a.har"), file.to_string()).unwrap();
    let message = refused_by_program(folder.path(), &["pt", "crawl", "a.har", "--out", "covers"]);
    assert!(
        message
            .ends_with("each with its number of files: b.net (1). To use one of them, add --host"),
        "{message}"
    );
    assert_eq!(listing(folder.path()), ["a.har"]);
}

#[test]
fn an_unknown_interface() {
    let message = refused(&[LISTEN, TO, &["--path", "wlan=if:nowhere0"]]);
    let wanted = "path 'wlan': there is no interface 'nowhere0'; there are ";
    assert!(message.starts_with(wanted) && message.contains("lo"), "{message}");
}

#[test]
fn a_tunnel_whose_file_is_not_there() {
    let message = refused(&[LISTEN, TO, &["--path", "vpn=wg:nosuch0.conf"]]);
    let wanted = "path 'vpn': there is no file 'nosuch0.conf', and no tunnel 'nosuch0' is up: \
                  correct the file's name";
    assert_eq!(message, wanted);
}

#[test]
fn an_address_that_is_not_on_this_machine() {
    // The address is from the block for benchmarks (RFC 2544), which no interface has.
    let message = refused(&[LISTEN, TO, &["--path", "home=addr:198.18.255.7"]]);
    assert_eq!(
        message,
        "path 'home': 198.18.255.7 is not an address of this machine: \
         'ip address' lists this machine's addresses"
    );
}

#[test]
fn a_source_of_another_family_than_the_server() {
    let message = refused(&[LISTEN, &["--to", "[::1]:9"], PATH]);
    assert!(message.starts_with("path 'a': 127.0.0.2 cannot reach the server ::1"), "{message}");
}

#[test]
fn a_port_that_is_taken() {
    let holder = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    let message = refused(&[&["--listen", &taken], TO, PATH]);
    let ours = format!("(process {}); choose another", std::process::id());
    let wanted = format!("cannot listen on {taken}: the port is taken by ");
    assert!(message.starts_with(&wanted) && message.ends_with(&ours), "{message}");
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    let message = refused(&[LISTEN, TO, PATH, &["--metrics", &taken]]);
    assert!(message.starts_with("--metrics: ") && message.ends_with(&ours), "{message}");
}

#[test]
fn an_address_without_its_port_or_with_none_that_exists() {
    for (flag, value, example) in [
        ("--listen", "51820", "127.0.0.1:51820"),
        ("--metrics", "9464", "127.0.0.1:9464"),
        ("--listen", "127.0.0.1:80000", "127.0.0.1:51820; ports end at 65535"),
    ] {
        let message = refused(&[TO, PATH, &[flag, value]]);
        let wanted = format!("write ADDRESS:PORT, such as {example}");
        assert!(message.contains(flag) && message.ends_with(&wanted), "{message}");
    }
}

#[test]
fn an_address_to_listen_on_that_is_not_ours() {
    let message = refused(&[&["--listen", "198.18.255.7:1000"], TO, PATH]);
    let wanted = "cannot listen on 198.18.255.7:1000: no interface of this machine has ";
    assert!(message.starts_with(wanted), "{message}");
}

#[test]
fn a_name_that_does_not_resolve() {
    let message = refused(&[LISTEN, &["--to", "vpn.invalid:51820"], PATH]);
    assert!(message.starts_with("the server's name 'vpn.invalid' does not resolve: "), "{message}");
}

#[test]
fn a_server_without_a_port() {
    let message = refused(&[LISTEN, &["--to", "vpn.example.net"], PATH]);
    assert!(message.contains("'vpn.example.net' is not a server's address"), "{message}");
}

#[test]
fn ends_that_are_missing() {
    assert!(refused(&[TO, PATH]).starts_with("--listen is missing"));
    assert!(refused(&[LISTEN, PATH]).starts_with("--to is missing"));
}

#[test]
fn no_path_at_all() {
    for arguments in [&[LISTEN, TO][..], &[]] {
        let message = refused(arguments);
        assert!(message.starts_with("--path: no path is given"), "{message}");
        let cure = message.contains("--path auto") || message.contains("has no uplink");
        assert!(cure, "{message}");
    }
}

#[test]
fn two_paths_of_one_name() {
    let message = refused(&[LISTEN, TO, PATH, &["--path", "a=addr:127.0.0.3"]]);
    assert_eq!(message, "--path: two paths are called 'a': rename one");
}

#[test]
fn malformed_paths() {
    for path in ["a", "a=wlan0", "a=ports:0", "a=ports:65", "a=addr:1.2.3", "../a=ports:1", "a="] {
        let message = refused(&[LISTEN, TO, &["--path", path]]);
        assert!(message.starts_with(&format!("invalid value '{path}' for '--path")), "{message}");
    }
}

#[test]
fn two_paths_with_one_egress() {
    let message = refused(&[LISTEN, TO, PATH, &["--path", "b=if:lo,addr:127.0.0.2"]]);
    assert!(message.starts_with("path 'b': its packets leave by the same interface"), "{message}");
    assert!(message.contains("path 'a'") && message.contains("--same-egress"), "{message}");
}

#[test]
fn a_negative_weight() {
    let message = refused(&[LISTEN, TO, PATH, &["--schedule", "weights:-1"]]);
    assert_eq!(message, "--schedule: the weight -1 is not valid: write a number, 0 or more");
}

#[test]
fn weights_that_sum_to_zero() {
    let message = refused(&[LISTEN, TO, PATH, &["--schedule", "weights:0"]]);
    assert!(message.starts_with("--schedule: the weights sum to 0"), "{message}");
}

#[test]
fn too_many_weights() {
    let message = refused(&[LISTEN, TO, PATH, &["--schedule", "weights:0.5,0.5"]]);
    assert_eq!(message, "--schedule: 2 weights for 1 paths: write one weight for each path");
}

#[test]
fn an_unknown_schedule() {
    let message = refused(&[LISTEN, TO, PATH, &["--schedule", "fastest"]]);
    assert!(
        message.contains("there is no schedule 'fastest'; choose one of round-robin"),
        "{message}"
    );
}

#[test]
fn an_empty_run() {
    for every in ["0p", "0ms", "~0p"] {
        let message = refused(&[LISTEN, TO, PATH, &["--every", every]]);
        assert!(message.contains(&format!("'{every}' is too short for a run")), "{message}");
    }
}

#[test]
fn a_run_that_grows_from_the_longer_to_the_shorter_or_in_packets() {
    let message = refused(&[LISTEN, TO, PATH, &["--every", "grow:100-10ms"]]);
    assert!(message.contains("begins with the longer"), "{message}");
    let message = refused(&[LISTEN, TO, PATH, &["--every", "grow:5-50p"]]);
    assert!(message.contains("'grow:5-50p' is not the length of a run"), "{message}");
}

#[test]
fn a_draw_after_no_silence() {
    for silence in ["0s", "-1s", "5p", "~1s", "always"] {
        let message = refused(&[LISTEN, TO, PATH, &[&format!("--redraw={silence}")]]);
        assert!(
            message.contains(&format!("'{silence}' is not a duration of silence: write")),
            "{message}"
        );
    }
    let message = refused_file("\nredraw = '0s'\n");
    assert!(
        message.starts_with("split.toml:2: `redraw`: '0s' is not a duration of silence"),
        "{message}"
    );
    let message = refused(&[LISTEN, TO, PATH, &["--redraw"]]);
    assert!(message.contains("--redraw"), "{message}");
}

#[test]
fn a_delay_that_is_none_or_alike_for_all_or_longer_than_a_protocols_timer() {
    for (jitter, words) in [
        ("20ms", "delays all datagrams equally, which hides nothing"),
        ("0-0ms", "delays all datagrams equally"),
        ("20-0ms", "begins with the longer"),
        ("-5-20ms", "not a range of delays: write two times"),
        ("0-20p", "not a range of delays"),
        ("0-1s", "again after 999 ms (the first probe timeout, RFC 9002, section 6.2.2), and"),
    ] {
        // The value may also be a separate argument. Its minus sign does not make it an option.
        for option in [&["--jitter", jitter][..], &[&format!("--jitter={jitter}")]] {
            let message = refused(&[LISTEN, TO, PATH, option]);
            assert!(message.contains(&format!("'{jitter}'")), "{message}");
            assert!(message.contains(words), "{message}");
        }
    }
    let long = ["--jitter", "0-5s", "--protocol", "wireguard"];
    let message = refused(&[LISTEN, TO, PATH, &long]);
    let timer = "again after 5000 ms (Rekey-Timeout";
    assert!(message.contains(timer), "{message}");
    let message = refused_file("\njitter = '20ms'\n");
    assert!(message.starts_with("split.toml:2: `jitter`: '20ms' delays all"), "{message}");
}

#[test]
fn a_handshake_path_that_is_no_path() {
    let message = refused(&[LISTEN, TO, PATH, &["--handshake", "b"]]);
    assert_eq!(message, "--handshake: there is no path 'b'; choose one of a");
}

#[test]
fn a_handshake_path_that_leaves_none_for_the_schedule() {
    let message = refused(&[LISTEN, TO, PATH, &["--handshake", "a"]]);
    assert!(
        message.starts_with("no path is left for the traffic after the handshake: list"),
        "{message}"
    );
}

#[test]
fn a_handshake_path_of_its_own_with_one_four_tuple_for_all() {
    let handshake = &["--path", "b=addr:127.0.0.3", "--handshake", "b", "--quic-tuples"];
    let message = refused(&[LISTEN, TO, PATH, handshake, &["1"]]);
    assert!(message.starts_with("--quic-tuples: write 2 or more, because a QUIC"), "{message}");
    let folder = TempDir::new().unwrap();
    let sound = |more| {
        let arguments = [LISTEN, TO, PATH, handshake, more, &["--check"]].concat();
        run(folder.path(), &arguments).status.code()
    };
    assert_eq!(sound(&["2"]), Some(0));
    assert_eq!(sound(&["1", "--scheduled", "a,b"]), Some(0));
}

#[test]
fn a_path_that_would_carry_nothing() {
    let second = &["--path", "b=addr:127.0.0.3", "--scheduled", "a"];
    let message = refused(&[LISTEN, TO, PATH, second]);
    assert!(message.starts_with("path 'b' would carry nothing"), "{message}");
}

#[test]
fn numbers_out_of_range() {
    for (flag, value) in [
        ("--quic-tuples", "0"),
        ("--max-sessions", "0"),
        ("--max-sessions", "-5"),
        ("--idle", "0s"),
        ("--idle", "-5ms"),
        ("--fwmark", "0x"),
        ("--seed", "-1"),
        ("--protocol", "tcp"),
    ] {
        let given = format!("{flag}={value}");
        for given in [&[&*given][..], &[flag, value]] {
            let message = refused(&[LISTEN, TO, PATH, given]);
            let wanted = format!("invalid value '{value}' for '{flag}");
            assert!(message.starts_with(&wanted), "{message}");
        }
    }
}

#[test]
fn a_mistyped_flag() {
    let message = refused(&[LISTEN, TO, PATH, &["--evry", "1s"]]);
    assert!(message.contains("'--evry'") && message.contains("'--every'"), "{message}");
}

#[test]
fn a_folder_for_captures_that_is_missing() {
    let folder = TempDir::new().unwrap();
    let missing = |captures: &[&str]| {
        let output = run(folder.path(), &[LISTEN, TO, PATH, captures].concat());
        refusal(output)
    };
    let nowhere = "there is no directory 'nowhere': create it first";
    assert_eq!(missing(&["--trace", "nowhere/out.parquet"]), format!("--trace: {nowhere}"));
    assert_eq!(missing(&["--trace", "."]), "--trace: '.' is a directory");
    assert!(listing(folder.path()).is_empty());
}

#[test]
fn captures_replace_no_file() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("caps")).unwrap();
    for file in ["out.parquet", "caps/a.pcapng"] {
        fs::write(folder.path().join(file), "precious").unwrap();
    }
    let check = |captures: &[&str]| {
        run(folder.path(), &[LISTEN, TO, PATH, captures, &["--check"]].concat())
    };
    for captures in [&["--trace", "out.parquet"][..], &["--pcap", "caps"]] {
        let message = refusal(check(captures));
        assert!(message.starts_with(captures[0]) && message.contains("--replace"), "{message}");
        let output = check(&[captures, &["--replace"]].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}

#[test]
fn a_wireguard_file_without_its_flag() {
    let folder = TempDir::new().unwrap();
    let text = "[Interface]\nPrivateKey = c2VjcmV0\nAddress = 10.0.0.2/32\n\n[Peer]\n";
    fs::write(folder.path().join("home.conf"), text).unwrap();
    let message = refused_in(folder.path(), &[&["home.conf"]]);
    let wanted = "'home.conf' looks like a wg-quick file, not like settings in TOML: write --wg \
                  home.conf";
    assert_eq!(message, wanted);
}

#[test]
fn a_path_table_in_single_brackets() {
    let message = refused_file("[path]\nname = 'a'\ninterface = 'lo'\n");
    assert!(message.contains("`path`") && message.contains("[[path]]"), "{message}");
    let message = refused_file("path = ['wlan=nowhere:lo']\n");
    assert!(message.starts_with("split.toml:1: `path`: 'nowhere:lo' is not a kind"), "{message}");
}

#[test]
fn a_splitters_file_for_the_emulator() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("tunnel.toml");
    fs::write(&file, "# mine\nlisten = '127.0.0.1:1'\nto = 'a:1'\nevery = '1s'\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    let message = refusal(command.arg("emulate").arg(&file).output().unwrap());
    assert!(message.contains(":2: unknown key `listen`"), "{message}");
    assert!(message.contains("if this is a splitter's file, run anabranch split "), "{message}");
}

#[test]
fn a_capture_in_place_of_a_trace() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("lte.pcapng");
    fs::write(&file, [0x0a, 0x0d, 0x0d, 0x0a, 0x1c, 0, 0, 0]).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    let message = refusal(command.arg("report").arg(&file).output().unwrap());
    assert!(message.contains("is a capture") && message.contains("--trace"), "{message}");
}

#[test]
fn a_part_of_a_wireguard_tunnel_without_its_file() {
    for (flags, cure) in [
        (&["--peer", "2"][..], "add --wg FILE"),
        (&["--write", "out.conf"], "add --wg FILE"),
        (&["--overwrite"], "add --write FILE"),
    ] {
        let message = refused(&[LISTEN, TO, PATH, flags]);
        assert!(message.starts_with(flags[0]) && message.ends_with(cure), "{message}");
    }
    let message = refused_file("wg = 'home.conf'\nto = 'a:1'\n");
    assert!(message.starts_with("--wg cannot be combined with --to, because"), "{message}");
}

#[test]
fn a_file_that_cannot_be_read() {
    let message = refused(&[&["nowhere.toml"]]);
    assert!(message.starts_with("cannot read 'nowhere.toml': "), "{message}");
    assert!(refused(&[&["."]]).starts_with("cannot read '.': "));
}

#[test]
fn a_file_that_is_no_toml() {
    assert!(refused_file("listen = \n").starts_with("split.toml:1: "));
}

#[test]
fn a_mistyped_key_is_told_with_its_line_and_the_nearest_right_one() {
    let message = refused_file("to = '127.0.0.1:9'\n\nevry = '50p'\n");
    assert_eq!(message, "split.toml:3: unknown key `evry`; did you mean `every`?");
    let message = refused_file("[[path]]\nname = 'a'\ninterfac = 'lo'\n");
    assert_eq!(
        message,
        "split.toml:3: unknown key `interfac` in [path]; did you mean `interface`?"
    );
}

#[test]
fn a_value_of_the_wrong_type_is_told_with_its_line() {
    let message = refused_file("to = '127.0.0.1:9'\nseed = 'seven'\n");
    assert!(message.starts_with("split.toml:2: `seed`: 'seven': write a whole"), "{message}");
    let message = refused_file("\nevery = 50\n");
    let words = "split.toml:2: `every`: '50' is not the length of a run (consecutive packets on \
                 one path): write ";
    assert!(message.starts_with(words), "{message}");
    let message = refused_file("\nevery = '0p'\n");
    assert!(message.starts_with("split.toml:2: `every`: '0p' is too short for a run"), "{message}");
}

#[test]
fn sound_settings_pass_the_check() {
    let folder = TempDir::new().unwrap();
    let output = run(folder.path(), &[LISTEN, TO, PATH, &["--check"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("a     lo         127.0.0.2"), "{text}");
    assert!(listing(folder.path()).is_empty(), "a check writes nothing");
}

#[test]
fn a_trace_on_which_the_decoder_panics_is_refused_in_one_line() {
    let corpus = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap())
        .join("../../fuzz/corpus/trace_reader");
    let damaged = corpus.join("dictionary-missing.parquet");
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    let message = refusal(command.arg("report").arg(damaged).output().unwrap());
    assert!(
        message.ends_with("a data page is damaged; copy or record the trace again"),
        "{message}"
    );
}

#[test]
fn paths_of_a_file_in_the_flags_form_are_taken() {
    let folder = TempDir::new().unwrap();
    let ends = "listen = '127.0.0.1:0'\nto = '127.0.0.1:9'\n";
    for path in ["path = ['a=addr:127.0.0.2', 'b=addr:127.0.0.3']", "path = 'a=addr:127.0.0.2'"] {
        fs::write(folder.path().join("split.toml"), format!("{ends}{path}\n")).unwrap();
        let output = run(folder.path(), &["split.toml", "--check"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(String::from_utf8(output.stdout).unwrap().contains("127.0.0.2"));
    }
}

#[test]
fn a_key_file_that_is_a_tunnels_or_empty_or_the_other_ends() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("home.conf"), "[Interface]\nPrivateKey = x\n").unwrap();
    fs::write(at("empty.key"), "").unwrap();
    for name in ["home.conf", "empty.key"] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    let made = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["key", "far.key", "home.key"])
        .current_dir(folder.path())
        .output();
    assert!(made.unwrap().status.success());
    let split =
        |key: &str| refusal(run(folder.path(), &[LISTEN, TO, PATH, &["--key", key]].concat()));
    let merge = ["merge", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9", "--key"];
    let merge = |key| refused_by_program(folder.path(), &[&merge[..], &[key]].concat());
    for message in [split("home.conf"), merge("home.conf")] {
        let words = "'home.conf' is a wg-quick file, not a key file: 'anabranch key";
        assert!(message.contains(words), "{message}");
    }
    for message in [split("empty.key"), merge("empty.key")] {
        assert!(message.contains("'empty.key' is empty: remove it, then"), "{message}");
    }
    let message = split("far.key");
    let words =
        "('anabranch merge'): give this program the other file of the pair, made for 'home'";
    assert!(message.ends_with(words), "{message}");
    assert!(merge("home.key").contains("is for the splitter ('anabranch split')"));
    let message = refused_by_program(folder.path(), &["merge", "home.conf"]);
    let words = "'home.conf' is a wg-quick file, but the far end reads settings";
    assert!(message.starts_with(words), "{message}");
}

#[test]
fn what_is_no_trace_is_told_by_what_it_is() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("home.conf"), "[Interface]\nPrivateKey = x\n").unwrap();
    fs::write(folder.path().join("cut.parquet"), b"PAR1, and the machine was switched off")
        .unwrap();
    let results = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap())
        .join("../../docs/results/overhead.parquet");
    for (file, words) in [
        (
            "home.conf",
            "home.conf: not a trace, because it is not a Parquet file; report reads files that",
        ),
        (
            "cut.parquet",
            "cut.parquet: the file is incomplete: its end is missing; copy or record it again",
        ),
        (".", ".: a directory; report reads files that 'anabranch split --trace FILE'"),
        (
            results.to_str().unwrap(),
            "not a trace, but a file with results of an experiment: to show them, run",
        ),
    ] {
        let message = refused_by_program(folder.path(), &["report", file]);
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn numbers_that_a_type_cannot_hold_are_told_as_numbers() {
    let huge = "99999999999999999999999";
    for (given, words) in [
        (["--quic-tuples", "0"], "write 1 or more"),
        (["--max-sessions", "x"], "write 1 or more"),
        (["--seed", huge], "write a whole number from 0 to 18446744073709551615"),
        (
            ["--every", "100000h"],
            "'100000h' is too long for a run (consecutive packets on one path): write 24h",
        ),
    ] {
        let message = refused(&[LISTEN, TO, PATH, &given]);
        assert!(message.contains(words), "{message}");
    }
    let message = refused_file("\nmax-sessions = -5\n");
    assert_eq!(message, "split.toml:2: `max-sessions`: -5: write a whole number of 1 or more");
}

#[test]
fn flags_that_do_not_go_together_are_named() {
    let folder = TempDir::new().unwrap();
    let message = refusal(run(folder.path(), &["--restore", "--path", "a=if:lo"]));
    assert_eq!(message, "'--restore' cannot be combined with other options: remove --path");
    let twice = ["--restore", "--path", "a=if:lo", "--path=b=if:lo", "--quiet"];
    let message = refusal(run(folder.path(), &twice));
    assert_eq!(
        message,
        "'--restore' cannot be combined with other options: remove --path, --quiet"
    );
}

#[test]
fn a_folder_that_is_missing_is_named_without_a_temporary_file() {
    let folder = TempDir::new().unwrap();
    let stderr_of = |words: &[&str]| {
        let done = Command::new(env!("CARGO_BIN_EXE_anabranch"))
            .args(words)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(!done.status.success());
        String::from_utf8(done.stderr).unwrap()
    };
    for words in [&["key", "gone/far.key", "home.key"][..], &["key", "gone/far.key"]] {
        assert_eq!(stderr_of(words), "anabranch: there is no directory 'gone': make it first\n");
    }
    fs::create_dir(folder.path().join("site")).unwrap();
    fs::write(folder.path().join("site/a.bin"), vec![0xa5; 20_000]).unwrap();
    fs::write(folder.path().join("site/index.html"), "<html><body>hello</body></html>").unwrap();
    let covers = stderr_of(&["pt", "crawl", "--out", "gone/covers", "site"]);
    assert!(!covers.contains("at path") && !covers.contains("gone/."), "{covers}");
}

#[test]
fn a_mistyped_command_after_help_is_told_the_right_one() {
    let message = refused_by_program(Path::new("."), &["help", "splitt"]);
    assert!(message.contains("'splitt'") && message.contains("did you mean `split`?"), "{message}");
}

#[test]
fn a_bridge_without_an_address_is_told_what_it_lacks() {
    let folder = TempDir::new().unwrap();
    let key = "0".repeat(40);
    let line = format!("DirAuthority a orport=9001 v3ident={key} 127.0.0.1:9030 {key}\n");
    fs::write(folder.path().join("network.txt"), line).unwrap();
    let words = ["client", "--authorities", "network.txt", "--bridge", "foo"];
    let message = refused_by_program(folder.path(), &words);
    assert!(message.contains("'foo' has no address after it"), "{message}");
}

/// Words of Rust and of its parsers that mean nothing to a user.
const RUST: [&str; 27] = [
    "u8", "u16", "u32", "u64", "usize", "i16", "i32", "i64", "f32", "f64", "str", "struct", "enum",
    "variant", "field", "sequence", "tuple", "map", "unit", "nonzero", "Option", "Vec", "String",
    "serde", "EOF", "ident", "errno",
];

/// Asserts that no word of `message` is in [`RUST`].
fn in_plain_words(message: &str, what: &str) {
    assert!(!message.contains("(os error"), "{what}: {message}");
    let words = message.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let found: Vec<&str> = words.filter(|word| RUST.contains(word)).collect();
    assert!(found.is_empty(), "{what}: {found:?}: {message}");
}

/// Contents that are not valid settings, keys, traces, pages or results, in several forms.
const CONTENTS: [&str; 16] = [
    "",
    "7",
    "[]",
    "{",
    "{}",
    "?",
    "null",
    "{\"log\": 7}",
    "{\"log\": {\"entries\": [7]}}",
    "{\"format\": 7, \"version\": \"x\"}\n{\"a\": []}",
    "[[path]]\nname = 7\n",
    "path = 7\n",
    "path = { name = 'a' }\n",
    "listen = []\n",
    "\u{0}\u{1}\u{2}",
    "private = 7\npublic = []\n",
];

#[test]
fn no_reader_of_a_users_file_answers_in_rusts_words() {
    let mut readers: Vec<Vec<&str>> = ["split", "merge", "client", "relay", "authority"]
        .map(|command| vec![command, "given"])
        .into();
    let to = ["split", "--to", "127.0.0.1:9", "--listen", "127.0.0.1:0", "--path", "a=if:lo"];
    readers.extend([
        [&to[..], &["--key", "given"]].concat(),
        vec!["split", "--wg", "given", "--path", "a=if:lo", "--check"],
        vec!["merge", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9", "--key", "given"],
        vec!["emulate", "given"],
        vec!["sim", "given"],
        vec!["report", "given"],
        vec!["anonymity", "given"],
        vec!["client", "--authorities", "given"],
        vec!["pt", "crawl", "--out", "made", "given"],
        vec!["pt", "crawl", "--shape", "--out", "made", "given"],
        vec!["experiment", "overhead", "results", "--report"],
        vec!["experiment", "pages", "results", "--web", "web"],
        vec![
            "pt",
            "server",
            "--listen",
            "127.0.0.1:0",
            "--to",
            "127.0.0.1:9",
            "--profile",
            "http-site",
            "--site",
            "127.0.0.1:9",
            "--covers",
            "crawled",
        ],
        vec![
            "pt",
            "server",
            "--listen",
            "127.0.0.1:0",
            "--to",
            "127.0.0.1:9",
            "--profile",
            "embed",
            "--shapes",
            "given",
        ],
    ]);
    let mut refused = 0;
    for content in CONTENTS {
        for reader in &readers {
            let folder = TempDir::new().unwrap();
            for name in ["results", "web", "crawled"] {
                fs::create_dir(folder.path().join(name)).unwrap();
            }
            let files = ["given", "results/units.jsonl", "web/sites.toml", "crawled/covers.json"];
            for name in files {
                let path = folder.path().join(name);
                fs::write(&path, content).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            }
            let done = finished(folder.path(), reader);
            let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
            in_plain_words(&stderr, &format!("{reader:?} of {content:?}"));
            refused += usize::from(!done.status.success());
        }
    }
    assert!(refused > 200, "{refused} were refused");
}

/// Returns the output of `anabranch` with `arguments`. A program that does not end within 10 s is
/// interrupted.
fn finished(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["--signal", "INT", "--kill-after", "10", "10"]);
    command.arg(env!("CARGO_BIN_EXE_anabranch")).args(arguments).current_dir(folder);
    command.env("XDG_STATE_HOME", folder).stdin(Stdio::null()).output().unwrap()
}
