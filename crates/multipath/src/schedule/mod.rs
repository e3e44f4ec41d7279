//! Schedulers, with one algorithm per file, and the table of their names.
//!
//! To add a scheduler, write its file with its [`Family`], declare the file here, and add the
//! family to [`FAMILIES`]. It then appears in the splitter's `--schedule` and in reports, and the
//! conformance suite tests it. The lab (experiments in Python) has it once the Python binding is
//! rebuilt (`lab/run-tests --install`). An algorithm with `needs_windows` serves only circuits,
//! and the paths between a splitter and its far end (this project's program at the server's side).
//! The lab and a splitter without a far end refuse it.
//!
//! **Push and pull share one interface.** The sender asks the scheduler for the path of each run.
//! A sender with more data than its windows take asks only after a window has opened. Then the
//! acknowledged leg is the only leg with room. So mTor's rule, "the leg that is woken takes the
//! next cells", is implemented by choosing the legs with room in turn.

mod batched;
mod by_capacity;
mod conflux_2013;
mod cwndrtt;
mod eta;
mod evened;
mod hywf;
mod lowest_rtt;
mod lowrtt;
mod minrtt;
mod mix;
mod pull;
mod round_robin;
mod uniform;
mod weighted;

use std::fmt;
use std::str::FromStr;

pub use lowest_rtt::LowestRtt;
pub use round_robin::RoundRobin;
pub use uniform::Uniform;
pub use weighted::Weighted;

use crate::seed::Stream;
use crate::{PathId, PathView, Time};

/// A scheduler, which chooses the path of the next run of units (such as packets).
pub trait Scheduler: fmt::Debug + Send {
    /// Returns the path of the next run (consecutive units on one path), always a usable path;
    /// `None` if no path is usable.
    ///
    /// A scheduler may ignore windows (load-blind). The [`Splitter`](crate::Splitter) then waits
    /// until the chosen path has room. A scheduler that considers windows (load-aware) chooses a
    /// full path in two cases only: all usable paths are full, or it prefers to wait for that path
    /// ([`Scheduler::waits`]).
    fn choose(&mut self, now: Time, paths: &[PathView]) -> Option<PathId>;

    /// Returns the path of the next run, like [`Scheduler::choose`], for schedulers whose choice
    /// depends on `_units`: the number of all units (such as packets) that wait to be sent.
    /// Returns `None` if no path is usable.
    fn deal(&mut self, now: Time, paths: &[PathView], _units: u64) -> Option<PathId> {
        self.choose(now, paths)
    }

    /// Records that `_units` units (such as packets) were sent on the chosen path. If the path's
    /// window had room for only some of a run's consecutive units, the caller reports each part
    /// separately.
    fn on_sent(&mut self, _now: Time, _path: PathId, _units: u64) {}

    /// Records the end of a pause in the traffic, after which the scheduler's knowledge of the
    /// earlier traffic is obsolete.
    fn after_silence(&mut self) {}

    /// Makes the scheduler draw its random numbers from `stream` from now on. The paths'
    /// probabilities do not change.
    fn reseed(&mut self, _stream: Stream) {}

    /// Returns whether the choice depends on the paths' windows.
    fn load_aware(&self) -> bool {
        false
    }

    /// Returns whether the scheduler may choose a full path, to wait for it, while another path
    /// has room. Only a scheduler that considers windows may do so, and only for a path with units
    /// (such as packets) in flight.
    fn waits(&self) -> bool {
        false
    }

    /// Returns whether the scheduler reads [`LegView::link`](crate::LegView::link). If not, the
    /// caller need not make the system calls that obtain it.
    fn sees_links(&self) -> bool {
        false
    }
}

/// A scheduler built from a user's text, or the error in that text.
pub type BuildResult = Result<Box<dyn Scheduler>, SpecError>;

