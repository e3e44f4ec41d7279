//! Measured areas. To add one: write its function, and a line in [`AREAS`].

use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

use anabranch_bench::report::Series;
use anabranch_multipath::schedule::{FAMILIES, Family, Scheduler};
use anabranch_multipath::trace::{Entity, Mode, TraceSplit};
use anabranch_multipath::{Boundary, LegView, PathView, Splitter, Time, seed};
use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use rand::RngExt;
use rustix::time::{ClockId, clock_gettime};

use crate::rig::{Load, Measured, Rig, Subject};
use anabranch_bench::table::{Table, Target};

/// Function that measures an area, and adds its lines to the table.
pub(crate) type Area = fn(&Rig, &mut Table) -> io::Result<()>;

/// All areas by their names on the command line.
pub(crate) const AREAS: &[(&str, Area)] = &[
    ("forward", forward),
    ("delay", delay),
    ("sessions", sessions),
    ("far-end", far_end),
    ("schedulers", schedulers),
    ("traces", traces),
];

/// Load with offloads at both ends: 8.6 Gbit/s in datagrams of 1,350 bytes.
const JOINED: Load = Load { rate: 800_000.0, burst: 48, sessions: 1, plain: false };
/// The same load at 1.1 Gbit/s. It is lower, because both ends of a tunnel encrypt and share the
/// CPUs with sender and receiver.
const TUNNEL: Load = Load { rate: 100_000.0, burst: 48, sessions: 1, plain: false };
/// Load without offloads.
const SINGLE: Load = Load { rate: 100_000.0, burst: 1, sessions: 1, plain: true };
/// Load that is limited only by the CPU.
const FLAT_OUT: Load = Load { rate: 0.0, burst: 48, sessions: 1, plain: false };
/// One datagram at a time.
const SPARSE: Load = Load { rate: 10_000.0, burst: 1, sessions: 1, plain: false };
/// Many concurrent sessions.
const CROWD: Load = Load { rate: 50_000.0, burst: 1, sessions: 1000, plain: false };

/// Measures the CPU time for each datagram, and throughput.
fn forward(rig: &Rig, table: &mut Table) -> io::Result<()> {
    let forwarders = || rig.subjects.iter().copied().filter(|&s| s != Subject::Direct);
    for (what, load, limit) in
        [("CPU per packet, GSO and GRO", JOINED, 0.6), ("CPU per packet, without", SINGLE, 4.0)]
    {
        let runs = interleaved(rig, forwarders(), load)?;
        add(table, what, "µs", &runs, Target::AtMost(limit), Measured::cpu_per_packet);
        let lost = |run: &Measured| run.lost() as f64;
        add(table, &format!("{what}: lost"), "packets", &runs, Target::None, lost);
    }
    let runs = interleaved(rig, rig.subjects.iter().copied(), FLAT_OUT)?;
    let rate = |run: &Measured| run.sink.gbits();
    add(table, "throughput flat out, GSO", "Gbit/s", &runs, Target::AtLeast(15.0), rate);
    Ok(())
}

/// Measures the one-way delay, and the difference to the direct path in the same run.
fn delay(rig: &Rig, table: &mut Table) -> io::Result<()> {
    let runs = interleaved(rig, rig.subjects.iter().copied(), SPARSE)?;
    let p50 = |run: &Measured| run.sink.delay.p50;
    add(table, "one-way delay, median", "µs", &runs, Target::None, p50);
    let p99 = |run: &Measured| run.sink.delay.p99;
    add(table, "one-way delay, 99 of 100", "µs", &runs, Target::None, p99);
    let Some((_, direct)) = runs.iter().find(|(subject, _)| *subject == Subject::Direct) else {
        return Ok(());
    };
    for (subject, runs) in runs.iter().filter(|(subject, _)| *subject != Subject::Direct) {
        let added = runs.iter().zip(direct).map(|(run, direct)| p50(run) - p50(direct));
        let target = target(*subject, Target::AtMost(50.0));
        table.add("delay added, median", subject.name(), "µs", collect(added), target);
    }
    Ok(())
}

