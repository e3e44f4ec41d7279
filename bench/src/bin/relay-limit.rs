//! CPU time of the operations that every middle relay needs: one layer of AES-CTR on each cell,
//! AES-GCM on each record twice, and receiving and sending over TCP. No relay on this machine can
//! take less than their sum. Alternatives are measured too: the layers of Counter Galois Onion,
//! and those of lossy cells.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use anabranch_onion::crypto::counter::KeyStream;
use anabranch_onion::crypto::lossy::{LossyClient, LossyKeys, LossyRelay};
use anabranch_onion::crypto::{CgoClient, CgoRelay, ClientLayer, RelayLayer, cgo, lossy};
use anabranch_onion::wire::cell::{BODY, CELL, Command};
use anabranch_onion::wire::crypto::Aes128Ctr;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use cipher::{KeyIvInit, StreamCipher};
use clap::Parser;
use rustix::time::{ClockId, clock_gettime};

/// Bytes of a stream's data in a cell of the original format, which Counter Galois Onion does not
/// use.
const PAYLOAD: usize = 498;
/// Bytes of content in a TLS record.
const RECORD: usize = 16 << 10;
/// Bytes that a TLS record adds to its content.
const RECORD_EXTRA: usize = 22;
/// Bytes that a relay reads and writes at once.
const PIECE: usize = 32 << 10;

/// Print the minimum CPU time of a middle relay, in milliseconds for each megabyte of streams'
/// data.
#[derive(Parser)]
struct Arguments {
    /// Process MEGABYTES of streams' data in each run.
    #[arg(long, default_value_t = 200)]
    megabytes: usize,
    /// Repeat each measurement RUNS times.
    #[arg(long, default_value_t = 5)]
    runs: usize,
}

/// Function that processes a number of cells, and returns the CPU time in milliseconds.
type Part = fn(usize) -> io::Result<f64>;

/// Measured operations: the name of each, whether every relay needs it, and its function. Those
/// that not every relay needs show the cost of alternatives.
const PARTS: [(&str, bool, Part); 12] = [
    ("AES-CTR", true, layers),
    ("AES-CTR by the library's counter mode", false, library),
    ("CGO, a relay passes on", false, passed_on),
    ("CGO, a relay speaks", false, encrypt_as_client),
    ("CGO, a client hears (with what the relay spoke)", false, relay_to_client),
    ("lossy cells, a relay passes on", false, lossy_passed_on),
    ("lossy cells, a relay speaks", false, lossy_spoken),
    ("lossy cells, a client hears (with what the relay spoke)", false, lossy_relay_to_client),
    ("AES-GCM twice, records of 16 KiB", true, |cells| records(cells, RECORD)),
    ("AES-GCM twice, records of 4 KiB", false, |cells| records(cells, RECORD / 4)),
    ("AES-GCM twice, a record for each cell", false, |cells| records(cells, CELL)),
    ("TCP, in and out", true, tcp),
];

/// Operations on lossy cells and the same with Counter Galois Onion, by their places in [`PARTS`].
const COMPARED: [(usize, usize); 3] = [(5, 2), (6, 3), (7, 4)];
/// Largest share of the time of Counter Galois Onion that lossy cells may take.
const SHARE: f64 = 1.7;

fn main() -> io::Result<()> {
    let Arguments { megabytes, runs } = Arguments::parse();
    let cells = megabytes * 1_000_000 / PAYLOAD;
    let mut found = [const { Vec::new() }; PARTS.len()];
    for _ in 0..runs.max(1) {
        for ((_, _, part), found) in PARTS.iter().zip(&mut found) {
            found.push(part(cells)? / megabytes as f64);
        }
    }
    for (lossy, cgo) in COMPARED {
        let rounds = found[lossy].iter().zip(&found[cgo]);
        let mut shares: Vec<f64> = rounds.map(|(lossy, cgo)| lossy / cgo).collect();
        let median = median(&mut shares);
        let verdict = if median <= SHARE { "ok" } else { "MISSED" };
        let (least, most) = (shares[0], shares[shares.len() - 1]);
        println!(
            "{}: {median:.2} ({least:.2}-{most:.2}) of the time of {} (target {SHARE}) {verdict}",
            PARTS[lossy].0, PARTS[cgo].0
        );
    }
    let mut limit = 0.0;
    for ((name, is_needed, _), found) in PARTS.iter().zip(&mut found) {
        let median = median(found);
        limit += if *is_needed { median } else { 0.0 };
        println!("{name}{}: {}", if *is_needed { "" } else { " (not counted)" }, spread(found));
    }
    println!("a middle relay's limit on this machine: {limit:.2} ms/MB");
    Ok(())
}

/// Applies one layer of AES-CTR to `cells` cells.
fn layers(cells: usize) -> io::Result<f64> {
    let mut stream = KeyStream::new(&[1; 16]);
    let mut body = [0; BODY];
    Ok(timed(|| (0..cells).for_each(|_| stream.apply(std::hint::black_box(&mut body)))))
}

/// Applies the same layer with the general counter mode of the library `ctr`.
fn library(cells: usize) -> io::Result<f64> {
    let mut cipher = Aes128Ctr::new(&[1; 16].into(), &[0; 16].into());
    let mut body = [0; BODY];
    Ok(timed(|| (0..cells).for_each(|_| cipher.apply_keystream(std::hint::black_box(&mut body)))))
}

/// Applies one CGO layer to `cells` cells that the relay forwards.
fn passed_on(cells: usize) -> io::Result<f64> {
    let mut layer = CgoRelay::new(&[1; cgo::KEY_BYTES]);
    let mut body = [0; BODY];
    let mut pass = || layer.inbound(Command::RELAY, std::hint::black_box(&mut body));
    Ok(timed(|| (0..cells).for_each(|_| pass())))
}

