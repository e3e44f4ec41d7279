//! Measures the cost of system calls in a process that forwards bytes from one TCP connection to
//! another, as a relay does: `pass [MEGABYTES [RUNS]]`.
//!
//! Compares three methods with pieces of several sizes: blocking reads and writes; an epoll before
//! each read, as in `anabranch relay`; and io_uring, where one call submits the write of a piece
//! and the read of the next one, and waits for both. The output is the CPU time of the forwarding
//! thread. On loopback this includes the sender's half of TCP and, in its writes, the receiver's.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;

use anabranch_os::poller::Poller;
use io_uring::{IoUring, opcode, squeue, types};
use rustix::time::{ClockId, clock_gettime};

/// Sizes of the pieces in bytes: a Tor cell, a memory page, the longest TLS record, and two and
/// four times that record.
const PIECES: [usize; 5] = [514, 4 << 10, 16 << 10, 32 << 10, 64 << 10];

/// A method of forwarding. The function's arguments are the source, the destination, the total
/// bytes, and the maximum bytes of a piece.
type ForwardFn = fn(&mut TcpStream, &mut TcpStream, usize, usize) -> io::Result<()>;

const WAYS: [(&str, ForwardFn); 3] =
    [("read, write", plain), ("epoll", polled), ("io_uring", ringed)];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<usize>());
    let megabytes = numbers.next().transpose()?.unwrap_or(200);
    let runs = numbers.next().transpose()?.unwrap_or(5).max(1);
    println!("ms of CPU for each MB, median (least-most) of {runs} runs of {megabytes} MB");
    for piece in PIECES {
        let mut found = [const { Vec::new() }; WAYS.len()];
        for _ in 0..runs {
            for ((_, way), found) in WAYS.iter().zip(&mut found) {
                found.push(measure(*way, megabytes * 1_000_000, piece)? / megabytes as f64);
            }
        }
        let parts: Vec<_> =
            WAYS.iter().zip(&mut found).map(|((name, _), found)| tell(name, found)).collect();
        println!("pieces of {piece}: {}", parts.join("; "));
    }
    Ok(())
}

fn tell(name: &str, found: &mut [f64]) -> String {
    found.sort_by(f64::total_cmp);
    let (least, most) = (found[0], found[found.len() - 1]);
    format!("{name} {:.2} ({least:.2}-{most:.2})", found[found.len() / 2])
}

/// Returns the CPU time in milliseconds of the thread that forwards `bytes` bytes.
fn measure(way: ForwardFn, bytes: usize, piece: usize) -> io::Result<f64> {
    let ((mut source, mut from), (mut to, sink)) = (pair()?, pair()?);
    thread::scope(|scope| {
        let pour = scope.spawn(move || source.write_all(&vec![0; bytes]));
        let drain = scope.spawn(move || io::copy(&mut sink.take(bytes as u64), &mut io::sink()));
        let before = cpu_ms();
        let done = way(&mut from, &mut to, bytes, piece);
        let elapsed = cpu_ms() - before;
        // Closing the connections ends the threads of the sender and the receiver, whatever the
        // result.
        drop((from, to));
        let failed = |_| io::Error::other("a thread of the measurement failed");
        let poured = pour.join().map_err(failed)?;
        let drained = drain.join().map_err(failed)?;
        done.and(poured)?;
        if drained? == bytes as u64 { Ok(elapsed) } else { Err(ErrorKind::UnexpectedEof.into()) }
    })
}

fn plain(from: &mut TcpStream, to: &mut TcpStream, bytes: usize, piece: usize) -> io::Result<()> {
    let mut buffer = vec![0; piece];
    let mut left = bytes;
    while left > 0 {
        let count = some(from.read(&mut buffer)?)?;
        to.write_all(&buffer[..count])?;
        left -= count;
    }
    Ok(())
}

fn polled(from: &mut TcpStream, to: &mut TcpStream, bytes: usize, piece: usize) -> io::Result<()> {
    let mut poller = Poller::new(8)?;
    poller.add(&*from, 1)?;
    from.set_nonblocking(true)?;
    let mut buffer = vec![0; piece];
    let mut left = bytes;
    while left > 0 {
        poller.wait(None)?.count();
        match from.read(&mut buffer) {
            Ok(count) => {
                // The write blocks while the receiver is slow. A relay would wait for the receiver
                // in the same epoll.
                to.write_all(&buffer[..some(count)?])?;
                left -= count;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn ringed(from: &mut TcpStream, to: &mut TcpStream, bytes: usize, piece: usize) -> io::Result<()> {
    const READ: u64 = 0;
    let mut ring = IoUring::new(4)?;
    let (from, to) = (types::Fd(from.as_raw_fd()), types::Fd(to.as_raw_fd()));
    let mut buffers = [vec![0u8; piece], vec![0u8; piece]];
    let (mut full, mut left) = (0, bytes);
    while left > 0 || full > 0 {
        let [next, ready] = &mut buffers;
        let mut calls = Vec::with_capacity(2);
        if full > 0 {
            let send = opcode::Send::new(to, ready.as_ptr(), full as u32);
            calls.push(send.flags(libc::MSG_WAITALL).build().user_data(1));
        }
        if left > 0 {
            let read = opcode::Recv::new(from, next.as_mut_ptr(), next.len() as u32);
            calls.push(read.build().user_data(READ));
        }
        let results = run(&mut ring, &calls)?;
        let sent = results.iter().find(|(call, _)| *call != READ);
        if sent.is_some_and(|(_, count)| *count != full) {
            return Err(ErrorKind::WriteZero.into());
        }
        full = match results.iter().find(|(call, _)| *call == READ) {
            Some((_, count)) => some(*count)?,
            None => 0,
        };
        left -= full;
        buffers.swap(0, 1);
    }
    Ok(())
}

/// Submits `calls` and waits for all of them. Returns the user data and the result of each.
#[allow(unsafe_code, reason = "the kernel is handed addresses of buffers")]
fn run(ring: &mut IoUring, calls: &[squeue::Entry]) -> io::Result<Vec<(u64, usize)>> {
    // SAFETY: the buffers of the entries belong to the caller, which neither moves nor reads them
    // until this function returns. It does not return before the kernel has completed each entry.
    unsafe { ring.submission().push_multiple(calls) }.map_err(io::Error::other)?;
    let mut results = Vec::with_capacity(calls.len());
    while results.len() < calls.len() {
        match ring.submit_and_wait(calls.len() - results.len()) {
            // The kernel may use the buffers for an unknown time, so they must not be freed.
            Err(error) if error.kind() != ErrorKind::Interrupted => std::process::abort(),
            _ => results.extend(ring.completion().map(|entry| (entry.user_data(), entry.result()))),
        }
    }
    let count =
        |result: i32| usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
    results.into_iter().map(|(call, result)| Ok((call, count(result)?))).collect()
}

/// Converts the result of a read or write: 0 bytes become an error, because the other end has
/// closed the connection.
fn some(count: usize) -> io::Result<usize> {
    if count == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(count) }
}

fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    Ok((one, listener.accept()?.0))
}

fn cpu_ms() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}
