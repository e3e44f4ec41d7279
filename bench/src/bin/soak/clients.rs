//! Many clients in one process.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anabranch_bench::proc::Usage;
use anabranch_onion::circuitmux;
use anabranch_onion::conflux::Design;
use anabranch_onion::directory::network::RelayRestrictions;
use anabranch_onion::padding::Amount;
use anabranch_os::entropy::generator;
use anabranch_router::onion::authorities::Authority;
use anabranch_router::onion::client::{self, ClientEvent, Settings, Status};
use anabranch_router::onion::dirclient::{self, DirClient};
use anabranch_router::onion::stop_signals;
use serde_json::{Value, json};

use crate::{HEAP, print_event};

/// Limit of queued cells per client in bytes, as `anabranch up` sets it.
const MEMORY: usize = 128 << 20;
/// Maximum clients without a directory at a time.
const AT_ONCE: usize = 16;
/// Interval between reports of the clients' numbers.
const PERIOD: Duration = Duration::from_secs(1);
/// Maximum wait for the threads of directory clients. They end by themselves after their clients,
/// at the latest when their requests time out.
const LAST_REQUESTS: Duration = Duration::from_secs(60);

/// Arguments of `soak clients`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Run CLIENTS clients.
    #[arg(long, default_value_t = 200)]
    clients: usize,
    /// Use the network of this authority, given as in a DirAuthority line of torrc.
    #[arg(long, value_name = "LINE")]
    authority: String,
    /// Store each client's guards and documents in a separate folder of DIR.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

/// Runs the clients until a signal arrives, then reports the resources that are still in use, and
/// waits for another signal.
pub(crate) fn run(arguments: &Arguments) -> io::Result<()> {
    let mut stop = stop_signals()?;
    own("bare")?;
    let clients = start(arguments)?;
    stop.set_read_timeout(Some(PERIOD))?;
    let mut known = Reported::default();
    while !is_stopped(&mut stop)? {
        known.print_new(&clients)?;
    }
    let lost: usize = clients.into_iter().map(|client| usize::from(!client.end())).sum();
    wait_for_threads()?;
    print_event(&json!({"event": "clients_ended", "badly": lost}))?;
    own("stopped")?;
    while !is_stopped(&mut stop)? {}
    Ok(())
}

/// Starts all clients, at most [`AT_ONCE`] at a time, because authorities refuse many connections
/// from one address.
fn start(arguments: &Arguments) -> io::Result<Vec<Running>> {
    let mut clients: Vec<Running> = Vec::new();
    for number in 0..arguments.clients {
        while clients.iter().filter(|client| client.is_coming_up()).count() >= AT_ONCE {
            thread::sleep(Duration::from_millis(10));
        }
        clients.push(Running::start(arguments, number)?);
    }
    Ok(clients)
}

