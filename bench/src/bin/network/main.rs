//! Cost of a large network for a client: turns of its circuit manager, selection of paths and
//! guards, and processing all microdescriptors. Each is compared with its target, and with an
//! implementation that iterates over all relays each time. Times are CPU time of one thread.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anabranch_bench::report::Series;
use anabranch_bench::table::{Table, Target as Limit};
use anabranch_multipath::Time;
use anabranch_multipath::seed::{Stream, stream};
use anabranch_onion::Moment;
use anabranch_onion::circmgr::{CircuitManager, KeptGuards, Order};
use anabranch_onion::directory::fetch::{AuthorityIdentity, Directory, JobDocument};
use anabranch_onion::directory::http::Response;
use anabranch_onion::directory::network::{Network, RelayRestrictions, Target};
use anabranch_onion::wire::netdoc::{Consensus, Unproven, parse_certs, parse_microdescs};
use clap::Parser;
use rustix::time::{ClockId, clock_gettime};

use naive::Naive;
use synthetic::{Documents, NOW, RARE_PORT, documents};

mod naive;
mod synthetic;

/// Number of guards in a sample. They are excluded from further draws.
const SAMPLE: usize = 20;
const NOT_ENOUGH: &str = "the synthetic network gives no path";

/// Measure the CPU time that a client needs in a large network, with a synthetic consensus.
#[derive(Parser)]
struct Arguments {
    /// List RELAYS relays in the consensus.
    #[arg(long, default_value_t = 7000)]
    #[arg(value_parser = clap::value_parser!(u64).range(500..=60_000))]
    relays: u64,
    /// Repeat each measurement RUNS times. Our implementation and a simple one take turns.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// Use this seed for the synthetic consensus and all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print rows as JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Fail if a target is missed.
    #[arg(long)]
    strict: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(table) if arguments.strict && table.missed() > 0 => ExitCode::FAILURE,
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("network: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> io::Result<Table> {
    let documents = documents(arguments.relays as usize, arguments.seed)?;
    let subjects = Subjects::of(&documents)?;
    let mut table = Table::new(arguments.json);
    for (what, unit, limit, measure) in MEASURES {
        let mut series = [Series::default(), Series::default()];
        for run in 0..arguments.runs {
            for (is_naive, series) in [false, true].into_iter().zip(&mut series) {
                let mut rng = stream(arguments.seed, run, what);
                series.push(measure(&documents, &subjects, is_naive, &mut rng)?);
            }
        }
        let [ours, naive] = series;
        table.add(what, "anabranch", unit, ours, Limit::AtMost(limit));
        table.add(what, "all relays", unit, naive, Limit::None);
    }
    table.print();
    Ok(table)
}

/// Both implementations, with the same network and all microdescriptors.
struct Subjects {
    ours: Arc<Network>,
    naive: Naive,
    /// A sample of guards.
    guards: Vec<[u8; 20]>,
}

type Measure = fn(&Documents, &Subjects, bool, &mut Stream) -> io::Result<f64>;

const MEASURES: [(&str, &str, f64, Measure); 5] = [
    ("turn of an idle client", "us", 2.0, idle_turn),
    ("path to port 443", "us", 20.0, |_, subjects, naive, rng| path(443, subjects, naive, rng)),
    ("path to a port of few exits", "us", 20.0, |_, subjects, naive, rng| {
        path(RARE_PORT, subjects, naive, rng)
    }),
    ("draw of a guard", "us", 20.0, guard_draw),
    ("all microdescriptors learnt", "s", 1.0, |documents, _, naive, rng| match naive {
        false => bootstrap(documents, rng),
        true => naive_bootstrap(documents),
    }),
];

impl Subjects {
    fn of(documents: &Documents) -> io::Result<Subjects> {
        let consensus = consensus(documents)?;
        let (mut ours, mut naive) = (Network::new(consensus.clone()), Naive::new(consensus));
        let texts: String = documents.microdescs.iter().map(|(_, text)| &text[..]).collect();
        for (microdesc, _) in parse_microdescs(&texts).map_err(io::Error::other)?.0 {
            ours.learn(microdesc.clone());
            naive.learn(microdesc);
        }
        let mut rng = stream(1, 0, "sample");
        let mut guards = Vec::new();
        while guards.len() < SAMPLE {
            guards.extend(ours.draw_guard(|id| !guards.contains(id), &mut rng));
        }
        Ok(Subjects { ours: Arc::new(ours), naive, guards })
    }
}

fn consensus(documents: &Documents) -> io::Result<Consensus> {
    let (certs, _) = parse_certs(&documents.certs).map_err(io::Error::other)?;
    let unproven = Unproven::parse(&documents.consensus).map_err(io::Error::other)?;
    unproven.prove(&[documents.authority], &certs, NOW).map_err(io::Error::other)
}

/// Returns the CPU time of this thread in seconds.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the time for each call in microseconds.
fn each<T>(calls: u32, mut call: impl FnMut() -> Option<T>) -> io::Result<f64> {
    let begun = cpu();
    for _ in 0..calls {
        std::hint::black_box(call().ok_or_else(|| io::Error::other(NOT_ENOUGH))?);
    }
    Ok((cpu() - begun) * 1e6 / f64::from(calls))
}

/// Measures a turn of a circuit manager that has circuits ready and nothing to do.
fn idle_turn(_: &Documents, on: &Subjects, is_naive: bool, rng: &mut Stream) -> io::Result<f64> {
    let mut circmgr = CircuitManager::new(KeptGuards::default(), &[], RelayRestrictions::default());
    circmgr.set_network(Arc::clone(&on.ours));
    let now = Time::from_secs(1);
    for _ in 0..4 {
        circmgr.work(Moment { now, unix: NOW }, rng);
        while let Some(order) = circmgr.poll() {
            if let Order::Build(circuit, _) = order {
                circmgr.built(Moment { now, unix: NOW }, circuit, rng);
            }
        }
    }
    let mut millis = 0;
    each(if is_naive { 300 } else { 100_000 }, || {
        millis = (millis + 1) % 1000;
        circmgr.work(Moment { now: now + Duration::from_millis(millis), unix: NOW }, rng);
        let is_idle = circmgr.poll().is_none() && (!is_naive || on.naive.is_enough());
        is_idle.then_some(())
    })
}

fn path(port: u16, on: &Subjects, is_naive: bool, rng: &mut Stream) -> io::Result<f64> {
    let (target, restrictions) = (Target { port, v6: false }, RelayRestrictions::default());
    let mut turn = 0;
    if is_naive {
        return each(100, || {
            turn = (turn + 1) % SAMPLE;
            on.naive.path(target, &on.guards[turn], rng)
        });
    }
    each(20_000, || {
        turn = (turn + 1) % SAMPLE;
        let mut guards = on.guards[turn..].iter().chain(&on.guards[..turn]);
        let guard = |exit: &[u8; 20], _: &mut Stream| {
            guards.find(|guard| on.ours.agree(guard, exit)).copied()
        };
        on.ours.path(target, &restrictions, rng, guard).ok()
    })
}

fn guard_draw(_: &Documents, on: &Subjects, is_naive: bool, rng: &mut Stream) -> io::Result<f64> {
    match is_naive {
        true => each(100, || on.naive.draw_guard(&on.guards, rng)),
        false => each(20_000, || on.ours.draw_guard(|id| !on.guards.contains(id), rng)),
    }
}

/// Measures the time from the consensus to the last microdescriptor, in seconds. Each answer has
/// the microdescriptors of one request. The client gets a copy of the network after each answer.
fn bootstrap(documents: &Documents, rng: &mut Stream) -> io::Result<f64> {
    let authority = AuthorityIdentity { v3: documents.authority, by_circuit: false };
    let at = Moment { now: Time::from_secs(1), unix: NOW };
    let mut directory = Directory::new(vec![authority], false);
    directory.restore(&documents.certs, &documents.consensus, "", NOW, rng);
    let texts: std::collections::BTreeMap<&[u8; 32], &str> =
        documents.microdescs.iter().map(|(digest, text)| (digest, &text[..])).collect();
    let mut client = CircuitManager::new(KeptGuards::default(), &[], RelayRestrictions::default());
    let begun = cpu();
    while let Some(job) = directory.poll(at, rng) {
        let JobDocument::Microdescs(digests) = &job.want else { continue };
        let body: String = digests.iter().map(|digest| texts[digest]).collect();
        let response = answer(body);
        directory.done(job.number, Ok(response), at, rng);
        client.set_network(Arc::new(directory.network().cloned().expect("restored above")));
        client.work(at, rng);
        while let Some(order) = client.poll() {
            std::hint::black_box(order);
        }
    }
    let elapsed = cpu() - begun;
    let missing = directory.network().map_or(0, |network| network.missing().count());
    if missing > 0 { Err(io::Error::other(format!("{missing} are missing"))) } else { Ok(elapsed) }
}

fn answer(body: String) -> Response {
    Response { status: 200, reason: "OK".into(), body: body.into_bytes() }
}

/// Measures the same time of the naive implementation, but without a client.
fn naive_bootstrap(documents: &Documents) -> io::Result<f64> {
    let mut naive = Naive::new(consensus(documents)?);
    let begun = cpu();
    for batch in documents.microdescs.chunks(90) {
        let texts: String = batch.iter().map(|(_, text)| &text[..]).collect();
        for (microdesc, _) in parse_microdescs(&texts).map_err(io::Error::other)?.0 {
            naive.learn(microdesc);
        }
        let asked = (naive.is_enough(), naive.missing().take(90).count());
        std::hint::black_box((asked, naive.clone()));
    }
    Ok(cpu() - begun)
}
