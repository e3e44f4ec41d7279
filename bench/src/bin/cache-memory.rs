//! Memory of a directory cache for a network of a given size: both flavours of the consensus with
//! their diffs, microdescriptors, server descriptors, extra-info documents.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use anabranch_bench::proc::Usage;
use anabranch_multipath::seed::stream;
use anabranch_onion::directory::cache::Cache;
use anabranch_onion::directory::http::{RequestReader, get};
use anabranch_onion::wire::keys::{sha1, sha256};
use anabranch_onion::wire::text::hex;
use clap::Parser;
use rand_core::Rng;

/// Fill a directory cache with documents of the public network's sizes, and print their memory.
#[derive(Parser)]
struct Arguments {
    /// List RELAYS relays in each consensus.
    #[arg(long, default_value_t = 7000, value_parser = clap::value_parser!(u64).range(1..))]
    relays: u64,
    /// Add CONSENSUSES consensuses (lists of relays), one after another. Between two of them, a
    /// seventh of all relays publishes new documents.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..))]
    consensuses: u64,
    /// Create server descriptors of SERVER bytes.
    #[arg(long, default_value_t = 2600)]
    server: usize,
    /// Create extra-info documents of EXTRA bytes; 0 creates none.
    #[arg(long, default_value_t = 2000)]
    extra: usize,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    let (mut cache, mut last) = (Arc::new(Cache::default()), resident()?);
    let mut print_growth = |what: &str| -> io::Result<()> {
        let now = resident()?;
        println!("{what:<42} {:>7.1} MB more, {:>7.1} MB in all", now - last, now);
        last = now;
        Ok(())
    };
    print_growth("nothing")?;
    for number in 0..arguments.consensuses {
        let mut rng = stream(number, 0, "consensus");
        for flavour in ["", " microdesc"] {
            let text = consensus(arguments.relays, flavour, number, &mut rng);
            // This copy stands for a thread that uses the previous cache until its answer is sent.
            let shown = Arc::clone(&cache);
            Arc::make_mut(&mut cache).consensus(&text, vec![[1; 20]; 9]);
            drop(shown);
        }
        let part = if number == 0 { arguments.relays } else { arguments.relays / 7 };
        for relay in 0..part {
            publish(Arc::make_mut(&mut cache), relay, &arguments, &mut rng);
        }
        print_growth(&format!("consensus {} and its documents", number + 1))?;
    }
    answer(&cache, "/tor/server/all", "")?;
    answer(&cache, "/tor/server/all", "x-zstd")?;
    answer(&cache, "/tor/status-vote/current/consensus", "x-zstd")?;
    print_growth("answers that came and went")
}

/// Adds a relay's documents, with a new digest each time.
fn publish(cache: &mut Cache, relay: u64, arguments: &Arguments, rng: &mut impl Rng) {
    let id = id(relay);
    let (server, extra) = (text(rng, arguments.server), text(rng, arguments.extra));
    let extra = (arguments.extra > 0).then(|| (&extra[..], sha1(extra.as_bytes())));
    cache.relay(id, (&server, sha1(server.as_bytes())), extra);
    let microdesc = text(rng, 600);
    cache.microdesc_text(sha256(microdesc.as_bytes()), &microdesc);
}

fn id(relay: u64) -> [u8; 20] {
    sha1(&relay.to_be_bytes())
}

/// Returns text that cannot be compressed to less than half, like keys and signatures.
fn text(rng: &mut impl Rng, bytes: usize) -> String {
    let mut random = vec![0; bytes.div_ceil(2)];
    rng.fill_bytes(&mut random);
    hex(&random)
}

/// Returns a consensus of `relays` relays, a tenth of which have changed since the last one.
fn consensus(relays: u64, flavour: &str, number: u64, rng: &mut impl Rng) -> String {
    let hour = number % 24;
    let mut text = format!(
        "network-status-version 3{flavour}\nvalid-after 2027-01-15 {hour:02}:00:00\n\
         fresh-until 2027-01-15 {hour:02}:59:59\n"
    );
    for relay in 0..relays {
        let name = hex(&id(relay))[..27].to_owned();
        let changed = rng.next_u64().is_multiple_of(10);
        let digest = if changed { rng.next_u64() } else { relay };
        text.push_str(&format!(
            "r relay{relay} {name} {digest:027} 2027-01-15 08:00:00 192.0.2.1 9001 0\n\
             s Fast Guard HSDir Running Stable V2Dir Valid\nv Tor 0.4.9.1\n\
             pr Conflux=1 Cons=2 Desc=2 DirCache=2 FlowCtrl=1-2 HSDir=2 HSIntro=4-5 HSRend=2 \
             Link=4-5 LinkAuth=3 Microdesc=2 Padding=2 Relay=2-4\nw Bandwidth={}\np reject 1-65535\n",
            digest % 100_000
        ));
    }
    text + "directory-footer\ndirectory-signature x\n"
}

/// Prints the duration and the length of an answer.
fn answer(cache: &Cache, path: &str, accepted: &str) -> io::Result<()> {
    let bytes = String::from_utf8_lossy(&get(path)).replace("x-zstd, deflate, identity", accepted);
    let request = RequestReader::new(0).push(bytes.as_bytes()).map_err(io::Error::other)?;
    let request = request.ok_or_else(|| io::Error::other("the request is not whole"))?;
    let begun = Instant::now();
    let reply = cache.find(&request);
    let (length, spent) = (reply.length() as f64 / 1e6, begun.elapsed().as_secs_f64() * 1e3);
    println!("{path} as {accepted:?}: {length:.1} MB in {spent:.0} ms");
    Ok(())
}

/// Returns resident memory in megabytes.
fn resident() -> io::Result<f64> {
    Ok(Usage::of(std::process::id())?.rss as f64 / 1e6)
}