/// Measures the CPU time of each end of a tunnel for a datagram, compared with plain splitting in
/// the same run; and many sessions through one tunnel.
fn far_end(rig: &Rig, table: &mut Table) -> io::Result<()> {
    let subjects = [Subject::Split(3), Subject::Near, Subject::Far];
    let runs = interleaved(rig, subjects.into_iter(), TUNNEL)?;
    let sealing = collect((0..rig.runs).map(|_| sealing()));
    table.add("ChaCha20-Poly1305 alone", "seal a packet", "µs", sealing, Target::None);
    let cpu = Measured::cpu_per_packet;
    add(table, "tunnel: CPU per packet, GSO and GRO", "µs", &runs, Target::None, cpu);
    let lost = |run: &Measured| run.lost() as f64;
    add(table, "tunnel: lost", "packets", &runs, Target::None, lost);
    let [(_, plain), ends @ ..] = &runs[..] else { return Ok(()) };
    for (subject, runs) in ends {
        let what = "tunnel: added to plain splitting";
        let added = collect(runs.iter().zip(plain).map(|(run, plain)| cpu(run) - cpu(plain)));
        table.add(what, subject.name(), "µs", added, Target::AtMost(1.0));
    }
    crowded_tunnel(rig, table)
}

/// Measures 1,000 sessions through one tunnel.
fn crowded_tunnel(rig: &Rig, table: &mut Table) -> io::Result<()> {
    for (subject, runs) in interleaved(rig, [Subject::Near, Subject::Far].into_iter(), CROWD)? {
        let lost = collect(runs.iter().map(|run| run.lost() as f64));
        let what = "tunnel, 1,000 sessions: lost";
        table.add(what, subject.name(), "packets", lost, Target::AtMost(0.0));
        let cpu = collect(runs.iter().map(Measured::cpu_per_packet));
        let what = "tunnel, 1,000 sessions: CPU per packet";
        table.add(what, subject.name(), "µs", cpu, Target::None);
    }
    Ok(())
}

/// Measures the CPU time of the cipher alone for one packet of the tunnel, in microseconds.
fn sealing() -> f64 {
    const PACKETS: u32 = 200_000;
    let spent = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime));
    let spent = || spent().expect("a clock that began at 0");
    let key = UnboundKey::new(&CHACHA20_POLY1305, &[7; 32]).expect("a key of 32 bytes");
    let (key, mut packet) = (LessSafeKey::new(key), vec![0; 1_350]);
    let before = spent();
    for number in 0..u64::from(PACKETS) {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&number.to_be_bytes());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed =
            key.seal_in_place_separate_tag(nonce, Aad::from([0; 8]), black_box(&mut packet));
        black_box(sealed.expect("a packet is short").as_ref()[0]);
    }
    (spent() - before).as_secs_f64() * 1e6 / f64::from(PACKETS)
}

/// Measures loss and memory with 1,000 concurrent sessions.
fn sessions(rig: &Rig, table: &mut Table) -> io::Result<()> {
    let runs = interleaved(rig, rig.subjects.iter().copied(), CROWD)?;
    let lost = |run: &Measured| run.lost() as f64;
    add(table, "1,000 sessions: lost", "packets", &runs, Target::AtMost(0.0), lost);
    kernel_memory(table, &runs);
    let forwarders: Vec<_> =
        runs.into_iter().filter(|(subject, _)| *subject != Subject::Direct).collect();
    let each = |run: &Measured| per_session(run.usage.map(|usage| usage.rss));
    add(table, "memory of a session", "kB", &forwarders, Target::AtMost(20.0), each);
    let files = |run: &Measured| (run.usage[1].files - run.usage[0].files) as f64;
    add(table, "files of 1,000 sessions", "files", &forwarders, Target::None, files);
    let cpu = Measured::cpu_per_packet;
    add(table, "1,000 sessions: CPU per packet", "µs", &forwarders, Target::None, cpu);
    Ok(())
}

