//! A directory authority with its sockets and files. [`start`] runs the core of
//! [`anabranch_onion::authority`], with its keys and files, on one thread. A second thread serves
//! plain HTTP requests and probes relays.
//!
//! The authority is also a relay, which [`super::relay`] runs. That relay publishes its descriptor
//! through the [`DirClient`] that [`start`] returns. The OR port and the directory port take their
//! replies from the same `SharedAnswers`.
//!
//! * [`keys`]: the identity key, and the signing key with its certificate. The certificate is
//!   renewed before it expires.
//! * `authority_files`: descriptors, the history of relays and the last consensus on disk. Each
//!   document is written before it is served.
//! * `registry`: the thread that owns the mutable state (`ledger`) and does the work that is due;
//!   `wall_clock`: steps of the machine's clock.
//! * `dir_port`: the thread of the directory port and of probes; `dir_connections`: its
//!   connections.
//! * `shared_answers`: state that both ports and the registry share.

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
use authority_files::AuthorityFiles;
use dir_port::DirPort;
use keys::AuthorityKeyStore;
use ledger::Ledger;
use registry::{Registry, RegistryChannels};
use shared_answers::{RegistryMessage, SharedAnswers};

mod authority_files;
mod dir_connections;
mod dir_port;
pub mod keys;
mod ledger;
mod registry;
mod shared_answers;
mod wall_clock;

/// Name of the file with this authority's `DirAuthority` line, for the option `--authorities` and
/// for torrc's `%include`.
const LINE: &str = "authorities";

/// Settings of a directory authority.
pub struct Settings {
    /// Nickname of the authority and of its relay.
    pub nickname: String,
    /// Public IPv4 address of the authority.
    pub address: Ipv4Addr,
    /// OR port that the authority's relay advertises.
    pub or_port: u16,
    /// Addresses on which the directory port listens. The port of the first address is advertised.
    pub listen: Vec<SocketAddr>,
    /// The operator's contact, in one line.
    pub contact: String,
    /// Folder for keys and state. It is created if it is missing.
    pub data: PathBuf,
    /// Keys of the authority's relay.
    pub relay: Arc<RelayKeys>,
    /// Rules for giving flags to relays, and the times at which consensuses are made.
    pub core: core::Settings,
    /// File of measured bandwidths, which is read again for each consensus; `None` without
    /// measurements.
    pub bandwidths: Option<PathBuf>,
    /// Lifetime of a signing key's certificate, in seconds.
    pub certified_for: u64,
}

/// Default lifetime of a signing key's certificate, in seconds.
const CERTIFIED: u64 = 365 * 86_400;

impl Settings {
    /// Creates default settings for an authority whose relay has the given `description` and keys.
    /// Its directory port will use the addresses in `listen`.
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

/// New settings for a directory authority that runs already.
#[derive(Clone, Debug)]
pub struct Changes {
    /// New rules for giving flags to relays, and new times for consensuses.
    /// [`core::Authority::adopt`] lists the settings that may change.
    pub core: core::Settings,
    /// The operator's contact, in one line.
    pub contact: String,
    /// File of measured bandwidths; `None` without measurements.
    pub bandwidths: Option<PathBuf>,
    /// Lifetime of the next signing key's certificate, in seconds.
    pub certified_for: u64,
}

impl Changes {
    /// Creates changes with the rules and the schedule in `core`. The contact is taken from the
    /// relay's `description`; other settings have the defaults of [`Settings::new`].
    #[must_use]
    pub fn new(description: &Description, core: core::Settings) -> Changes {
        Changes { core, contact: contact(description), bandwidths: None, certified_for: CERTIFIED }
    }
}

fn contact(description: &Description) -> String {
    description.contact.clone().unwrap_or_else(|| "nobody".to_owned())
}

/// Event of a directory authority, for its operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthorityEvent {
    /// The `DirAuthority` line that configures C tor or this program to use this authority.
    Line(String),
    /// The authority has made a consensus. The fields are the number of relays in the consensus,
    /// and the times between which the consensus is valid.
    Consensus(usize, core::Times),
    /// The authority has accepted a relay's descriptor. The fields are the relay's RSA identity,
    /// and the number of relays known now.
    Relay([u8; 20], usize),
    /// The authority has refused a descriptor; the text is the reason.
    Refused(String),
    /// A message for the log: something failed or is unusual.
    Trouble(String),
}

/// Callback for events of an authority. The callback runs on the authority's main thread, and
/// blocks that thread until it returns.
pub type EventFn = Box<dyn FnMut(AuthorityEvent) + Send>;

/// Reason why a directory authority cannot start.
#[derive(Debug)]
pub enum AuthorityError {
    /// A file cannot be read or written.
    Store(StoreError),
    /// A port cannot be bound, or the kernel is out of resources.
    System(io::Error),
}

impl fmt::Display for AuthorityError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuthorityError::Store(error) => error.fmt(out),
            AuthorityError::System(error) => write!(out, "cannot open the directory port: {error}"),
        }
    }
}

