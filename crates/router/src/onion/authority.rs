//! A directory authority on a machine: [`start`] runs the core of [`anabranch_onion::authority`] on
//! a thread of its own, with its keys and its files, and its port for requests in the clear and its
//! probes of relays on another.
//!
//! The authority is a relay as well, which [`super::relay`] runs: what it publishes goes to us by
//! the [`DirClient`] that [`start`] gives, and both ports answer from the same `SharedAnswers`.
//!
//! * [`keys`]: the identity, the signing key and its certificate, which is renewed in time.
//! * `vault`: descriptors, what is known of relays, the last consensus: all on disk before anybody
//!   is told.
//! * `registry`: the thread that owns all that changes (`ledger`) and does what is due;
//!   `wall_clock`: what the machine's clock does meanwhile.
//! * `dir_port`: the thread of the port in the clear and of probes; `dir_connections`: its
//!   connections.
//! * `shared_answers`: what both ports and the registry have in common.

use std::fmt;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};

use anabranch_onion::authority::reachability::Probe;
use anabranch_onion::authority::{self as core, About};
use anabranch_onion::directory::descriptor::Description;
use anabranch_onion::wire::keys::RelayKeys;
use anabranch_onion::wire::text::hex;
use anabranch_os::file_lock::FileLock;

use super::dirclient::{self, DirClient, unix};
use super::store::{StoreError, locked, private_folder, replace};
use dir_port::DirPort;
use keys::Cabinet;
use ledger::Ledger;
use registry::{Ends, Registry};
use shared_answers::{Letter, SharedAnswers};
use vault::Vault;

mod dir_connections;
mod dir_port;
pub mod keys;
mod ledger;
mod registry;
mod shared_answers;
mod vault;
mod wall_clock;

/// The file with our `DirAuthority` line, for `--authorities` and for torrc's `%include`.
const LINE: &str = "authorities";

/// How an authority is to run.
pub struct Settings {
    /// Its name: as the relay's.
    pub nickname: String,
    /// Where it is reached.
    pub address: Ipv4Addr,
    /// The port for links that is announced.
    pub or_port: u16,
    /// Where requests come in the clear; the first one's port is announced.
    pub listen: Vec<SocketAddr>,
    /// How to reach the operator; one line.
    pub contact: String,
    /// Where keys and state are kept; the folder is made.
    pub data: PathBuf,
    /// The relay's keys.
    pub relay: Arc<RelayKeys>,
    /// How relays are judged, and when consensuses are made.
    pub core: core::Settings,
    /// Bandwidths that somebody measured: read again for each consensus.
    pub bandwidths: Option<PathBuf>,
    /// For how many seconds a signing key is certified.
    pub certified_for: u64,
}

/// Seconds for which a signing key is certified if nobody says.
const CERTIFIED: u64 = 365 * 86_400;

impl Settings {
    /// Of the authority that is this relay as well.
    #[must_use]
    pub fn new(
        description: &Description,
        relay: Arc<RelayKeys>,
        listen: Vec<SocketAddr>,
        data: PathBuf,
        core: core::Settings,
    ) -> Settings {
        Settings {
            nickname: description.nickname.clone(),
            address: description.address,
            or_port: description.orport,
            listen,
            contact: contact(description),
            data,
            relay,
            core,
            bandwidths: None,
            certified_for: CERTIFIED,
        }
    }
}

/// What an authority was told anew.
#[derive(Clone, Debug)]
pub struct Changes {
    /// How relays are judged; of it what may change ([`core::Authority::adopt`]).
    pub core: core::Settings,
    /// How to reach the operator; one line.
    pub contact: String,
    /// Bandwidths that somebody measured.
    pub bandwidths: Option<PathBuf>,
    /// For how many seconds the next signing key is certified.
    pub certified_for: u64,
}

impl Changes {
    /// Of the authority that is this relay as well; what may differ from that is as in
    /// [`Settings::new`].
    #[must_use]
    pub fn new(description: &Description, core: core::Settings) -> Changes {
        Changes { core, contact: contact(description), bandwidths: None, certified_for: CERTIFIED }
    }
}

fn contact(description: &Description) -> String {
    description.contact.clone().unwrap_or_else(|| "nobody".to_owned())
}

/// What an operator is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthorityEvent {
    /// The line by which tors and we are told of this authority.
    Line(String),
    /// A consensus was made: how many relays it lists, and when it holds.
    Consensus(usize, core::Times),
    /// A relay's descriptor was taken: its RSA identity, and how many are known.
    Relay([u8; 20], usize),
    /// What was published was refused; why.
    Refused(String),
    /// A line for the log: something did not work, or is not as it should be.
    Trouble(String),
}

/// Who is told; called by the thread that does all the work, which waits for it.
pub type Tell = Box<dyn FnMut(AuthorityEvent) + Send>;

/// Why there is no authority.
#[derive(Debug)]
pub enum AuthorityError {
    /// A file.
    Store(StoreError),
    /// A port cannot be had, or the kernel has nothing left.
    System(io::Error),
}

impl fmt::Display for AuthorityError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuthorityError::Store(error) => error.fmt(out),
            AuthorityError::System(error) => write!(out, "the directory port: {error}"),
        }
    }
}

impl std::error::Error for AuthorityError {}

impl From<StoreError> for AuthorityError {
    fn from(error: StoreError) -> AuthorityError {
        AuthorityError::Store(error)
    }
}

