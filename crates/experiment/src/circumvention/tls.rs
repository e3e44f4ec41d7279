//! Fetches with TLS over TCP, with OpenSSL's server and client.

use std::io::{self, Read, Write};
use std::process::{ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::super::Programs;
use super::super::quic::{ClientReport, certificate};
use super::super::stage::{SERVER, Stage, command};
use super::place::NAME;
use anabranch_emulator::GroupProcess;

/// Programs that the fetches need, each with the package that contains it.
pub(super) const NEEDS: &[(&str, &str)] = &[("openssl", "package openssl")];

const PORT: u16 = 4433;
/// Timeout of a fetch, equal to the handshake timeout of quic-go's client.
const GIVES_UP: Duration = Duration::from_secs(5);
/// Interval at which a waiting fetch checks whether the experiment is to stop.
const GLANCE: Duration = Duration::from_millis(50);

/// Starts OpenSSL's server, which serves a single page.
///
/// # Errors
/// The server does not start.
pub(super) fn serve<'a>(stage: &'a Stage, programs: &Programs) -> io::Result<GroupProcess<'a>> {
    let [certificate, key] = certificate(stage, programs)?;
    let mut server = command(programs, "openssl");
    server.args(["s_server", "-www", "-quiet", "-accept", &format!("{SERVER}:{PORT}")]);
    server.args(["-cert", certificate, "-key", key]);
    let mut process = stage.processes.start(stage.server(), &mut server)?;
    stage.wait_listens("openssl", &mut process, PORT)?;
    Ok(process)
}

/// Fetches the page with OpenSSL's client. Times are measured from the client's start. If no
/// answer arrives, the report contains an error message.
///
/// # Errors
/// The client cannot be started.
pub(super) fn fetch(
    stage: &Stage,
    programs: &Programs,
    stop: &AtomicBool,
) -> io::Result<ClientReport> {
    let mut client = command(programs, "openssl");
    client.args(["s_client", "-quiet", "-connect", &format!("{SERVER}:{PORT}")]);
    client.args(["-servername", NAME]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let begun = Instant::now();
    let mut client = stage.processes.start(stage.client(), &mut client)?;
    let mut pen = client.stdin.take().expect("the program's input and output are pipes");
    // If writing fails, the client has ended. The missing answer reports the failure later.
    let _ = pen.write_all(b"GET / HTTP/1.0\r\n\r\n");
    let pieces = pieces(client.stdout.take().expect("the program's input and output are pipes"));
    let mut report = ClientReport {
        bytes: 0,
        seconds: 0.0,
        first_byte_s: 0.0,
        longest_gap_s: 0.0,
        error: String::new(),
    };
    while begun.elapsed() < GIVES_UP && !stop.load(Ordering::Relaxed) {
        match pieces.recv_timeout(GLANCE) {
            Ok((at, size)) => {
                let at = at.duration_since(begun).as_secs_f64();
                if report.bytes == 0 {
                    report.first_byte_s = at;
                }
                (report.bytes, report.seconds) = (report.bytes + size, at);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    if report.bytes == 0 {
        report.seconds = begun.elapsed().as_secs_f64();
        report.error = "the TLS server did not answer".to_owned();
    }
    Ok(report)
}

/// Reads `from`, the pipe with the client's output, on a new thread. Returns the receiving end of
/// a channel. For each piece of output, the channel has the arrival time and the size in bytes.
fn pieces(mut from: ChildStdout) -> mpsc::Receiver<(Instant, u64)> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 14];
        while let Ok(size @ 1..) = from.read(&mut buffer) {
            if sender.send((Instant::now(), size as u64)).is_err() {
                return;
            }
        }
    });
    receiver
}
