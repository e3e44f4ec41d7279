//! Tests of `anabranch split --wg`: reading, showing and writing of wg-quick files, and refusals.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ports;

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use ports::free_address;
use serde_json::Value;
use tempfile::TempDir;

/// The keys were made for these tests from base64 of texts. Nobody uses them.
const PRIVATE: &str = "UEFTU1dPUkQtT0YtVEhFLVRFU1QtTk9ULUEtS0VZISE=";
const PUBLIC: &str = "Tk9CT0RZUy1QVUJMSUMtS0VZLUZPUi1URVNUUy1PTkU=";
const OTHER: &str = "Tk9CT0RZUy1QVUJMSUMtS0VZLUZPUi1URVNUUy1UV08=";
const PRESHARED: &str = "UFJFU0hBUkVELUtFWS1PRi1OT0JPRFktNC1URVNUUyE=";

/// Returns the file of a full tunnel. It has all keys of wg-quick, comments in odd places, and two
/// kinds of line ends. Nobody uses the server's port on this machine, and only root may open it.
fn tunnel() -> String {
    format!(
        "# Home, made by hand\n[Interface]\nPrivateKey = {PRIVATE}\nAddress = 10.8.0.2/32, \
         fd00::2/128\n\
         DNS = 10.8.0.1\r\nTable = auto\nPostUp = iptables -A OUTPUT -o %i -j ACCEPT # why\n\n\
         [Peer]\nPublicKey = {PUBLIC}\n\
         PresharedKey={PRESHARED}\nAllowedIPs = 0.0.0.0/0, ::/0\n  endpoint = 127.0.0.1:4    # office\n\
         PersistentKeepalive = 25"
    )
}

/// Returns the file of [`tunnel`] with the changes that the splitter must make, made by hand.
fn split_tunnel(listen: &str) -> String {
    tunnel()
        .replace("-j ACCEPT # why\n", "-j ACCEPT # why\nMTU = 65475\nFwMark = 51820\n")
        .replace("endpoint = 127.0.0.1:4    # office", &format!("endpoint = {listen}    # office"))
}

/// A folder with a file `tunnel.conf`, in which `anabranch split --wg tunnel.conf` runs.
struct Folder(TempDir);

