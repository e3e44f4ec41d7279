//! Simulation of Maybenot machines (state machines that add padding and delay packets) at both
//! ends of a recorded trace, with Maybenot's own simulator.
//!
//! The simulator receives the trace's packets at the times at which the client saw them. It
//! returns the packets that the client sees after the machines have added padding and delays. The
//! simulator panics in a state that it considers a bug, and so do the constructors of machines.
//! These panics become errors, because their cause is in the user's machines.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use anabranch_multipath::seed;
use maybenot::{Machine, TriggerEvent};
use maybenot_machines::{StaticMachine, get_machine};
use maybenot_simulator::network::Network;
use maybenot_simulator::queue::SimQueue;
use maybenot_simulator::{SimEvent, SimulatorArgs, sim_advanced};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rand::Rng;
use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::SeedableRng;

use crate::split::refuse;

/// Framework version at the beginning of a serialised Maybenot machine.
const SERIALISED: &str = "02";

/// Value of `origin` (a packet's index in the original trace) that marks a padding packet.
const PADDING: i64 = -1;

/// Packets that the client sends or receives: times (float64, seconds), origins (int64: indices in
/// the original trace, -1 for padding) and directions (bool, true for packets that the client
/// sends).
type PathEvents<'py> =
    (Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<bool>>);

/// Checks that Maybenot can parse and build each of `machines`. Raises a `ValueError` otherwise.
#[pyfunction]
pub(crate) fn maybenot_check(machines: Vec<String>) -> PyResult<()> {
    machines_of(&machines, 0, "check").map(|_| ())
}

/// Returns a trace as the client sees it if the client runs the Maybenot machines in `client`, and
/// the server those in `server`.
///
/// `times` are float64 seconds, sorted; `up` is true for packets that the client sends. A machine
/// is given in serialised form (`02eNp...`), or by its name in the crate maybenot-machines with
/// its parameters (`front 1700 1000000 14000000 50`). A named machine may draw further parameters
/// at random, from `seed`. `delay` is the one-way delay of either direction, in seconds. `pps` is
/// the maximum number of packets per second; packets beyond it are delayed further. `None` means
/// no maximum.
///
/// In the result, `origin` is the index in `times` of a real packet, and -1 for padding. The real
/// packets of a direction keep their order. A packet that was not delayed keeps its exact time.
/// The simulation stops after `most_events` steps. It is an error if packets are still held back
/// then.
#[pyfunction]
#[pyo3(signature = (times, up, client, server, seed, delay, pps=None, most_events=2_000_000))]
#[expect(clippy::too_many_arguments, reason = "options of one simulation")]
pub(crate) fn maybenot_defend<'py>(
    py: Python<'py>,
    times: PyReadonlyArray1<'py, f64>,
    up: PyReadonlyArray1<'py, bool>,
    client: Vec<String>,
    server: Vec<String>,
    seed: u64,
    delay: f64,
    pps: Option<u32>,
    most_events: usize,
) -> PyResult<PathEvents<'py>> {
    let trace = Trace::new(times.as_slice()?, up.as_slice()?)?;
    let client = machines_of(&client, seed, "maybenot client")?;
    let server = machines_of(&server, seed, "maybenot server")?;
    let args = arguments(seed, delay, pps, most_events)?;
    let ends = [client.as_slice(), server.as_slice()];
    let seen = py.detach(|| trace.defended(ends, &args)).map_err(PyValueError::new_err)?;
    Ok((seen.times.into_pyarray(py), seen.origin.into_pyarray(py), seen.up.into_pyarray(py)))
}

/// A recorded trace: packet times in seconds, and whether the client sent each packet.
struct Trace<'a> {
    times: &'a [f64],
    up: &'a [bool],
}

/// Packets of a trace as the client sees them after the machines of both ends have padded and
/// delayed.
#[derive(Default)]
struct Defended {
    times: Vec<f64>,
    origin: Vec<i64>,
    up: Vec<bool>,
}

