//! Watches a process for a given time.

use std::io;
use std::time::{Duration, Instant};

use anabranch_bench::proc::{Sockets, Usage};
use clap::Parser;

/// Print the CPU time that a process uses in a period, its memory and files, and the memory of UDP
/// queues, as JSON.
#[derive(Parser)]
struct Arguments {
    /// Watch this process.
    pid: u32,
    /// Watch the process for SECONDS.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    let (start, before) = (Instant::now(), Usage::of(arguments.pid)?);
    std::thread::sleep(Duration::from_secs_f64(arguments.seconds));
    let (after, seconds) = (Usage::of(arguments.pid)?, start.elapsed().as_secs_f64());
    let sockets = Sockets::now()?;
    let report = serde_json::json!({
        "seconds": seconds,
        "cpu": after.cpu - before.cpu,
        "rss": after.rss,
        "files": after.files,
        "sockets": sockets,
    });
    println!("{report}");
    Ok(())
}
