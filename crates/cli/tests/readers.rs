//! Tests with readers of a splitter's output that are slow, that stall, or that do not exist. The
//! forwarded traffic must not depend on them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod running;

use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use running::{PATIENCE, Running};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Starts an echo server that runs as long as this process, because the start of a program may
/// take any time.
fn echo(server: &UdpSocket) {
    let server = server.try_clone().unwrap();
    server.set_read_timeout(None).unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 64];
        loop {
            // An error that a closed client causes does not end the server.
            if let Ok((length, from)) = server.recv_from(&mut buffer) {
                let _ = server.send_to(&buffer[..length], from);
            }
        }
    });
}

fn client() -> UdpSocket {
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    client
}

/// Sends a datagram with this number. Returns whether `client` receives the answer.
fn answered(client: &UdpSocket, splitter: SocketAddr, number: u8) -> bool {
    client.send_to(&[0xf0, number], splitter).unwrap();
    let mut buffer = [0; 64];
    while let Ok(length) = client.recv(&mut buffer) {
        if buffer[..length] == [0xf0, number] {
            return true;
        }
    }
    false
}

/// Exchanges datagrams in an old session for three seconds, while `newcomers` clients open new
/// sessions.
fn goes_on(splitter: SocketAddr, newcomers: usize) {
    let old = client();
    assert!(answered(&old, splitter, 0), "nothing works at all");
    let start = Instant::now();
    for round in 1..=30u8 {
        for _ in 0..newcomers / 30 {
            client().send_to(b"\xf0new", splitter).unwrap();
        }
        // One loss is accepted, because the buffers of a busy machine are sometimes full.
        let fine = answered(&old, splitter, round) || answered(&old, splitter, round);
        assert!(fine, "the old session stopped after {:?}", start.elapsed());
        thread::sleep((Duration::from_millis(100) * round.into()).saturating_sub(start.elapsed()));
    }
}

#[test]
fn a_reader_who_stops_for_a_while_stops_nobody() {
    let mut running = Running::start();
    let splitter = running.next("listening")["listen"].as_str().unwrap().parse().unwrap();
    echo(&running.server);
    goes_on(splitter, 2000);
    // The reader continues only now. No line is lost, although the output was far larger than a
    // pipe.
    running.interrupt();
    let (mut opened, mut bytes, mut line) = (0, 0, String::new());
    while !line.contains("\"summary\"") {
        line.clear();
        bytes += running.lines.as_mut().unwrap().read_line(&mut line).unwrap();
        assert!(!line.is_empty() && !line.contains("\"lost\""), "{line}");
        opened += usize::from(line.contains("\"opened\""));
    }
    assert!(opened > 1500 && bytes > 3 * 65_536, "{opened} sessions, {bytes} bytes");
    let (status, errors) = running.ended();
    assert_eq!((status.code(), errors.as_str()), (Some(0), ""));
}

