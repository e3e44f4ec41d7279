//! Memory of a directory of onion services, and speed of storing and serving descriptors of the
//! size that C tor's services publish.

use std::io;
use std::time::Instant;

use anabranch_bench::proc::Usage;
use anabranch_multipath::seed::stream;
use anabranch_onion::directory::hsdir::HsDir;
use anabranch_onion::wire::hsdesc::HsDescOuter;
use anabranch_testkit::onion_service;
use clap::Parser;
use rand_core::Rng;

const NOW: u64 = 1_800_000_000;
/// Incompressible bytes of a descriptor in addition to the ciphertext: two keys and two
/// signatures.
const KEYS_AND_SIGNATURES: usize = 2 * 32 + 2 * 64;

/// Publish descriptors at a directory, and print their memory and the speed.
#[derive(Parser)]
struct Arguments {
    /// Publish the descriptors of SERVICES services, each once.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    services: u64,
    /// Set the number of encrypted bytes in a descriptor. C tor's services pad to multiples of
    /// 10,000.
    #[arg(long, default_value_t = 10_048)]
    encrypted: usize,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    let (mut dir, before) = (HsDir::default(), resident()?);
    let (mut spent, mut length, mut last) = (0.0, 0, [0; 32]);
    for number in 0..arguments.services {
        let text = descriptor(number, arguments.encrypted);
        let key = HsDescOuter::check(&text, NOW).map_err(io::Error::other)?.blinded_key;
        let begun = Instant::now();
        dir.publish(&text, NOW).map_err(|error| io::Error::other(error.to_string()))?;
        spent += begun.elapsed().as_secs_f64();
        (length, last) = (text.len(), key);
    }
    let taken = resident()? - before;
    let (kept, counted) = (dir.len(), dir.bytes() as f64 / 1e6);
    let each = spent * 1e6 / arguments.services as f64;
    println!("{} descriptors of {length} bytes, {kept} kept", arguments.services);
    let mebibytes = taken * 1e6 / f64::from(1 << 20);
    println!(
        "memory: {taken:.1} MB, {mebibytes:.1} MiB ({counted:.1} MB by the directory's count)"
    );
    let least =
        arguments.services as f64 * (arguments.encrypted + KEYS_AND_SIGNATURES) as f64 / 1e6;
    println!("of these {least:.1} MB are ciphertext, keys and signatures, which nothing shortens");
    println!("taken in {each:.0} us each, signatures and all");
    let begun = Instant::now();
    let times = 1_000;
    (0..times).for_each(|_| drop(dir.find(&last, NOW)));
    println!("given in {:.0} us each", begun.elapsed().as_secs_f64() * 1e6 / f64::from(times));
    Ok(())
}

fn descriptor(number: u64, encrypted: usize) -> String {
    let mut rng = stream(number, 0, "service");
    let (mut seeds, mut bytes) = ([[0; 32]; 2], vec![0; encrypted]);
    seeds.iter_mut().for_each(|seed| rng.fill_bytes(seed));
    rng.fill_bytes(&mut bytes);
    onion_service::descriptor(seeds, NOW + 86_400, number, &bytes)
}

/// Returns resident memory in megabytes (1,000,000 bytes).
fn resident() -> io::Result<f64> {
    Ok(Usage::of(std::process::id())?.rss as f64 / 1e6)
}
