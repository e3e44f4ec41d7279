//! The directory client: fetches directory documents from authorities and caches, and stores them.
//! The directory client has its own thread, because requests to directory ports block, and because
//! verifying a consensus takes longer than a cell may wait.
//!
//! The directory client fetches and verifies the documents that [`Directory`] asks for, stores
//! them on disk, and publishes a relay's descriptor. It sends [`News`] to its owner (the client or
//! relay that started it) through a queue, with a waker for the owner's event loop. The owner
//! makes requests over circuits on behalf of the directory client ([`News::DirRequest`],
//! [`DirClient::report`]).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anabranch_onion::Moment;
use anabranch_onion::directory::bridges::BridgeIdentity;
use anabranch_onion::directory::cache::Cache;
use anabranch_onion::directory::descriptor::{Description, RelayDocuments};
use anabranch_onion::directory::fetch::{
    AuthorityIdentity, Directory, Event, Failure, Job, JobDocument, KeptDocument, Source,
};
use anabranch_onion::directory::http::{Response, ResponseReader, get, post};
use anabranch_onion::wire::extend::Target;
use anabranch_onion::wire::keys::RelayKeys;
use anabranch_onion::wire::netdoc::DocumentError;
use anabranch_onion::wire::text::signed_digest;
use anabranch_os::clock::Clock;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::Rng;

use copies::Copies;
use due::PublishSchedule;
pub(super) use news::NewsSender;
pub use news::{DirRequest, FetchReport, News};
use texts::Texts;

use super::authorities::Authority;
use super::kept::{StateContent, check_readable, read_text, set_aside};
use super::served_documents::ServedDocuments;
use super::store::{StoreError, private_folder, replace};

pub(super) use due::REPUBLISH_S;

mod copies;
mod due;
pub(super) mod news;
mod texts;

/// Name of the file with the authorities' certificates (C tor's name).
const CERTS: &str = "cached-certs";
/// Name of the file with the consensus (C tor's name).
const CONSENSUS: &str = "cached-microdesc-consensus";
/// Name of the file with the microdescriptors (C tor's name).
const MICRODESCS: &str = "cached-microdescs";
/// Files that every directory client stores.
const FILES: [&str; 3] = [CERTS, CONSENSUS, MICRODESCS];
/// Last words of the message about a damaged document: the action that follows.
const AGAIN: &str = "it is fetched again";
/// Timeout for a connection to a directory.
const CONNECT: Duration = Duration::from_secs(10);
/// Timeout for each read and write on a connection to a directory.
const SILENCE: Duration = Duration::from_secs(30);
/// Maximum size in bytes of an authority's reply after our relay has published a descriptor to it.
const VERDICT: usize = 64 << 10;

/// Settings of a directory client.
pub struct Settings {
    /// Authorities that serve documents and receive the relay's descriptor.
    pub authorities: Vec<Authority>,
    /// Folder for the stored documents. It is created if it is missing.
    pub data: PathBuf,
    /// True if relays in the same subnet may be in one path.
    pub share_subnets: bool,
    /// Keys that a relay uses to sign its descriptors; `None` for a client.
    pub keys: Option<Arc<RelayKeys>>,
    /// True to cache documents in order to serve them to other directory clients.
    pub cache: bool,
    /// True if the owner of the directory client (a client or relay) makes directory requests over
    /// circuits on behalf of the directory client.
    pub dir_requests: bool,
    /// Bridges that the client uses; empty if it uses none. If there are bridges, all documents
    /// are fetched from them.
    pub bridges: Vec<BridgeIdentity>,
    /// True if the relay is a bridge, so that its descriptor is not published to authorities.
    pub unpublished: bool,
}

/// Commands from the owner of the directory client (a client or relay) to the directory client's
/// thread.
pub(super) enum DirCommand {
    Publish(Box<Description>),
    Sign(Arc<RelayKeys>),
    Trust(Vec<Authority>, bool),
    Report(Report),
    AskBridges,
}

