//! Tests of programs in the hosts of `anabranch emulate`. They run in their hosts, their ends are
//! reported, and none of them remains, even if the emulator is killed.
//!
//! The tests need root or user namespaces, and `/dev/net/tun`. Without them, they print that they
//! are skipped, and pass.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy only knows the tests themselves")]

mod tools;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anabranch_multipath::seed;
use rand::RngExt;

const NETWORK: &str = "\
[[host]]
name = 'a'
[[host]]
name = 'b'
[[link]]
name = 'p0'
ends = [{ host = 'a', address = ['10.7.0.1/24'] }, { host = 'b', address = ['10.7.0.2/24'] }]
delay = '5ms'
";

/// A folder with a topology file, and with the files that the programs write.
struct Stage {
    folder: tempfile::TempDir,
}

impl Stage {
    /// Creates a folder with [`NETWORK`] and `programs`. Returns `None` if this machine lacks a
    /// requirement.
    fn new(programs: &str) -> Option<Stage> {
        let check = anabranch().args(["emulate", "check"]).output().unwrap();
        let stdout = String::from_utf8(check.stdout).unwrap();
        if !check.status.success() || !stdout.contains("ok       PID namespaces") {
            eprintln!("skipped:\n{stdout}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("t.toml"), format!("{NETWORK}{programs}")).unwrap();
        Some(Stage { folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a command that runs the emulator in the folder, with this topology and the
    /// arguments `args`.
    fn emulator(&self, args: &[&str]) -> Command {
        let mut command = anabranch();
        command.args(["emulate", "t.toml"]).args(args).current_dir(self.folder.path());
        command.stdin(Stdio::null());
        command
    }

    /// Runs the emulator to its end. Returns exit code, standard output and standard error.
    fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let Output { status, stdout, stderr } = self.emulator(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code(), text(stdout), text(stderr))
    }
}

fn anabranch() -> Command {
    Command::new(env!("CARGO_BIN_EXE_anabranch"))
}

/// Returns a `[[program]]` table for a shell script.
fn shell(name: &str, host: &str, script: &str, more: &str) -> String {
    format!(
        "[[program]]\nname = '{name}'\nhost = '{host}'\ncommand = ['sh', '-c', '''{script}''']\n{more}\n"
    )
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(30), "not within 30 s: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the processes that have `marker` in their environment.
fn marked(marker: &str) -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let has = |path: &PathBuf| {
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|one| one == marker.as_bytes())
    };
    processes.filter(has).collect()
}

#[test]
fn programs_run_in_their_hosts_and_the_emulation_ends_with_them() {
    if !tools::are_here(&["ping"]) {
        return;
    }
    let programs = shell("server", "b", "ip -br addr show dev p0; sleep 600", "background = true")
        + &shell("first", "a", "ping -c 2 -i 0.2 10.7.0.2; echo oops >&2", "start = '200ms'")
        + &shell(
            "second",
            "a",
            "echo $GREETING from $(pwd)",
            "environment = { GREETING = 'hi' }\ndirectory = '/usr'",
        );
    let Some(stage) = Stage::new(&programs) else { return };
    let (code, output, errors) = stage.run(&[]);
    assert_eq!((code, errors.as_str()), (Some(0), "[first] oops\n"), "{output}");
    for line in [
        "[second] hi from /usr",
        "[first] 2 packets transmitted, 2 received",
        "10.7.0.2/24",
        "`first` ended with status 0",
        "`server` still ran when the emulation ended, and was stopped",
    ] {
        assert!(output.contains(line), "no `{line}` in\n{output}");
    }
    let end = output.find("`first` ended").unwrap();
    assert!(output.find("2 packets transmitted").unwrap() < end, "lines come before the end");
}

#[test]
fn the_example_runs() {
    let example = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap())
        .join("../../examples/emulated.toml");
    let Some(stage) = Stage::new("") else { return };
    if !tools::are_here(&["nft", "python3", "ping"]) {
        return;
    }
    fs::copy(example, stage.path("t.toml")).unwrap();
    let (code, output, errors) = stage.run(&[]);
    assert_eq!(code, Some(0), "{output}{errors}");
    assert!(output.contains("[ping] 5 packets transmitted"), "{output}");
    // The server sees the router's address instead of the client's.
    assert!(errors.contains("[web] 203.0.113.1 - - "), "{errors}");
}

#[test]
fn what_ends_otherwise_than_expected_fails_the_emulation() {
    for (programs, message) in [
        (shell("x", "a", "exit 7", ""), "`x` ended with status 7"),
        (shell("x", "a", "kill -9 $$", ""), "`x` was ended by signal 9"),
        (
            shell("x", "a", "sleep 0.3", "") + &shell("daemon", "b", "exit 0", "background = true"),
            "`daemon` ended with status 0",
        ),
    ] {
        let Some(stage) = Stage::new(&programs) else { return };
        let (code, _, errors) = stage.run(&[]);
        assert_eq!(code, Some(1), "{errors}");
        assert!(errors.contains(message) && errors.lines().count() == 1, "{errors}");
    }
    let lenient = shell("x", "a", "exit 7", "expect = 'any'");
    let Some(stage) = Stage::new(&lenient) else { return };
    assert_eq!(stage.run(&[]).0, Some(0));
}

#[test]
fn logs_go_to_a_folder() {
    let Some(stage) = Stage::new(&shell("x", "a", "echo out; echo err >&2", "")) else { return };
    let (code, output, errors) = stage.run(&["--logs", "deep/logs"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(!output.contains("[x]"), "{output}");
    assert_eq!(fs::read_to_string(stage.path("deep/logs/x.stdout")).unwrap(), "out\n");
    assert_eq!(fs::read_to_string(stage.path("deep/logs/x.stderr")).unwrap(), "err\n");
}

#[test]
fn a_command_has_the_terminal_and_gives_its_status() {
    let Some(stage) =
        Stage::new(&shell("x", "a", "echo other", "background = true\nexpect = 'any'"))
    else {
        return;
    };
    let (code, output, errors) =
        stage.run(&["--in", "b", "--", "sh", "-c", "ip -br addr; sleep 0.2; exit 3"]);
    assert_eq!((code, errors.as_str()), (Some(3), "[x] other\n"));
    assert!(output.contains("10.7.0.2/24") && !output.contains("nsenter"), "{output}");
    assert_eq!(stage.run(&["--", "sh", "-c", "kill -15 $$"]).0, Some(128 + 15));
    let (code, _, errors) = stage.run(&["--in", "c", "--", "true"]);
    assert_eq!(
        (code, errors.as_str()),
        (Some(2), "anabranch: --in: there is no host `c` in the topology; choose one of a, b\n")
    );
}

#[test]
fn a_program_that_is_not_there_is_told_before_anything_is_created() {
    let Some(stage) = Stage::new("[[program]]\nhost = 'a'\ncommand = ['no-such-thing', '-x']\n")
    else {
        return;
    };
    let (code, output, errors) = stage.run(&["--logs", "logs"]);
    let message = "anabranch: t.toml:11: there is no program `no-such-thing` in PATH; install it, or give its path\n";
    assert_eq!((code, output.as_str(), errors.as_str()), (Some(2), "", message));
    assert!(!stage.path("logs").exists());
    let (code, _, errors) = stage.run(&["--", "no-such-thing"]);
    assert!(code == Some(2) && errors.starts_with("anabranch: t.toml:11"), "{errors}");
}

#[test]
fn an_interrupt_stops_what_runs_and_says_that_it_had_not_ended() {
    let marker = marker("interrupt");
    let programs = shell("load", "a", "sleep 600", "")
        + &shell(
            "daemon",
            "b",
            "setsid sleep 600 & trap '' TERM; sleep 600; sleep 600",
            "background = true",
        );
    let Some(stage) = Stage::new(&programs) else { return };
    let mut emulator = stage.emulator(&[]);
    let (name, value) = marker.split_once('=').unwrap();
    let child =
        emulator.env(name, value).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // The processes are the emulator, `cat`, a `sleep` (perhaps in a shell), and a shell with two
    // `sleep` processes.
    eventually("all run", || marked(&marker).len() >= 6);
    signal(child.id(), "INT");
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(errors, "anabranch: `load` still ran when the emulation ended, and was stopped\n");
    assert_eq!(marked(&marker), Vec::<PathBuf>::new());
}

#[test]
fn json_tells_what_programs_do() {
    let programs = shell("x", "a", "echo out; echo err >&2; exit 4", "expect = 'any'")
        + &shell("y", "a", "sleep 600", "background = true");
    let Some(stage) = Stage::new(&programs) else { return };
    let mut emulator = stage.emulator(&["--json"]);
    let mut child = emulator.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let events: Vec<serde_json::Value> =
        lines.map(|line| serde_json::from_str(&line).unwrap()).collect();
    assert!(child.wait().unwrap().success());
    let has =
        |wanted: serde_json::Value| assert!(events.contains(&wanted), "no {wanted} in {events:?}");
    assert_eq!(events[0]["event"], "ready");
    has(serde_json::json!({"event":"output","program":"x","stream":"stdout","line":"out"}));
    has(serde_json::json!({"event":"output","program":"x","stream":"stderr","line":"err"}));
    has(
        serde_json::json!({"event":"program","program":"x","state":"ended","code":4,"signal":null,"expected":true}),
    );
    let end = events.last().unwrap();
    assert_eq!((&end["event"], &end["programs"]["y"]["state"]), (&"end".into(), &"stopped".into()));
}

#[test]
fn a_flood_of_lines_waits_and_a_reader_who_leaves_ends_it() {
    let programs = shell("flood", "a", "exec yes", "") + &shell("other", "b", "exec yes", "");
    let Some(stage) = Stage::new(&programs) else { return };
    let mut emulator = stage.emulator(&["--json"]);
    emulator.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = emulator.spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..100 {
        reader.read_line(&mut String::new()).unwrap();
    }
    // Nobody reads the output, so the queued output must not grow without limit.
    thread::sleep(Duration::from_secs(1));
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let memory = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    let kilobytes: u64 = memory.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kilobytes < 60_000, "{memory}");
    drop(reader);
    eventually("it has ended", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

fn signal(pid: u32, name: &str) {
    let pid = pid.to_string();
    assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
}

/// Returns an environment variable that no other process has.
fn marker(what: &str) -> String {
    format!("ANABRANCH_TEST={what}-{}", std::process::id())
}

/// A user namespace in which the kernel counts the namespaces. The count does not depend on the
/// rest of the machine.
struct NamespaceCounter {
    holder: Child,
}

impl NamespaceCounter {
    /// Creates a user namespace without namespaces in it. Returns `None` if this machine allows no
    /// user namespaces.
    fn new() -> Option<NamespaceCounter> {
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "sleep", "600"]).stderr(Stdio::null());
        let mut ration = NamespaceCounter { holder: unshare.spawn().ok()? };
        let start = Instant::now();
        // The user namespace exists a moment after its process.
        while !ration.is_whole() {
            if ration.holder.try_wait().unwrap().is_some() || start.elapsed().as_secs() > 5 {
                return None;
            }
            thread::sleep(Duration::from_millis(20));
        }
        Some(ration)
    }

    fn enter(&self, program: impl AsRef<Path>) -> Command {
        let mut enter = Command::new("nsenter");
        enter.arg(format!("--user=/proc/{}/ns/user", self.holder.id()));
        enter.arg("--preserve-credentials").arg(program.as_ref());
        enter
    }

    /// Returns whether no network, PID and mount namespace is left. The test limits each kind to
    /// one namespace, and then creates one of each.
    fn is_whole(&self) -> bool {
        let script = "limit() { for kind in net pid mnt; do echo $1 >/proc/sys/user/max_${kind}_namespaces \
                      || exit 1; done; }; limit 1; unshare --net --mount --pid --fork true; \
                      made=$?; limit 1000; exit $made";
        let mut shell = self.enter("sh");
        shell.args(["-c", script]).stderr(Stdio::null()).status().unwrap().success()
    }
}

impl Drop for NamespaceCounter {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Runs an emulation that is not killed. Returns the times at which the network is up, at which
/// its program ends, and at which everything has ended.
fn milestones(mut emulator: Child) -> [Duration; 3] {
    let start = Instant::now();
    let mut lines = BufReader::new(emulator.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut until = |text: &str| {
        assert!(lines.any(|line| line.contains(text)), "no `{text}`");
        start.elapsed()
    };
    let (up, ended) = (until("The network is up"), until("`traffic` ended"));
    assert!(emulator.wait().unwrap().success());
    [up, ended, start.elapsed()]
}

#[test]
fn killed_at_any_moment_it_leaves_no_namespace_no_process_and_no_interface() {
    if !tools::are_here(&["ping"]) {
        return;
    }
    // One process leaves its parent, and one ignores SIGTERM. So the end of the emulation takes
    // some time.
    let daemon = "setsid sleep 600 & trap '' TERM; while :; do sleep 0.1; done";
    let programs = shell("daemon", "b", daemon, "background = true")
        + &shell("traffic", "a", "ping -c 40 -i 0.01 10.7.0.2", "");
    let link = format!("kt{}", std::process::id());
    let Some(stage) = Stage::new(&programs) else { return };
    let text = fs::read_to_string(stage.path("t.toml")).unwrap().replace("p0", &link);
    fs::write(stage.path("t.toml"), text).unwrap();
    let Some(ration) = NamespaceCounter::new() else {
        return eprintln!("skipped: no user namespaces here");
    };
    let marker = marker("killed");
    let spawn = || {
        let mut emulator = ration.enter(env!("CARGO_BIN_EXE_anabranch"));
        let (name, value) = marker.split_once('=').unwrap();
        emulator.args(["emulate", "t.toml"]).current_dir(stage.folder.path()).env(name, value);
        emulator.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    let [up, ended, gone] = milestones(spawn());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = std::env::var("SEED").map_or(now.as_nanos() as u64, |seed| seed.parse().unwrap());
    println!("SEED={seed}; up after {up:?}, traffic until {ended:?}, gone after {gone:?}");
    let mut dice = seed::stream(seed, 0, "kill");
    for number in 0..20 {
        let phase = [Duration::ZERO..up, up..ended, ended..gone][number % 3].clone();
        let moment = phase.start + (phase.end - phase.start).mul_f64(dice.random::<f64>());
        let mut emulator = spawn();
        thread::sleep(moment);
        let alive = emulator.try_wait().unwrap().is_none();
        println!(
            "kill {number} at {moment:?}, {} processes, alive: {alive}",
            marked(&marker).len()
        );
        emulator.kill().unwrap();
        emulator.wait().unwrap();
        eventually("no process", || marked(&marker).is_empty());
        assert!(!Path::new("/sys/class/net").join(&link).exists());
    }
    // A namespace that is left at any moment remains. The kernel needs seconds to remove a
    // namespace.
    eventually("no namespace", || ration.is_whole());
}

#[test]
fn the_count_of_what_is_left_can_fail() {
    let Some(ration) = NamespaceCounter::new() else {
        return eprintln!("skipped: no user namespaces here");
    };
    let mut leak = ration.enter("unshare").args(["--net", "sleep", "600"]).spawn().unwrap();
    eventually("a namespace is missing", || !ration.is_whole());
    leak.kill().unwrap();
    leak.wait().unwrap();
    eventually("it is back", || ration.is_whole());
}