/// Opens a pseudo terminal. Returns our end, and the program's end.
fn terminal() -> (File, File) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let inner = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let ws_row = 30;
    tcsetwinsize(&terminal, Winsize { ws_row, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    (File::from(terminal), inner)
}

/// A splitter on a terminal. It is killed at the end of its test.
struct TerminalSplitter(Child);

impl TerminalSplitter {
    fn ends_well(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the splitter does not end");
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(self.0.wait().unwrap().code(), Some(0));
    }
}

impl Drop for TerminalSplitter {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The user presses Ctrl-S in the live view, so the program cannot write to the terminal any more.
#[test]
fn a_stalled_terminal_stops_nobody() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    echo(&server);
    let splitter = free_address();
    let (mut terminal, inner) = terminal();
    let mut child = on_terminal(&inner, splitter, server.local_addr().unwrap());
    drop(inner);
    answer_until_the_view_is_drawn(&mut terminal);
    goes_on(splitter, 2000);
    // The program also ends within the time limit, although nobody reads a byte.
    let pid = child.0.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    child.ends_well();
}

/// Returns an address that stays free until a program listens there. The thousands of clients of
/// concurrent tests use ports of 127.0.0.1, so each returned address has its own loopback host.
fn free_address() -> SocketAddr {
    static HOSTS: AtomicU8 = AtomicU8::new(1);
    let host = [127, 0, 1, HOSTS.fetch_add(1, Ordering::Relaxed)];
    UdpSocket::bind(SocketAddr::from((host, 0))).unwrap().local_addr().unwrap()
}

fn on_terminal(terminal: &File, listen: SocketAddr, server: SocketAddr) -> TerminalSplitter {
    let stdio = || Stdio::from(terminal.try_clone().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command
        .args(["split", "--listen", &listen.to_string(), "--to", &server.to_string()])
        .args(["--path", "a=addr:127.0.0.2", "--path", "b=addr:127.0.0.3", "--same-egress"])
        // The output is far larger than the terminal's buffer, because each session beyond the
        // limit causes a warning.
        .args(["--max-sessions", "50"])
        .env("TERM", "xterm")
        .stdin(stdio())
        .stdout(stdio())
        .stderr(stdio());
    TerminalSplitter(command.spawn().unwrap())
}

/// Reports the position of the cursor, as a terminal does. Then reads until the view's column
/// headings have arrived.
fn answer_until_the_view_is_drawn(terminal: &mut File) {
    let (mut seen, mut buffer, mut answered) = (String::new(), [0; 4096], false);
    let deadline = Instant::now() + PATIENCE;
    while !seen.contains("RTT") {
        assert!(Instant::now() < deadline, "no view: {seen:?}");
        let length = terminal.read(&mut buffer).unwrap();
        seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
        if !answered && seen.contains("\x1b[6n") {
            terminal.write_all(b"\x1b[5;1R").unwrap();
            answered = true;
        }
    }
    assert!(answered, "lines instead of a view: {seen}");
}

#[test]
fn a_run_that_nobody_can_read_works_and_ends_in_order() {
    for redirections in ["2>&- >&-", "2>/dev/full >/dev/full", ">/dev/full", "1</dev/null"] {
        for options in [&["--json"][..], &["--max-sessions", "1"], &["--quiet"]] {
            works_unread(redirections, options);
        }
    }
}

#[test]
fn warnings_that_nobody_reads_are_no_reason_to_stop() {
    works_unread("", &["--max-sessions", "1"]);
}

/// Checks that one client is served while others arrive. There is room for one session only, so
/// the others cause warnings.
fn works_unread(redirections: &str, options: &[&str]) {
    let splitter = free_address();
    let mut running = Running::redirected(redirections, splitter, options);
    let mut errors = running.child.stderr.take();
    if redirections.is_empty() {
        errors = None;
    }
    echo(&running.server);
    let served = client();
    let deadline = Instant::now() + PATIENCE;
    while !answered(&served, splitter, 0) {
        assert_eq!(running.child.try_wait().unwrap(), None, "{redirections} {options:?}: ended");
        assert!(Instant::now() < deadline, "{redirections} {options:?}: does not begin");
    }
    for number in 1..20 {
        client().send_to(b"\xf0new", splitter).unwrap();
        // One loss is accepted, as in `goes_on`.
        let fine = answered(&served, splitter, number) || answered(&served, splitter, number);
        assert!(fine, "{redirections}: {number}");
    }
    running.interrupt();
    assert_eq!(running.child.wait().unwrap().code(), Some(0), "{redirections}");
    let mut stderr = String::new();
    errors.map(|mut errors| errors.read_to_string(&mut stderr).unwrap());
    assert!(!stderr.contains("panicked"), "{redirections}: {stderr}");
    let failures = stderr.matches("writing to standard output failed").count();
    let failing = redirections.starts_with(['>', '1']) && options != ["--quiet"];
    assert_eq!(failures, usize::from(failing), "{redirections}: {stderr}");
}
