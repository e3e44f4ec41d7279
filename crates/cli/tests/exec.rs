//! Tests of `anabranch exec`: which of the machine's name resolvers a program inside a namespace
//! can reach, compared with `ip netns exec`.
//!
//! Each test runs in its own mount namespace. If libnss_resolve is not installed, it is searched
//! in the folder `ANABRANCH_NSS_RESOLVE`. The environment variable `ANABRANCH_NSCD` names the
//! program nscd.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tempfile::TempDir;

/// Shell commands that configure a machine as systemd-resolved does, and a namespace `t` with its
/// own name server.
const MACHINE: &str = r#"
set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/etc /run/netns /run/nscd /run/dbus /run/systemd/resolve
cp -a /etc/. /run/etc
mount --bind /run/etc /etc
mount --bind "$SOCKETS" /run/systemd/resolve
echo 'nameserver 127.0.0.53' > /run/systemd/resolve/stub-resolv.conf
rm -f /etc/resolv.conf
ln -s /run/systemd/resolve/stub-resolv.conf /etc/resolv.conf
touch /run/nscd/socket /run/dbus/system_bus_socket
echo 'passwd: files
group: files
hosts: resolve [!UNAVAIL=return] files' > /etc/nsswitch.conf
mkdir -p /etc/netns/t
echo 'nameserver 192.0.2.53' > /etc/netns/t/resolv.conf
ip netns add t
"#;

/// Runs `script` in the namespace by `launcher`. Returns `None`, and prints the reason, if this
/// machine allows no namespace.
fn inside(launcher: &str, script: &str, sockets: &Path) -> Option<Output> {
    let text = format!("{MACHINE}\n{launcher} sh -c {}", shlex::try_quote(script).unwrap());
    let mut command = Command::new("unshare");
    command
        .args([
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
            &text,
        ])
        .env("SOCKETS", sockets);
    command.env("PROGRAM", env!("CARGO_BIN_EXE_anabranch")).env_remove("SUDO_UID");
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return skipped(&format!("no unshare: {error}")),
    };
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    match stderr.contains("Operation not permitted") || stderr.contains("not found") {
        true => skipped(&stderr),
        false => Some(output),
    }
}

fn skipped<T>(why: &str) -> Option<T> {
    println!("skipped: {why}");
    None
}

const EXEC: &str = r#""$PROGRAM" exec --user root t --"#;
const IP: &str = "ip netns exec t";

#[test]
fn the_machines_resolvers_are_out_of_reach_and_the_namespaces_own_files_are_there() {
    let folder = TempDir::new().unwrap();
    let script = "cat /etc/resolv.conf; ls /run/nscd /run/dbus; touch /run/nscd/new || true; \
                  ip -o link | wc -l; exit 7";
    let Some(output) = inside(EXEC, script, folder.path()) else { return };
    let text = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(7), "{stderr}");
    let wanted = "nameserver 192.0.2.53\n/run/dbus:\n\n/run/nscd:\n1\n";
    assert_eq!(text, wanted, "{stderr}");
    assert!(stderr.contains("Read-only file system"), "{stderr}");
    // Without the covers, the program reaches all resolvers. This shows that the test can fail.
    let output = inside(IP, script, folder.path()).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("system_bus_socket") && text.contains("socket"), "{text}");
}

#[test]
fn a_user_keeps_home_and_groups_and_loses_roots_rights() {
    let folder = TempDir::new().unwrap();
    let launcher = r#""$PROGRAM" exec --user nobody t --"#;
    let script = "id -un; echo $HOME; cat /proc/self/status | grep CapEff; touch /etc/x; id -G";
    let Some(output) = inside(launcher, script, folder.path()) else { return };
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "nobody", "{text}");
    assert!(lines[1].starts_with('/') && lines[1] != "/root", "{text}");
    assert!(lines[2].ends_with("0000000000000000"), "{text}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("Permission denied"));
    let groups = Command::new("id").args(["-G", "nobody"]).output().unwrap();
    assert_eq!(lines[3], String::from_utf8(groups.stdout).unwrap().trim());
}

/// The real library asks systemd-resolved through a Unix socket. The test counts the connections
/// to that socket.
#[test]
fn nss_resolve_reaches_the_machines_resolved_from_ip_netns_exec_alone() {
    let Some(library) = library() else {
        println!("skipped: no libnss_resolve.so.2 (apt-get download libnss-resolve)");
        return;
    };
    for (launcher, is_reached) in [(IP, true), (EXEC, false)] {
        let folder = TempDir::new().unwrap();
        let listener = UnixListener::bind(folder.path().join("io.systemd.Resolve")).unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        thread::spawn(move || {
            for asker in listener.incoming() {
                counter.fetch_add(1, Ordering::SeqCst);
                drop(asker);
            }
        });
        let script = format!(
            "LD_LIBRARY_PATH={} getent ahosts example.org; true",
            library.parent().unwrap().display()
        );
        let Some(output) = inside(launcher, &script, folder.path()) else { return };
        assert!(output.status.success(), "{output:?}");
        let asked = asked.load(Ordering::SeqCst);
        assert_eq!(asked > 0, is_reached, "{launcher}: asked {asked} times; {output:?}");
    }
}

