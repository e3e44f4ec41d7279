//! Messages from the directory client's thread to the thread that owns the client.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use anabranch_onion::directory::network::Network;
use anabranch_onion::wire::extend::Target;
use anabranch_onion::wire::netdoc::Bridge;

use crate::onion::answers::Answers;

/// A directory request that the owner should make over a one-hop circuit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirRequest {
    /// Number of the request, for [`DirClient::report`](super::DirClient::report).
    pub number: u64,
    /// The authority or bridge to ask; `None` for a cache of the owner's choice.
    pub to: Option<Target>,
    /// Bytes of the request to send.
    pub request: Vec<u8>,
    /// Maximum size of the answer's body in bytes.
    pub limit: usize,
}

/// Outcome of a directory request, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Kind of the requested document.
    pub what: &'static str,
    /// Name of the relay or authority that was asked, if it is known.
    pub from: Option<String>,
    /// Whether the request used a circuit. If not, it used a directory port.
    pub by_circuit: bool,
    /// Whether the answer was usable.
    pub is_good: bool,
}

/// A message of the directory client.
#[derive(Clone, Debug)]
pub enum News {
    /// The view of the network has changed: consensus or microdescriptors.
    Network(Arc<Network>),
    /// The documents of the directory cache have changed.
    Cache(Arc<dyn Answers>),
    /// The descriptor of a bridge is known or has changed. The fields are the bridge's index in
    /// the list of bridges, and its new state.
    Bridge(usize, Box<Bridge>),
    /// Enough is known to build circuits.
    Ready,
    /// The authority with this name accepted our descriptor.
    Published(String),
    /// The owner should make this request over a circuit.
    DirRequest(DirRequest),
    /// A request has ended.
    Fetched(Fetched),
    /// A message for the log: a failure that will be retried.
    Trouble(String),
}

/// Sending end of the queue of messages.
#[derive(Clone)]
pub(in crate::onion) struct NewsSender {
    pub(super) news: Sender<News>,
    pub(super) bell: Arc<UnixStream>,
}

impl NewsSender {
    pub(in crate::onion) fn tell(&mut self, news: News) {
        let _ = self.news.send(news);
        // If the pipe is full, the owner has a wake-up pending already.
        let _ = (&*self.bell).write(&[1]);
    }
}
