//! The connections of a server: assigns each connection to its link, and passes on the bytes
//! received over it.

use anabranch_multipath::Time;
use rand_core::CryptoRng;

use super::{LinkEntry, LinkId, PATHS, Server, ServerOutput};
use crate::cover::{ConnId, Cover};
use crate::handshake::{ANSWER, HELLO, draw};
use crate::link::{Link, LinkViolation, Opening, Side};
use crate::slot::{Hidden, ServerEnd};
use crate::token::TOKEN;

/// A connection of a server: the cover, and the link that it belongs to, if this is known.
pub(super) struct Conn {
    pub(super) cover: Cover<dyn ServerEnd>,
    pub(super) owner: ConnOwner,
    /// All bytes received in the current exchange (usually a request and its answer), while it is
    /// unknown whether the sender is a client. A stranger's bytes are passed on.
    raw: Vec<u8>,
}

/// The link (client's session) that a connection belongs to.
pub(super) enum ConnOwner {
    /// The link (client's session) is not known yet. The field has the hidden bytes received so
    /// far.
    Unknown(Vec<u8>),
    Joined {
        link: LinkId,
        path: usize,
        skip: usize,
    },
    Stranger,
}

impl Conn {
    pub(super) fn new(slot: Box<dyn ServerEnd>) -> Conn {
        let (cover, owner) = (Cover::new(slot), ConnOwner::Unknown(Vec::new()));
        Conn { cover, owner, raw: Vec::new() }
    }
}

impl<R: CryptoRng> Server<R> {
    /// Returns the bytes received over a connection whose client is not known yet; `None` if the
    /// client is known.
    #[must_use]
    pub fn unrecognised(&self, id: ConnId) -> Option<&[u8]> {
        let connection = self.conns.get(&id)?;
        matches!(connection.owner, ConnOwner::Unknown(_)).then_some(&connection.raw)
    }

    /// Returns whether a client of this server has identified itself over the connection.
    #[must_use]
    pub fn is_ours(&self, id: ConnId) -> bool {
        self.conns
            .get(&id)
            .is_some_and(|connection| matches!(connection.owner, ConnOwner::Joined { .. }))
    }

    /// Treats a connection as a stranger's (from a program without the bridge's key), if its
    /// client is not known yet. Returns the bytes received; `None` if the client is known.
    pub fn treat_as_stranger(&mut self, id: ConnId) -> Option<Vec<u8>> {
        let connection = self.conns.get_mut(&id)?;
        matches!(connection.owner, ConnOwner::Unknown(_)).then(|| {
            connection.owner = ConnOwner::Stranger;
            std::mem::take(&mut connection.raw)
        })
    }