/// Result of a directory request that the owner of the directory client (a client or relay) made
/// over a circuit.
pub(super) struct Report {
    number: u64,
    from: Option<String>,
    outcome: Result<ResponseReader, Failure>,
}

/// Handle of the directory client's thread, which ends when the handle is dropped.
pub struct DirClient {
    authorities: Vec<Authority>,
    orders: Sender<DirCommand>,
    news: Receiver<News>,
    waker: UnixStream,
}

impl DirClient {
    /// Starts the directory client's thread. The thread first reads the documents that an earlier
    /// run stored, and sends messages about them. A relay's directory client makes no request
    /// before [`DirClient::publish`].
    ///
    /// # Errors
    /// The folder cannot be created, a stored file cannot be read, or the thread cannot
    /// be started.
    pub fn start(settings: Settings, rng: ChaCha20Rng) -> Result<DirClient, StoreError> {
        private_folder(&settings.data)?;
        let caches = if settings.cache { &copies::FILES[..] } else { &[] };
        let mut files = FILES.iter().chain(caches);
        files.try_for_each(|name| check_readable(&settings.data.join(name)))?;
        let path = settings.data.clone();
        let (mut dirclient, news_sender, ordered) =
            DirClient::channels().map_err(|error| StoreError::File(path.clone(), error))?;
        dirclient.authorities.clone_from(&settings.authorities);
        let dir_thread = DirThread::new(settings, rng, news_sender);
        let thread = thread::Builder::new().name("directory".into());
        let started = thread.spawn(move || dir_thread.run(&ordered));
        started.map_err(|error| StoreError::File(path, error))?;
        Ok(dirclient)
    }

    /// Creates a directory client without starting a thread. Also returns the other ends of its
    /// channels, for a thread that the caller runs.
    ///
    /// # Errors
    /// A system call fails.
    pub(super) fn channels() -> io::Result<(DirClient, NewsSender, Receiver<DirCommand>)> {
        let (waker, signal) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        signal.set_nonblocking(true)?;
        let signal = Arc::new(signal);
        let ((orders, ordered), (sender, news)) = (channel(), channel());
        let authorities = Vec::new();
        Ok((
            DirClient { authorities, orders, news, waker },
            NewsSender { news: sender, signal },
            ordered,
        ))
    }

    /// Returns the authorities to fetch from and publish to.
    #[must_use]
    pub fn authorities(&self) -> &[Authority] {
        &self.authorities
    }

    /// Returns a socket that becomes readable when there are messages for [`DirClient::take`].
    #[must_use]
    pub fn waker(&self) -> &UnixStream {
        &self.waker
    }

    /// Returns the messages from the directory client's thread since the last call.
    pub fn take(&mut self) -> Vec<News> {
        let mut wake_ups = [0; 64];
        while self.waker.read(&mut wake_ups).is_ok_and(|count| count == wake_ups.len()) {}
        self.news.try_iter().collect()
    }

    /// Publishes the relay's `description` now, and again whenever the published descriptor is too
    /// old.
    pub fn publish(&self, description: Description) {
        // The thread runs for as long as this sender exists, so sending does not fail.
        let _ = self.orders.send(DirCommand::Publish(Box::new(description)));
    }

    /// Passes on the result of the directory request with the identifier `number`, which the owner
    /// has made over a circuit. `from` is the name of the relay that received the request, if any.
    pub fn report(
        &self,
        number: u64,
        from: Option<String>,
        outcome: Result<ResponseReader, Failure>,
    ) {
        let _ = self.orders.send(DirCommand::Report(Report { number, from, outcome }));
    }

    /// Requests the bridge descriptors that are still missing. Called when a pluggable transport
    /// may have started.
    pub fn ask_bridges(&self) {
        let _ = self.orders.send(DirCommand::AskBridges);
    }

    /// Replaces the keys that sign the relay's descriptor, and publishes the newly signed
    /// descriptor.
    pub fn sign_with(&self, keys: Arc<RelayKeys>) {
        let _ = self.orders.send(DirCommand::Sign(keys));
    }
}

