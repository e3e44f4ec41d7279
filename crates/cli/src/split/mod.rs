//! `anabranch split`: runs a splitter (the program that sends a session's datagrams over several
//! paths) with settings from options and a file.

mod check;
mod file;
pub(crate) mod forms;
mod options;
mod plan;
mod reread;
mod screen;
mod uplinks;
pub(crate) mod values;
mod wg;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

use anabranch_os::holders::{self, Transport};
use anabranch_splitter::metered::Metered;
use anabranch_splitter::split::{self, ActiveSettings, Reread, Screen, Settings};
use anabranch_splitter::steer;

use crate::failure::Failure;
use crate::screen::waiting::LookingUp;
use crate::status::PublishedStatus;
pub(crate) use options::Options;
#[cfg(feature = "onion")]
pub(crate) use plan::check_file;
pub(crate) use plan::{check_decoys, settings};
use reread::Source;
use screen::{PublishingScreen, QuicWarning};
pub(crate) use screen::{advice, log};
use uplinks::PathChoice;

/// Text at the end of `--help`.
const EXAMPLES: &str = "\
PATHS
  auto                adds a path for each Internet connection of this machine, and prints these
                      paths at the start
  NAME=if:DEVICE      uses this network interface (needs no root)
  NAME=wg:FILE        uses the WireGuard tunnel that `wg-quick up FILE` has started
  NAME=addr:ADDRESS   uses this source address, on the interface of its route
  NAME=ports:N        uses the default route, rotating over N source ports
  NAME=socks5:[USER@]HOST:PORT
                      goes through this SOCKS5 proxy, which must relay UDP. The password comes
                      from the environment (ANABRANCH_SOCKS5_PASSWORD), from a file's first line
                      (USER:@FILE@HOST:PORT), from the TOML file, or from the option itself
                      (USER:PASSWORD@HOST:PORT), which all users of this machine can read
  With a far end that has --listen-tcp, a path may be a TCP connection to it:
  NAME=tcp:[HOST:PORT]
                      goes straight to HOST:PORT, or to the address of --to-tcp or --to
  NAME=socks5-tcp:[USER@]HOST:PORT, NAME=http:[USER@]HOST:PORT
                      goes through this SOCKS5 proxy, or HTTP proxy by CONNECT; passwords as above
  NAME=ssh:[USER@]HOST[:PORT]
                      goes through OpenSSH (ssh -W), with its configuration, keys and agent
  NAME=tls:HOST:PORT  goes directly to a far end with --listen-tls (TLS 1.3); needs one of the
                      options --tls-fingerprint and --tls-ca
  NAME=onion:N        adds N paths, each a circuit of the Tor client at --onion-socks
  Kinds combine: lte=if:wwan0,ports:4   prx=socks5:anna@192.0.2.9:1080,if:wlan0

EXAMPLES
  Your WireGuard tunnel over Wi-Fi and mobile data. The splitter reads the server from tunnel.conf,
  and writes split.conf, a copy that sends the tunnel's packets to the splitter. Then run in another
  terminal: wg-quick up ./split.conf
    anabranch split --wg tunnel.conf --write split.conf --path wlan=if:wlan0 --path lte=if:wwan0

  The same without --wg. Set the tunnel's Endpoint to 127.0.0.1:51820; the server stays as it is:
    anabranch split --listen 127.0.0.1:51820 --to vpn.example.net:51820 \\
        --path wlan=if:wlan0 --path lte=if:wwan0

  Two paths: through another WireGuard tunnel, which runs already, and directly over Wi-Fi:
    anabranch split --wg home.conf --path vpn=wg:/etc/wireguard/vpn.conf --path wlan=if:wlan0

  Print the route of each path and the MTU for the tunnel, then exit:
    anabranch split tunnel.toml --check

  QUIC: handshakes use the path home, all other packets a random path, a or b, chosen again after
  about 50 packets:
    anabranch split --listen 127.0.0.1:4433 --to www.example.net:443 --path home=if:eth0 \\
        --path a=addr:192.0.2.7 --path b=addr:192.0.2.8 --handshake home --every ~50p

  All programs: QUIC, WireGuard and Mosh are split; any other connection uses one path (root):
    anabranch split --tun any0 --route --path wlan=if:wlan0 --path lte=if:wwan0

  Only one browser. Start it in another terminal with 'sudo anabranch exec browse chromium':
    anabranch split --tun any0 --netns browse --route --path wlan=if:wlan0 --path lte=if:wwan0

  The first path carries 70 % of the packets. The traffic on each path is recorded:
    anabranch split tunnel.toml --schedule weights:0.7,0.3 --trace run.parquet --pcap captures

ENVIRONMENT
  ANABRANCH_SOCKS5_PASSWORD   password for proxies with a user name but without a password
  JOURNAL_STREAM              set by systemd. Lines then begin with their priority, and traffic
                              counters are printed only with --verbose
  NOTIFY_SOCKET               set by systemd. The splitter notifies it when ready and when stopping

FILES
  FILE                        settings in TOML: /etc/anabranch/NAME.toml for anabranch-split@NAME
  /run/anabranch              list of the changes that a splitter with --tun undoes when it stops

SIGNALS
  With a FILE, SIGHUP makes the splitter read it again. Sessions continue with the new settings. If
  the file has an error, nothing changes. Without a FILE, SIGHUP stops the splitter. SIGINT, SIGTERM
  and the end of the terminal stop it too.

EXIT CODES
  0 stopped by SIGINT (Ctrl-C), SIGTERM or SIGHUP   1 failed while running   2 bad usage or settings
  130 stopped at once by a second Ctrl-C; --pcap files may lack the last second";