/// Returns whether a signal has arrived within the stream's read timeout.
fn is_stopped(stop: &mut UnixStream) -> io::Result<bool> {
    match stop.read(&mut [0]) {
        Ok(_) => Ok(true),
        // A signal may interrupt the read that would report it.
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Reports the memory, files and threads of this process. The descriptor with which the files are
/// counted is not included.
fn own(event: &str) -> io::Result<()> {
    let Usage { rss, files, .. } = Usage::of(std::process::id())?;
    print_event(&json!({"event": event, "rss": rss, "files": files - 1, "threads": threads()?}))
}

fn threads() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}

fn wait_for_threads() -> io::Result<()> {
    let patience = LAST_REQUESTS.as_millis() / 100;
    for _ in 0..patience {
        if threads()? == 1 {
            break;
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Observations of a client.
#[derive(Default)]
struct Observations {
    listening: Option<SocketAddr>,
    ready: bool,
    status: Status,
    /// Circuits built, and circuits closed.
    built: u64,
    closed: u64,
    /// Protocol violations by neighbours.
    violations: u64,
    /// Errors with their counts.
    troubles: BTreeMap<String, u64>,
}

impl Observations {
    fn take(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Listening(at) => self.listening = at.first().copied(),
            ClientEvent::Ready(_) => self.ready = true,
            ClientEvent::Built(..) => self.built += 1,
            ClientEvent::Closed(..) => self.closed += 1,
            ClientEvent::Status(status) => self.status = *status,
            ClientEvent::Violation(..) => self.violations += 1,
            ClientEvent::Refused(refused) => {
                *self.troubles.entry(refused.to_string()).or_default() += 1;
            }
            ClientEvent::Trouble(text) => *self.troubles.entry(text).or_default() += 1,
            ClientEvent::LinkOpen(_)
            | ClientEvent::OutOfMemory
            | ClientEvent::Linked(..)
            | ClientEvent::Fetched(_)
            | ClientEvent::Reloaded(_)
            | ClientEvent::Clock(_) => {}
        }
    }
}

/// A client on its thread.
struct Running {
    stop: UnixStream,
    thread: JoinHandle<io::Result<()>>,
    seen: Arc<Mutex<Observations>>,
}

impl Running {
    fn start(arguments: &Arguments, number: usize) -> io::Result<Running> {
        let data = arguments.data.join(format!("client{number:03}"));
        let settings = settings(&arguments.authority, &data)?;
        let (stop, stopped) = UnixStream::pair()?;
        let seen = Arc::new(Mutex::new(Observations::default()));
        let (rng, observations) = (generator()?, Arc::clone(&seen));
        let mut watch = move |event| locked(&observations).take(event);
        let work = move || client::run(settings, rng, &stopped, &mut watch);
        let thread = thread::Builder::new().name(format!("client{number:03}")).spawn(work)?;
        Ok(Running { stop, thread, seen })
    }

    fn seen(&self) -> MutexGuard<'_, Observations> {
        locked(&self.seen)
    }

    /// Returns whether the client runs, but has no directory yet.
    fn is_coming_up(&self) -> bool {
        !self.seen().ready && !self.thread.is_finished()
    }

    /// Stops the client. Returns false if it failed, or had already ended.
    fn end(mut self) -> bool {
        let signalled = self.stop.write_all(&[0]).is_ok();
        signalled && matches!(self.thread.join(), Ok(Ok(())))
    }
}

/// Locks the observations, even if the client's thread has panicked: [`Running::end`] reports
/// that.
fn locked(seen: &Mutex<Observations>) -> MutexGuard<'_, Observations> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn settings(authority: &str, data: &Path) -> io::Result<Settings> {
    let authority = Authority::parse(authority).map_err(io::Error::other)?;
    let dirclient = dirclient::Settings {
        authorities: vec![authority],
        data: data.to_owned(),
        share_subnets: false,
        keys: None,
        cache: false,
        dir_requests: true,
        bridges: Vec::new(),
        unpublished: false,
    };
    Ok(Settings {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        dirclient: DirClient::start(dirclient, generator()?).map_err(io::Error::other)?,
        data: data.to_owned(),
        restrictions: RelayRestrictions::default(),
        routes: None,
        extended_errors: false,
        padding: Amount::Full,
        memory: MEMORY,
        circuitmux: circuitmux::Kind::default(),
        legs: None,
        design: Design::default(),
        dealing: None,
        trace: None,
        tap: None,
        links: Default::default(),
        quic: None,
        udp_or: false,
    })
}

/// Facts that were already reported.
#[derive(Default)]
struct Reported {
    listening: bool,
}

impl Reported {
    fn print_new(&mut self, clients: &[Running]) -> io::Result<()> {
        if !self.listening {
            let ports: Option<Vec<SocketAddr>> =
                clients.iter().map(|client| client.seen().listening).collect();
            let Some(ports) = ports else { return Ok(()) };
            print_event(&json!({"event": "listening", "at": ports}))?;
            self.listening = true;
        }
        print_event(&numbers(clients))
    }
}

/// Returns the sums over all clients.
fn numbers(clients: &[Running]) -> Value {
    let sum = |of: &dyn Fn(&Observations) -> u64| -> u64 {
        clients.iter().map(|one| of(&one.seen())).sum()
    };
    let mut troubles = BTreeMap::<String, u64>::new();
    for client in clients {
        for (text, count) in &client.seen().troubles {
            *troubles.entry(text.clone()).or_default() += count;
        }
    }
    json!({
        "event": "numbers",
        "heap": HEAP.allocated(),
        "running": clients.iter().filter(|client| !client.thread.is_finished()).count(),
        "ready": sum(&|seen| u64::from(seen.ready)),
        // A client with a circuit can open a stream without delay.
        "with_circuit": sum(&|seen| u64::from(seen.status.circuits().0 > 0)),
        "circuits": sum(&|seen| seen.status.circuits.len() as u64),
        "built": sum(&|seen| seen.built),
        "closed": sum(&|seen| seen.closed),
        "programs": sum(&|seen| seen.status.programs as u64),
        "streams": sum(&|seen| seen.status.streams as u64),
        "links": sum(&|seen| seen.status.links as u64),
        "received": sum(&|seen| seen.status.wire[0]),
        "sent": sum(&|seen| seen.status.wire[1]),
        "violations": sum(&|seen| seen.violations),
        "troubles": troubles,
    })
}