impl DirClient {
    /// Replaces the authorities. `share_subnets` states whether one path may contain relays of the
    /// same subnet. Documents that the new authorities have signed stay in use. The owner (a
    /// client or relay) keeps its current network until the directory client has a consensus of
    /// the new authorities.
    pub fn trust(&mut self, authorities: Vec<Authority>, share_subnets: bool) {
        self.authorities.clone_from(&authorities);
        let _ = self.orders.send(DirCommand::Trust(authorities, share_subnets));
    }
}

/// State of the directory client's thread.
struct DirThread {
    settings: Settings,
    directory: Directory,
    /// Documents to serve. Threads that answer requests may hold an `Arc` of an earlier version,
    /// which never changes.
    cache: Arc<Cache>,
    served: Arc<ServedDocuments>,
    copies: Copies,
    /// Texts of the known microdescriptors, which are written to disk.
    microdescs: Texts,
    description: Option<Description>,
    /// Directory requests over circuits that are in progress: the purpose of each, by the
    /// request's identifier.
    out: BTreeMap<u64, Job>,
    /// For each authority, the time at which the descriptor is to be published next.
    due: Vec<PublishSchedule>,
    clock: Clock,
    rng: ChaCha20Rng,
    news_sender: NewsSender,
}

impl DirThread {
    fn new(settings: Settings, rng: ChaCha20Rng, news_sender: NewsSender) -> DirThread {
        let mut directory = Directory::new(identities(&settings), settings.share_subnets);
        let mut cache = Cache::default();
        if !settings.bridges.is_empty() {
            directory.by_bridges(settings.bridges.clone());
        }
        if settings.cache {
            directory.for_a_cache();
            settings.keys.iter().for_each(|keys| cache.we_are(keys.rsa_identity()));
        }
        DirThread {
            directory,
            cache: Arc::new(cache),
            served: ServedDocuments::new(news_sender.clone()),
            copies: Copies::new(settings.authorities.iter().map(|one| one.v3).collect()),
            due: vec![PublishSchedule::now(); settings.authorities.len()],
            settings,
            microdescs: Texts::default(),
            description: None,
            out: BTreeMap::new(),
            clock: Clock::start(),
            rng,
            news_sender,
        }
    }

    fn run(mut self, orders: &Receiver<DirCommand>) {
        self.restore();
        if self.settings.keys.is_some() {
            // A relay publishes before it fetches, because an authority may delay answers until
            // relays have published.
            let Ok(order) = orders.recv() else { return };
            self.follow(order);
        }
        self.publish();
        // Reading these documents may take long, so it follows publishing.
        self.restore_copies();
        loop {
            self.publish();
            while let Some(job) = self.directory.poll(self.moment(), &mut self.rng) {
                self.carry(job);
            }
            let pause = if self.copy_some() { Duration::ZERO } else { self.pause() };
            match orders.recv_timeout(pause) {
                Ok(order) => self.follow(order),
                Err(RecvTimeoutError::Timeout) => self.keep_microdescs(false),
                Err(RecvTimeoutError::Disconnected) => return self.keep_microdescs(true),
            }
        }
    }

    fn follow(&mut self, order: DirCommand) {
        match order {
            DirCommand::Publish(description) => self.describe(*description),
            DirCommand::Sign(keys) => {
                self.settings.keys = Some(keys);
                self.due.fill(PublishSchedule::now());
            }
            DirCommand::Trust(authorities, share_subnets) => self.trust(authorities, share_subnets),
            DirCommand::Report(report) => self.reported(report),
            DirCommand::AskBridges => self.directory.ask_bridges(),
        }
    }