/// Adds the kernel memory of a session under load: queued datagrams, and sockets with their
/// objects. The direct run includes the sender's own sockets, too.
fn kernel_memory(table: &mut Table, runs: &Runs) {
    // The kernel updates its count only after some pages for each socket, so a difference may be
    // negative.
    let queues = |run: &Measured| per_session([0, run.sockets[1].queues]);
    add(table, "kernel: queues of a session", "kB", runs, Target::None, queues);
    let objects = |run: &Measured| per_session(run.sockets.map(|sockets| sockets.objects));
    add(table, "kernel: objects of a session", "kB", runs, Target::None, objects);
}

/// Returns the growth from `before` to `after`, in kB for each session of [`CROWD`].
fn per_session([before, after]: [u64; 2]) -> f64 {
    (after as f64 - before as f64) / 1e3 / CROWD.sessions as f64
}

/// Measures decisions per second of each scheduler alone, and units per second with a boundary that
/// calls the scheduler every 100 ms.
fn schedulers(rig: &Rig, table: &mut Table) -> io::Result<()> {
    let mut alone = vec![Series::default(); FAMILIES.len()];
    let mut units = alone.clone();
    for _ in 0..rig.runs {
        for (i, family) in FAMILIES.iter().enumerate() {
            let paths = if family.needs_windows { &LEGS } else { &PATHS };
            alone[i].push(decisions(build(family)?.as_mut(), paths) / 1e6);
            units[i].push(assignments(build(family)?, paths) / 1e6);
        }
    }
    for (family, (alone, units)) in FAMILIES.iter().zip(alone.into_iter().zip(units)) {
        // A scheduler that needs windows chooses once for each cell, and a relay's thread forwards
        // at most a few million cells per second.
        let target = Target::AtLeast(if family.needs_windows { 10.0 } else { 50.0 });
        table.add("decisions of the scheduler", family.name, "M/s", alone, target);
        table.add("units assigned, --every 100ms", family.name, "M/s", units, Target::None);
    }
    Ok(())
}

/// Creates the family's example for three paths.
fn build(family: &Family) -> io::Result<Box<dyn Scheduler>> {
    let argument = family.example.split_once(':').map(|(_, argument)| argument);
    let built = (family.build)(argument, PATHS.len(), seed::stream(7, 0, "bench"));
    built.map_err(|error| io::Error::other(error.to_string()))
}

/// Three paths with known round-trip times and without windows.
const PATHS: [PathView; 3] = [PathView { rtt: Some(RTT), ..PathView::open() }; 3];
/// Three circuits with known round-trip times and free windows.
const LEGS: [PathView; 3] = [PathView::leg(
    Some(RTT),
    62,
    LegView {
        least_rtt: RTT,
        size: 124,
        inflight: 62,
        step: 31,
        bdp: 50,
        queued: 10,
        ..LegView::NOTHING
    },
); 3];
const RTT: Duration = Duration::from_millis(20);

/// Duration of a measurement of a scheduler.
const ASKED: Duration = Duration::from_millis(200);
/// Decisions between two readings of the clock.
const BLOCK: u64 = 100_000;

/// Measures choices per second.
fn decisions(scheduler: &mut dyn Scheduler, paths: &[PathView; 3]) -> f64 {
    rate(|number| {
        black_box(scheduler.choose(Time::from_nanos(number), black_box(paths)));
    })
}

/// Measures units assigned per second, one at a time, 10 µs apart.
fn assignments(scheduler: Box<dyn Scheduler>, paths: &[PathView; 3]) -> f64 {
    let every = "100ms".parse().expect("a boundary as the documentation writes it");
    let boundary = Boundary::new(every, seed::stream(7, 0, "boundary"));
    let mut splitter = Splitter::new(scheduler, boundary);
    rate(|number| {
        black_box(splitter.assign(Time::from_micros(10 * number), black_box(paths), 1));
    })
}

