//! Timers for sending padding and for closing unused links.

use anabranch_multipath::Time;

use super::{Node, NodeRole, Timer};
use crate::channels::LinkId;
use crate::padding::{PaddingParams, Rules, Silence, Usage};

impl<R: NodeRole> Node<R> {
    /// Sets the consensus parameters of padding.
    pub fn set_padding(&mut self, params: PaddingParams) {
        self.set_rules(Rules { params, ..self.rules });
    }

    /// Sets the rules for padding, and sets timers on links that need padding according to the new
    /// rules.
    pub(crate) fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
        let links: Vec<LinkId> = self.channels.iter().map(|(id, _)| id).collect();
        links.into_iter().for_each(|id| self.watch(id));
    }

    /// Records that the link `id` was used for `usage`, unless a higher [`Usage`] is already
    /// recorded.
    pub(crate) fn mark_link(&mut self, id: LinkId, usage: Usage) {
        if let Some(link) = self.channels.link(id).filter(|link| link.quiet.usage < usage) {
            link.quiet.usage = usage;
            self.watch(id);
        }
    }

    /// Returns the idle time after which the link `id` sends a PADDING cell; `None` if the link is
    /// not padded.
    pub(crate) fn silence(&mut self, id: LinkId) -> Option<Silence> {
        let link = self.channels.link(id).filter(|link| link.channel.has_padding())?;
        self.rules.silence(link.seen())
    }

    /// Sets the padding timer of the link `id` if the link needs padding and the timer is not set.
    pub(crate) fn watch(&mut self, id: LinkId) {
        let Some(silence) = self.silence(id) else { return };
        let Some(link) = self.channels.link(id) else { return };
        if link.quiet.watched.is_none() {
            let first = link.quiet.first_look(silence);
            link.quiet.watched = Some(first);
            self.timers.insert((first, Timer::Padding(id)));
        }
    }

    /// Sends a PADDING cell on the link `id` if the link has been idle for long enough.
    pub(crate) fn look(&mut self, now: Time, id: LinkId) {
        let silence = self.silence(id);
        let Some(link) = self.channels.link(id) else { return };
        let Some(silence) = silence else {
            link.quiet.watched = None;
            return;
        };
        let (due, next) = link.quiet.look(now, silence, &mut *self.rng);
        link.quiet.watched = Some(next);
        self.timers.insert((next, Timer::Padding(id)));
        if due && self.channels.pad(id) {
            self.padding[1] += 1;
        }
    }

    /// Returns true if the link `id` can be closed at `now`, because it has been without circuits
    /// for long enough.
    pub(crate) fn is_spare(&mut self, now: Time, id: LinkId) -> bool {
        let circuits = self.channels.circuits_with_quic(id);
        let Some(link) = self.channels.link(id) else { return false };
        let until = match circuits {
            0 => link.quiet.idle_deadline(),
            _ if link.is_dedicated => {
                // The timer starts again when the link's last circuit closes.
                link.quiet.idle_check = None;
                return false;
            }
            _ => now + link.quiet.idle_timeout,
        };
        if until > now {
            self.check_idle_at(id, until);
        }
        until <= now
    }

    /// Sets a timer for `until`, at which the node checks whether it can close the link `id`.
    pub(crate) fn check_idle_at(&mut self, id: LinkId, until: Time) {
        let Some(link) = self.channels.link(id) else { return };
        link.quiet.idle_check = Some(until);
        self.timers.insert((until, Timer::IdleCheck(id)));
    }

    /// Removes the timers of a closing link. Without this, timers of short-lived links would stay
    /// in memory for an hour.
    pub(crate) fn disarm(&mut self, id: LinkId) {
        let Some(link) = self.channels.link(id) else { return };
        let watched = link.quiet.watched.take().map(|time| (time, Timer::Padding(id)));
        let idle_check = link.quiet.idle_check.take().map(|time| (time, Timer::IdleCheck(id)));
        let quic_offer = link.quic_offer.take().and_then(|quic_offer| quic_offer.again);
        let quic_offer = quic_offer.map(|time| (time, Timer::QuicRetry(id)));
        for timer in watched.into_iter().chain(idle_check).chain(quic_offer) {
            self.timers.remove(&timer);
        }
    }
}