/// Shell commands that add a name to the machine's own files. They also start the real nscd, which
/// is asked before these files.
const NSCD: &str = r#"
sed -i 's/^hosts:.*/hosts: files/' /etc/nsswitch.conf
echo '198.51.100.7 of-the-machine.example' >> /etc/hosts
echo '127.0.0.1 localhost' > /etc/netns/t/hosts
mkdir -p /var/cache/nscd
printf '%s\n' 'enable-cache hosts yes' 'persistent hosts no' 'shared hosts no' > /etc/nscd.conf
rm /run/nscd/socket
"#;

#[test]
fn the_machines_nscd_answers_from_ip_netns_exec_alone() {
    let named = std::env::var_os("ANABRANCH_NSCD").map(PathBuf::from);
    let installed = ["/usr/sbin/nscd", "/sbin/nscd"].map(PathBuf::from);
    let Some(nscd) = named.into_iter().chain(installed).find(|nscd| nscd.exists()) else {
        println!("skipped: no nscd (apt-get download nscd)");
        return;
    };
    let nscd = nscd.display();
    for (launcher, is_reached) in [(IP, true), (EXEC, false)] {
        let folder = TempDir::new().unwrap();
        let begun = format!(
            "{NSCD}\n{nscd} -f /etc/nscd.conf\n\
             for i in $(seq 50); do [ -S /run/nscd/socket ] && break; sleep 0.1; done\n{launcher}"
        );
        let script = "getent ahosts of-the-machine.example; true";
        let Some(output) = inside(&begun, script, folder.path()) else { return };
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.contains("198.51.100.7"), is_reached, "{launcher}: {text}");
    }
}

/// Shell commands that create a namespace `inner`, which exists only in the mount namespace of an
/// `ip netns exec`.
const WITHIN: &str = r#"
ip netns add outer
ip netns exec outer sh -c 'ip netns add inner; exec sleep 60' &
for i in $(seq 100); do
    nsenter --target $! --mount ip netns exec inner true 2> /dev/null && break
    sleep 0.1
done
"#;

#[test]
fn a_namespace_made_inside_ip_netns_exec_is_entered_where_the_message_says() {
    let folder = TempDir::new().unwrap();
    let tries = r#"
told=$("$PROGRAM" exec --user root inner true 2>&1) || echo "exit $?"
echo "$told"
words=${told##*sudo nsenter }
nsenter ${words%% anabranch exec*} "$PROGRAM" exec --user root inner sh -c 'ip -o link | wc -l'
kill $!; wait $! || true
"$PROGRAM" exec --user root inner true || echo "exit $?"
ip netns delete inner
"$PROGRAM" exec --user root inner"#;
    let Some(output) = inside(&format!("{WITHIN}\n{tries}"), "true", folder.path()) else { return };
    let text = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], &lines[2..]), ("exit 2", &["1", "exit 2"][..]), "{text}{stderr}");
    let inside = "anabranch: the network namespace 'inner' exists only inside another mount";
    assert!(lines[1].starts_with(inside), "{text}");
    let ended = "anabranch: the network namespace 'inner' has ended";
    let unknown = "there is no network namespace 'inner'";
    assert!(stderr.contains(ended) && stderr.contains(unknown), "{stderr}");
}

fn library() -> Option<PathBuf> {
    let named = std::env::var_os("ANABRANCH_NSS_RESOLVE").map(PathBuf::from);
    let below = fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let folders = named.into_iter().chain(["/lib64".into(), "/usr/lib64".into()]).chain(below);
    folders.map(|folder| folder.join("libnss_resolve.so.2")).find(|library| library.exists())
}

#[test]
fn what_cannot_be_started_is_told_in_a_line() {
    let run = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_anabranch")).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let stderr = run(&["exec", "no-such-namespace", "true"]);
    let unknown = "anabranch: there is no network namespace 'no-such-namespace'";
    assert!(stderr.starts_with(unknown), "{stderr}");
    let folder = TempDir::new().unwrap();
    let Some(output) = inside(r#""$PROGRAM" exec t no-such-program"#, "", folder.path()) else {
        return;
    };
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        stderr,
        "anabranch: there is no program 'no-such-program': install it, or give its path\n"
    );
}