    /// Starts again with other authorities, from the documents on disk. For authorities that were
    /// used before, the times of publishing our descriptor stay the same.
    fn trust(&mut self, authorities: Vec<Authority>, share_subnets: bool) {
        let before = self.settings.authorities.iter().zip(&self.due);
        let due = |one: &Authority| {
            let same = before.clone().find(|(old, _)| *old == one);
            same.map_or_else(PublishSchedule::now, |(_, due)| due.clone())
        };
        self.due = authorities.iter().map(due).collect();
        (self.settings.authorities, self.settings.share_subnets) = (authorities, share_subnets);
        self.directory.restart_with(identities(&self.settings), share_subnets);
        self.copies = Copies::new(self.settings.authorities.iter().map(|one| one.v3).collect());
        // Results of earlier requests are useless with new authorities, except those about
        // bridges.
        self.out.retain(|_, job| matches!(job.want, JobDocument::Bridge(_)));
        self.restore();
        self.restore_copies();
    }

    fn pause(&self) -> Duration {
        let at = self.moment();
        let fetch = self.directory.next_timeout(at).since(at.now).as_millis() as u64;
        let due = self.due.iter().map(|due| due.wait(unix()) * 1000).min();
        let publish = self.description.as_ref().and(due).unwrap_or(u64::MAX);
        let keep = self.microdescs.wait(self.millis()).unwrap_or(u64::MAX);
        let wait = fetch.min(publish).min(keep).min(self.copies_wait());
        Duration::from_millis(wait.clamp(20, 60_000))
    }

    fn moment(&self) -> Moment {
        Moment { now: self.clock.now(), unix: unix() }
    }

    fn millis(&self) -> u64 {
        self.clock.now().nanos() / 1_000_000
    }

    fn restore(&mut self) {
        let kept = FILES.map(|name| self.kept_text(name));
        let [certs, consensus, microdescs] = &kept;
        let events = self.directory.restore(certs, consensus, microdescs, unix(), &mut self.rng);
        self.take(events);
    }

    /// Reads the stored document `name`. Returns an empty text if the file is absent, damaged or
    /// unreadable, so that the document is fetched again.
    fn kept_text(&mut self, name: &str) -> String {
        let path = self.settings.data.join(name);
        let report = match read_text(&path) {
            Ok(StateContent::Whole(text)) if text.is_empty() => {
                set_aside(&path, "it is empty", AGAIN)
            }
            Ok(StateContent::Whole(text)) => return text,
            Ok(StateContent::Absent) => return String::new(),
            Ok(StateContent::Damaged(why)) => set_aside(&path, &why, AGAIN),
            Err(error) => Err(error),
        };
        self.news_sender.send(News::Trouble(report.unwrap_or_else(|error| error.to_string())));
        String::new()
    }

    /// Renames the file of a damaged document from an earlier run, and reports that.
    fn set_aside(&mut self, kept: KeptDocument, why: &DocumentError) {
        let name = match kept {
            KeptDocument::Certificates => CERTS,
            KeptDocument::Consensus => CONSENSUS,
            KeptDocument::Microdescs => MICRODESCS,
            KeptDocument::ServerConsensus => copies::CONSENSUS,
            KeptDocument::Servers => copies::SERVERS,
            KeptDocument::Extras => copies::EXTRAS,
        };
        let report = set_aside(&self.settings.data.join(name), &why.to_string(), AGAIN);
        self.news_sender.send(News::Trouble(report.unwrap_or_else(|error| error.to_string())));
    }

    fn cache_mut(&mut self) -> &mut Cache {
        Arc::make_mut(&mut self.cache)
    }

    fn describe(&mut self, description: Description) {
        let news = self.description.as_ref().is_none_or(|old| description.differs_from(old));
        if news {
            self.due.fill(PublishSchedule::now());
        }
        self.description = Some(description);
    }

