//! Schedulers: one algorithm a file, and the table that names them.
//!
//! To add one: write its file with its [`Family`], name the file here and the family in
//! [`FAMILIES`]. It then shows in the splitter's `--schedule`, in reports and, once the binding is
//! built anew (`lab/run-tests --install`), in the lab; the conformance suite runs on it. One that
//! needs windows (`needs_windows`) is for circuits and for the paths to a far end: the lab, and the
//! splitter without a far end, refuse it.
//!
//! **Push and pull are one interface.** A scheduler is asked for each run where it is to go. A
//! sender that has more than its windows take is asked only after a window has opened: then the leg
//! that was acknowledged is the only one with room, so "the leg that is woken takes the next cells"
//! (mTor) is to name, in turn, a leg with room.

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

/// Names the path that the next run of units goes by.
pub trait Scheduler: fmt::Debug + Send {
    /// The path of the next run, always a usable one; `None` if none is usable.
    ///
    /// A load-blind scheduler ignores windows: the [`Splitter`](crate::Splitter) holds for the path
    /// that it names. A load-aware one names a full path only if all usable ones are full, or to
    /// wait for it ([`Scheduler::waits`]).
    fn choose(&mut self, now: Time, paths: &[PathView]) -> Option<PathId>;

    /// The same, where `units` are all that waits to be sent.
    fn deal(&mut self, now: Time, paths: &[PathView], _units: u64) -> Option<PathId> {
        self.choose(now, paths)
    }

    /// Units go by a path that it named; part by part, if a window cut them.
    fn carried(&mut self, _now: Time, _path: PathId, _units: u64) {}

    /// A silence has ended: what it knows of the load before is over.
    fn after_silence(&mut self) {}

    /// Goes on with other dice, and with the chances that it has.
    fn reseed(&mut self, _stream: Stream) {}

    /// Whether the choice depends on the paths' windows.
    fn load_aware(&self) -> bool {
        false
    }

    /// Whether it may name a full path while another has room, to wait for it. Only a load-aware
    /// one does, and only for a path on which something is under way.
    fn waits(&self) -> bool {
        false
    }

    /// Whether it reads [`LegView::link`](crate::LegView::link), which costs system calls.
    fn sees_links(&self) -> bool {
        false
    }
}

/// A scheduler made to order, or what was wrong with the order.
pub type Built = Result<Box<dyn Scheduler>, SpecError>;

/// One kind of scheduler, as command lines and documentation know it.
pub struct Family {
    /// The name that a user writes.
    pub name: &'static str,
    /// The form of the whole argument.
    pub syntax: &'static str,
    /// Such an argument, for three paths.
    pub example: &'static str,
    /// One line of help.
    pub about: &'static str,
    /// What it does, for people who never heard of schedulers.
    pub plain: &'static str,
    /// The run length that it was published with, as [`Every`](crate::Every) reads it, where that
    /// is part of it.
    pub every: Option<&'static str>,
    /// Whether it is only for paths with windows and measured round-trip times: circuits, and those
    /// to a far end.
    pub needs_windows: bool,
    /// Makes a scheduler for so many paths from the text after the colon and a stream of chance.
    pub build: fn(Option<&str>, usize, Stream) -> Built,
}

/// Every scheduler there is.
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

/// The families for paths without windows: interfaces, ports, proxies, recorded traces.
pub fn without_windows() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().filter(|family| !family.needs_windows)
}

/// A scheduler as a user names it, such as `weighted:0.5`; makes one scheduler for each session.
#[derive(Clone)]
pub struct Spec {
    family: &'static Family,
    argument: Option<String>,
}

impl Spec {
    /// A new scheduler for `paths` paths, with its own `stream` of chance.
    pub fn build(&self, paths: usize, stream: Stream) -> Built {
        (self.family.build)(self.argument.as_deref(), paths, stream)
    }

    /// Reads a scheduler for paths with windows (circuits, the paths to a far end): any family will
    /// do. `parse` is for paths without, and refuses those that need them.
    ///
    /// # Errors
    /// No family has this name.
    pub fn over_windows(text: &str) -> Result<Spec, SpecError> {
        Spec::among(text, FAMILIES.iter())
    }

    /// The same for paths without windows.
    ///
    /// # Errors
    /// The family needs them.
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

    /// The family that it belongs to.
    pub fn family(&self) -> &'static Family {
        self.family
    }
}

/// Why a text names no scheduler, or none for so many paths.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SpecError {
    /// No family has this name.
    Unknown(String),
    /// The family is for paths with windows, and these have none.
    NeedsWindows(&'static str),
    /// The family takes no argument.
    Superfluous(&'static str),
    /// The family needs an argument.
    Missing(&'static str),
    /// The argument is no number, or one outside the range.
    Number(String),
    /// A weight is negative, or not finite.
    Negative(f64),
    /// All weights are zero.
    NoWeight,
    /// The sum of the weights is beyond all numbers.
    Infinite,
    /// Not one weight for each path: (weights, paths).
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
                "schedule '{name}' needs congestion windows, which only circuits and paths to a \
                 far end (--key) have; choose one of {}",
                known()
            ),
            SpecError::Superfluous(name) => {
                write!(f, "schedule '{name}' takes no argument: write {name}")
            }
            SpecError::Missing(syntax) => {
                write!(f, "the schedule needs an argument: write {syntax}")
            }
            SpecError::Number(text) => {
                write!(f, "'{text}' is not a number above 0: write one, such as 0.5")
            }
            SpecError::Negative(weight) => {
                write!(f, "the weight {weight} is not a number of 0 or more: change it")
            }
            SpecError::NoWeight => f.write_str(
                "the weights sum to 0, so no path would carry anything: make one larger",
            ),
            SpecError::Infinite => f.write_str("the weights sum to infinity: give smaller ones"),
            SpecError::Count(weights, paths) => {
                write!(f, "{weights} weights for {paths} paths: give one for each path")
            }
        }
    }
}

/// The forms of those for paths without windows.
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

/// Refuses an argument where a family takes none.
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
