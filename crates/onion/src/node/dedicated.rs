//! Links that are opened for one circuit each (a TCP connection for each circuit: AlSabah and
//! Goldberg, "PCTCP", CCS 2013, whose connections are a relay's alone here: the neighbour sees
//! usual links). Such a link closes when no circuit is on it any more: its own, and those of which
//! the neighbour had the idea to send them by it.

use std::time::Duration;

use anabranch_multipath::Time;

use super::{Node, NodeRole, Timer};
use crate::channels::LinkId;
use crate::wire::extend::Target;

/// How long a link stays without a circuit: what the neighbour has sent meanwhile is not lost.
pub(super) const REST: Duration = Duration::from_secs(1);

/// How a circuit comes to the next relay.
pub(crate) enum Way {
    /// By a link that is there: there are as many as may be.
    Shared(LinkId),
    /// By a link that is being opened.
    Dialled,
}

impl<R: NodeRole> Node<R> {
    /// A circuit is to go on by a link of its own, or by the one with the fewest circuits where
    /// there are `most` links to a relay.
    pub(crate) fn dial_dedicated(&mut self, target: &Target, circuit: u32, most: usize) -> Way {
        let open = self.channels.dedicated(target).count();
        let room = most.saturating_sub(open);
        let fewest = self.channels.dedicated(target).min_by_key(|(_, circuits)| *circuits);
        match fewest.filter(|_| self.dialling.dials(target) >= room) {
            Some((link, _)) => Way::Shared(link),
            None => {
                self.dial_up_to(target.clone(), circuit, room);
                Way::Dialled
            }
        }
    }

    /// Lets a link that was opened for a circuit go, once none is on it.
    pub(super) fn let_go(&mut self, now: Time, id: LinkId) {
        let Some(link) = self.channels.link(id) else { return };
        let until = now + REST;
        let is_left = link.is_dedicated && link.channel.is_open() && link.circuits() == 0;
        if !is_left || link.quiet.resting.is_some_and(|resting| resting <= until) {
            return;
        }
        if let Some(later) = link.quiet.resting.take() {
            self.timers.remove(&(later, Timer::Rest(id)));
        }
        self.rest_until(id, until);
    }
}