    /// Processes bytes received over a connection.
    pub(super) fn receive(&mut self, now: Time, id: ConnId, bytes: &[u8]) {
        let Some(Conn { mut cover, mut owner, mut raw }) = self.conns.remove(&id) else { return };
        match owner {
            ConnOwner::Stranger => {
                self.conns.insert(id, Conn { cover, owner, raw });
                return;
            }
            ConnOwner::Unknown(_) => raw.extend_from_slice(bytes),
            ConnOwner::Joined { .. } => {}
        }
        let mut broken = false;
        let mut each = |hidden: Hidden<'_>| {
            broken = broken || self.receive_hidden(now, id, &mut owner, hidden).is_err();
        };
        broken |= cover.slot.receive(now, bytes, &mut each).is_err();
        if broken {
            self.leave(now, &owner);
            let raw = match owner {
                ConnOwner::Unknown(_) => std::mem::take(&mut raw),
                _ => Vec::new(),
            };
            self.outputs.push_back(ServerOutput::Stranger(id, raw));
            owner = ConnOwner::Stranger;
        }
        if !matches!(owner, ConnOwner::Unknown(_)) {
            raw = Vec::new();
        }
        self.conns.insert(id, Conn { cover, owner, raw });
    }

    pub(super) fn receive_hidden(
        &mut self,
        now: Time,
        id: ConnId,
        owner: &mut ConnOwner,
        input: Hidden<'_>,
    ) -> Result<(), LinkViolation> {
        match (input, &mut *owner) {
            // The client's half of the exchange is complete, so no token or HELLO will follow.
            (Hidden::End, ConnOwner::Unknown(_)) => Err(LinkViolation::Unidentified),
            (Hidden::End, _) => Ok(()),
            (Hidden::Bytes(bytes), ConnOwner::Unknown(hidden)) => {
                hidden.extend_from_slice(bytes);
                self.recognise(now, id, owner)
            }
            (Hidden::Bytes(bytes), ConnOwner::Joined { .. }) => {
                self.receive_joined(now, owner, bytes)
            }
            (Hidden::Bytes(_), ConnOwner::Stranger) => Ok(()),
        }
    }

    /// Passes hidden bytes that arrived over a connection to the connection's link.
    fn receive_joined(
        &mut self,
        now: Time,
        owner: &mut ConnOwner,
        bytes: &[u8],
    ) -> Result<(), LinkViolation> {
        let ConnOwner::Joined { link, path, skip } = owner else { return Ok(()) };
        let Some(entry) = self.links.get_mut(link) else { return Err(LinkViolation::NoLink) };
        let skipped = (*skip).min(bytes.len());
        *skip -= skipped;
        self.touched.insert(*link);
        if entry.link.receive(now, *path, &bytes[skipped..])? > 0 {
            entry.last_arrival = now;
        }
        Ok(())
    }

    /// Checks whether the first hidden bytes of a connection are a token of a link or the HELLO of
    /// a handshake.
    fn recognise(
        &mut self,
        now: Time,
        id: ConnId,
        owner: &mut ConnOwner,
    ) -> Result<(), LinkViolation> {
        let ConnOwner::Unknown(hidden) = &*owner else { return Ok(()) };
        let Some((token, rest)) = hidden.split_first_chunk::<TOKEN>() else { return Ok(()) };
        if let Some((link, number)) = self.awaited.take(token) {
            let rest = rest.to_vec();
            self.join(now, id, LinkId(link), number, owner)?;
            return self.receive_joined(now, owner, &rest);
        }
        let Some((hello, rest)) = hidden.split_first_chunk::<HELLO>() else { return Ok(()) };
        let (hello, rest) = (*hello, rest.to_vec());
        self.accept(now, id, &hello, owner)?;
        self.receive_joined(now, owner, &rest)
    }

    /// Opens a link (client's session): checks the client's HELLO, which has arrived over a
    /// connection, and answers it.
    fn accept(
        &mut self,
        now: Time,
        id: ConnId,
        hello: &[u8; HELLO],
        owner: &mut ConnOwner,
    ) -> Result<(), LinkViolation> {
        let minute = self.minute(now);
        let accepted_hello = self.replay_cache.read(&self.config.key, minute, hello)?;
        let skip = usize::from(accepted_hello.padding);
        let (profile, schedule) = (self.config.profile, &self.config.schedule);
        let padding = draw(&mut self.rng, profile.family().padding);
        let mut answer = Vec::with_capacity(ANSWER + usize::from(padding));
        let full = self.links.len() - self.finished.len() >= self.config.links;
        (!full).then_some(()).ok_or(LinkViolation::Full)?;
        let own = (self.config.aes, padding);
        let secrets = accepted_hello.answer(own, &mut self.rng, &mut answer)?;
        let rng = &mut self.rng;
        let mut link = Link::new(&secrets, Side::Server, PATHS, profile, schedule, rng);
        link.allow_pauses((profile.family().pauses)(&self.config.covers));
        link.open(now, 0, 0, Opening::Waits, &answer);
        let number = self.next_link;
        self.next_link += 1;
        let mut paths = vec![None; PATHS];
        paths[0] = Some(id);
        let tokens = self.awaited.add(number, &secrets.tokens);
        let timer = Time::MAX;
        let entry =
            LinkEntry { link, tokens, paths, last_arrival: now, done: None, timer, memory: 0 };
        self.links.insert(LinkId(number), entry);
        self.divide();
        self.outputs.push_back(ServerOutput::Opened(LinkId(number)));
        *owner = ConnOwner::Joined { link: LinkId(number), path: 0, skip };
        Ok(())
    }

    /// Adds a connection to the link (client's session) whose token was received over it.
    fn join(
        &mut self,
        now: Time,
        id: ConnId,
        link: LinkId,
        number: u32,
        owner: &mut ConnOwner,
    ) -> Result<(), LinkViolation> {
        let streams = self.config.profile.family().streams;
        let entry = self.links.get_mut(&link).ok_or(LinkViolation::NoLink)?;
        self.awaited.mark_received(&mut entry.tokens, number);
        let free = entry.paths.iter().position(Option::is_none);
        // A client has fewer connections than a link has paths. If no path is free, some
        // connections have failed unnoticed.
        let path = free.or_else(|| entry.link.longest_silent()).ok_or(LinkViolation::NoLink)?;
        if let Some(stale) = entry.paths[path].replace(id) {
            self.conns.remove(&stale);
            self.outputs.push_back(ServerOutput::Close(stale));
        }
        entry.last_arrival = now;
        let opening = if streams { Opening::Answers } else { Opening::Waits };
        entry.link.open(now, path, u64::from(number) + 1, opening, &[]);
        *owner = ConnOwner::Joined { link, path, skip: 0 };
        self.touched.insert(link);
        Ok(())
    }

    fn minute(&self, now: Time) -> u32 {
        let seconds = self.config.wall + now.since(Time::ZERO).as_secs();
        u32::try_from(seconds / 60).unwrap_or(u32::MAX)
    }

    /// Removes a closed connection.
    pub(super) fn gone(&mut self, now: Time, id: ConnId) {
        let Some(connection) = self.conns.remove(&id) else { return };
        self.leave(now, &connection.owner);
    }

    /// Removes a connection from the link that it belongs to. The link sends the connection's
    /// unacknowledged data again.
    fn leave(&mut self, now: Time, owner: &ConnOwner) {
        let ConnOwner::Joined { link, path, .. } = owner else { return };
        let Some(entry) = self.links.get_mut(link) else { return };
        entry.paths[*path] = None;
        entry.link.lost(now, *path);
        self.touched.insert(*link);
    }
}