    /// Makes the directory request of `job` to a directory port, or asks the owner (a client or
    /// relay) to make it over a circuit.
    fn carry(&mut self, job: Job) {
        let authorities = &self.settings.authorities;
        let place = match job.source {
            Source::Plain(place) => place,
            // If the owner makes no circuits, documents are fetched from authorities instead of
            // caches.
            Source::Cache if !self.settings.dir_requests => {
                (self.rng.next_u64() % authorities.len().max(1) as u64) as usize
            }
            Source::Authority(place) => {
                return self.send_out(job, authorities.get(place).and_then(Authority::target));
            }
            Source::Bridge(place) => {
                let bridge = self.settings.bridges.get(place).map(BridgeIdentity::target);
                return self.send_out(job, bridge);
            }
            Source::Cache => return self.send_out(job, None),
        };
        let Some(authority) = authorities.get(place) else {
            return self.done(&job, None, false, Err(Failure::Unreachable));
        };
        let name = authority.name.clone();
        let outcome = ask(authority.directory, &get(&job.path), job.limit);
        self.done(&job, Some(name), false, outcome);
    }

    fn send_out(&mut self, job: Job, to: Option<Target>) {
        let (number, request, limit) = (job.number, get(&job.path), job.limit);
        self.out.insert(number, job);
        self.news_sender.send(News::DirRequest(DirRequest { number, to, request, limit }));
    }

    fn reported(&mut self, report: Report) {
        let Some(job) = self.out.remove(&report.number) else { return };
        let named = match job.source {
            Source::Authority(place) => {
                self.settings.authorities.get(place).map(|one| one.name.clone())
            }
            Source::Bridge(place) => self.bridge(place),
            Source::Plain(_) | Source::Cache => report.from,
        };
        let outcome = report.outcome.and_then(|reader| reader.finish().map_err(Failure::Http));
        self.done(&job, named, true, outcome);
    }

    /// Returns the first address of the bridge with the index `place`, which serves as the
    /// bridge's name in messages; `None` if there is no such bridge.
    fn bridge(&self, place: usize) -> Option<String> {
        let addresses = self.settings.bridges.get(place).map(|bridge| &bridge.addresses);
        addresses.and_then(|addresses| addresses.first()).map(ToString::to_string)
    }

    fn called(&self, want: &JobDocument) -> String {
        let bridge = match want {
            JobDocument::Bridge(place) => self.bridge(*place),
            _ => None,
        };
        bridge.map_or_else(|| want.name().to_owned(), |at| format!("descriptor of bridge {at}"))
    }

    fn done(
        &mut self,
        job: &Job,
        from: Option<String>,
        by_circuit: bool,
        outcome: Result<Response, Failure>,
    ) {
        let at = self.moment();
        let events = self.directory.done(job.number, outcome, at, &mut self.rng);
        let is_good = !events.iter().any(|event| matches!(event, Event::Failed(..)));
        let what = job.want.name();
        self.news_sender.send(News::Fetched(FetchReport { what, from, by_circuit, is_good }));
        self.take(events);
    }

    /// Processes the results of the protocol core for directory documents ([`Directory`]): stores,
    /// serves and reports documents.
    fn take(&mut self, events: Vec<Event>) {
        let (mut known, mut ready) = (false, false);
        for event in events {
            match event {
                Event::Consensus(text, signers) => {
                    self.keep(CONSENSUS, &text);
                    // The cache compresses a consensus in all encodings, and computes diffs from
                    // older consensuses. Without directory clients, this work would be useless.
                    if self.settings.cache {
                        self.cache_mut().consensus(&text, signers);
                    }
                    self.look_for_us();
                    known = true;
                }
                Event::Certificates(text) => self.keep(CERTS, &text),
                Event::Microdesc(digest, text) => {
                    if self.settings.cache {
                        self.cache_mut().microdesc_text(digest, &text);
                    }
                    self.microdescs.put(digest, text);
                    known = true;
                }
                Event::Late(seconds, is_used) => self.report_late(seconds, is_used),
                Event::Ready => ready = true,
                Event::Damaged(kept, why) => self.set_aside(kept, &why),
                Event::Bridge(place, bridge) => self.news_sender.send(News::Bridge(place, bridge)),
                Event::Failed(want, _, failure) => self.complain(&self.called(&want), &failure),
            }
        }
        self.keep_microdescs(false);
        if known {
            self.hand_out();
        }
        if ready {
            self.news_sender.send(News::Ready);
        }
    }

