//! Tests of SIGHUP to the programs of the onion network. The settings are read again, and open
//! circuits and connections continue.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ports;
mod program;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ports::free_ports;
use program::{NOBODY, PATIENCE, Program};
use serde_json::{Value, json};

/// A running program with a settings file.
struct Filed {
    program: Program,
    file: PathBuf,
    settings: String,
}

impl Filed {
    fn start(folder: &Path, command: &str, name: &str, settings: &str) -> Filed {
        let data = folder.join(name);
        let settings = format!("data = '{}'\njson = true\n{settings}\n", data.display());
        let file = folder.join(format!("{name}.toml"));
        fs::write(&file, &settings).unwrap();
        let program = Program::start(&[command, file.to_str().unwrap()]);
        Filed { program, file, settings }
    }

    /// Appends the lines `more` to the file, and makes the program read the file again.
    fn reload(&mut self, more: &str) {
        self.write(&format!("{}{more}\n", self.settings));
        self.program.signal("-HUP");
    }

    fn write(&self, text: &str) {
        // The file is replaced in one step, because a partly written file would be an error.
        let alongside = self.file.with_extension("new");
        fs::write(&alongside, text).unwrap();
        fs::rename(alongside, &self.file).unwrap();
    }

    fn reloaded(&mut self) -> Value {
        let event = self.program.next("reloaded");
        json!([event["changed"], event["restart"]])
    }

    /// Returns the message about settings that the program refuses.
    fn kept(&mut self) -> String {
        let event = self.program.find("trouble", |event| {
            event["what"].as_str().unwrap().ends_with("; the current settings stay")
        });
        event["what"].as_str().unwrap().to_owned()
    }
}

fn relay_settings(nickname: &str, port: u16, authorities: &str) -> String {
    format!(
        "nickname = '{nickname}'\naddress = '127.0.0.1'\nlisten = ['127.0.0.1:{port}']\n\
         allow-private = true\nthreads = 2\nauthority = [{authorities}]"
    )
}

#[test]
fn a_relay_takes_what_it_can_names_the_rest_and_keeps_all_if_the_file_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let [port] = free_ports();
    let settings = relay_settings("river", port, &format!("'{NOBODY}'"));
    let mut relay = Filed::start(folder.path(), "relay", "river", &settings);
    relay.program.next("listening");
    relay.reload(
        "contact = 'you'\nexit = ['accept *:443']\nrate = 100000\nmemory = 64\nmetrics \
                  = '127.0.0.1:0'",
    );
    let wanted = json!([["contact", "exit", "rate", "memory"], ["metrics"]]);
    assert_eq!(relay.reloaded(), wanted);
    relay.reload("contact = 'you'\nexit = ['accept *:443']\nrate = 100000\nmemory = 64");
    assert_eq!(relay.reloaded(), json!([[], []]), "what wanted a restart is as it was");
    for (mistake, words) in [
        ("exti = ['accept *:80']", ":9: unknown key `exti`; did you mean `exit`?"),
        ("rate = 5", ": --rate 5 is too low for a relay"),
        ("contact = \"two\\nlines\"", ": contact must be one line"),
        ("exit = ['allow *:80']", "allow *:80"),
    ] {
        relay.reload(mistake);
        let text = relay.kept();
        let file = relay.file.display().to_string();
        assert!(text.starts_with(&file) && text.contains(words), "{text}");
        assert_eq!(text.lines().count(), 1);
    }
    fs::remove_file(&relay.file).unwrap();
    relay.program.signal("-HUP");
    assert!(relay.kept().starts_with("cannot read '"));
    relay.reload("");
    assert_eq!(relay.reloaded(), json!([["contact", "exit", "rate", "memory"], []]));
    relay.program.signal("-TERM");
    assert!(relay.program.ended().0.success());
}

#[test]
fn a_relay_without_circuits_ends_at_once_though_it_has_time_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let [port] = free_ports();
    let settings = relay_settings("river", port, &format!("'{NOBODY}'"));
    for threads in [1, 2] {
        let settings = settings.replace("threads = 2", &format!("threads = {threads}"));
        let settings = format!("{settings}\ngrace = 600");
        let mut relay = Filed::start(folder.path(), "relay", "river", &settings);
        relay.program.next("listening");
        // A connection without circuits does not delay the end.
        let _neighbour = TcpStream::connect(("127.0.0.1", port)).unwrap();
        relay.program.signal("-TERM");
        let begun = Instant::now();
        assert!(relay.program.ended().0.success());
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
}