impl<'a> Trace<'a> {
    fn new(times: &'a [f64], up: &'a [bool]) -> PyResult<Trace<'a>> {
        let sound = |time: &f64| (0.0..=crate::LATEST).contains(time);
        if times.len() != up.len() {
            return Err(PyValueError::new_err("give a time and a direction for each packet"));
        }
        if !times.iter().all(sound) || !times.is_sorted() {
            return Err(PyValueError::new_err(
                "times: give seconds from 0 to 10,000,000,000, in ascending order",
            ));
        }
        Ok(Trace { times, up })
    }

    fn defended(&self, ends: [&[Machine]; 2], args: &SimulatorArgs) -> Result<Defended, String> {
        if self.times.is_empty() {
            return Ok(Defended::default());
        }
        let start = Instant::now();
        let mut queue = self.queue(start, args.network.delay);
        let events = quietly(|| sim_advanced(ends[0], ends[1], &mut queue, args)).ok_or(
            "Maybenot's simulator stopped with an internal error: check these defence machines",
        )?;
        let seen = self.seen(start, &events);
        let real = seen.origin.iter().filter(|&&origin| origin != PADDING).count();
        if real < self.times.len() {
            let steps = args.max_sim_iterations;
            return Err(format!(
                "these defence machines still hold packets back after {steps} steps of the \
                 simulation: allow more steps, or use machines that block less"
            ));
        }
        Ok(seen)
    }

    /// Queues the packets at the times when the applications of both ends send them, so that the
    /// client sees them at the trace's times.
    fn queue(&self, start: Instant, delay: Duration) -> SimQueue {
        let mut queue = SimQueue::new();
        for (place, &up) in self.up.iter().enumerate() {
            // The offset keeps all times after the clock's origin. See `ORIGIN`.
            let seen = start + ORIGIN + self.since_first(place);
            let sent = if up { seen } else { seen - delay };
            queue.push(TriggerEvent::NormalSent, up, false, sent, Duration::ZERO);
        }
        queue
    }

    fn since_first(&self, place: usize) -> Duration {
        Duration::from_secs_f64(self.times[place] - self.times[0])
    }

    /// Collects the packets that the client sees. Matches real packets to the trace by their order
    /// in a direction, because the network keeps this order.
    fn seen(&self, start: Instant, events: &[SimEvent]) -> Defended {
        let mut seen = Defended::default();
        let mut waiting = [true, false].map(|up| self.places(up));
        let packets = events.iter().filter_map(|event| Some((event, direction(event)?)));
        for (event, up) in packets {
            let origin = match event.contains_padding {
                true => None,
                false => waiting[usize::from(!up)].next(),
            };
            let since = event.time.saturating_duration_since(start + ORIGIN);
            seen.times.push(self.seconds(origin, since));
            seen.origin.push(origin.map_or(PADDING, |place| place as i64));
            seen.up.push(up);
        }
        seen
    }

    fn places(&self, up: bool) -> impl Iterator<Item = usize> {
        (0..self.up.len()).filter(move |&place| self.up[place] == up)
    }

    /// Converts `since`, the time since the trace's first packet, to a time of the trace in
    /// seconds. `origin` is the packet's index in the trace, or `None` for a padding packet. A
    /// packet of the trace counts as not delayed if `since` equals the trace's own time since the
    /// first packet, rounded to nanoseconds. For such a packet, returns the exact time from the
    /// trace.
    fn seconds(&self, origin: Option<usize>, since: Duration) -> f64 {
        match origin {
            Some(place) if since == self.since_first(place) => self.times[place],
            _ => self.times[0] + since.as_secs_f64(),
        }
    }
}

/// Time of the trace's first packet on the simulator's clock. It is above zero, because the server
/// sends a packet `delay` before the client sees it, and no time may be negative.
const ORIGIN: Duration = Duration::from_secs(3600);

/// Returns true for a packet that leaves through the client's network interface, false for a
/// packet that arrives there, and `None` for other events.
fn direction(event: &SimEvent) -> Option<bool> {
    match event.event {
        TriggerEvent::TunnelSent => Some(true),
        TriggerEvent::TunnelRecv => Some(false),
        _ => None,
    }
}