    /// If the consensus does not list our relay, makes the publication of our descriptor due at
    /// authorities that may have lost it.
    fn look_for_us(&mut self) {
        let (Some(keys), Some(network)) = (&self.settings.keys, self.directory.network()) else {
            return;
        };
        let (consensus, us) = (network.consensus(), keys.rsa_identity());
        if consensus.relays.binary_search_by_key(&us, |relay| relay.rsa_identity).is_err() {
            let interval = consensus.fresh_until.saturating_sub(consensus.valid_after);
            let missed =
                |due: &mut PublishSchedule| due.missed(unix(), consensus.valid_after, interval);
            self.due.iter_mut().for_each(missed);
        }
    }

    fn complain(&mut self, what: &str, failure: &Failure) {
        self.news_sender
            .send(News::Trouble(format!("could not fetch {what}: {failure}; trying again")));
    }

    fn report_late(&mut self, seconds: u64, is_used: bool) {
        let ago = ago(seconds);
        let so = match is_used {
            true => "it stays in use until a day after it expired, because there is no newer one",
            false => "a newer one is requested from its relays",
        };
        self.news_sender.send(News::Trouble(format!("the consensus expired {ago} ago: {so}")));
    }

    fn hand_out(&mut self) {
        if let Some(network) = self.directory.network() {
            let network = Arc::new(network.clone());
            self.news_sender.send(News::Network(network));
        }
        if self.settings.cache {
            let certs = self.directory.certs().to_vec();
            self.cache_mut().certs(certs);
            self.served.show(Arc::clone(&self.cache));
            self.served.wake();
        }
    }

    /// Writes to disk all microdescriptors that the consensus names, if the write is due or the
    /// thread ends (`is_end`). Drops all other microdescriptors.
    fn keep_microdescs(&mut self, is_end: bool) {
        let Some(network) = self.directory.network() else { return };
        let is_complete = is_end || network.missing().next().is_none();
        let now = self.millis();
        if !self.microdescs.are_due(now, is_complete) {
            return;
        }
        let named: BTreeSet<[u8; 32]> =
            network.consensus().relays.iter().map(|relay| relay.microdesc).collect();
        let all = self.microdescs.write(now, &named);
        if self.settings.cache {
            self.cache_mut().keep_microdescs(&named);
        }
        self.keep(MICRODESCS, &all);
    }

    /// Writes a document to the file `name`. Never writes an empty file, because it would count as
    /// damaged.
    fn keep(&mut self, name: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        if let Err(error) = replace(&self.settings.data.join(name), text.as_bytes()) {
            // After a failed write, the copy in memory is used until the next start.
            self.news_sender.send(News::Trouble(format!(
                "{error}; the program continues, but this file is not saved to disk"
            )));
        }
    }

    /// Publishes the relay's descriptor to every authority for which that is due.
    fn publish(&mut self) {
        let (Some(description), Some(keys)) = (&self.description, &self.settings.keys) else {
            return;
        };
        let due: Vec<usize> = (0..self.due.len()).filter(|&n| self.due[n].is_due(unix())).collect();
        if due.is_empty() {
            return;
        }
        let RelayDocuments { server, extra } = match description.publish(keys, unix()) {
            Ok(published) => published,
            Err(error) => {
                self.due.iter_mut().for_each(|due| due.put_off(unix()));
                let message = format!(
                    "cannot write this relay's server descriptor (what it publishes about itself): \
                     {error}"
                );
                return self.news_sender.send(News::Trouble(message));
            }
        };
        let (id, digests) =
            (keys.rsa_identity(), [&server, &extra].map(|text| signed_digest(text)));
        self.cache_mut().relay(id, (&server, digests[0]), Some((&extra, digests[1])));
        self.served.show(Arc::clone(&self.cache));
        // The relay's own port serves the descriptor even before there is a consensus.
        self.served.wake();
        if self.settings.unpublished {
            return self.due.iter_mut().for_each(|due| due.taken(unix()));
        }
        let text = server + &extra;
        due.into_iter().for_each(|place| self.publish_to(place, &text));
    }

