//! Streams that end at a relay: directory requests, and exit streams with name resolution, exit
//! policy and connections to destinations.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anabranch_multipath::{Core as _, Time};
use anabranch_onion::directory::cache::Cache;
use anabranch_onion::directory::policy::ExitPolicy;
use anabranch_onion::relay::{Input, Relay};
use anabranch_onion::wire::hsdesc;
use anabranch_onion::wire::message::{ADDRESS_TTL, Answer, Begin, EndReason};
use anabranch_onion::{StreamKey, StreamOutput};

use super::answers::{Answering, ReplyBudget, ReplySources};
use super::hsdir::SharedHsDir;
use crate::onion::answers::Answers;
use crate::onion::dns::{Question, Resolver};
use crate::onion::external_socket::{ExternalEvent, ExternalSocket, IoEvent, reason};
use crate::onion::station::{CoreDriver, STREAMS};

/// All streams that end at one of a relay's event loops.
pub(super) struct Exits {
    policy: ExitPolicy,
    externals: BTreeMap<StreamKey, ExternalSocket>,
    /// Streams that wait for the resolver. The value is the request to connect to the resolved
    /// name, or `None` if the client asked only for addresses.
    sought: BTreeMap<StreamKey, Option<Begin>>,
    requests: BTreeMap<StreamKey, Answering>,
    budget: ReplyBudget,
    /// Descriptors of onion services that are stored at this relay.
    hsdir: SharedHsDir,
    names: Resolver,
    /// Source of directory documents for clients.
    cache: Arc<dyn Answers>,
}

impl Exits {
    /// Creates an empty table of streams, and starts the resolver for names.
    ///
    /// # Errors
    /// A system call fails, or the resolver's thread cannot be started.
    pub(super) fn new(policy: ExitPolicy, hsdir: SharedHsDir) -> io::Result<Exits> {
        Ok(Exits {
            policy,
            externals: BTreeMap::new(),
            sought: BTreeMap::new(),
            requests: BTreeMap::new(),
            budget: ReplyBudget::default(),
            hsdir,
            names: Resolver::start()?,
            cache: Arc::new(Cache::default()),
        })
    }

    /// Returns a socket that becomes readable when names are resolved. The caller must then call
    /// [`Exits::take_names`].
    pub(super) fn waker(&self) -> &UnixStream {
        self.names.waker()
    }