/// An authority that runs. It ends when the directory client's owner lets go of that; then call
/// [`Running::join`].
pub struct Running {
    /// Where it takes requests in the clear.
    pub at: Vec<SocketAddr>,
    /// The line that makes a tor part of its network.
    pub line: String,
    shared_answers: Arc<SharedAnswers>,
    threads: [JoinHandle<()>; 2],
    /// Held as long as it runs.
    _lock: FileLock,
}

impl Running {
    /// Goes by these settings from now on.
    pub fn adopt(&self, changes: Changes) {
        self.shared_answers.write(Letter::Settings(Box::new(changes)));
    }

    /// Waits until the last state is written.
    pub fn join(self) {
        for thread in self.threads {
            // A panic of it has been printed.
            let _ = thread.join();
        }
    }
}

/// Starts an authority: reads or makes keys, takes up the state of an earlier run, listens. The
/// directory client is for its relay.
///
/// # Errors
/// [`AuthorityError`]: nothing runs then, and no file was changed but for keys that were missing
/// and damaged files, which have another name.
pub fn start(settings: Settings, mut tell: Tell) -> Result<(DirClient, Running), AuthorityError> {
    private_folder(&settings.data)?;
    let lock = locked(&settings.data)?;
    let mut rng = anabranch_os::entropy::generator().map_err(AuthorityError::System)?;
    let (cabinet, keys) = Cabinet::open(&settings.data, &mut rng, unix(), settings.certified_for)?;
    cabinet.troubles().iter().for_each(|text| tell(AuthorityEvent::Trouble(text.clone())));
    let about = about(&settings, cabinet.identity());
    let line = line(&about);
    replace(&settings.data.join(LINE), format!("{line}\n").as_bytes())?;
    tell(AuthorityEvent::Line(line.clone()));
    let mut vault = Vault::open(&settings.data)?;
    let mut core = core::Authority::new(about, settings.core.clone(), keys);
    let troubles = vault.restore(&mut core, unix())?;
    troubles.into_iter().for_each(|text| tell(AuthorityEvent::Trouble(text)));
    let ledger = Ledger::new(core, vault, cabinet.certificates(), tell, unix());
    let (dirclient, news, orders) = DirClient::counters().map_err(AuthorityError::System)?;
    let (letters, written) = channel();
    let (probes, wanted) = channel();
    let (bell, heard) = desk_bell().map_err(AuthorityError::System)?;
    let shared_answers = SharedAnswers::new(letters, [bell, news]);
    let ends = Ends { letters: written, orders, probes };
    let registry = Registry::new(ledger, Arc::clone(&shared_answers), ends, cabinet, &settings);
    let (dir_port, at) = open(settings.listen, Arc::clone(&shared_answers), heard, wanted)?;
    // Without a registry the directory port ends as well.
    let thread = thread::Builder::new().name("registry".into());
    let registry = thread.spawn(move || registry.run()).map_err(AuthorityError::System)?;
    Ok((
        dirclient,
        Running { at, line, shared_answers, threads: [dir_port, registry], _lock: lock },
    ))
}

/// What rings at the directory port's thread, and what hears it there.
fn desk_bell() -> io::Result<(dirclient::NewsSender, DirClient)> {
    // Nobody gives orders to it.
    let (heard, bell, _) = DirClient::counters()?;
    Ok((bell, heard))
}

/// Starts the directory port's thread, once its addresses are listened at.
fn open(
    listen: Vec<SocketAddr>,
    shared_answers: Arc<SharedAnswers>,
    heard: DirClient,
    probes: Receiver<Vec<Probe>>,
) -> Result<(JoinHandle<()>, Vec<SocketAddr>), AuthorityError> {
    let (ready, listens) = channel();
    // What a thread waits with stays in that thread.
    let work = move || match DirPort::new(&listen, shared_answers, heard, probes) {
        Ok((dir_port, at)) => {
            let _ = ready.send(Ok(at));
            dir_port.run();
        }
        Err(error) => drop(ready.send(Err(error))),
    };
    let builder = thread::Builder::new().name("authority".into());
    let thread = builder.spawn(work).map_err(AuthorityError::System)?;
    let at = listens.recv().unwrap_or_else(|gone| Err(io::Error::other(gone)));
    Ok((thread, at.map_err(AuthorityError::System)?))
}

/// The line of the authority that keeps its state in this folder, as its last start wrote it.
/// Nothing is changed there.
///
/// # Errors
/// [`AuthorityError::Store`]: no authority has run there.
pub fn announced(data: &Path) -> Result<String, AuthorityError> {
    let path = data.join(LINE);
    let text = fs::read_to_string(&path).map_err(|error| StoreError::File(path, error))?;
    Ok(text.trim_end().to_owned())
}

fn about(settings: &Settings, identity: [u8; 20]) -> About {
    About {
        nickname: settings.nickname.clone(),
        identity,
        relay: settings.relay.rsa_identity(),
        address: settings.address,
        dir_port: settings.listen.first().map_or(0, SocketAddr::port),
        or_port: settings.or_port,
        contact: settings.contact.clone(),
    }
}

/// As torrc has it.
fn line(about: &About) -> String {
    let About { nickname, or_port, address, dir_port, .. } = about;
    let (v3, relay) = (hex(&about.identity), hex(&about.relay));
    format!(
        "DirAuthority {nickname} orport={or_port} no-v2 v3ident={v3} {address}:{dir_port} {relay}"
    )
}