/// Encrypts `cells` cells that the relay originates. CGO updates the keys with each.
fn encrypt_as_client(cells: usize) -> io::Result<f64> {
    let mut layer = CgoRelay::new(&[1; cgo::KEY_BYTES]);
    let mut body = [0; BODY];
    Ok(timed(|| {
        for _ in 0..cells {
            layer.originate(Command::RELAY, std::hint::black_box(&mut body));
        }
    }))
}

/// Encrypts `cells` cells at their relay, and decrypts them at the client.
fn relay_to_client(cells: usize) -> io::Result<f64> {
    let seed = [1; cgo::KEY_BYTES];
    let (mut relay, mut client) = (CgoRelay::new(&seed), CgoClient::new(&seed));
    let mut body = [0; BODY];
    let mut known = true;
    let ms = timed(|| {
        for _ in 0..cells {
            relay.originate(Command::RELAY, std::hint::black_box(&mut body));
            known &= client.inbound(Command::RELAY, std::hint::black_box(&mut body)).is_some();
        }
    });
    if known { Ok(ms) } else { Err(io::Error::other("a client took a cell for another's")) }
}

/// Returns the keys of a hop for lossy cells.
fn lossy_keys() -> LossyKeys {
    LossyKeys::from(&[1; lossy::KEY_BYTES])
}

/// Checks the counters of `cells` lossy cells that the relay forwards, and applies one layer to
/// each.
fn lossy_passed_on(cells: usize) -> io::Result<f64> {
    let mut relay = LossyRelay::new(&lossy_keys());
    let mut body = [0; BODY];
    let mut passed = 0;
    let ms = timed(|| {
        for counter in (0..).take(cells) {
            let cell = (Command::RELAY, counter);
            passed += usize::from(relay.inward(cell, std::hint::black_box(&mut body)).is_ok());
        }
    });
    if passed == cells { Ok(ms) } else { Err(io::Error::other("a relay dropped a lossy cell")) }
}

/// Encrypts `cells` lossy cells that the relay originates.
fn lossy_spoken(cells: usize) -> io::Result<f64> {
    let mut relay = LossyRelay::new(&lossy_keys());
    let mut body = [0; BODY];
    Ok(timed(|| {
        for _ in 0..cells {
            relay.originate(Command::RELAY, std::hint::black_box(&mut body));
        }
    }))
}

/// Encrypts `cells` lossy cells at their relay, and decrypts them at the client.
fn lossy_relay_to_client(cells: usize) -> io::Result<f64> {
    let keys = lossy_keys();
    let (mut relay, mut client) = (LossyRelay::new(&keys), LossyClient::new(&[keys]));
    let mut body = [0; BODY];
    let mut received = 0;
    let ms = timed(|| {
        for _ in 0..cells {
            let counter = relay.originate(Command::RELAY, &mut body).unwrap_or(0);
            let cell = (Command::RELAY, counter);
            received += usize::from(client.inward(cell, std::hint::black_box(&mut body)).is_ok());
        }
    });
    if received == cells { Ok(ms) } else { Err(io::Error::other("a client dropped a lossy cell")) }
}

/// Opens and seals the records of `length` bytes that `cells` cells fill.
fn records(cells: usize, length: usize) -> io::Result<f64> {
    let unusable = |_| io::Error::other("the library refuses a key of its own length");
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[2; 32]).map_err(unusable)?);
    let nonce = || Nonce::assume_unique_for_key([0; 12]);
    let mut record = vec![0; length];
    let mut sound = true;
    let ms = timed(|| {
        for _ in 0..(cells * CELL).div_ceil(length) {
            record.truncate(length);
            sound &= key.seal_in_place_append_tag(nonce(), Aad::empty(), &mut record).is_ok();
            sound &= key.open_in_place(nonce(), Aad::empty(), &mut record).is_ok();
        }
    });
    if sound { Ok(ms) } else { Err(io::Error::other("a record could not be opened")) }
}

/// Receives the bytes that `cells` cells need on the wire, and sends them over another connection.
fn tcp(cells: usize) -> io::Result<f64> {
    let wire = cells * CELL;
    let bytes = wire + wire.div_ceil(RECORD) * RECORD_EXTRA;
    let ((mut source, mut from), (mut to, sink)) = (pair()?, pair()?);
    thread::scope(|scope| {
        let pour = scope.spawn(move || source.write_all(&vec![0; bytes]));
        let drain = scope.spawn(move || io::copy(&mut sink.take(bytes as u64), &mut io::sink()));
        let mut done = Ok(());
        let ms = timed(|| done = pass(&mut from, &mut to, bytes));
        done?;
        let joined = |_| io::Error::other("a thread of the measurement failed");
        pour.join().map_err(|_| joined(()))??;
        drain.join().map_err(|_| joined(()))??;
        Ok(ms)
    })
}

fn pass(from: &mut TcpStream, to: &mut TcpStream, bytes: usize) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut left = bytes;
    while left > 0 {
        let count = from.read(&mut piece)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        to.write_all(&piece[..count])?;
        left -= count;
    }
    Ok(())
}

fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    Ok((one, listener.accept()?.0))
}

/// Returns the CPU time that `work` takes on this thread, in milliseconds.
fn timed(work: impl FnOnce()) -> f64 {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
    };
    let before = now();
    work();
    now() - before
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn spread(sorted: &[f64]) -> String {
    let [first, .., last] = sorted else { return format!("{:.2} ms/MB", sorted[0]) };
    format!("{:.2} ({first:.2}-{last:.2}) ms/MB", sorted[sorted.len() / 2])
}