    /// Returns the reason why only names in the hosts file can be resolved; `None` if other names
    /// can be resolved, too.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.names.trouble()
    }

    /// Sets the exit policy for new streams.
    pub(super) fn set_policy(&mut self, policy: ExitPolicy) {
        self.policy = policy;
    }

    /// Connects `stream` to the destination in `begin`, if the exit policy allows that.
    pub(super) fn connect(
        &mut self,
        now: Time,
        station: &mut CoreDriver<Relay>,
        stream: StreamKey,
        begin: Begin,
    ) {
        match begin.host.parse::<IpAddr>() {
            Ok(address) => self.go(now, station, stream, &[address], begin.port),
            // The name is resolved even if the policy allows no address, because the refusal
            // includes the address.
            Err(_) => {
                let name = begin.host.clone();
                self.seek(now, station, stream, Some(begin), name);
            }
        }
    }

    /// Starts to resolve `name` for `stream`. `begin` is the stream's request to connect to this
    /// name, or `None` if the client asked only for addresses.
    pub(super) fn seek(
        &mut self,
        now: Time,
        station: &mut CoreDriver<Relay>,
        stream: StreamKey,
        begin: Option<Begin>,
        name: String,
    ) {
        let is_question = begin.is_none();
        if self.names.ask(Question { stream, name }).is_ok() {
            self.sought.insert(stream, begin);
        } else if is_question {
            let answers = vec![(Answer::Later, 0)];
            station.core.handle(now, Input::Resolved { stream, answers });
        } else {
            end(now, station, stream, EndReason::RESOURCES);
        }
    }

    /// Starts a directory request on `stream`. `by_relay` is true if the stream's circuit comes
    /// from another relay, and not directly from a client.
    pub(super) fn serve(
        &mut self,
        now: Time,
        station: &mut CoreDriver<Relay>,
        stream: StreamKey,
        by_relay: bool,
    ) {
        let longest = self.cache.longest().max(hsdesc::LONGEST);
        self.requests.insert(stream, Answering::new(longest, by_relay));
        station.core.handle(now, Input::Connected { stream, reached: None });
    }

    /// Replaces the directory documents that are served, and answers waiting requests with them.
    pub(super) fn set_cache(
        &mut self,
        now: Time,
        station: &mut CoreDriver<Relay>,
        cache: Arc<dyn Answers>,
    ) {
        self.cache = cache;
        let streams: Vec<StreamKey> = self.requests.keys().copied().collect();
        for stream in streams {
            self.service(now, station, stream, IoEvent::Readable);
        }
    }

    /// Processes the answers of the name resolver: connects streams, and answers clients.
    pub(super) fn take_names(&mut self, now: Time, station: &mut CoreDriver<Relay>) {
        for found in self.names.take() {
            let stream = found.stream;
            match self.sought.remove(&stream) {
                None => {}
                Some(None) => {
                    let answers =
                        found.answers.into_iter().map(|answer| (answer, ADDRESS_TTL)).collect();
                    station.core.handle(now, Input::Resolved { stream, answers });
                }
                Some(Some(begin)) => {
                    let addresses: Vec<IpAddr> = found.answers.iter().filter_map(address).collect();
                    let addresses = begin.acceptable(addresses);
                    self.go(now, station, stream, &addresses, begin.port);
                }
            }
        }
    }

    /// Processes an output of the protocol core that concerns a stream.
    pub(super) fn take(
        &mut self,
        now: Time,
        station: &mut CoreDriver<Relay>,
        output: StreamOutput,
    ) {
        match output {
            StreamOutput::Readable { stream } => {
                self.service(now, station, stream, IoEvent::Readable)
            }
            StreamOutput::Room { stream } => self.service(now, station, stream, IoEvent::Room),
            StreamOutput::Ended { stream, reason, .. } => {
                // The reason DESTROY means that the circuit was closed and not the stream: clients
                // end every stream with the reason MISC.
                if let Some(external) = self.externals.remove(&stream)
                    && reason == EndReason::DESTROY
                {
                    external.cut();
                }
                self.forget(stream);
            }
        }
    }

    /// Moves bytes between `stream` and its TCP connection, after the event `what`.
    pub(super) fn service(
        &mut self,
        now: Time,
        station: &mut CoreDriver<Relay>,
        stream: StreamKey,
        what: IoEvent,
    ) {
        if let Some(answering) = self.requests.get_mut(&stream) {
            let sources =
                ReplySources { cache: &*self.cache, hsdir: &self.hsdir, budget: &self.budget };
            if answering.progress(now, &mut station.core, stream, &sources) {
                self.forget(stream);
                end(now, station, stream, EndReason::DONE);
            }
            return;
        }
        let Some(external) = self.externals.get_mut(&stream) else { return };
        match station.service(now, stream.0, external, what) {
            ExternalEvent::Nothing => {}
            ExternalEvent::Connected(address) => {
                let reached = Some((address, ADDRESS_TTL));
                station.core.handle(now, Input::Connected { stream, reached });
            }
            ExternalEvent::Ended(reason) => {
                self.forget(stream);
                end(now, station, stream, reason);
            }
        }
    }

    /// Connects a stream to the first address in `addresses` that the exit policy allows.
    fn go(
        &mut self,
        now: Time,
        station: &mut CoreDriver<Relay>,
        stream: StreamKey,
        addresses: &[IpAddr],
        port: u16,
    ) {
        let allowed = |address: &&IpAddr| self.policy.allows(**address, port);
        let Some(&address) = addresses.iter().find(allowed) else {
            let Some(&first) = addresses.first() else {
                return end(now, station, stream, EndReason::RESOLVE_FAILED);
            };
            let address = (first, ADDRESS_TTL);
            return station.core.handle(now, Input::Refused { stream, address });
        };
        let external =
            ExternalSocket::connect(stream, (address, port).into()).and_then(|external| {
                let token = STREAMS + stream.0;
                station.poller.add_for(external.socket(), token, external.interest())?;
                Ok(external)
            });
        match external {
            Ok(external) => {
                self.externals.insert(stream, external);
            }
            Err(error) => end(now, station, stream, reason(&error)),
        }
    }

    fn forget(&mut self, stream: StreamKey) {
        self.externals.remove(&stream);
        self.sought.remove(&stream);
        self.requests.remove(&stream);
    }
}

fn end(now: Time, station: &mut CoreDriver<Relay>, stream: StreamKey, reason: EndReason) {
    station.core.handle(now, Input::Ended { stream, reason });
}

fn address(answer: &Answer) -> Option<IpAddr> {
    match answer {
        Answer::Address(address) => Some(*address),
        _ => None,
    }
}
