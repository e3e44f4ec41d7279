//! A running `anabranch split` for the tests of the program.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

pub mod socks;

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

pub const PATIENCE: Duration = Duration::from_secs(20);

/// A splitter over two loopback paths, in front of an echo server.
pub struct Running {
    pub child: Child,
    pub lines: Option<BufReader<ChildStdout>>,
    pub server: UdpSocket,
}

impl Running {
    /// Starts a splitter that prints JSON, listens on a free port, and sends datagrams on both
    /// paths in turn.
    pub fn start() -> Running {
        Running::with("127.0.0.1", &["a=addr:127.0.0.2", "b=addr:127.0.0.3"], &["--json"])
    }

    /// Starts a splitter that listens at the loopback address `host`, with these paths and options.
    pub fn with(host: &str, paths: &[&str], options: &[&str]) -> Running {
        let any = SocketAddr::new(host.parse().unwrap(), 0);
        Running::under(Command::new(env!("CARGO_BIN_EXE_anabranch")), any, paths, options)
    }

    /// Starts a splitter at this address, by a shell whose command line ends in `redirections`.
    pub fn redirected(redirections: &str, listen: SocketAddr, options: &[&str]) -> Running {
        let mut shell = Command::new("sh");
        let script = format!("exec \"$0\" \"$@\" {redirections}");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_anabranch")]);
        Running::under(shell, listen, &["a=addr:127.0.0.2", "b=addr:127.0.0.3"], options)
    }

    /// Starts a splitter in front of `server`, with the settings in `file` and further `options`.
    pub fn of_file(file: &Path, server: UdpSocket, options: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        command.arg("split").arg(file).args(options);
        Running::spawn(command.stdin(Stdio::null()), server)
    }

    /// Starts a splitter with the settings in `file`, as a service whose manager listens at
    /// `socket`.
    pub fn managed(socket: &Path, file: &Path) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        command.env("NOTIFY_SOCKET", socket).arg("split").arg(file).stdin(Stdio::null());
        Running::spawn(&mut command, UdpSocket::bind("127.0.0.1:0").unwrap())
    }

    /// Starts a splitter in front of this server.
    pub fn towards(server: UdpSocket, listen: &str, paths: &[&str], options: &[&str]) -> Running {
        let command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        Running::before(server, command, listen.parse().unwrap(), paths, options)
    }

    fn under(command: Command, listen: SocketAddr, paths: &[&str], options: &[&str]) -> Running {
        let server = UdpSocket::bind(SocketAddr::new(listen.ip(), 0)).unwrap();
        Running::before(server, command, listen, paths, options)
    }

    fn before(
        server: UdpSocket,
        mut command: Command,
        listen: SocketAddr,
        paths: &[&str],
        options: &[&str],
    ) -> Running {
        let to = server.local_addr().unwrap().to_string();
        command
            .args(["split", "--listen", &listen.to_string(), "--to", &to, "--seed", "7"])
            .args(paths.iter().flat_map(|path| ["--path", path]))
            .args(["--schedule", "round-robin", "--every", "1p", "--same-egress"])
            .args(options)
            .stdin(Stdio::null());
        Running::spawn(&mut command, server)
    }

    /// Starts `command`, which executes a splitter in front of `server`.
    pub fn spawn(command: &mut Command, server: UdpSocket) -> Running {
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = child.stdout.take().map(BufReader::new);
        Running { child, lines, server }
    }

    /// Returns the next object whose event is `name`.
    pub fn next(&mut self, name: &str) -> Value {
        loop {
            let mut line = String::new();
            let length = self.lines.as_mut().unwrap().read_line(&mut line).unwrap();
            assert_ne!(length, 0, "ended without '{name}'");
            let object: Value = serde_json::from_str(&line).unwrap();
            assert!(object["time"].is_number(), "an event without its time: {object}");
            if object["event"] == name {
                return object;
            }
        }
    }

    /// Sends a datagram to the server and back. Returns the source address that the server saw.
    pub fn exchange(&self, client: &UdpSocket, splitter: &str) -> SocketAddr {
        client.send_to(b"\xf0nothing known", splitter).unwrap();
        let mut buffer = [0; 64];
        let (length, from) = received(&self.server, &mut buffer);
        self.server.send_to(&buffer[..length], from).unwrap();
        assert_eq!(received(client, &mut buffer).0, length);
        from
    }

    pub fn interrupt(&self) {
        self.signal("-INT");
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    pub fn ended(&mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the splitter does not end");
            sleep(Duration::from_millis(10));
        }
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (self.child.wait().unwrap(), errors)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Receives a datagram. Repeats the call if a signal interrupts it, such as one from a test's
/// terminal.
fn received(socket: &UdpSocket, buffer: &mut [u8]) -> (usize, SocketAddr) {
    loop {
        match socket.recv_from(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            outcome => return outcome.unwrap(),
        }
    }
}