/// A kind of scheduler, as command lines and documentation present it.
pub struct Family {
    /// The name that a user writes.
    pub name: &'static str,
    /// The syntax of the scheduler with its argument.
    pub syntax: &'static str,
    /// Example of an argument, for three paths.
    pub example: &'static str,
    /// Description in one line, for help.
    pub about: &'static str,
    /// Description in plain words, for users who do not know schedulers.
    pub plain: &'static str,
    /// The run length (number of consecutive packets on one path, or a time) that the algorithm
    /// was published with, in the notation of [`Every`](crate::Every); `None` if it was published
    /// without one.
    pub every: Option<&'static str>,
    /// True if the scheduler only supports paths with windows and measured round-trip times:
    /// circuits, and the paths to a far end (this project's program at the server's side).
    pub needs_windows: bool,
    /// Builds a scheduler from three arguments: the scheduler's argument in the user's text (after
    /// the colon, if any), the number of paths, and a random stream.
    pub build: fn(Option<&str>, usize, Stream) -> BuildResult,
}

/// The families (kinds) of all schedulers.
pub const FAMILIES: &[Family] = &[
    round_robin::FAMILY,
    uniform::FAMILY,
    weighted::DIRICHLET,
    weighted::FIXED,
    evened::FAMILY,
    batched::FAMILY,
    hywf::FAMILY,
    lowest_rtt::FAMILY,
    lowrtt::FAMILY,
    minrtt::FAMILY,
    cwndrtt::FAMILY,
    conflux_2013::FAMILY,
    pull::FAMILY,
    mix::FAMILY,
    eta::FAMILY,
    by_capacity::FAMILY,
];

/// Returns the families (kinds of scheduler) for paths without windows: network interfaces, source
/// ports, proxies, recorded traces.
pub fn without_windows() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().filter(|family| !family.needs_windows)
}

/// A user's choice of a scheduler, such as `weighted:0.5`. It builds one scheduler for each
/// session.
#[derive(Clone)]
pub struct Spec {
    family: &'static Family,
    argument: Option<String>,
}

impl Spec {
    /// Builds a scheduler for `paths` paths, with its own random `stream`.
    pub fn build(&self, paths: usize, stream: Stream) -> BuildResult {
        (self.family.build)(self.argument.as_deref(), paths, stream)
    }

    /// Parses a scheduler of any family, for paths with windows: circuits, and the paths to a far
    /// end (this project's program at the server's side). In contrast, `str::parse` refuses the
    /// families that need windows.
    ///
    /// # Errors
    /// No family has this name.
    pub fn over_windows(text: &str) -> Result<Spec, SpecError> {
        Spec::among(text, FAMILIES.iter())
    }

    /// Checks that the scheduler supports paths without windows.
    ///
    /// # Errors
    /// The scheduler needs windows.
    pub fn check_without_windows(&self) -> Result<(), SpecError> {
        match self.family.needs_windows {
            true => Err(SpecError::NeedsWindows(self.family.name)),
            false => Ok(()),
        }
    }

    fn among(
        text: &str,
        mut families: impl Iterator<Item = &'static Family>,
    ) -> Result<Spec, SpecError> {
        let (name, argument) = match text.split_once(':') {
            Some((name, argument)) => (name, Some(argument.to_owned())),
            None => (text, None),
        };
        let family = families.find(|family| family.name == name);
        let family = family.ok_or_else(|| SpecError::Unknown(name.to_owned()))?;
        Ok(Spec { family, argument })
    }

    /// Returns the scheduler's family (its kind, without an argument).
    pub fn family(&self) -> &'static Family {
        self.family
    }
}

/// Error of parsing or building a scheduler.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SpecError {
    /// No family has this name.
    Unknown(String),
    /// The scheduler needs paths with windows, and the paths have none.
    NeedsWindows(&'static str),
    /// The scheduler takes no argument, but the user gave one.
    Superfluous(&'static str),
    /// The scheduler needs an argument, but the user gave none.
    Missing(&'static str),
    /// The argument is not a number, or out of range.
    Number(String),
    /// A weight is negative, or not finite.
    Negative(f64),
    /// All weights are zero.
    NoWeight,
    /// The sum of the weights is infinite.
    Infinite,
    /// The number of weights differs from the number of paths: (weights, paths).
    Count(usize, usize),
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecError::Unknown(name) => {
                write!(f, "there is no schedule '{name}'; choose one of {}", known())
            }
            SpecError::NeedsWindows(name) => write!(
                f,
                "schedule '{name}' needs congestion windows: circuits have them, but paths have \
                 them only with a far end (--key); choose one of {}",
                known()
            ),
            SpecError::Superfluous(name) => {
                write!(f, "schedule '{name}' takes no argument: write {name}")
            }
            SpecError::Missing(syntax) => {
                write!(f, "the schedule needs an argument: write {syntax}")
            }
            SpecError::Number(text) => {
                write!(
                    f,
                    "'{text}' is not a valid argument of this schedule: write a number above 0, \
                     such as 0.5"
                )
            }
            SpecError::Negative(weight) => {
                write!(f, "the weight {weight} is not valid: write a number, 0 or more")
            }
            SpecError::NoWeight => f.write_str(
                "the weights sum to 0, so no path would carry anything: make one larger",
            ),
            SpecError::Infinite => f.write_str("the weights sum to infinity: give smaller weights"),
            SpecError::Count(weights, paths) => {
                write!(f, "{weights} weights for {paths} paths: write one weight for each path")
            }
        }
    }
}