    fn publish_to(&mut self, place: usize, text: &str) {
        let authority = &self.settings.authorities[place];
        let host = authority.directory.to_string();
        let answer = ask(authority.directory, &post("/tor/", &host, text.as_bytes()), VERDICT);
        let name = authority.name.clone();
        let trouble = match answer {
            Ok(response) if response.status == 200 => {
                self.due[place].taken(unix());
                return self.news_sender.send(News::Published(name));
            }
            Ok(response) => format!("{} {}", response.status, response.reason),
            Err(failure) => failure.to_string(),
        };
        if self.due[place].refused(unix()) {
            let text = format!("authority {name} rejected this relay's descriptor: {trouble}");
            self.news_sender.send(News::Trouble(text));
        }
    }
}

/// Converts the authorities of `settings` to the type of [`Directory`].
fn identities(settings: &Settings) -> Vec<AuthorityIdentity> {
    let identity = |one: &Authority| AuthorityIdentity {
        v3: one.v3,
        by_circuit: settings.dir_requests && one.orport.is_some(),
    };
    settings.authorities.iter().map(identity).collect()
}

/// Formats a duration of `seconds` in a suitable unit.
fn ago(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Makes one request to the directory port at `server`, and returns the response. Its body may
/// have at most `limit` bytes.
fn ask(server: SocketAddr, request: &[u8], limit: usize) -> Result<Response, Failure> {
    let socket = TcpStream::connect_timeout(&server, CONNECT);
    let mut socket = socket.map_err(|_| Failure::Unreachable)?;
    let bytes = converse(&mut socket, request, limit).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Failure::Silent,
        _ => Failure::Unreachable,
    });
    bytes?.finish().map_err(Failure::Http)
}

fn converse(socket: &mut TcpStream, request: &[u8], limit: usize) -> io::Result<ResponseReader> {
    socket.set_read_timeout(Some(SILENCE))?;
    socket.set_write_timeout(Some(SILENCE))?;
    socket.write_all(request)?;
    let mut reader = ResponseReader::new(limit);
    let mut buffer = vec![0; 64 << 10];
    loop {
        match socket.read(&mut buffer)? {
            0 => return Ok(reader),
            count => reader.push(&buffer[..count]).map_err(io::Error::other)?,
        }
    }
}

