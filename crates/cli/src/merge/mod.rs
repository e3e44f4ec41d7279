//! `anabranch merge`: runs a far end, the program that receives split traffic in front of an
//! unmodified server. The settings come from flags and a file.

mod options;
mod reread;
mod screen;

use std::path::PathBuf;

use anabranch_splitter::merge::{self, Metered, Reread, Screen};

use crate::failure::Failure;
use crate::screen::waiting::LookingUp;
use crate::split::no_metrics;
use crate::status::PublishedStatus;
use options::Options;
use reread::Source;

/// Text at the end of `--help`.
const EXAMPLES: &str = "\
EXAMPLES
  In front of a WireGuard server on this machine; 'anabranch key far.key home.key' makes far.key:
    anabranch merge --listen [::]:4500 --to 127.0.0.1:51820 --key far.key
  At home, with home.key; set the tunnel's Endpoint to 127.0.0.1:51820:
    anabranch split --listen 127.0.0.1:51820 --to vpn.example.net:4500 --key home.key \\
        --path wlan=if:wlan0 --path lte=if:wwan0

  Two servers. A splitter chooses the second with 'anabranch split --behind office':
    anabranch merge --listen [::]:4500 --to home=127.0.0.1:51820 --to office=192.0.2.7:51820 \\
        --key far.key

FILES
  FILE                        settings in TOML: /etc/anabranch/NAME.toml for anabranch-merge@NAME

ENVIRONMENT
  NOTIFY_SOCKET               set by systemd. The far end notifies it when ready and when stopping

EXIT CODES
  0 stopped by SIGINT (Ctrl-C) or SIGTERM, or by SIGHUP without a FILE   1 failed while running
  2 bad usage or settings

SIGNALS
  SIGHUP                      makes the far end read FILE and the key file again";

/// Merge the traffic of 'anabranch split --key' on the server's side, and forward it to the
/// server.
///
/// This program is the far end of a splitter ('anabranch split --key'). The server needs no
/// change. Between the splitter and the far end, each datagram is encrypted as a whole, together
/// with its packet number. So an observer of one path cannot infer from gaps in the numbers how
/// much the other paths carried. Both ends restore the order of the datagrams. The far end does
/// not answer senders without an accepted key.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "--help shows examples.")]
pub(crate) struct MergeArgs {
    /// Read settings from this TOML file. Its keys are the names of the options. Options on the
    /// command line override the file.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    #[command(flatten)]
    options: Options,
}

impl MergeArgs {
    /// Runs the far end until a signal ends it.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let options = match &self.file {
            Some(path) => self.options.clone().over(options::read(path)?),
            None => self.options.clone(),
        };
        let settings = options.settings()?;
        let run_status =
            PublishedStatus::named("merge", options.name.as_deref(), self.file.as_deref());
        let source =
            self.file.map(|file| Source { flags: self.options, file, began: options.clone() });
        let reread =
            source.map(|source| -> Reread<'_> { Box::new(move |running| source.read(running)) });
        let mut screen = screen::of(&options).map_err(Failure::trouble)?;
        match options.metrics {
            None => run(settings, reread, run_status, screen.as_mut()),
            Some(address) => {
                let metered = Metered::new(screen.as_mut(), address, env!("CARGO_PKG_VERSION"));
                let mut metered = metered.map_err(|error| no_metrics(address, &error))?;
                run(settings, reread, run_status, &mut metered)
            }
        }
    }
}

fn run(
    settings: merge::Settings,
    reread: Option<Reread<'_>>,
    run_status: Option<PublishedStatus>,
    screen: &mut dyn Screen,
) -> Result<(), Failure> {
    let names = settings.servers.iter().map(|server| &server.to);
    let names = names.filter(|to| to.literal().is_none()).map(|to| to.host.clone());
    let looking_up = LookingUp::of(&names.collect::<Vec<_>>());
    let mut screen = screen::PublishingScreen::new(screen, run_status, looking_up);
    merge::run_rereading(settings, reread, &mut screen).map(drop).map_err(blame)
}

fn blame(failure: merge::Failure) -> Failure {
    if failure.is_misuse() { Failure::misuse(failure) } else { Failure::trouble(failure) }
}
