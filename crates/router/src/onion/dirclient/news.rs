//! What the directory client's thread tells its owner.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use anabranch_onion::directory::network::Network;
use anabranch_onion::wire::extend::Target;
use anabranch_onion::wire::netdoc::Bridge;

use crate::onion::answers::Answers;

/// A directory request that is to go by a circuit of one hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirRequest {
    /// Its number, for [`DirClient::report`](super::DirClient::report).
    pub number: u64,
    /// The authority or bridge to ask; `None` for any cache.
    pub to: Option<Target>,
    /// The bytes of the request.
    pub request: Vec<u8>,
    /// The most bytes that an honest answer's body has.
    pub limit: usize,
}

/// What came of a directory request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// What it was for.
    pub what: &'static str,
    /// The name of the relay or authority that was asked, if anybody was.
    pub from: Option<String>,
    /// Whether it went by a circuit, not to a directory port.
    pub by_circuit: bool,
    /// Whether what came was of use.
    pub is_good: bool,
}

/// What happened there.
#[derive(Clone, Debug)]
pub enum News {
    /// What is known of the network has changed.
    Network(Arc<Network>),
    /// What a directory cache can answer has changed.
    Cache(Arc<dyn Answers>),
    /// The bridge at this place of the list is known, or known anew.
    Bridge(usize, Box<Bridge>),
    /// Circuits can be built.
    Ready,
    /// An authority took our descriptor.
    Published(String),
    /// A request is to be made by a circuit.
    DirRequest(DirRequest),
    /// A request was made.
    Fetched(Fetched),
    /// A line for the log: something did not work, and will be tried again.
    Trouble(String),
}

/// Where news are left.
#[derive(Clone)]
pub(in crate::onion) struct NewsSender {
    pub(super) news: Sender<News>,
    pub(super) bell: Arc<UnixStream>,
}

impl NewsSender {
    pub(in crate::onion) fn tell(&mut self, news: News) {
        let _ = self.news.send(news);
        // A full pipe has been rung already.
        let _ = (&*self.bell).write(&[1]);
    }
}