/// Send the datagrams of programs to their servers over several network paths.
///
/// A session is the traffic between one client program and one server. Client programs send their
/// datagrams to --listen. The splitter sends each datagram to the server over one of the paths;
/// --schedule decides which one. WireGuard, QUIC and Mosh servers let a client change its address,
/// so they accept the datagrams of all paths as one session. The server decides over which path it
/// sends its answers.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "--help explains the paths and shows examples.")]
pub(crate) struct SplitArgs {
    /// Read settings from this TOML file. Its keys are the names of the options, and it has one
    /// `[[path]]` table for each path. Options on the command line override the file.
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,

    /// Read settings from this TOML file. 'anabranch split --config FILE' means the same as
    /// 'anabranch split FILE'.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Print the interface, source address, route and MTU of each path, then exit without sending
    /// anything.
    #[arg(long)]
    check: bool,

    /// Undo the changes to routes, rules and interfaces that remain after 'anabranch split --tun'
    /// was killed, then exit (needs root).
    #[arg(long, exclusive = true)]
    restore: bool,

    #[command(flatten)]
    options: Options,
}

impl SplitArgs {
    /// Runs the splitter until a signal ends it.
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.restore {
            return restore();
        }
        let file = self.file.or(self.config);
        let mut options = match &file {
            Some(path) => self.options.clone().over(file::read(path)?),
            None => self.options.clone(),
        };
        let tunnel = wg::begin(&mut options)?;
        let settings = plan::settings(&options)?;
        show_uplinks(&options, &settings);
        if self.check {
            let waiting = looking_up(&settings);
            let about = ActiveSettings::look(&settings).map_err(blame)?;
            drop(waiting);
            let foreseen = about.tun.as_ref().map_or(Ok(()), steer::Plan::check_obstacles);
            foreseen.map_err(|error| blame(error.into()))?;
            let alone = tunnel.map_or(Ok(false), |tunnel| tunnel.check(&about))?;
            return if alone { Ok(()) } else { check::print(&settings.entrance, &about, &options) };
        }
        let mut screen = screen::of(&options).map_err(Failure::trouble)?;
        let metrics = options.metrics;
        let name = options.name.clone();
        let source = file.map(|file| {
            let tunnel = tunnel.is_some();
            Source { flags: self.options, file, began: options, tunnel }
        });
        let Some(tunnel) = tunnel else {
            return run(settings, source, (name, metrics), screen.as_mut());
        };
        let mut screen = wg::WgFileScreen::new(screen.as_mut(), tunnel);
        run(settings, source, (name, metrics), &mut screen)?;
        screen.failure()
    }
}

/// Prints the paths that replace `--path auto`, before they are used. With `--json`, the object
/// `listening` contains these paths instead.
fn show_uplinks(options: &Options, settings: &Settings) {
    if options.json || options.quiet || !options.paths.contains(&PathChoice::Uplinks) {
        return;
    }
    let paths: Vec<_> = settings.specs.iter().map(|spec| format!("--path {spec}")).collect();
    // A failure means that standard error is closed, so nobody reads the line.
    let _ = writeln!(io::stderr(), "--path auto: {}", paths.join(" "));
}

/// Undoes the changes to routes, rules and interfaces that killed splitters left, and prints these
/// changes.
fn restore() -> Result<(), Failure> {
    let restored = steer::restore().map_err(|error| blame(error.into()))?;
    let text = match restored.is_empty() {
        true => "nothing to undo: no killed splitter left changes".to_owned(),
        false => {
            format!(
                "undid the changes to this machine's network that splitters (--tun {}) left when \
                 they were killed",
                restored.join(", ")
            )
        }
    };
    writeln!(io::stdout(), "{text}").or_else(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(Failure::trouble(error)),
    })
}

fn run(
    settings: Settings,
    source: Option<Source>,
    (name, metrics): (Option<String>, Option<SocketAddr>),
    screen: &mut dyn Screen,
) -> Result<(), Failure> {
    let file = source.as_ref().map(|source| source.file.as_path());
    let run_status = PublishedStatus::named("split", name.as_deref(), file);
    let screen: &mut dyn Screen =
        &mut PublishingScreen::new(screen, run_status, looking_up(&settings));
    let in_order = settings.core.in_order.is_some();
    let screen: &mut dyn Screen = &mut QuicWarning::new(screen, in_order);
    let reread = source
        .map(|source| -> Reread<'_> { Box::new(move |running: &Settings| source.read(running)) });
    let go = |screen: &mut dyn Screen| split::run_rereading(settings, reread, screen);
    let Some(address) = metrics else { return go(screen).map(drop).map_err(blame) };
    let metered = Metered::new(screen, address, env!("CARGO_PKG_VERSION"));
    let cannot = |error: io::Error| no_metrics(address, &error);
    go(&mut metered.map_err(cannot)?).map(drop).map_err(blame)
}

/// Starts a timer if the server is given by name. Unless the timer is dropped before, it prints a
/// notice that the lookup of the name takes long.
fn looking_up(settings: &Settings) -> Option<LookingUp> {
    let to = settings.entrance.to().filter(|to| to.literal().is_none())?;
    LookingUp::of(std::slice::from_ref(&to.host))
}

/// Returns the failure that reports that no metrics can be served at `address`.
pub(crate) fn no_metrics(address: SocketAddr, error: &io::Error) -> Failure {
    let why = holders::unbindable(Transport::Tcp, address, error);
    Failure::misuse(format!("--metrics: cannot listen on {address}: {why}"))
}

/// Converts a failure of the loop that moves datagrams between sockets to a failure with an exit
/// code.
pub(crate) fn blame(failure: split::Failure) -> Failure {
    if failure.is_misuse() { Failure::misuse(failure) } else { Failure::trouble(failure) }
}