/// Measures recorded packets split per second, as the lab splits them. The settings differ in how
/// often the scheduler is called.
fn traces(rig: &Rig, table: &mut Table) -> io::Result<()> {
    let settings = [
        ("weighted, 1p, independent", "weighted", "1p", Mode::Independent),
        ("uniform, 1p, independent", "uniform", "1p", Mode::Independent),
        ("weighted, 50p, together", "weighted", "50p", Mode::Together),
        ("weighted, 100ms, together", "weighted", "100ms", Mode::Together),
        ("batched, 50-70p, independent", "batched", "50-70p", Mode::Independent),
        ("hywf, ~20p, independent", "hywf", "~20p", Mode::Independent),
    ];
    let (times, sizes) = load();
    for (name, schedule, every, mode) in settings {
        let spec = schedule.parse().expect("a schedule as the documentation writes it");
        let every = every.parse().expect("a boundary as the documentation writes it");
        let split = TraceSplit::new(spec, every, PATHS.len(), mode, 7).map_err(io::Error::other)?;
        let runs = (0..rig.runs).map(|_| split_rate(&split, &times, &sizes) / 1e6);
        table.add("trace split, one core", name, "M/s", collect(runs), Target::AtLeast(20.0));
    }
    Ok(())
}

/// Measures packets per second that `split` assigns to paths. Each repetition is another load.
fn split_rate(split: &TraceSplit, times: &[f64], sizes: &[i32]) -> f64 {
    let mut paths = vec![0; times.len()];
    let (start, mut number) = (Instant::now(), 0);
    while start.elapsed() < ASKED {
        let entity = Entity { load: number, run: 0, replica: 0 };
        split.assign(entity, times, sizes, &mut paths).expect("a trace in order");
        black_box(&mut paths);
        number += 1;
    }
    number as f64 * times.len() as f64 / start.elapsed().as_secs_f64()
}

/// Returns a page load of 5,000 packets, one on the uplink for every four on the downlink, with
/// times in seconds.
fn load() -> (Vec<f64>, Vec<i32>) {
    let mut chance = seed::stream(7, 0, "load");
    let mut now = 0.0;
    (0..5_000)
        .map(|_| {
            now += chance.random_range(0.0..0.004);
            (now, if chance.random_ratio(1, 5) { 600 } else { -1_400 })
        })
        .unzip()
}

/// Measures how many times per second `step` can be executed.
fn rate(mut step: impl FnMut(u64)) -> f64 {
    let (start, mut number) = (Instant::now(), 0);
    while start.elapsed() < ASKED {
        for _ in 0..BLOCK {
            step(number);
            number += 1;
        }
    }
    number as f64 / start.elapsed().as_secs_f64()
}

/// Subjects with their runs.
type Runs = Vec<(Subject, Vec<Measured>)>;

/// Runs `load` through all `subjects` in turn, `rig.runs` times.
fn interleaved(rig: &Rig, subjects: impl Iterator<Item = Subject>, load: Load) -> io::Result<Runs> {
    let mut runs: Runs = subjects.map(|subject| (subject, Vec::new())).collect();
    for _ in 0..rig.runs {
        for (subject, measured) in &mut runs {
            measured.push(rig.measure(*subject, load)?);
        }
    }
    Ok(runs)
}

/// Adds a line for each subject; the target applies only to the splitter.
fn add(
    table: &mut Table,
    what: &str,
    unit: &'static str,
    runs: &Runs,
    wanted: Target,
    value: impl Fn(&Measured) -> f64,
) {
    for (subject, runs) in runs {
        let series = collect(runs.iter().map(&value));
        table.add(what, subject.name(), unit, series, target(*subject, wanted));
    }
}

fn target(subject: Subject, wanted: Target) -> Target {
    if subject.counts() { wanted } else { Target::None }
}

fn collect(values: impl Iterator<Item = f64>) -> Series {
    let mut series = Series::default();
    values.for_each(|value| series.push(value));
    series
}
