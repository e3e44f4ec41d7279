//! Messages from the directory client's thread to its owner.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use anabranch_onion::directory::network::Network;
use anabranch_onion::wire::extend::Target;
use anabranch_onion::wire::netdoc::Bridge;

use crate::onion::answers::Answers;

/// A directory request to be made over a one-hop circuit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirRequest {
    /// Number, for [`DirClient::report`](super::DirClient::report).
    pub number: u64,
    /// The authority or bridge to ask; `None` for any cache.
    pub to: Option<Target>,
    /// The request as sent.
    pub request: Vec<u8>,
    /// Maximum size of an honest answer's body, in bytes.
    pub limit: usize,
}

/// Result of a directory request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The kind of document.
    pub what: &'static str,
    /// Name of the relay or authority that was asked, if any.
    pub from: Option<String>,
    /// It used a circuit, not a directory port.
    pub by_circuit: bool,
    /// The answer was usable.
    pub is_good: bool,
}

/// A message of the directory client.
#[derive(Clone, Debug)]
pub enum News {
    /// The known network has changed.
    Network(Arc<Network>),
    /// The documents of the directory cache have changed.
    Cache(Arc<dyn Answers>),
    /// The descriptor of the bridge at this index of the list is known or has changed.
    Bridge(usize, Box<Bridge>),
    /// Enough is known to build circuits.
    Ready,
    /// The named authority accepted our descriptor.
    Published(String),
    /// A request is to be made over a circuit.
    DirRequest(DirRequest),
    /// A request has ended.
    Fetched(Fetched),
    /// A message for the log: a failure that will be retried.
    Trouble(String),
}

/// Sending end of the messages.
#[derive(Clone)]
pub(in crate::onion) struct NewsSender {
    pub(super) news: Sender<News>,
    pub(super) bell: Arc<UnixStream>,
}

impl NewsSender {
    pub(in crate::onion) fn tell(&mut self, news: News) {
        let _ = self.news.send(news);
        // If the pipe is full, the owner is going to wake anyway.
        let _ = (&*self.bell).write(&[1]);
    }
}
