//! Messages from the directory client's thread to the thread of its owner, a client or relay.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use anabranch_onion::directory::network::Network;
use anabranch_onion::wire::extend::Target;
use anabranch_onion::wire::netdoc::Bridge;

use crate::onion::answers::Answers;

/// A directory request that the owner of the directory client (a client or relay) must make over a
/// one-hop circuit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirRequest {
    /// Identifier of the request, to be passed to [`DirClient::report`](super::DirClient::report).
    pub number: u64,
    /// The authority or bridge that must receive the request; `None` for any cache.
    pub to: Option<Target>,
    /// Bytes of the request, as they must be sent.
    pub request: Vec<u8>,
    /// Maximum size of the response's body in bytes.
    pub limit: usize,
}

/// Result of a directory request, for messages to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchReport {
    /// Kind of the requested document.
    pub what: &'static str,
    /// Name of the relay or authority that received the request; `None` if it is unknown.
    pub from: Option<String>,
    /// True if the request was made over a circuit; otherwise it was made to a directory port.
    pub by_circuit: bool,
    /// True if the response was usable.
    pub is_good: bool,
}

/// A message from the directory client's thread to its owner, a client or relay.
#[derive(Clone, Debug)]
pub enum News {
    /// The consensus or the microdescriptors have changed. The field has the relays that they
    /// describe.
    Network(Arc<Network>),
    /// The documents that are served to directory clients have changed. The field answers requests
    /// with the new documents.
    Cache(Arc<dyn Answers>),
    /// The descriptor of a bridge has arrived or has changed. The fields are the bridge's index in
    /// the list of bridges, and its new state.
    Bridge(usize, Box<Bridge>),
    /// Enough relays are known to build circuits.
    Ready,
    /// The authority with this name accepted our relay's descriptor.
    Published(String),
    /// The owner of the directory client (a client or relay) must make this request over a
    /// circuit.
    DirRequest(DirRequest),
    /// A directory request has ended. The field has its result.
    Fetched(FetchReport),
    /// A message for the log about a failure that will be retried.
    Trouble(String),
}

/// Sender of messages to the owner of the directory client (a client or relay). Each message wakes
/// the owner.
#[derive(Clone)]
pub(in crate::onion) struct NewsSender {
    pub(super) news: Sender<News>,
    pub(super) signal: Arc<UnixStream>,
}

impl NewsSender {
    pub(in crate::onion) fn send(&mut self, news: News) {
        let _ = self.news.send(news);
        // If the pipe is full, a wake-up is pending already.
        let _ = (&*self.signal).write(&[1]);
    }
}