fn arguments(seed: u64, delay: f64, pps: Option<u32>, most: usize) -> PyResult<SimulatorArgs> {
    let delay = Duration::try_from_secs_f64(delay).ok().filter(|delay| *delay < ORIGIN);
    let Some(delay) = delay else {
        return Err(PyValueError::new_err("delay: give seconds from 0 to 3600"));
    };
    if pps == Some(0) || most == 0 {
        return Err(PyValueError::new_err(
            "pps (packets per second) and the number of steps must each be at least 1",
        ));
    }
    // Without a value, the simulator would use the limit of a trace that it has parsed. This trace
    // was not parsed, and has no limit.
    let network = Network::new(delay, Some(pps.unwrap_or(u32::MAX) as usize));
    let mut args = SimulatorArgs::new(network, 0, true);
    args.only_client_events = true;
    args.max_sim_iterations = most;
    args.insecure_rng_seed = Some(seed::stream(seed, 0, "maybenot simulator").next_u64());
    Ok(args)
}

/// Parses the machines in `texts`. Named machines draw their random numbers from a generator with
/// the seeds `seed` and `purpose`.
fn machines_of(texts: &[String], seed: u64, purpose: &str) -> PyResult<Vec<Machine>> {
    let mut dice = Xoshiro256StarStar::seed_from_u64(seed::stream(seed, 0, purpose).next_u64());
    let mut machines = Vec::new();
    for text in texts {
        let wrong = |error: &dyn std::fmt::Display| refuse(format!("machine '{text}': {error}"));
        if text.starts_with(SERIALISED) {
            machines.push(text.parse::<Machine>().map_err(|error| wrong(&error))?);
            continue;
        }
        let named = text.parse::<StaticMachine>().map_err(|error| wrong(&error))?;
        possible(&named).map_err(|error| wrong(&error))?;
        let made = quietly(|| get_machine(&[named], &mut dice));
        machines.extend(
            made.ok_or_else(|| {
                wrong(&"the library maybenot-machines fails with these parameters")
            })?,
        );
    }
    Ok(machines)
}

/// Calls `work`. If it panics, returns `None` and prints nothing to standard error.
fn quietly<T>(work: impl FnOnce() -> T) -> Option<T> {
    QUIET.set(true);
    let made = catch_unwind(AssertUnwindSafe(work)).ok();
    QUIET.set(false);
    made
}

thread_local! {
    /// True while panics of this thread are caught and turned into errors, and must not be
    /// printed.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Installs a panic hook that prints nothing for panics caught by `quietly`, and prints others as
/// before.
pub(crate) fn hush_caught_panics() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if !QUIET.get() {
            hook(panic);
        }
    }));
}

/// Maximum number of states of a FRONT machine. FRONT draws the times of padding from a Rayleigh
/// distribution, and each state stands for an equal part of the area under its density.
/// maybenot-machines truncates the density where 1/2,981 of the area is left. With more states,
/// the area of a state would be below this rest, and the crate's search for the last state would
/// not end.
const FRONT_STATES: usize = 2_900;

/// Checks that the crate maybenot-machines would neither panic nor loop forever with the
/// parameters of `machine`. The error is a message for the user.
fn possible(machine: &StaticMachine) -> Result<(), &'static str> {
    let fine = |numbers: &[f64]| numbers.iter().all(|n| n.is_finite() && *n > 0.0 && *n < 1e12);
    let sound = match *machine {
        StaticMachine::Front { padding_budget_max, window_min, window_max, num_states } => {
            let drawn = padding_budget_max > 1 && window_min < window_max;
            drawn && fine(&[window_min, window_max]) && (1..=FRONT_STATES).contains(&num_states)
        }
        StaticMachine::Tamaraw { p, stop_window } => fine(&[p, stop_window]),
        StaticMachine::RegulatorClient { u, c } => fine(&[u, c]),
        StaticMachine::RegulatorServer { r, d, t, n, b } => {
            fine(&[r, d, t, n]) && d < 1.0 && n >= 1.0 && (1..=1_000).contains(&b)
        }
        StaticMachine::ScramblerServer { interval, min_count, min_trail, max_trail } => {
            fine(&[interval, min_count, min_trail, max_trail]) && min_trail <= max_trail
        }
        _ => true,
    };
    sound.then_some(()).ok_or(
        "a parameter of this Maybenot machine (a state machine that adds padding) is out of \
         range, such as 0, a negative or an infinite number: the documentation of \
         maybenot-machines 1.0 describes the parameters",
    )
}
