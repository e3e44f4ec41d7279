//! Measurements with Mosh: the server displays a file of 10 MB repeatedly, and the client's output
//! is counted.
//!
//! The program at the server is `cat` in a loop. Mosh does not transfer the whole output of a
//! program. Mosh transfers the current screen, at a rate that depends on the round-trip time, and
//! skips output that scrolled by in between. Throughput is therefore measured in the bytes that
//! `mosh-client` writes to its terminal. Bytes on the wire are no better measure, because they
//! include retransmissions. The speed of `cat` is none either: it only shows how fast the server's
//! terminal accepts text.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::super::Programs;
use super::super::stage::{SERVER, Stage, command};
use super::session::Session;
use super::transfer::{Arrival, Limit, Meter};

/// Programs that measurements with Mosh need, each with the package that contains it.
pub(super) const NEEDS: &[(&str, &str)] =
    &[("mosh-server", "package mosh"), ("mosh-client", "package mosh")];

const PORT: u16 = 60001;
/// Size in bytes of the file that Mosh displays, as in the CoMPS paper.
const FILE: usize = 10_000_000;
/// Duration in seconds of a measurement with Mosh if transfers are limited by a number of bytes,
/// which does not apply to Mosh. The CoMPS paper states no duration.
const MOST: f64 = 60.0;
/// Bytes of terminal output after which the first screen of the file counts as displayed.
const SCREEN: u64 = 1500;
/// Timeout for the first screen of a Mosh session, which needs a few round trips.
const PATIENCE: Duration = Duration::from_secs(10);
/// Environment of `mosh-server` and `mosh-client`. Predictions are off, because predicted output
/// does not come from the server.
const ENVIRONMENT: [(&str, &str); 3] =
    [("LC_ALL", "C.UTF-8"), ("TERM", "xterm"), ("MOSH_PREDICTION_DISPLAY", "never")];
/// Shell script that prints the file on the server's terminal again and again until it is killed.
const SHOW: &str = r#"while :; do cat "$0"; done"#;

struct Login<'a> {
    programs: &'a Programs,
    key: String,
}

/// Starts a Mosh server whose session displays the file.
pub(super) fn serve<'a>(
    stage: &Stage,
    programs: &'a Programs,
) -> io::Result<Box<dyn Session + 'a>> {
    let file = stage.processes.write("file", &text())?;
    let mut server = command(programs, "mosh-server");
    server.args(["new", "-i", SERVER, "-p", &PORT.to_string(), "--", "sh", "-c", SHOW]);
    server.arg(file).envs(ENVIRONMENT);
    let stdout = stage.processes.run(stage.server(), &mut server, b"")?.stdout;
    let stdout = String::from_utf8_lossy(&stdout);
    let connect = stdout.lines().find_map(|line| line.trim().strip_prefix("MOSH CONNECT "));
    let key = connect.and_then(|rest| rest.split_whitespace().nth(1));
    let key = key
        .ok_or_else(|| {
            io::Error::other(format!("mosh-server printed no port and key, but: {stdout}"))
        })?
        .to_owned();
    Ok(Box::new(Login { programs, key }))
}

impl Session for Login<'_> {
    fn port(&self) -> u16 {
        PORT
    }

    fn transfer(&mut self, stage: &Stage, limit: Limit, stop: &AtomicBool) -> io::Result<Arrival> {
        let (mut terminal, inner) = terminal()?;
        let mut client = command(self.programs, "mosh-client");
        client.args(["127.0.0.1", &PORT.to_string()]).envs(ENVIRONMENT).env("MOSH_KEY", &self.key);
        client.stdin(Stdio::from(inner.try_clone()?)).stdout(Stdio::from(inner.try_clone()?));
        client.stderr(Stdio::from(inner));
        let client_process = stage.processes.start(stage.client(), &mut client)?;
        // After our copy is closed, only mosh-client keeps the inner end of the terminal open.
        drop(client);
        let begun = Instant::now();
        let mut drawn = 0;
        while drawn < SCREEN {
            let read = feed(&mut terminal)?.filter(|_| begun.elapsed() < PATIENCE);
            drawn += read.ok_or_else(|| io::Error::other("mosh-client showed no screen"))?;
        }
        let seconds = if limit.bytes.is_some() { MOST } else { limit.seconds };
        let mut meter = Meter::start(Limit { seconds, bytes: None }, stop);
        let (mut total, mut error) = (0, None);
        while !meter.is_over() && error.is_none() {
            match feed(&mut terminal)? {
                Some(read) => total += read,
                None => error = Some("mosh-client exited during the download".to_owned()),
            }
            meter.at(total);
        }
        drop(client_process);
        Ok(meter.finish(error))
    }
}

/// Reads and discards output from the terminal, and returns the number of bytes. Returns `Some(0)`
/// after a short wait without output, and `None` at the end of the output.
fn feed(terminal: &mut File) -> io::Result<Option<u64>> {
    let wait = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    let mut ready = [PollFd::new(&*terminal, PollFlags::IN)];
    match poll(&mut ready, Some(&wait)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Some(0)),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    match terminal.read(&mut [0; 1 << 14]) {
        Ok(0) => Ok(None),
        Ok(read) => Ok(Some(read as u64)),
        // The error EIO means that the inner end of the terminal was closed.
        Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a pseudo-terminal of 80 by 24 characters. Returns the end for this process, and the end
/// for the program that runs in the terminal.
fn terminal() -> io::Result<(File, OwnedFd)> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    let inner = open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    tcsetwinsize(&inner, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 })?;
    Ok((ours.into(), inner))
}

/// Generates the file that Mosh displays, which consists of numbered lines. Successive lines
/// hardly share a letter at the same position, because Mosh sends only the characters that change.
fn text() -> Vec<u8> {
    let words = "the quick brown fox jumps over the lazy dog and runs along the river to the sea in no time ";
    let mut text = Vec::with_capacity(FILE + 80);
    let mut number = 0;
    while text.len() < FILE {
        let turned = words.bytes().cycle().skip(number * 7 % words.len()).take(70);
        text.extend(format!("{number:08} ").bytes().chain(turned));
        text.push(b'\n');
        number += 1;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_file_is_as_long_as_the_papers_and_no_line_is_as_the_next() {
        let text = text();
        assert!((FILE..FILE + 80).contains(&text.len()), "{}", text.len());
        let lines: Vec<_> = text.split(|&byte| byte == b'\n').take(30).collect();
        for pair in lines.windows(2) {
            assert_eq!(pair[0].len(), 79);
            let same = pair[0].iter().zip(pair[1]).filter(|(one, other)| one == other).count();
            assert!(same < 30, "{same} letters of 79");
        }
    }

    #[test]
    fn a_terminal_is_read_to_its_end() {
        let (mut ours, inner) = terminal().unwrap();
        assert_eq!(feed(&mut ours).unwrap(), Some(0), "nothing yet");
        File::from(inner).write_all(b"text").unwrap();
        assert_eq!(feed(&mut ours).unwrap(), Some(4));
        assert_eq!(feed(&mut ours).unwrap(), None, "nobody holds it any more");
    }
}
