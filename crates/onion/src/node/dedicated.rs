//! Dedicated links: each is opened for one circuit (a TCP connection for each circuit: AlSabah and
//! Goldberg, "PCTCP", CCS 2013). The neighbour sees ordinary links and need not support anything.
//! A dedicated link closes when its circuit is closed and the neighbour has no circuits on it.

use std::time::Duration;

use anabranch_multipath::Time;

use super::{Node, NodeRole, Timer};
use crate::channels::LinkId;
use crate::wire::extend::Target;

/// Time for which a dedicated link stays open without circuits, so that cells in transit are not
/// lost.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// The link on which a circuit continues to its next relay.
pub(crate) enum NextLink {
    /// An existing link that other circuits use too, because the maximum number of links to the
    /// relay is open.
    Shared(LinkId),
    /// A new link, which is being opened.
    Dialled,
}

impl<R: NodeRole> Node<R> {
    /// Requests a separate link for `circuit` to the relay `target`. If there are already `most`
    /// links to this relay, returns the link with the fewest circuits instead.
    pub(crate) fn dial_dedicated(
        &mut self,
        target: &Target,
        circuit: u32,
        most: usize,
    ) -> NextLink {
        let open = self.channels.dedicated(target).count();
        let room = most.saturating_sub(open);
        let fewest = self.channels.dedicated(target).min_by_key(|(_, circuits)| *circuits);
        match fewest.filter(|_| self.dialling.dials(target) >= room) {
            Some((link, _)) => NextLink::Shared(link),
            None => {
                self.dial_up_to(target.clone(), circuit, room);
                NextLink::Dialled
            }
        }
    }

    /// Schedules the closing of the link `id` after [`IDLE_TIMEOUT`], if the link was opened for
    /// one circuit and has no circuits any more.
    pub(super) fn let_go(&mut self, now: Time, id: LinkId) {
        let Some(link) = self.channels.link(id) else { return };
        let until = now + IDLE_TIMEOUT;
        let is_left = link.is_dedicated && link.channel.is_open() && link.circuits() == 0;
        if !is_left || link.quiet.idle_check.is_some_and(|idle_check| idle_check <= until) {
            return;
        }
        if let Some(later) = link.quiet.idle_check.take() {
            self.timers.remove(&(later, Timer::IdleCheck(id)));
        }
        self.check_idle_at(id, until);
    }
}
