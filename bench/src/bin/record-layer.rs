//! Cost of a TLS 1.3 record with our own record layer and with the library's. One connection
//! within this process has ours at one end and the library's at the other, and carries data in
//! both directions.

use std::io::{self, Read, Write};
use std::sync::Arc;

use anabranch_links::{Context, Link, State, StreamLink, Tls};
use anabranch_multipath::Time;
use anabranch_onion::wire::cell::CELL;
use clap::Parser;
use rustix::time::{ClockId, clock_gettime};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};

/// Plain bytes per write: a cell, a full record, and the amount that a relay seals at once.
const WRITES: [(&str, usize); 3] =
    [("a cell", CELL), ("a full record", 16 << 10), ("two full records", 32 << 10)];
/// Bytes that a relay reads at once.
const PIECE: usize = 32 << 10;
const NOW: u64 = 1_800_000_000;

/// Print the CPU time to seal and to open records, with our record layer and with the library's.
#[derive(Parser)]
struct Arguments {
    /// Seal and open MEGABYTES of data in each run.
    #[arg(long, default_value_t = 50)]
    megabytes: usize,
    /// Repeat each measurement RUNS times.
    #[arg(long, default_value_t = 9)]
    runs: usize,
}

/// The library's end, used as links used it before they had their own record layer.
struct Library {
    connection: ClientConnection,
    arrived: Vec<u8>,
}

impl Library {
    fn new(context: &Arc<CryptoProvider>) -> io::Result<Library> {
        let config = ClientConfig::builder_with_provider(context.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone))
            .with_no_client_auth();
        let name = ServerName::try_from("www.example.net").map_err(io::Error::other)?;
        let connection = ClientConnection::new(Arc::new(config), name);
        let mut connection = connection.map_err(io::Error::other)?;
        connection.set_buffer_limit(None);
        Ok(Library { connection, arrived: Vec::new() })
    }

    fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<()> {
        self.connection.writer().write_all(plain)?;
        while self.connection.wants_write() {
            self.connection.write_tls(&mut AppendWriter(wire))?;
        }
        Ok(())
    }

    fn open(&mut self, mut wire: &[u8], plain: &mut Vec<u8>) -> io::Result<()> {
        while !wire.is_empty() {
            self.connection.read_tls(&mut wire)?;
            let state = self.connection.process_new_packets().map_err(io::Error::other)?;
            let before = self.arrived.len();
            self.arrived.resize(before + state.plaintext_bytes_to_read(), 0);
            self.connection.reader().read_exact(&mut self.arrived[before..])?;
        }
        plain.append(&mut self.arrived);
        Ok(())
    }
}

/// Verifier that accepts any certificate.
#[derive(Debug)]
struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

struct AppendWriter<'a>(&'a mut Vec<u8>);

impl Write for AppendWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        slices.iter().for_each(|slice| self.0.extend_from_slice(slice));
        Ok(slices.iter().map(|slice| slice.len()).sum())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Seals `plain` with our record layer.
fn seal(link: &mut Tls, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<()> {
    link.write(plain).map_err(io::Error::other)?;
    link.transmit(Time::ZERO, wire);
    Ok(())
}

fn open(link: &mut Tls, wire: &[u8], plain: &mut Vec<u8>) -> io::Result<()> {
    link.receive(Time::ZERO, wire).map_err(io::Error::other)?;
    link.read(plain).expect("an honest peer");
    Ok(())
}

fn main() -> io::Result<()> {
    let Arguments { megabytes, runs } = Arguments::parse();
    let suites = [
        ("AES-256-GCM", cipher_suite::TLS13_AES_256_GCM_SHA384),
        ("ChaCha20-Poly1305", cipher_suite::TLS13_CHACHA20_POLY1305_SHA256),
    ];
    for (suite, only) in suites {
        let cipher_suites = vec![only];
        let provider = Arc::new(CryptoProvider { cipher_suites, ..default_provider() });
        for (name, write) in WRITES {
            let mut found = [const { Vec::new() }; 4];
            for _ in 0..runs.max(1) {
                let times = measured(&provider, write, megabytes * 1_000_000 / write)?;
                times.into_iter().zip(&mut found).for_each(|(time, found)| found.push(time));
            }
            let [own, library, own_opens, library_opens] = found.map(|f| spread(f, write));
            println!("{suite}, {name} a write");
            println!("  sealed: ours {own}; the library's {library}");
            println!("  opened: ours {own_opens}; the library's {library_opens}");
        }
    }
    Ok(())
}

/// Returns nanoseconds of CPU for each write: sealed by us and by the library, opened by us and by
/// the library.
fn measured(provider: &Arc<CryptoProvider>, write: usize, count: usize) -> io::Result<[f64; 4]> {
    let context = Context::new(NOW).map_err(io::Error::other)?;
    let mut ours = context.accept().map_err(io::Error::other)?;
    let mut theirs = Library::new(provider)?;
    agree(&mut ours, &mut theirs)?;
    let (bytes, mut times) = (vec![7; write], [0.0; 4]);
    let (mut up, mut down) = (Vec::new(), Vec::new());
    let (mut came_up, mut came_down) = (Vec::new(), Vec::new());
    let (mut left, batch) = (count, (PIECE / write).max(1));
    while left > 0 {
        let now = batch.min(left);
        left -= now;
        for buffer in [&mut up, &mut down, &mut came_up, &mut came_down] {
            buffer.clear();
        }
        // Each end writes a whole batch before it is sent. A relay sends such a batch with one
        // system call.
        times[0] += timed(|| (0..now).try_for_each(|_| seal(&mut ours, &bytes, &mut down)))?;
        times[1] += timed(|| (0..now).try_for_each(|_| theirs.seal(&bytes, &mut up)))?;
        times[2] +=
            timed(|| up.chunks(PIECE).try_for_each(|piece| open(&mut ours, piece, &mut came_up)))?;
        times[3] +=
            timed(|| down.chunks(PIECE).try_for_each(|piece| theirs.open(piece, &mut came_down)))?;
        if came_up.len() != now * write || came_down != came_up {
            return Err(io::Error::other("an end did not read what the other sealed"));
        }
    }
    Ok(times.map(|time| time / count as f64))
}

fn agree(ours: &mut Tls, theirs: &mut Library) -> io::Result<()> {
    let (mut up, mut down) = (Vec::new(), Vec::new());
    while ours.state() != State::Open || theirs.connection.is_handshaking() {
        theirs.seal(&[], &mut up)?;
        ours.receive(Time::ZERO, &std::mem::take(&mut up)).map_err(io::Error::other)?;
        ours.transmit(Time::ZERO, &mut down);
        theirs.open(&std::mem::take(&mut down), &mut Vec::new())?;
    }
    Ok(())
}

/// Returns the nanoseconds of CPU that `work` takes on this thread.
fn timed(work: impl FnOnce() -> io::Result<()>) -> io::Result<f64> {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    };
    let before = now();
    work()?;
    Ok(now() - before)
}

/// Formats median, minimum and maximum, and the median's rate in MB/s.
fn spread(mut values: Vec<f64>, write: usize) -> String {
    values.sort_by(f64::total_cmp);
    let (least, most) = (values[0], values[values.len() - 1]);
    let median = values[values.len() / 2];
    let rate = write as f64 * 1e3 / median;
    format!("{median:.0} ({least:.0}-{most:.0}) ns, {rate:.0} MB/s")
}
