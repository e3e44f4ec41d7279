//! Tests of `anabranch mosh` with stand-ins for ssh and mosh-client: its refusals, and the
//! arguments that it passes on. `make interop AREA=mosh` tests it with the real programs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::net::UdpSocket;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A key that nobody uses: letters in alphabetical order.
const KEY: &str = "abcdefghijklmnopqrstuv";
const PATH: &[&str] = &["--path", "a=addr:127.0.0.2"];
/// A stand-in for mosh-client. It sends a datagram to the given address and port, and ends with
/// status 7.
const CLIENT: &str =
    "bash -c 'test \"$1\" = -c || { echo hello >/dev/udp/$1/$2; sleep 0.3; exit 7; }' bash";

fn run(arguments: &[&[&str]], key: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.arg("mosh").args(arguments.concat()).stdin(Stdio::null()).env_remove("MOSH_KEY");
    command.envs(key.map(|key| ("MOSH_KEY", key))).output().unwrap()
}

/// Runs the command, which must end with the exit code `code`. Returns the last line on standard
/// error.
fn message(code: i32, arguments: &[&[&str]], key: Option<&str>) -> String {
    let output = run(arguments, key);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(!text.contains("panicked") && !text.contains(KEY), "{text}");
    text.lines().last().unwrap_or_default().trim_start_matches("anabranch: ").to_owned()
}

fn refused(arguments: &[&[&str]]) -> String {
    message(2, arguments, Some(KEY))
}

#[test]
fn the_clients_exit_status_is_passed_on_and_the_log_tells_of_the_session() {
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("log").display().to_string();
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port().to_string();
    let client: &[&str] = &["--client", CLIENT, "--log", &log, "--json"];
    let last = message(7, &[&["127.0.0.1", "--port", &port], PATH, client], Some(KEY));
    assert_eq!(last, "datagrams: a 1 up, 0 down");
    let mut datagram = [0; 16];
    assert_eq!(server.recv(&mut datagram).unwrap(), "hello\n".len());
    let text = fs::read_to_string(&log).unwrap();
    let events = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let kinds: Vec<Value> = events.map(|event: Value| event["event"].clone()).collect();
    assert_eq!((&kinds[0], kinds.last().unwrap()), (&"listening".into(), &"summary".into()));
    assert!(!text.contains(KEY), "no key in a log");
}

#[test]
fn several_paths_are_told_what_mosh_shows_and_its_log_gives_no_advice_for_tunnels() {
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("log").display().to_string();
    let second: &[&str] = &["--path", "b=addr:127.0.0.3"];
    let client: &[&str] = &["--client", CLIENT, "--log", &log];
    let output = run(&[&["127.0.0.1", "--port", "9"], PATH, second, client], Some(KEY));
    let text = String::from_utf8(output.stderr).unwrap();
    let warnings =
        text.lines().filter(|line| line.contains("Mosh sends packet numbers unencrypted"));
    assert_eq!(warnings.count(), 1, "{text}");
    let log = fs::read_to_string(&log).unwrap();
    assert!(log.contains("listening on") && !log.contains("WireGuard tunnel"), "{log}");
}

#[test]
fn one_path_splits_nothing_and_a_login_over_it_says_so() {
    let client: &[&str] = &["127.0.0.1", "--port", "9", "--client", CLIENT];
    let text = String::from_utf8(run(&[client, PATH], Some(KEY)).stderr).unwrap();
    assert!(text.contains("warning: nothing is split: all traffic leaves by path 'a'"), "{text}");
    assert!(!text.contains("packet numbers unencrypted"), "nobody else to count: {text}");
}

#[test]
fn an_answer_of_ssh_leads_to_the_server() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let ssh = format!("sh -c 'echo MOSH IP 127.0.0.1; echo MOSH CONNECT {port} {KEY}'");
    let log_in: &[&str] = &["me@there", "--ssh", &ssh, "--client", CLIENT];
    assert_eq!(message(7, &[log_in, PATH], None), "datagrams: a 1 up, 0 down");
    assert_eq!(server.recv(&mut [0; 16]).unwrap(), "hello\n".len());
}

#[test]
fn a_login_that_fails_is_trouble_with_ssh_named() {
    let client: &[&str] = &["me@there", "--client", "true"];
    let last = message(1, &[client, PATH, &["--ssh", "sh -c 'echo no; exit 255'"]], None);
    assert!(last.contains("before a mosh-server answered") && last.contains("me@there"), "{last}");
    let last = message(1, &[client, PATH, &["--ssh", "/nowhere/ssh"]], None);
    assert!(last.starts_with("cannot run '/nowhere/ssh': ") && last.contains("MOSH_KEY"), "{last}");
}

