//! Strangers, and the site that answers them.
//!
//! A prober may tell a bridge from its site by what it answers, and by when. So whoever comes has a
//! connection to the site from the first moment, which is told what he says as he says it, and by
//! whose time-outs he is hung up on. A client of ours loses it as soon as it has said who it is; a
//! first request that comes in one piece never reaches the site.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anabranch_multipath::Time;
use anabranch_stego::ConnId;

use super::ServerStation;
use crate::pt::PtEvent;
use crate::pt::wires::WireNews;

/// Bytes that wait for one of two wires before nothing more is read of the other.
const SPLICED: usize = 64 << 10;

/// Wires to the site.
#[derive(Default)]
pub(super) struct Visitors {
    /// Wires of strangers and theirs to the site, each with its other.
    pairs: BTreeMap<u64, u64>,
    /// For those of whom nobody knows yet who they are: their wire to the site.
    early: BTreeMap<u64, Early>,
    /// Whose the wires of `early` are.
    owners: BTreeMap<u64, u64>,
}

struct Early {
    wire: u64,
    /// Bytes of what came that the site was told.
    told: usize,
}

impl Visitors {
    fn take_early(&mut self, owner: u64) -> Option<Early> {
        let early = self.early.remove(&owner)?;
        self.owners.remove(&early.wire);
        Some(early)
    }
}

impl ServerStation {
    /// Somebody has come: the site hears of it. One that cannot be had is told of with a stranger.
    pub(super) fn announce(&mut self, wire: u64) {
        let Some(site) = self.site else { return };
        let Ok(to) = self.wires.dial(&self.poller, site) else { return };
        self.visitors.early.insert(wire, Early { wire: to, told: 0 });
        self.visitors.owners.insert(to, wire);
    }

    /// Somebody has gone, or is one of ours: the site has nothing to do with it.
    pub(super) fn recall(&mut self, wire: u64) {
        if let Some(early) = self.visitors.take_early(wire) {
            self.wires.drop_now(early.wire);
        }
    }

    /// The core has taken what came by a wire: the site is told as much, unless it knows by now
    /// whose it is.
    pub(super) fn pass_on(&mut self, wire: u64) {
        if self.core.is_ours(ConnId(wire)) {
            return self.recall(wire);
        }
        let Some(said) = self.core.said(ConnId(wire)) else { return };
        if let Some(early) = self.visitors.early.get_mut(&wire) {
            self.wires.send(early.wire, &said[early.told..]);
            early.told = said.len();
        }
    }

    /// Who has said his last word, and not who he is, waits for the site's; whether there is one.
    pub(super) fn hand_over_ended(&mut self, now: Time, wire: u64) -> bool {
        if self.site.is_none() {
            return false;
        }
        let Some(said) = self.core.give_up(ConnId(wire)) else { return false };
        self.stranger(now, wire, &said);
        let other = self.visitors.pairs.get(&wire).copied();
        other.into_iter().for_each(|other| self.wires.finish(other));
        other.is_some()
    }

    /// A stranger's connection leads to the site, which is told what he said. Without one nothing
    /// is said to him, and he may stay as long as there is place.
    pub(super) fn stranger(&mut self, now: Time, wire: u64, said: &[u8]) {
        if !said.is_empty() {
            self.events.push(PtEvent::Stranger);
        }
        let Some(site) = self.site else { return };
        match self.way_to(site, wire) {
            Ok(Early { wire: other, told }) => {
                self.wires.send(other, &said[told..]);
                self.visitors.pairs.extend([(wire, other), (other, wire)]);
            }
            Err(error) => {
                let why = format!("cannot reach the site at {site}: {error}");
                self.events.push(PtEvent::Trouble(why));
                self.wires.close(now, wire);
                self.forget(now, wire);
            }
        }
    }

    fn way_to(&mut self, site: SocketAddr, wire: u64) -> std::io::Result<Early> {
        if let Some(early) = self.visitors.take_early(wire) {
            return Ok(early);
        }
        Ok(Early { wire: self.wires.dial(&self.poller, site)?, told: 0 })
    }

    /// Whether a wire is a stranger's, or leads to the site.
    pub(super) fn is_of_visit(&self, wire: u64) -> bool {
        self.is_strangers(wire) || self.visitors.owners.contains_key(&wire)
    }

    /// Whether a wire is a stranger's, or leads to the site for one.
    pub(super) fn is_strangers(&self, wire: u64) -> bool {
        self.visitors.pairs.contains_key(&wire)
    }

    /// A wire goes at once, and with it the one that it leads to.
    pub(super) fn dismiss(&mut self, now: Time, wire: u64) {
        self.wires.drop_now(wire);
        let Some(&other) = self.visitors.pairs.get(&wire) else { return self.forget(now, wire) };
        self.wires.drop_now(other);
        self.part(now, wire, other);
    }

    /// Something came by such a wire.
    pub(super) fn visit(&mut self, now: Time, wire: u64, news: &WireNews) {
        if let Some(&owner) = self.visitors.owners.get(&wire) {
            return self.site_spoke(now, owner, news);
        }
        if let Some(&other) = self.visitors.pairs.get(&wire) {
            self.splice(now, (wire, other), news);
        }
    }

    /// The site has said something, or has ended, before anybody knew whose the connection is: it
    /// is a stranger's. Where the site is not to be had, that tells nothing.
    fn site_spoke(&mut self, now: Time, owner: u64, news: &WireNews) {
        if news.gone {
            self.visitors.take_early(owner);
            return;
        }
        if news.bytes.is_empty() && !news.ended {
            return;
        }
        let Some(said) = self.core.give_up(ConnId(owner)) else { return self.recall(owner) };
        self.stranger(now, owner, &said);
        if let Some(&other) = self.visitors.pairs.get(&owner) {
            self.splice(now, (other, owner), news);
        }
    }

    /// Something came by one of two wires that lead to each other.
    fn splice(&mut self, now: Time, (wire, other): (u64, u64), news: &WireNews) {
        self.wires.send(other, &news.bytes);
        if news.ended {
            self.wires.finish(other);
        }
        if self.wires.waits(other) > SPLICED {
            self.wires.pause(&self.poller, wire, true);
        }
        if let (Some(error), Some(site)) = (&news.unreached, self.site) {
            let why = format!("cannot reach the site at {site}: {error}");
            self.events.push(PtEvent::Trouble(why));
        }
        if news.gone {
            self.wires.close(now, other);
            self.part(now, wire, other);
        }
    }

    /// Two wires lead to each other no more.
    fn part(&mut self, now: Time, wire: u64, other: u64) {
        for one in [wire, other] {
            self.visitors.pairs.remove(&one);
            self.forget(now, one);
        }
    }

    /// What waited for such a wire was sent, or it is gone.
    pub(super) fn visit_moved(&mut self, now: Time, wire: u64, gone: bool) {
        if let Some(&owner) = self.visitors.owners.get(&wire) {
            if gone {
                self.visitors.take_early(owner);
            }
            return;
        }
        let Some(&other) = self.visitors.pairs.get(&wire) else { return };
        if gone {
            self.wires.close(now, other);
            self.part(now, wire, other);
        } else if self.wires.is_over(wire) && self.wires.is_over(other) {
            self.dismiss(now, wire);
        } else {
            self.wires.pause(&self.poller, other, false);
        }
    }
}