/// Starts an authority that soon publishes a consensus. Also returns its DirAuthority line.
fn authority(folder: &Path) -> (Filed, String) {
    let [or, dir] = free_ports();
    let settings = format!(
        "nickname = 'dam'\naddress = '127.0.0.1'\nlisten = ['127.0.0.1:{or}']\n\
         listen-dir = ['127.0.0.1:{dir}']\ninterval = 10\nyoung = true\nallow-private = true"
    );
    let mut authority = Filed::start(folder, "authority", "dam", &settings);
    let line = authority.program.next("authority")["what"].as_str().unwrap().to_owned();
    (authority, line)
}

/// Returns the time in seconds that a relay needs to end, if it is asked to end during its
/// self-test.
fn end_in_self_test(folder: &Path, name: &str, line: &str) -> f64 {
    let [port, metrics] = free_ports();
    let settings = relay_settings(name, port, &format!("'{line}'"));
    let settings = format!("{settings}\ngrace = 600\nmetrics = '127.0.0.1:{metrics}'");
    let mut relay = Filed::start(folder, "relay", name, &settings);
    relay.program.next("listening");
    let at = SocketAddr::from(([127, 0, 0, 1], metrics));
    let end = Instant::now() + PATIENCE;
    // The circuit of a self-test ends at the relay itself, so the relay counts it.
    while !get(at, "/metrics").contains("anabranch_relay_circuits 1\n") {
        assert!(Instant::now() < end, "no self-test: {}", get(at, "/metrics"));
        thread::sleep(Duration::from_millis(20));
    }
    relay.program.signal("-TERM");
    let begun = Instant::now();
    assert!(relay.program.ended().0.success());
    begun.elapsed().as_secs_f64()
}

#[test]
fn a_relay_does_not_wait_for_its_own_self_test() {
    let folder = tempfile::tempdir().unwrap();
    let (_authority, line) = authority(folder.path());
    // A self-test lasts five seconds, and its end takes less than a second. Other programs use the
    // machine too, so the fastest of four runs counts.
    let mut ends = (0..4).map(|n| end_in_self_test(folder.path(), &format!("river{n}"), &line));
    assert!(ends.any(|seconds| seconds < 2.5));
}

#[test]
fn a_relay_whose_settings_did_not_change_publishes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let [port] = free_ports();
    let (_authority, line) = authority(folder.path());
    let settings = relay_settings("river", port, &format!("'{line}'"));
    let mut relay = Filed::start(folder.path(), "relay", "river", &settings);
    let is_accepted = |event: &Value| {
        let what = event["what"].as_str().unwrap_or_default();
        event["event"] == "note" && what.ends_with("accepted this relay's descriptor")
    };
    relay.program.find("note", is_accepted);
    let mut accepted = 0;
    let mut reload = |more: &str, changed: Value| {
        relay.reload(more);
        let event =
            relay.program.until("reloaded", |event| accepted += u32::from(is_accepted(event)));
        assert_eq!(event["changed"], changed);
    };
    for _ in 0..5 {
        reload("", json!([]));
        thread::sleep(Duration::from_millis(500));
    }
    reload("contact = 'river people'", json!(["contact"]));
    assert_eq!(accepted, 0, "published though nothing changed");
    relay.program.find("note", is_accepted);
    relay.program.signal("-TERM");
    assert!(relay.program.ended().0.success());
}

#[test]
fn without_a_file_a_client_reads_its_authorities_again_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (data, lines) = (folder.path().join("state"), folder.path().join("network.txt"));
    fs::write(&lines, NOBODY).unwrap();
    let [data, authorities] = [&data, &lines].map(|path| path.to_str().unwrap());
    let words = ["client", "--json", "--listen", "127.0.0.1:0", "--data", data];
    let mut client = Program::start(&[&words[..], &["--authorities", authorities]].concat());
    client.next("listening");
    client.signal("-HUP");
    assert_eq!(client.next("reloaded")["changed"], json!([]));
    fs::write(&lines, NOBODY.replace("nobody", "somebody")).unwrap();
    client.signal("-HUP");
    assert_eq!(client.next("reloaded")["changed"], json!(["authorities"]));
    fs::write(&lines, "").unwrap();
    client.signal("-HUP");
    let event = client.find("trouble", |event| {
        event["what"].as_str().unwrap().contains("no directory authority")
    });
    assert!(event["what"].as_str().unwrap().ends_with("; the current settings stay"), "{event}");
    client.signal("-TERM");
    assert!(client.ended().0.success());
}

/// An authority, three relays (the last one is an exit) and a client, all on one address.
struct Network {
    authority: Filed,
    relays: Vec<Filed>,
    client: Filed,
    directory: SocketAddr,
    socks: SocketAddr,
}