/// Returns the seconds since 1970 according to the machine's clock.
#[must_use]
pub fn unix() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn who_answers_nobody_packs_no_consensus() {
        let folder = tempfile::tempdir().unwrap();
        for cache in [true, false] {
            let settings = Settings {
                authorities: Vec::new(),
                data: folder.path().to_owned(),
                share_subnets: false,
                keys: None,
                cache,
                dir_requests: false,
                bridges: Vec::new(),
                unpublished: false,
            };
            let (_office, news_sender, _orders) = DirClient::channels().unwrap();
            let mut dir_thread =
                DirThread::new(settings, anabranch_os::entropy::generator().unwrap(), news_sender);
            dir_thread.take(vec![Event::Consensus("a consensus\n".into(), Vec::new())]);
            assert_eq!(dir_thread.cache.is_empty(), !cache);
        }
    }

    #[test]
    fn damaged_documents_of_an_earlier_run_get_another_name_and_are_reported() {
        let names = [CERTS, CONSENSUS, MICRODESCS, copies::CONSENSUS];
        for text in ["nonsense\n", ""] {
            let folder = tempfile::tempdir().unwrap();
            names.iter().for_each(|name| std::fs::write(folder.path().join(name), text).unwrap());
            let settings = Settings {
                authorities: Vec::new(),
                data: folder.path().to_owned(),
                share_subnets: false,
                keys: None,
                cache: true,
                dir_requests: false,
                bridges: Vec::new(),
                unpublished: false,
            };
            let (mut dir_client, news_sender, _orders) = DirClient::channels().unwrap();
            let rng = anabranch_os::entropy::generator().unwrap();
            let mut dir_thread = DirThread::new(settings, rng, news_sender);
            dir_thread.restore();
            dir_thread.restore_copies();
            let troubles: Vec<String> = dir_client
                .take()
                .into_iter()
                .filter_map(|news| match news {
                    News::Trouble(trouble) => Some(trouble),
                    _ => None,
                })
                .collect();
            assert_eq!(troubles.len(), names.len(), "{troubles:?}");
            for name in names {
                let path = folder.path().join(name);
                let aside = folder.path().join(format!("{name}.damaged"));
                assert_eq!(std::fs::read_to_string(&aside).unwrap(), text, "{name}");
                assert!(!path.exists(), "{name}");
                let (path, aside) = (path.display(), aside.display());
                let is_told = |trouble: &String| {
                    trouble.starts_with(&format!("{path} was damaged ("))
                        && trouble.ends_with(&format!(") and is now called {aside}: {AGAIN}"))
                };
                assert!(troubles.iter().any(is_told), "{troubles:?}");
            }
        }
    }

    /// Returns the settings of a client with these bridges and without authorities.
    fn with_bridges(data: &Path, bridges: Vec<BridgeIdentity>) -> Settings {
        Settings {
            authorities: Vec::new(),
            data: data.to_owned(),
            share_subnets: false,
            keys: None,
            cache: false,
            dir_requests: true,
            bridges,
            unpublished: false,
        }
    }

    #[test]
    fn each_message_about_a_bridges_descriptor_names_the_bridge() {
        let folder = tempfile::tempdir().unwrap();
        let bridge = |address: &str| {
            let addresses = vec![address.parse().unwrap(), "192.0.2.9:9".parse().unwrap()];
            BridgeIdentity { addresses, rsa: None, ed25519: None }
        };
        let bridges = vec![bridge("192.0.2.1:443"), bridge("[2001:db8::2]:443")];
        let settings = with_bridges(folder.path(), bridges);
        let (mut dir_client, news_sender, _orders) = DirClient::channels().unwrap();
        let rng = anabranch_os::entropy::generator().unwrap();
        let mut dir_thread = DirThread::new(settings, rng, news_sender);
        for (place, named) in [(0, "192.0.2.1:443"), (1, "[2001:db8::2]:443")] {
            dir_thread.take(vec![Event::Failed(
                JobDocument::Bridge(place),
                Source::Bridge(place),
                Failure::Silent,
            )]);
            let News::Trouble(report) = dir_client.take().remove(0) else { panic!("no message") };
            let start = format!("could not fetch descriptor of bridge {named}: ");
            assert!(report.starts_with(&start), "{report}");
        }
    }

    #[test]
    fn a_bridge_that_is_being_asked_is_waited_for_though_other_authorities_are_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let addresses = vec!["192.0.2.1:443".parse().unwrap()];
        let bridges = vec![BridgeIdentity { addresses, rsa: None, ed25519: None }];
        let settings = with_bridges(folder.path(), bridges);
        let (mut dir_client, news_sender, _orders) = DirClient::channels().unwrap();
        let mut dir_thread =
            DirThread::new(settings, anabranch_os::entropy::generator().unwrap(), news_sender);
        let job = dir_thread.directory.poll(dir_thread.moment(), &mut dir_thread.rng).unwrap();
        dir_thread.carry(job);
        let asked = dir_client.take();
        let [News::DirRequest(asked)] = &asked[..] else { panic!("{asked:?}") };
        dir_thread.trust(Vec::new(), false);
        let outcome = Err(Failure::Unreachable);
        dir_thread.reported(Report { number: asked.number, from: None, outcome });
        assert!(dir_client.take().iter().any(|news| matches!(news, News::Fetched(_))));
        assert!(dir_thread.directory.next_timeout(dir_thread.moment()) > dir_thread.clock.now());
    }
}