#[test]
fn a_key_that_is_missing_or_none_is_refused() {
    let port: &[&str] = &["127.0.0.1", "--port", "60001", "--client", "true"];
    let missing = message(2, &[port, PATH], None);
    assert!(missing.contains("MOSH_KEY") && missing.contains("--server-port"), "{missing}");
    let malformed = message(2, &[port, PATH], Some("short"));
    let expected = "MOSH_KEY: this is not a Mosh key: write the 22 characters";
    assert!(malformed.starts_with(expected), "{malformed}");
}

#[test]
fn what_makes_no_sense_for_a_login_is_refused() {
    let host: &[&str] = &["there"];
    for option in
        [&["--listen", "127.0.0.1:1"][..], &["--to", "a:1"], &["--quiet"], &["--idle", "3m"]]
    {
        let message = refused(&[host, PATH, option]);
        assert!(
            message.contains("cannot be used with") && message.contains(option[0]),
            "{message}"
        );
    }
    let bare = refused(&[host]);
    assert!(bare.contains("no path is given"), "{bare}");
    assert!(bare.contains("--path auto") || bare.contains("no uplink"), "{bare}");
    assert!(refused(&[host, PATH, &["--json"]]).starts_with("--json sets the format of the log"));
    let nowhere = refused(&[host, PATH, &["--client", "true", "--log", "/nowhere/log"]]);
    assert!(nowhere.starts_with("--log: /nowhere/log: "), "{nowhere}");
    let client = refused(&[host, PATH, &["--client", "/nowhere/mosh-client"]]);
    assert!(client.contains("install Mosh"), "{client}");
    for machine in ["@there", "me@", "-oProxyCommand=x", "me@-oProxyCommand=x"] {
        let message = refused(&[PATH, &["--client", "true", "--", machine]]);
        assert_eq!(message, format!("'{machine}' is not a host name: write [USER@]HOST"));
    }
    for (option, value) in
        [("--port", "0"), ("--server-port", "9:8"), ("--bind-server", "here"), ("--ssh", "")]
    {
        let message = refused(&[host, PATH, &[&format!("{option}={value}")]]);
        assert!(message.contains(&format!("'{value}' for '{option}")), "{message}");
    }
}

#[test]
fn a_path_that_does_not_lead_there_starts_no_client() {
    let folder = TempDir::new().unwrap();
    let mark = folder.path().join("started");
    let client = format!("sh -c 'test \"$1\" = -c || touch {}' sh", mark.display());
    let options: &[&str] =
        &["127.0.0.1", "--port", "9", "--path", "b=if:nowhere0", "--client", &client];
    let wanted = "path 'b': there is no interface 'nowhere0'; there are ";
    assert!(refused(&[options]).starts_with(wanted));
    assert!(!mark.exists());
}

#[test]
fn a_path_that_leads_nowhere_logs_nobody_in() {
    let folder = TempDir::new().unwrap();
    let mark = folder.path().join("ran");
    let ssh = format!("sh -c 'touch {}'", mark.display());
    let wanted = "path 'b': there is no interface 'nowhere0'; there are ";
    for host in [&["there"][..], &["127.0.0.1"], &["localhost", "--remote-ip", "local"]] {
        let log_in: &[&str] = &["--ssh", &ssh, "--client", "true"];
        let missing = refused(&[host, log_in, PATH, &["--path", "b=if:nowhere0"]]);
        assert!(missing.starts_with(wanted), "{missing}");
        let foreign = refused(&[host, log_in, &["--path", "b=addr:192.0.2.77"]]);
        assert!(foreign.starts_with("path 'b': ") && foreign.contains("192.0.2.77"), "{foreign}");
        let twins = refused(&[host, log_in, PATH, &["--path", "b=addr:127.0.0.2,ports:2"]]);
        assert!(twins.starts_with("path 'b': ") && twins.contains("'a'"), "{twins}");
        assert!(!mark.exists(), "{host:?}");
        let _ = message(1, &[host, log_in, PATH], None);
        assert!(mark.exists(), "a path that leads there lets ssh run");
        fs::remove_file(&mark).unwrap();
    }
}

/// The test runs the proxy that ssh starts, with a host name that only another machine can
/// resolve.
#[test]
fn a_machine_behind_another_is_told_with_the_option_that_reaches_it() {
    let mut proxy = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    let done = proxy.args(["mosh-proxy", "--", "inner.invalid", "22"]).output().unwrap();
    let stderr = String::from_utf8(done.stderr).unwrap();
    assert!(!done.status.success() && stderr.contains("--remote-ip remote"), "{stderr}");
}
