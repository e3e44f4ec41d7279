//! Programs of the clients: users who open streams from time to time, and check the received data.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anabranch_multipath::seed;
use rand_core::Rng;
use serde_json::json;

use super::print_event;
use super::server::{self, Request, STACK};
use super::stream::{self, StreamRequest};

/// Maximum bytes of a stream.
const LARGEST: f64 = 4.0 * 1024.0 * 1024.0;
/// Maximum bytes of a slowly sent stream.
const DRIPPED: u64 = 100_000;
/// Pause of a slow program after each piece of 16 KiB, which gives 320 KiB per second.
const SLOW: Duration = Duration::from_millis(50);

/// Names of the server in requests; exits connect only to loopback.
const DESTINATIONS: [&str; 3] = ["127.0.0.1", "127.0.0.1", "localhost"];

/// Arguments of `soak load`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Use the clients whose SOCKS ports this file lists, one ADDRESS:PORT per line.
    #[arg(long, value_name = "FILE")]
    clients: PathBuf,
    /// Open new streams during SECONDS; then wait until the last streams end.
    #[arg(long, default_value_t = 1200)]
    seconds: u64,
    /// Use this seed for the random choices of users.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Simulate USERS users of each client; each user has one stream at a time.
    #[arg(long, default_value_t = 2)]
    users: u64,
    /// Set the mean of a user's pauses, in seconds.
    #[arg(long, default_value_t = 15.0)]
    pause: f64,
    /// Let slowly sent streams last at most LASTING seconds, and at most a quarter of SECONDS.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    lasting: u64,
    /// Connect to these hosts; a host that is given twice is chosen twice as often. Without PORT,
    /// the server's port is used.
    #[arg(long, value_name = "HOST[:PORT]", num_args = 1.., default_values = DESTINATIONS)]
    to: Vec<String>,
    /// Set the server's port; 0 is any free port.
    #[arg(long, default_value_t = 0)]
    port: u16,
}

/// Runs all users until their last streams have ended; prints a line for each stream.
pub(crate) fn run(arguments: &Arguments) -> io::Result<()> {
    let proxies: Vec<SocketAddr> = fs::read_to_string(&arguments.clients)?
        .lines()
        .map(|line| line.trim().parse().map_err(io::Error::other))
        .collect::<io::Result<_>>()?;
    let server = server::start(arguments.port)?;
    let to = arguments.to.iter().map(|one| destination(one, server.port()));
    let to: Arc<[(String, u16)]> = to.collect::<io::Result<Vec<_>>>()?.into();
    let begin = Instant::now();
    let threads = (0..proxies.len() as u64 * arguments.users).map(|number| {
        let proxy = proxies[(number / arguments.users) as usize];
        let user = User::new(arguments, number, proxy, Arc::clone(&to));
        thread::Builder::new().stack_size(STACK).spawn(move || user.work(begin))
    });
    for thread in threads.collect::<io::Result<Vec<_>>>()? {
        thread.join().map_err(|_| io::Error::other("a user panicked"))??;
    }
    print_event(&json!({"event": "done"}))
}

/// Splits a destination into host and port; without a port, `port` is used.
fn destination(named: &str, port: u16) -> io::Result<(String, u16)> {
    match named.rsplit_once(':') {
        Some((host, port)) => Ok((host.into(), port.parse().map_err(io::Error::other)?)),
        None => Ok((named.into(), port)),
    }
}

/// One user of one client.
struct User {
    number: u64,
    chance: seed::Stream,
    proxy: SocketAddr,
    to: Arc<[(String, u16)]>,
    pause: f64,
    /// Time during which it begins streams, and maximum duration of a slowly sent one in seconds.
    all: Duration,
    lasting: u64,
}

impl User {
    fn new(
        arguments: &Arguments,
        number: u64,
        proxy: SocketAddr,
        to: Arc<[(String, u16)]>,
    ) -> User {
        let chance = seed::stream(arguments.seed, number, "soak user");
        let lasting = (arguments.seconds / 4).clamp(1, arguments.lasting);
        let all = Duration::from_secs(arguments.seconds);
        User { number, chance, proxy, to, pause: arguments.pause, all, lasting }
    }

    fn work(mut self, begin: Instant) -> io::Result<()> {
        let end = begin + self.all;
        for stream in 0.. {
            let pause = Duration::from_secs_f64(-self.pause * (1.0 - self.fraction()).ln());
            let left = end.saturating_duration_since(Instant::now());
            thread::sleep(pause.min(left));
            if pause >= left {
                break;
            }
            let wish = self.next_request(self.number << 32 | stream);
            let outcome = stream::run(self.proxy, &wish);
            print_event(&json!({
                "event": "stream",
                "proxy": self.proxy,
                "request": wish.request.line().trim_end(),
                "slow": wish.pause > Duration::ZERO,
                "host": wish.to.0,
                "user": wish.user,
                "opened": outcome.opened,
                "came": outcome.received,
                "seconds": outcome.elapsed.as_secs_f64(),
                "ended": begin.elapsed().as_secs_f64(),
                "end": outcome.end.map_or_else(|failure| failure.to_string(), |()| "complete".into()),
            }))?;
        }
        Ok(())
    }

    /// Draws the next stream. Sizes are as likely to be between 1 and 10 bytes as between 100,000
    /// and a million.
    fn next_request(&mut self, number: u64) -> StreamRequest {
        let length = LARGEST.powf(self.fraction()) as u64;
        let kind = self.below(20);
        let request = match kind {
            0..12 => Request::Get { number, length },
            12..17 => Request::Put { number, length },
            _ => {
                let seconds = 1 + self.below(self.lasting);
                // At least one byte per second, so that a pause is not mistaken for a hanging
                // stream.
                Request::Drip { number, length: length.clamp(seconds, DRIPPED), seconds }
            }
        };
        let is_slow = kind.is_multiple_of(6);
        let to = self.below(self.to.len() as u64) as usize;
        StreamRequest {
            request,
            to: self.to[to].clone(),
            user: [None, None, Some("anne"), Some("bert")][self.below(4) as usize],
            pause: if is_slow { SLOW } else { Duration::ZERO },
        }
    }

    /// Draws a number from 0 to less than 1.
    fn fraction(&mut self) -> f64 {
        (self.chance.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, count: u64) -> u64 {
        self.chance.next_u64() % count
    }
}
