//! QUIC servers with their default settings, and quic-go's client.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::Programs;
use super::stage::{SERVER, Stage, command};
use anabranch_emulator::GroupProcess;

/// UDP port of all QUIC servers.
pub(super) const PORT: u16 = 4433;
/// Seed of the content that the test servers send; its value does not affect the experiment.
const SEED: &str = "1";
/// Time that a client may run beyond its requested duration before it is killed.
const LATE: Duration = Duration::from_secs(10);
/// The client for all servers: its file name, and the source of the program.
const CLIENT: (&str, &str) = ("quic-client", "quic-go's client of the interop tests");
/// The program that makes the servers' certificates, and the package that contains it.
const OPENSSL: (&str, &str) = ("openssl", "package openssl");

/// QUIC library that a server is built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuicLibrary {
    QuicGo,
    Quinn,
    S2n,
    Ngtcp2,
    Aioquic,
}

/// A running QUIC server on the server's host, and the URL path that the client requests. The
/// server is stopped on drop.
pub(super) struct Server<'a> {
    protocol: &'static str,
    path: String,
    _process: GroupProcess<'a>,
}

/// Report of the program `quic-client` about a download.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(super) struct ClientReport {
    pub(super) bytes: u64,
    /// Duration of the download in seconds, since the client's start.
    pub(super) seconds: f64,
    /// Time to the first byte of the content in seconds; 0 if no byte arrived.
    pub(super) first_byte_s: f64,
    pub(super) longest_gap_s: f64,
    /// Error message of the client; empty if the whole content arrived.
    pub(super) error: String,
}

impl QuicLibrary {
    /// Returns the library's name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            QuicLibrary::QuicGo => "quic-go",
            QuicLibrary::Quinn => "quinn",
            QuicLibrary::S2n => "s2n-quic",
            QuicLibrary::Ngtcp2 => "ngtcp2",
            QuicLibrary::Aioquic => "aioquic",
        }
    }

    /// Returns the programs that this server and the client need, each with the package or project
    /// that provides it.
    pub(super) fn needs(self) -> Vec<(&'static str, &'static str)> {
        match self {
            QuicLibrary::QuicGo => {
                vec![CLIENT, ("quicgo-server", "quic-go's server of the interop tests")]
            }
            QuicLibrary::Quinn => {
                vec![CLIENT, ("quinn-server", "quinn's server of the interop tests")]
            }
            QuicLibrary::S2n => {
                vec![CLIENT, ("s2n-server", "s2n-quic's server of the interop tests"), OPENSSL]
            }
            QuicLibrary::Ngtcp2 => vec![CLIENT, ("gtlsserver", "package ngtcp2-server"), OPENSSL],
            QuicLibrary::Aioquic => {
                vec![CLIENT, ("aioquic-server", "aioquic's server of the interop tests"), OPENSSL]
            }
        }
    }
}

impl<'a> Server<'a> {
    /// Starts a QUIC server that sends `length` bytes.
    ///
    /// # Errors
    /// The server does not start, or does not listen.
    pub(super) fn start(
        maker: QuicLibrary,
        stage: &'a Stage,
        programs: &Programs,
        length: u64,
    ) -> io::Result<Server<'a>> {
        let (mut command, protocol, path) = match maker {
            QuicLibrary::Quinn => {
                let mut server = command(programs, "quinn-server");
                server.args([&format!("{SERVER}:{PORT}"), SEED]);
                (server, "hq", format!("/bytes/{length}"))
            }
            QuicLibrary::S2n => {
                let mut server = command(programs, "s2n-server");
                server.arg(format!("{SERVER}:{PORT}"));
                server.args(certificate(stage, programs)?).arg(SEED);
                (server, "hq", format!("/bytes/{length}"))
            }
            QuicLibrary::Ngtcp2 => (gtlsserver(stage, programs, length)?, "h3", "/file".to_owned()),
            QuicLibrary::Aioquic => {
                let mut server = command(programs, "aioquic-server");
                server.args([SERVER, &PORT.to_string()]);
                server.args(certificate(stage, programs)?).arg(SEED);
                (server, "h3", format!("/zeros/{length}"))
            }
            QuicLibrary::QuicGo => {
                let mut server = command(programs, "quicgo-server");
                server.args(["-listen", &format!("{SERVER}:{PORT}"), "-seed", SEED]);
                (server, "h3", format!("/bytes/{length}"))
            }
        };
        let mut process = stage.processes.start(stage.server(), &mut command)?;
        stage.wait_bound(maker.name(), &mut process, PORT)?;
        Ok(Server { protocol, path, _process: process })
    }

    /// Runs the QUIC client on the client's host, for at most `seconds` seconds. The client
    /// connects to `to` and requests the server name `name`.
    ///
    /// # Errors
    /// The client cannot be started, or reports nothing.
    pub(super) fn fetch(
        &self,
        (stage, programs): (&Stage, &Programs),
        (to, name): (SocketAddr, &str),
        seconds: f64,
        stop: &AtomicBool,
    ) -> io::Result<ClientReport> {
        let mut command = command(programs, CLIENT.0);
        command.args(["-server", &to.to_string(), "-name", name, "-protocol", self.protocol]);
        command.args(["-path", &self.path, "-timeout", &format!("{seconds}s")]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut client = stage.processes.start(stage.client(), &mut command)?;
        let deadline = Instant::now() + Duration::from_secs_f64(seconds) + LATE;
        while client.try_wait()?.is_none() {
            if stop.load(Ordering::Relaxed) || Instant::now() > deadline {
                client.kill()?;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let output = client.finish()?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(stdout.lines().last().unwrap_or_default()).map_err(|_| {
            io::Error::other(format!("quic-client printed no result: {}", output.status))
        })
    }
}

/// Returns the command of ngtcp2's server, which serves a sparse file of `length` bytes.
fn gtlsserver(stage: &Stage, programs: &Programs, length: u64) -> io::Result<Command> {
    stage.processes.among_files(|folder| {
        let site = folder.join("site");
        fs::create_dir(&site)?;
        File::create(site.join("file"))?.set_len(length)
    })?;
    let [certificate, key] = certificate(stage, programs)?;
    let mut server = command(programs, "gtlsserver");
    server.args(["-q", "-d", "/run/site", SERVER, &PORT.to_string(), key, certificate]);
    Ok(server)
}

/// Generates a self-signed certificate and its key; clients do not verify the certificate. Returns
/// the paths of both files in the in-memory `/run` that only the started programs see.
///
/// # Errors
/// `openssl` cannot be started or fails.
pub(super) fn certificate(stage: &Stage, programs: &Programs) -> io::Result<[&'static str; 2]> {
    let mut openssl = command(programs, "openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    openssl.args(["-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    openssl.args(["-addext", "subjectAltName=DNS:localhost"]);
    let files = ["/run/certificate.pem", "/run/key.pem"];
    openssl.args(["-out", files[0], "-keyout", files[1]]);
    stage.processes.run(stage.server(), &mut openssl, b"")?;
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_client_prints_is_read() {
        let line = r#"{"bytes":5,"sha256":"00","seconds":1.5,"goodput_mbits":1,"longest_gap_s":0.1,
            "first_byte_s":0.2,"error":""}"#;
        let report: ClientReport = serde_json::from_str(line).unwrap();
        assert_eq!((report.bytes, report.seconds, report.first_byte_s), (5, 1.5, 0.2));
    }
}
