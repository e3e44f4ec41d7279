//! Runs `mosh-client` from its start to its exit status. The splitter runs at the same time, and
//! forwards datagrams between `mosh-client` and the server.

use std::io;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

use anabranch_comps::Protocol;
use anabranch_splitter::mosh::{Client, ClientEnd, Key, Terminal};
use anabranch_splitter::split::{ActiveSettings, Screen, Settings, run_until};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::print_line;
use super::screen::DeferredScreen;
use crate::failure::Failure;
use crate::split;

/// Runs the splitter, and starts `mosh-client` as soon as the splitter listens. Both end when
/// `mosh-client` ends.
///
/// Signals that would end this process are passed to `mosh-client`. It can then close its session
/// with the server while the splitter still forwards its packets.
pub(super) fn run(
    client: &Client,
    key: &Key,
    settings: Settings,
    log: Option<Box<dyn Screen>>,
) -> Result<(), Failure> {
    let to = settings.entrance.to().map_or_else(String::new, ToString::to_string);
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(Failure::trouble)?;
    let (stop, over) = UnixStream::pair().map_err(Failure::trouble)?;
    let terminal = Terminal::remember();
    let mut begun = None;
    let mut screen = DeferredScreen::new(log, |about| {
        let names: Vec<_> = about.egresses.iter().map(|egress| egress.name.as_str()).collect();
        let names = names.join(", ");
        let (dealing, seed) = (about.dealing(), about.seed);
        print_line(&format!("connecting to {to} over the paths {names}: {dealing}, seed {seed}"));
        let warnings = split::advice::warnings(about).into_iter();
        let several = about.egresses.len() > 1;
        let counter = several.then(|| split::advice::numbers_in_clear(Protocol::Mosh));
        warnings.chain(counter).for_each(|text| print_line(&format!("warning: {text}")));
        begun = Some(begin(client, key, about, signals, over));
    });
    let outcome = run_until(stop, settings, &mut screen).map_err(split::blame);
    let lines = screen.into_lines();
    let ended = begun.map(|begun| begun.and_then(|begun| begun.end(outcome.is_err())));
    if let Some(Ok(ended)) = ended {
        terminal.restore(ended);
    }
    lines.iter().for_each(|line| print_line(line));
    outcome?;
    let name = client.command.program();
    match ended {
        Some(Ok(ClientEnd { code: 0, .. })) => Ok(()),
        Some(Ok(ended)) => Err(Failure::status(ended.code.into())),
        Some(Err(error)) => Err(Failure::trouble(format!("cannot run '{name}': {error}"))),
        None => Err(Failure::trouble(
            "the splitter stopped before it could receive packets, for the reason above",
        )),
    }
}

/// A running `mosh-client`: a function that stops it, and the thread that waits for its exit.
struct RunningClient {
    end: Box<dyn Fn()>,
    ended: JoinHandle<io::Result<ClientEnd>>,
}

/// Starts `mosh-client`. It connects to the splitter's local address, which is in `about`, instead
/// of the server's address. When `mosh-client` ends, the socket `over` is closed, which makes the
/// splitter end too.
fn begin(
    client: &Client,
    key: &Key,
    about: &ActiveSettings,
    mut signals: Signals,
    over: UnixStream,
) -> io::Result<RunningClient> {
    let listen = about.listen.expect("the splitter of a Mosh session listens at a local port");
    let running = client.start(listen, key)?;
    let (end, on_signal) = (Box::new(running.ender()?), running.ender()?);
    thread::spawn(move || signals.forever().for_each(|_| on_signal()));
    let ended = thread::spawn(move || {
        let ended = running.wait();
        drop(over);
        ended
    });
    Ok(RunningClient { end, ended })
}

impl RunningClient {
    /// Waits until `mosh-client` ends. If the splitter has `failed`, stops `mosh-client` first.
    fn end(self, failed: bool) -> io::Result<ClientEnd> {
        if failed {
            (self.end)();
        }
        self.ended.join().expect("the thread only waits, so it cannot panic")
    }
}
