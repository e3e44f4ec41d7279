//! Tests of the systemd units, and of the messages to the service manager that starts the program.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ports;
mod program;
mod running;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ports::free_ports;
use program::{NOBODY, Program};
use running::{PATIENCE, Running};
use tempfile::TempDir;

/// Maximum exposure level that `systemd-analyze security` may report, in tenths, from 0 to 100.
/// The rest is the service's use of the network.
const THRESHOLD: &str = "15";

const UNITS: [&str; 2] = ["anabranch-split", "anabranch-relay"];

/// Writes a unit as it is installed, but with the path of the tested program. Returns its file.
fn unit(folder: &Path, name: &str) -> PathBuf {
    let packaging =
        Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../../packaging");
    let text = fs::read_to_string(packaging.join(format!("{name}@.service"))).unwrap();
    let here = text.replace("/usr/bin/anabranch", env!("CARGO_BIN_EXE_anabranch"));
    assert_ne!(text, here);
    let file = folder.join(format!("{name}@.service"));
    fs::write(&file, here).unwrap();
    file
}

/// Generates the man pages that the unit names. Returns the folder for MANPATH.
fn manual(folder: &Path) -> PathBuf {
    let pages = folder.join("man/man1");
    fs::create_dir_all(&pages).unwrap();
    let mut generate = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    assert!(generate.args(["generate", "man"]).arg(&pages).status().unwrap().success());
    folder.join("man")
}

/// Returns the output of systemd-analyze; `None` if it is not installed.
fn analyze(folder: &Path, arguments: &[&str], unit: &Path) -> Option<Output> {
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(arguments).arg(unit).env("MANPATH", manual(folder));
    analyze.output().inspect_err(|error| println!("skipped: systemd-analyze: {error}")).ok()
}

#[test]
fn the_units_have_nothing_that_systemd_does_not_know() {
    for name in UNITS {
        let folder = TempDir::new().unwrap();
        let unit = unit(folder.path(), name).with_file_name(format!("{name}@home.service"));
        let Some(output) = analyze(folder.path(), &["verify"], &unit) else { return };
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn the_units_reload_by_the_signal_that_the_programs_take() {
    for name in UNITS {
        let folder = TempDir::new().unwrap();
        let text = fs::read_to_string(unit(folder.path(), name)).unwrap();
        let reloads =
            |line: &&str| line.starts_with("ExecReload=") && line.ends_with("-HUP $MAINPID");
        assert_eq!(text.lines().filter(reloads).count(), 1, "{name}");
    }
}

#[test]
fn a_tunnel_of_wg_quick_can_be_bound_to_the_splitter() {
    let folder = TempDir::new().unwrap();
    let packaging =
        Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../../packaging");
    unit(folder.path(), "anabranch-split");
    // This unit replaces the unit of the package wireguard-tools, which may not be installed.
    let tunnel = folder.path().join("wg-quick@.service");
    let text = "[Unit]\nDescription=a tunnel\n[Service]\nType=oneshot\nExecStart=/bin/true\n";
    fs::write(&tunnel, text).unwrap();
    let drop_ins = folder.path().join("wg-quick@split.service.d");
    fs::create_dir(&drop_ins).unwrap();
    fs::copy(packaging.join("drop-ins/wg-quick.conf"), drop_ins.join("anabranch.conf")).unwrap();
    let tunnel = tunnel.with_file_name("wg-quick@split.service");
    let Some(output) = analyze(folder.path(), &["verify"], &tunnel) else { return };
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    // Counterexample: systemd reports an unknown key, so it has read the drop-in.
    let text = fs::read_to_string(drop_ins.join("anabranch.conf")).unwrap();
    fs::write(drop_ins.join("anabranch.conf"), text.replace("BindsTo", "BoundTo")).unwrap();
    let output = analyze(folder.path(), &["verify"], &tunnel).unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("BoundTo"), "{output:?}");
}

#[test]
fn the_units_are_confined() {
    for name in UNITS {
        let folder = TempDir::new().unwrap();
        let unit = unit(folder.path(), name);
        let strict = format!("--threshold={THRESHOLD}");
        let arguments = ["security", "--offline=true", "--no-pager", &strict];
        let Some(output) = analyze(folder.path(), &arguments, &unit) else { return };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        // Counterexample: without its sandbox, the same service exceeds the limit.
        let text = fs::read_to_string(&unit).unwrap();
        fs::write(&unit, text.replace("SystemCallFilter", "#").replace("Protect", "#")).unwrap();
        assert!(!analyze(folder.path(), &arguments, &unit).unwrap().status.success());
    }
}

/// Socket of a service manager, which receives messages from the program.
struct Manager(UnixDatagram);

impl Manager {
    fn at(socket: &Path) -> Manager {
        let manager = UnixDatagram::bind(socket).unwrap();
        manager.set_read_timeout(Some(PATIENCE)).unwrap();
        Manager(manager)
    }

    fn next(&self) -> String {
        let mut buffer = [0; 512];
        // Signals other than those with handlers can also interrupt a call with a timeout
        // (signal(7)).
        loop {
            match self.0.recv(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                length => return String::from_utf8(buffer[..length.unwrap()].to_vec()).unwrap(),
            }
        }
    }
}

#[test]
fn the_manager_is_told_of_the_beginning_of_new_settings_and_of_the_end() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("notify");
    let manager = Manager::at(&socket);
    let file = folder.path().join("split.toml");
    let settings = "to = '127.0.0.1:9'\nlisten = '127.0.0.1:0'\n[[path]]\nname = 'a'\nports = 1\n";
    fs::write(&file, settings).unwrap();
    let mut running = Running::managed(&socket, &file);
    let ready = manager.next();
    assert!(ready.contains("READY=1\n") && ready.contains("paths a"), "{ready}");
    fs::write(&file, settings.replace("'a'", "'b'")).unwrap();
    running.signal("-HUP");
    let reloading = manager.next();
    assert!(reloading.contains("RELOADING=1\n") && reloading.contains("MONOTONIC_USEC="));
    let ready = manager.next();
    assert!(ready.contains("READY=1\n") && ready.contains("paths b"), "{ready}");
    running.interrupt();
    assert!(manager.next().contains("STOPPING=1\n"));
    assert!(running.ended().0.success());
}

#[test]
fn the_manager_is_told_the_same_by_a_relay() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("notify");
    let manager = Manager::at(&socket);
    let file = folder.path().join("river.toml");
    let [port] = free_ports();
    let settings = format!(
        "nickname = 'river'\naddress = '127.0.0.1'\nlisten = ['127.0.0.1:{port}']\ndata = '{}'\n\
         authority = ['{NOBODY}']\ngrace = 0\n",
        folder.path().join("river").display()
    );
    fs::write(&file, &settings).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    let mut relay = Program::of(command.env("NOTIFY_SOCKET", &socket).arg("relay").arg(&file));
    assert!(manager.next().contains("READY=1\n"));
    for settings in [settings.replace("grace = 0", "grace = 1"), "no TOML".to_owned()] {
        fs::write(&file, settings).unwrap();
        relay.signal("-HUP");
        assert!(manager.next().contains("RELOADING=1\n"));
        assert!(manager.next().contains("READY=1\n"), "also if nothing has changed");
    }
    relay.signal("-TERM");
    assert!(manager.next().contains("STOPPING=1\n"));
    assert!(relay.ended().0.success());
}
