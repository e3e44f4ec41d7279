//! QUIC: servers with their defaults, and quic-go's client.

use std::fs::{self, File};
use std::io;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::super::Programs;
use super::super::stage::{SERVER, Stage, command};
use super::System;
use super::bench::Session;
use super::transfer::{Arrived, Limit};
use crate::emulate::Member;

const PORT: u16 = 4433;
/// Of the bytes that servers make; the content is of no interest here.
const SEED: &str = "1";
/// How much later than it was told a client may end.
const LATE: Duration = Duration::from_secs(10);
const CLIENT: (&str, &str) = ("quic-client", "quic-go's client of the interop tests");

/// What a server takes, and what gives it.
pub(super) fn needs(system: System) -> Vec<(&'static str, &'static str)> {
    let openssl = ("openssl", "package openssl");
    match system {
        System::QuicGo => vec![CLIENT, ("quicgo-server", "quic-go's server of the interop tests")],
        System::Quinn => vec![CLIENT, ("quinn-server", "quinn's server of the interop tests")],
        System::Ngtcp2 => vec![CLIENT, ("gtlsserver", "package ngtcp2-server"), openssl],
        System::Aioquic => {
            vec![CLIENT, ("aioquic-server", "aioquic's server of the interop tests"), openssl]
        }
        System::WireGuard | System::Mosh => Vec::new(),
    }
}

/// A server, and what its client asks for.
struct Server<'a> {
    programs: &'a Programs,
    protocol: &'static str,
    path: String,
    _process: Member<'a>,
}

/// Starts a server that sends as much as can arrive until the limit.
pub(super) fn serve<'a>(
    system: System,
    stage: &'a Stage,
    programs: &'a Programs,
    limit: Limit,
) -> io::Result<Box<dyn Session + 'a>> {
    let length = limit.enough();
    let (mut command, protocol, path) = match system {
        System::Quinn => {
            let mut server = command(programs, "quinn-server");
            server.args([&format!("{SERVER}:{PORT}"), SEED]);
            (server, "hq", format!("/bytes/{length}"))
        }
        System::Ngtcp2 => (gtlsserver(stage, programs, length)?, "h3", "/file".to_owned()),
        System::Aioquic => {
            let mut server = command(programs, "aioquic-server");
            server.args([SERVER, &PORT.to_string()]);
            server.args(certificate(stage, programs)?).arg(SEED);
            (server, "h3", format!("/zeros/{length}"))
        }
        _ => {
            let mut server = command(programs, "quicgo-server");
            server.args(["-listen", &format!("{SERVER}:{PORT}"), "-seed", SEED]);
            (server, "h3", format!("/bytes/{length}"))
        }
    };
    let mut process = stage.crew.start(stage.server(), &mut command)?;
    stage.wait_bound(system.name(), &mut process, PORT)?;
    Ok(Box::new(Server { programs, protocol, path, _process: process }))
}

impl Session for Server<'_> {
    fn port(&self) -> u16 {
        PORT
    }

    fn transfer(&mut self, stage: &Stage, limit: Limit, stop: &AtomicBool) -> io::Result<Arrived> {
        let mut command = command(self.programs, CLIENT.0);
        command.args(["-server", &format!("127.0.0.1:{PORT}"), "-protocol", self.protocol]);
        command.args(["-path", &self.path, "-timeout", &format!("{}s", limit.seconds)]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut client = stage.crew.start(stage.client(), &mut command)?;
        let deadline = Instant::now() + Duration::from_secs_f64(limit.seconds) + LATE;
        while client.try_wait()?.is_none() {
            if stop.load(Ordering::Relaxed) || Instant::now() > deadline {
                client.kill()?;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let output = client.finish()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let told: Told =
            serde_json::from_str(said.lines().last().unwrap_or_default()).map_err(|_| {
                io::Error::other(format!("quic-client said nothing: {}", output.status))
            })?;
        Ok(told.arrived(limit))
    }
}

/// What quic-client prints.
#[derive(Deserialize)]
struct Told {
    bytes: u64,
    seconds: f64,
    longest_gap_s: f64,
    error: String,
}

impl Told {
    /// That the time is over is no error. What broke off before has had all its time.
    fn arrived(self, limit: Limit) -> Arrived {
        let early = self.seconds < limit.seconds * 0.98;
        let whole = limit.bytes.is_some_and(|bytes| self.bytes >= bytes);
        let broke = early && !self.error.is_empty() && !whole;
        let cut_short = broke && limit.bytes.is_none();
        Arrived {
            bytes: self.bytes,
            seconds: if cut_short { limit.seconds } else { self.seconds },
            longest_gap: self.longest_gap_s,
            error: broke.then_some(self.error),
        }
    }
}

/// ngtcp2's server, with a file that is nothing but a length.
fn gtlsserver(stage: &Stage, programs: &Programs, length: u64) -> io::Result<Command> {
    stage.crew.among_files(|folder| {
        let site = folder.join("site");
        fs::create_dir(&site)?;
        File::create(site.join("file"))?.set_len(length)
    })?;
    let [certificate, key] = certificate(stage, programs)?;
    let mut server = command(programs, "gtlsserver");
    server.args(["-q", "-d", "/run/site", SERVER, &PORT.to_string(), key, certificate]);
    Ok(server)
}

/// A certificate that nobody needs to trust, and its key; where the crew sees them.
fn certificate(stage: &Stage, programs: &Programs) -> io::Result<[&'static str; 2]> {
    let mut openssl = command(programs, "openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    openssl.args(["-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    openssl.args(["-addext", "subjectAltName=DNS:localhost"]);
    let files = ["/run/certificate.pem", "/run/key.pem"];
    openssl.args(["-out", files[0], "-keyout", files[1]]);
    stage.crew.run(stage.server(), &mut openssl, b"")?;
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(bytes: u64, seconds: f64, error: &str) -> Told {
        Told { bytes, seconds, longest_gap_s: 0.5, error: error.to_owned() }
    }

    #[test]
    fn the_end_of_the_time_is_no_error_and_an_early_end_is() {
        let timed = Limit { seconds: 10.0, bytes: None };
        let whole = told(1000, 10.001, "context deadline exceeded").arrived(timed);
        assert_eq!((whole.error, whole.seconds), (None, 10.001));
        let broken = told(1000, 3.0, "the connection was closed").arrived(timed);
        assert_eq!((broken.error.is_some(), broken.seconds), (true, 10.0));
        let sized = Limit { seconds: 600.0, bytes: Some(1000) };
        let whole = told(1000, 3.0, "").arrived(sized);
        assert_eq!((whole.error, whole.seconds), (None, 3.0));
        assert!(told(999, 3.0, "reset").arrived(sized).error.is_some());
    }

    #[test]
    fn what_the_client_prints_is_read() {
        let line = r#"{"bytes":5,"sha256":"00","seconds":1.5,"goodput_mbits":1,"longest_gap_s":0.1,"error":""}"#;
        let told: Told = serde_json::from_str(line).unwrap();
        assert_eq!((told.bytes, told.seconds), (5, 1.5));
    }
}