impl Network {
    fn start(folder: &Path) -> Network {
        let [or, dir, socks] = free_ports();
        let at = |port: u16| format!("127.0.0.1:{port}");
        let settings = format!(
            "nickname = 'dam'\naddress = '127.0.0.1'\nlisten = ['{}']\nlisten-dir = ['{}']\n\
             interval = 10\nexpect = 3\nyoung = true\nallow-private = true",
            at(or),
            at(dir)
        );
        let mut authority = Filed::start(folder, "authority", "dam", &settings);
        let line = authority.program.next("authority")["what"].as_str().unwrap().to_owned();
        let ports: [u16; 3] = free_ports();
        let relay = |(number, port): (usize, u16)| {
            let name = format!("river{number}");
            let mut settings = relay_settings(&name, port, &format!("'{line}'"));
            if number == 2 {
                settings += "\nexit = ['accept *:*']";
            }
            Filed::start(folder, "relay", &name, &settings)
        };
        let relays = ports.into_iter().enumerate().map(relay).collect();
        let settings =
            format!("listen = ['{}']\nshare-subnets = true\nauthority = ['{line}']", at(socks));
        let mut client = Filed::start(folder, "client", "client", &settings);
        client.program.next("circuit_built");
        let [directory, socks] = [dir, socks].map(|port| at(port).parse().unwrap());
        Network { authority, relays, client, directory, socks }
    }

    /// Opens a connection to the address `to` through the network.
    fn connect(&self, to: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(self.socks).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let SocketAddr::V4(to) = to else { panic!("an IPv4 address is wanted") };
        let request = [&[5, 1, 0, 3, 9][..], b"127.0.0.1", &to.port().to_be_bytes()].concat();
        stream.write_all(&[5, 1, 0]).unwrap();
        stream.read_exact(&mut [0; 2]).unwrap();
        stream.write_all(&request).unwrap();
        let mut answer = [0; 10];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer[1], 0, "the stream is refused");
        stream
    }

    /// Waits until the directory document `path` contains `text`.
    fn wait_for(&self, path: &str, text: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.document(path).contains(text) {
            assert!(
                Instant::now() < end,
                "{path} does not hold {text:?}:\n{}",
                self.document(path)
            );
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn document(&self, path: &str) -> String {
        get(self.directory, path)
    }
}

/// Requests the document `path` by HTTP. Returns the answer, with its head.
fn get(at: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

const PIECE: usize = 32 << 10;
const PIECES: usize = 60;

/// Starts a server that sends pieces with pauses between them, for about three seconds.
fn slow_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            for piece in 0..PIECES {
                // A client that has closed the connection needs no more data.
                let _ = stream.write_all(&[piece as u8; PIECE]);
                thread::sleep(Duration::from_millis(50));
            }
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
    at
}

#[test]
fn a_download_goes_on_while_all_programs_of_its_network_read_their_settings_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut network = Network::start(folder.path());
    let server = slow_server();
    let mut download = network.connect(server);
    let mut first = vec![0; PIECE];
    download.read_exact(&mut first).unwrap();
    let refuses = format!("exit = ['reject *:{}', 'accept *:*']", server.port());
    let exit = &mut network.relays[2];
    exit.settings = exit.settings.replace("exit = ['accept *:*']", &refuses);
    network.relays.iter_mut().for_each(|relay| relay.reload("contact = 'river people'"));
    let guards = "middle = ['0000000000000000000000000000000000000000']\npadding = 'reduced'";
    network.client.reload(guards);
    network.authority.reload("param = ['cc_alg=2', 'reload=7']");
    assert_eq!(network.relays[2].reloaded(), json!([["contact", "exit"], []]));
    assert_eq!(network.relays[0].reloaded(), json!([["contact"], []]));
    assert_eq!(network.client.reloaded(), json!([["middle", "padding"], []]));
    assert_eq!(network.authority.reloaded(), json!([["param"], []]));
    let mut rest = Vec::new();
    download.read_to_end(&mut rest).unwrap();
    let whole = [first, rest].concat();
    assert_eq!(whole.len(), PIECE * PIECES, "nothing is missing");
    assert!(
        whole.chunks(PIECE).enumerate().all(|(at, piece)| piece.iter().all(|&b| b == at as u8))
    );
    // These settings apply now: the descriptor was published again, and the next consensus has the
    // new parameter.
    let refused = format!("reject *:{}", server.port());
    network.wait_for("/tor/server/all", &refused);
    network.wait_for("/tor/server/all", "contact river people");
    network.wait_for("/tor/status-vote/current/consensus", "reload=7");
}