impl Folder {
    fn with(text: &str) -> Folder {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("tunnel.conf"), text).unwrap();
        Folder(folder)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_anabranch"))
            .args(["split", "--wg", "tunnel.conf", "--path", "a=addr:127.0.0.2"])
            .args(arguments)
            .current_dir(self.0.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// Returns the output of a run that ends with success.
    fn prints(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the message of a run that is refused, and checks that no files remain.
    fn refuses(&self, arguments: &[&str]) -> String {
        let before = self.names();
        let output = self.run(arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert_eq!((output.stdout.len(), message.lines().count()), (0, 1), "{message}");
        assert_eq!(self.names(), before, "files left behind; {message}");
        for secret in [PRIVATE, PRESHARED] {
            assert!(!message.contains(&secret[..12]), "{message}");
        }
        message.trim_end().strip_prefix("anabranch: ").unwrap().to_owned()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join(name)).unwrap()
    }
}

fn refused(text: &str, arguments: &[&str]) -> String {
    Folder::with(text).refuses(arguments)
}

#[test]
fn the_lines_that_change_are_shown_and_no_secret() {
    let folder = Folder::with(&tunnel());
    let text = folder.prints(&["--listen", "127.0.0.1:5", "--check"]);
    let shown = "\
tunnel.conf, peer 1 (127.0.0.1:4): change these lines, or add --write FILE to get a changed copy
  [Interface]
+ MTU = 65475
+ FwMark = 51820
  [Peer]
- Endpoint = 127.0.0.1:4
+ Endpoint = 127.0.0.1:5
listen    127.0.0.1:5
server    127.0.0.1:4
";
    assert!(text.starts_with(shown), "{text}");
    assert!(!text.contains(&PRIVATE[..12]) && !text.contains(&PRESHARED[..12]), "{text}");
    assert_eq!(folder.names(), ["tunnel.conf"], "a look writes nothing");
}

#[test]
fn the_written_file_differs_in_those_lines_alone_and_is_its_owners() {
    let folder = Folder::with(&tunnel());
    let text = folder.prints(&["--listen", "[::1]:5", "--write", "split.conf", "--check"]);
    assert!(text.starts_with("wrote split.conf: tunnel.conf with these lines changed\n"), "{text}");
    assert!(text.contains("\nstart the tunnel: wg-quick up ./split.conf\n"), "{text}");
    assert_eq!(folder.read("split.conf"), split_tunnel("[::1]:5"));
    assert_eq!(folder.read("tunnel.conf"), tunnel());
    let mode = fs::metadata(folder.0.path().join("split.conf")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn the_whole_file_is_printed_where_it_is_asked_for_and_nothing_else() {
    let folder = Folder::with(&tunnel());
    let text = folder.prints(&["--listen", "127.0.0.1:5", "--write", "-", "--check"]);
    assert_eq!(text, split_tunnel("127.0.0.1:5"));
}

#[test]
fn machines_are_told_of_the_changes_as_an_event() {
    let text = Folder::with(&tunnel()).prints(&["--listen", "127.0.0.1:5", "--json", "--check"]);
    let event: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!((&event["event"], &event["peer"]), (&"wireguard".into(), &PUBLIC.into()));
    let endpoint = &event["changes"][2];
    assert_eq!((&endpoint["key"], &endpoint["after"]), (&"Endpoint".into(), &"127.0.0.1:5".into()));
    assert_eq!(event["changes"][0]["before"], Value::Null);
    assert!(!text.contains(&PRIVATE[..12]) && !text.contains(&PRESHARED[..12]), "{text}");
}

#[test]
fn an_own_mark_and_a_smaller_mtu_are_kept() {
    let head = "[Interface]\nMTU = 1280\nFwMark = 0x51\nTable = off\n";
    let text = format!("{head}[Peer]\nPublicKey = {PUBLIC}\nEndpoint = 127.0.0.1:4\n");
    let print = ["--listen", "127.0.0.1:5", "--write", "-", "--check"];
    let printed = Folder::with(&text).prints(&print);
    let wanted = text.replace("127.0.0.1:4", "127.0.0.1:5");
    assert_eq!(printed, wanted);
    let split = text.replace("FwMark = 0x51\n", "");
    assert_eq!(Folder::with(&split).prints(&print), split.replace("127.0.0.1:4", "127.0.0.1:5"));
}

#[test]
fn it_listens_at_the_servers_port_where_that_is_free() {
    let (port, print) = (free_address().split_off("127.0.0.1:".len()), ["--write", "-", "--check"]);
    let text = format!("[Interface]\n[Peer]\nPublicKey = {PUBLIC}\nEndpoint = 127.0.0.9:{port}\n");
    let printed = Folder::with(&text).prints(&print);
    assert!(printed.ends_with(&format!("\nEndpoint = 127.0.0.1:{port}\n")), "{printed}");
    let own = text.replace("[Interface]\n", &format!("[Interface]\nListenPort = {port}\n"));
    let printed = Folder::with(&own).prints(&print);
    assert!(!printed.contains(&format!("127.0.0.1:{port}\n")), "the tunnel's own port; {printed}");
}

#[test]
fn a_taken_port_gives_way_to_a_free_one() {
    let holder = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap();
    let text = format!("[Interface]\n[Peer]\nPublicKey = {PUBLIC}\nEndpoint = {taken}\n");
    let printed = Folder::with(&text).prints(&["--write", "-", "--check"]);
    let endpoint = printed.lines().find_map(|line| line.strip_prefix("Endpoint = ")).unwrap();
    assert!(endpoint.starts_with("127.0.0.1:") && endpoint != taken.to_string(), "{endpoint}");
}

#[test]
fn what_the_file_itself_gets_wrong_is_told_with_its_line() {
    let peer = format!("[Peer]\nPublicKey = {PUBLIC}\nEndpoint = h:1\n");
    let message = refused(&format!("[Interface]\nPrivateKy = {PRIVATE}\n{peer}"), &[]);
    let near = "tunnel.conf:2: unknown key `PrivateKy` in [Interface]; did you mean `PrivateKey`?";
    assert_eq!(message, near);
    let message = refused(&peer.replace("h:1", "h:70000"), &[]);
    assert_eq!(message, "tunnel.conf:3: Endpoint: '70000' is not a port: write 1 to 65535");
    let message = refused(&format!("[Interface]\nPrivateKey = {PRIVATE}\n"), &[]);
    assert_eq!(
        message,
        "tunnel.conf: no peer has an Endpoint, so there is no server to split to: add an Endpoint"
    );
    assert!(
        refused(&format!("[Interface]\n{PRIVATE}\n"), &[])
            .starts_with("tunnel.conf:2: this line is neither a")
    );
}

#[test]
fn two_servers_are_told_apart_by_number_or_key() {
    let peer =
        |key: &str, port| format!("[Peer]\nPublicKey = {key}\nEndpoint = 127.0.0.1:{port}\n");
    let text = format!("[Interface]\n{}{}", peer(PUBLIC, 4), peer(OTHER, 6));
    let message = refused(&text, &[]);
    let ends = format!("1 ({PUBLIC}, 127.0.0.1:4), 2 ({OTHER}, 127.0.0.1:6)");
    assert!(message.contains("--peer") && message.ends_with(&ends), "{message}");
    let message = refused(&text, &["--peer", "3"]);
    let list = format!("peers with an Endpoint: {ends}");
    assert_eq!(message, format!("tunnel.conf: no peer '3' in this file; {list}"));
    assert!(refused(&text, &["--peer", "second"]).contains("'second' names no peer"));
    for choice in ["2", OTHER] {
        let arguments = ["--peer", choice, "--listen", "127.0.0.1:5", "--write", "-", "--check"];
        let printed = Folder::with(&text).prints(&arguments);
        let wanted = text.replace("127.0.0.1:6", "127.0.0.1:5");
        assert_eq!(printed.replace("[Interface]\nMTU = 65475\n", "[Interface]\n"), wanted);
    }
}

#[test]
fn a_file_that_is_missing_or_would_be_lost_is_refused() {
    let folder = Folder::with(&tunnel());
    fs::write(folder.0.path().join("other.conf"), "mine").unwrap();
    let refuses = |more: &[&str]| folder.refuses(&[&["--listen", "127.0.0.1:5"], more].concat());
    let exists = refuses(&["--write", "other.conf"]);
    assert_eq!(
        exists,
        "--write: other.conf: exists already: name another file, or add --overwrite"
    );
    let itself = refuses(&["--write", "./tunnel.conf", "--overwrite"]);
    assert!(
        itself.ends_with(
            "is the file that --wg reads, and its Endpoint would be lost: name another file"
        ),
        "{itself}"
    );
    let nowhere = refuses(&["--write", "nowhere/split.conf"]);
    assert!(nowhere.starts_with("--write: nowhere/split.conf: cannot be written: "), "{nowhere}");
    folder.prints(&["--write", "other.conf", "--overwrite", "--listen", "127.0.0.1:5", "--check"]);
    assert_eq!(folder.read("other.conf"), split_tunnel("127.0.0.1:5"));
    fs::remove_file(folder.0.path().join("tunnel.conf")).unwrap();
    assert!(folder.refuses(&[]).starts_with("tunnel.conf: cannot be read: No such file"));
}

#[test]
fn a_run_that_is_refused_later_writes_nothing() {
    let folder = Folder::with(&tunnel());
    folder.refuses(&[
        "--listen",
        "127.0.0.1:5",
        "--write",
        "split.conf",
        "--path",
        "b=if:nowhere0",
    ]);
    let holder = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    let message = folder.refuses(&["--listen", &taken, "--write", "split.conf"]);
    assert!(message.starts_with(&format!("cannot listen on {taken}")), "{message}");
}

#[test]
fn ports_that_would_meet_are_refused() {
    let listen = free_address();
    let port = listen.rsplit_once(':').unwrap().1;
    let own = tunnel().replace("Table = auto", &format!("ListenPort = {port}"));
    let message = refused(&own, &["--listen", &listen]);
    assert!(message.contains(&format!("the tunnel itself uses port {port}")), "{message}");
    let written = tunnel().replace("127.0.0.1:4 ", &format!("{listen} "));
    let message = refused(&written, &[]);
    assert!(message.contains("is the splitter's own address"), "{message}");
}

#[test]
fn flags_that_do_not_go_together_are_refused() {
    assert!(refused(&tunnel(), &["--to", "127.0.0.1:9"]).contains("--to"));
    assert!(refused(&tunnel(), &["--overwrite"]).contains("--write"));
    let both = refused(&tunnel(), &["--write", "-", "--json", "--listen", "127.0.0.1:5"]);
    assert_eq!(
        both,
        "the WireGuard file (--write -) and the events (--json) cannot both go to standard output: \
         give --write a file name"
    );
}

#[test]
fn a_path_through_a_tunnel_that_is_not_up_says_how_to_bring_it_up() {
    let path = |path| refused(&tunnel(), &["--listen", "127.0.0.1:5", "--path", path]);
    let message = path("vpn=wg:tunnel.conf");
    let wanted = "path 'vpn': the tunnel 'tunnel' is not up; start it: wg-quick up ./tunnel.conf";
    assert_eq!(message, wanted);
    let message = path("vpn=wg:nowhere0.conf");
    assert!(message.contains("there is no file 'nowhere0.conf'"), "{message}");
    let message = path("vpn=wg:sixteen-letters1.conf");
    assert!(message.contains("is not the name of a wg-quick file: write NAME.conf"), "{message}");
}
