//! The options of `anabranch split` that `anabranch mosh` shares. Both commands use the same
//! definition. Options that `anabranch mosh` sets itself are left out.

use clap::{ArgMatches, Args, Command, FromArgMatches};

use crate::split::Options;

/// Options of `anabranch split` that `anabranch mosh` also accepts. All other options of
/// `anabranch split` are refused and hidden.
const SHARED: &[&str] = &[
    "paths",
    "same_egress",
    "fwmark",
    "schedule",
    "every",
    "redraw",
    "jitter",
    "seed",
    "json",
    "trace",
    "pcap",
    "pcap_size",
    "pcap_files",
    "replace",
];

/// The options of a splitter, restricted to the options in [`SHARED`].
#[derive(Debug)]
pub(super) struct Shared(pub(super) Options);

impl FromArgMatches for Shared {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Shared, clap::Error> {
        Options::from_arg_matches(matches).map(Shared)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl Args for Shared {
    fn augment_args(command: Command) -> Command {
        let all = Options::augment_args(Command::new("split"));
        let unused: Vec<_> = all
            .get_arguments()
            .map(|arg| arg.get_id().clone())
            .filter(|id| !SHARED.contains(&id.as_str()))
            .collect();
        // An unused option conflicts with the host. A login always has a host, so such an option
        // can never be given.
        Options::augment_args(command).mut_args(|arg| match unused.contains(arg.get_id()) {
            true => arg.hide(true).conflicts_with("host"),
            false => arg,
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Shared::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_that_of_an_option() {
        let all = Options::augment_args(Command::new("split"));
        let known: Vec<_> = all.get_arguments().map(|arg| arg.get_id().to_string()).collect();
        assert!(SHARED.iter().all(|name| known.contains(&(*name).to_owned())), "{known:?}");
    }
}