impl std::error::Error for AuthorityError {}

impl From<StoreError> for AuthorityError {
    fn from(error: StoreError) -> AuthorityError {
        AuthorityError::Store(error)
    }
}

/// A running directory authority. It ends when the directory client that [`start`] returned is
/// dropped. After that, [`Running::join`] waits until the authority has ended.
pub struct Running {
    /// Addresses on which the directory port listens.
    pub at: Vec<SocketAddr>,
    /// The `DirAuthority` line that configures C tor to use this authority.
    pub line: String,
    shared_answers: Arc<SharedAnswers>,
    threads: [JoinHandle<()>; 2],
    /// Lock of the data folder, held for as long as the authority runs.
    _lock: FileLock,
}

impl Running {
    /// Applies new settings to the running authority.
    pub fn adopt(&self, changes: Changes) {
        self.shared_answers.write(RegistryMessage::Settings(Box::new(changes)));
    }

    /// Waits until the authority has ended and its last state is written to disk.
    pub fn join(self) {
        for thread in self.threads {
            // If the thread has panicked, the panic message was printed already.
            let _ = thread.join();
        }
    }
}

/// Starts an authority: reads or generates keys, restores the state of an earlier run, and listens
/// on the directory port. The returned directory client is for the authority's relay.
///
/// # Errors
/// A port cannot be bound, or a file cannot be read or written. Nothing runs then. Missing keys
/// may have been generated, damaged files renamed, and the file with the `DirAuthority` line
/// written. No other file has changed.
pub fn start(
    settings: Settings,
    mut on_event: EventFn,
) -> Result<(DirClient, Running), AuthorityError> {
    private_folder(&settings.data)?;
    let lock = locked(&settings.data)?;
    let mut rng = anabranch_os::entropy::generator().map_err(AuthorityError::System)?;
    let (key_store, keys) =
        AuthorityKeyStore::open(&settings.data, &mut rng, unix(), settings.certified_for)?;
    key_store.troubles().iter().for_each(|text| on_event(AuthorityEvent::Trouble(text.clone())));
    let about = about(&settings, key_store.identity());
    let line = line(&about);
    replace(&settings.data.join(LINE), format!("{line}\n").as_bytes())?;
    on_event(AuthorityEvent::Line(line.clone()));
    let mut authority_files = AuthorityFiles::open(&settings.data)?;
    let mut core = core::Authority::new(about, settings.core.clone(), keys);
    let troubles = authority_files.restore(&mut core, unix())?;
    troubles.into_iter().for_each(|text| on_event(AuthorityEvent::Trouble(text)));
    let ledger = Ledger::new(core, authority_files, key_store.certificates(), on_event, unix());
    let (dirclient, news, orders) = DirClient::channels().map_err(AuthorityError::System)?;
    let (sender, messages) = channel();
    let (probes, wanted) = channel();
    let (signal, received) = dir_port_waker().map_err(AuthorityError::System)?;
    let shared_answers = SharedAnswers::new(sender, [signal, news]);
    let channels = RegistryChannels { messages, orders, probes };
    let registry =
        Registry::new(ledger, Arc::clone(&shared_answers), channels, key_store, &settings);
    let (dir_port, at) = open(settings.listen, Arc::clone(&shared_answers), received, wanted)?;
    // If the registry's thread ends, the directory port's thread ends too.
    let thread = thread::Builder::new().name("registry".into());
    let registry = thread.spawn(move || registry.run()).map_err(AuthorityError::System)?;
    Ok((
        dirclient,
        Running { at, line, shared_answers, threads: [dir_port, registry], _lock: lock },
    ))
}

/// Creates the channel for wake-ups of the directory port's thread. Returns its sender and its
/// receiver.
fn dir_port_waker() -> io::Result<(dirclient::NewsSender, DirClient)> {
    // The directory port's thread receives no commands through this channel.
    let (received, signal, _) = DirClient::channels()?;
    Ok((signal, received))
}

/// Starts the directory port's thread and waits until it listens. Returns the thread and the bound
/// addresses.
fn open(
    listen: Vec<SocketAddr>,
    shared_answers: Arc<SharedAnswers>,
    received: DirClient,
    probes: Receiver<Vec<Probe>>,
) -> Result<(JoinHandle<()>, Vec<SocketAddr>), AuthorityError> {
    let (ready, listens) = channel();
    // The poller is created on the thread that uses it.
    let work = move || match DirPort::new(&listen, shared_answers, received, probes) {
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

/// Returns the `DirAuthority` line that the authority in the folder `data` wrote at its last
/// start. Changes no file.
///
/// # Errors
/// [`AuthorityError::Store`]: no authority has run in this folder.
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

/// Formats a `DirAuthority` line of torrc.
fn line(about: &About) -> String {
    let About { nickname, or_port, address, dir_port, .. } = about;
    let (v3, relay) = (hex(&about.identity), hex(&about.relay));
    format!(
        "DirAuthority {nickname} orport={or_port} no-v2 v3ident={v3} {address}:{dir_port} {relay}"
    )
}