/// Returns a list of all schedulers for paths without windows, each with the syntax of its
/// argument.
fn known() -> String {
    without_windows().map(|family| family.syntax).collect::<Vec<_>>().join(", ")
}

impl std::error::Error for SpecError {}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Spec, SpecError> {
        let spec = Spec::over_windows(text)?;
        spec.check_without_windows().map(|()| spec)
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.argument {
            Some(argument) => write!(f, "{}:{argument}", self.family.name),
            None => f.write_str(self.family.name),
        }
    }
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spec({self})")
    }
}

/// Returns an error if the family `name`, which takes no argument, is given an argument.
fn no_argument(name: &'static str, argument: Option<&str>) -> Result<(), SpecError> {
    if argument.is_some() { Err(SpecError::Superfluous(name)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Every;
    use crate::conformance;
    use crate::seed::stream;

    #[test]
    fn every_family_passes_the_conformance_suite() {
        for family in FAMILIES {
            let spec = Spec::over_windows(family.example).unwrap();
            let make = |seed| spec.build(3, stream(seed, 0, "scheduler")).unwrap();
            conformance::check_over_windows(make);
            if !family.needs_windows {
                conformance::check(make);
            }
        }
    }

    #[test]
    fn what_needs_windows_is_refused_where_there_are_none_with_a_list_of_the_others() {
        let error = "lowrtt".parse::<Spec>().unwrap_err();
        assert_eq!(error, SpecError::NeedsWindows("lowrtt"));
        let text = error.to_string();
        assert!(!text.contains('\n') && text.contains("lowest-rtt") && !text.contains("minrtt"));
        for family in FAMILIES {
            let parsed = family.example.parse::<Spec>();
            assert_eq!(parsed.is_err(), family.needs_windows, "{}", family.name);
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        for text in ["round-robin", "weighted:0.5", "weights:0.6,0.3,0.1"] {
            assert_eq!(text.parse::<Spec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn every_published_run_length_is_one() {
        for family in FAMILIES {
            if let Some(every) = family.every {
                assert_eq!(every.parse::<Every>().unwrap().to_string(), every, "{}", family.name);
            }
        }
    }

    #[test]
    fn each_mistake_has_its_own_error() {
        let build = |text: &str| {
            let spec: Spec = text.parse()?;
            spec.build(3, stream(1, 0, "scheduler")).map(drop)
        };
        assert_eq!(build("fastest"), Err(SpecError::Unknown("fastest".into())));
        assert_eq!(build("uniform:3"), Err(SpecError::Superfluous("uniform")));
        assert_eq!(build("hywf:0.5"), Err(SpecError::Superfluous("hywf")));
        assert_eq!(build("batched:-1"), Err(SpecError::Number("-1".into())));
        assert_eq!(build("weights"), Err(SpecError::Missing("weights:W,W,…")));
        assert_eq!(build("weighted:0"), Err(SpecError::Number("0".into())));
        assert_eq!(build("weights:1,x,1"), Err(SpecError::Number("x".into())));
        assert_eq!(build("weights:1,-1,1"), Err(SpecError::Negative(-1.0)));
        assert_eq!(build("weights:0,0,0"), Err(SpecError::NoWeight));
        assert_eq!(build("weights:1,1"), Err(SpecError::Count(2, 3)));
    }
}
