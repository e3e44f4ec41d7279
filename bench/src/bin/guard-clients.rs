//! Guards of very many clients in one process, as in a simulation: memory of a client, and CPU
//! time of a client for a simulated day.

use std::io;
use std::time::Instant;

use anabranch_bench::proc::Usage;
use anabranch_multipath::seed::stream;
use anabranch_onion::guards::{GuardParams, Guards, Listing, Purpose};
use clap::Parser;
use rand_core::Rng;

const DAY: u64 = 86_400;
/// Start of the run in seconds since 1970.
const BEGIN: u64 = 1_800_000_000;
/// Circuits that a client builds per day.
const CIRCUITS: u64 = 10;

/// Simulate the guards of many clients for some days, and print memory and CPU time.
#[derive(Parser)]
struct Arguments {
    /// Simulate CLIENTS clients.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    clients: u64,
    /// List RELAYS guards in the consensus. One in a hundred is replaced each day.
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u32).range(100..))]
    relays: u32,
    /// Simulate DAYS days.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    days: u64,
}

/// A network of `count` guards with equal weights, whose numbers begin with `first`.
struct GuardNetwork {
    first: u32,
    count: u32,
}

impl Listing<u32> for GuardNetwork {
    fn count(&self) -> usize {
        self.count as usize
    }

    fn lists(&self, id: u32) -> bool {
        (self.first..self.first + self.count).contains(&id)
    }

    fn allows(&self, _: u32) -> bool {
        true
    }

    fn draw(&self, taken: &dyn Fn(u32) -> bool, rng: &mut dyn Rng) -> Option<u32> {
        // A client has sampled few of the guards, so few draws are needed.
        let mut draws = (0..1000).map(|_| self.first + rng.next_u32() % self.count);
        draws.find(|&id| !taken(id))
    }
}

fn main() -> io::Result<()> {
    let Arguments { clients, relays, days } = Arguments::parse();
    let params = GuardParams::default();
    let mut rng = stream(1, 0, "guard clients");
    let before = Usage::of(std::process::id())?.rss;
    let begun = Instant::now();
    let mut all: Vec<Guards<u32>> = (0..clients).map(|_| Guards::restore(Vec::new())).collect();
    let mut used = vec![0u32; (relays + relays * days as u32) as usize];
    for day in 0..days {
        let now = BEGIN + day * DAY;
        let town = GuardNetwork { first: relays / 100 * day as u32, count: relays };
        for guards in &mut all {
            guards.renew(now, (now, true), &params, &town, &mut rng);
            for key in 0..CIRCUITS {
                let circuit = (key, Purpose::Traffic);
                let choice = guards.choose(now, circuit, &|_| false, &town, &mut rng);
                let choice = choice.ok_or_else(|| io::Error::other("a client found no guard"))?;
                guards.succeeded(now, key, &mut rng);
                guards.closed(key);
                used[choice.id as usize] += 1;
            }
        }
    }
    let elapsed = begun.elapsed();
    let grown = Usage::of(std::process::id())?.rss - before;
    let each = elapsed.as_secs_f64() * 1e6 / (clients * days) as f64;
    println!(
        "{clients} clients, {days} days, {CIRCUITS} circuits a day: {:.1} s, {each:.1} us for a day of one; {:.0} MB, {} bytes each",
        elapsed.as_secs_f64(),
        grown as f64 / 1e6,
        grown / clients,
    );
    let busiest = used.iter().max().copied().unwrap_or(0);
    let mean = (clients * days * CIRCUITS) as f64 / f64::from(relays);
    println!("the busiest guard had {busiest} circuits, {mean:.0} in the mean");
    Ok(())
}
