//! Flow control of one leg (one of the parallel circuits of a set): a window for sent cells, and
//! acknowledgements of received cells.
//!
//! Streams belong to the leg's [`Set`](crate::set::Set), not to the leg.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_multipath::{PathView, Time};

use crate::congestion::{self, Control, Outlet, Params};
use crate::crypto::Tag;
use crate::event::CircuitFault;
use crate::handshake::extension::AgreedFeatures;
use crate::wire::message::Sendme;

/// Initial window, in cells, of a parallel circuit (leg) that carries another circuit's cells to
/// or from a middle relay. The value equals the window of a circuit without congestion control.
const WIDE: u64 = 1_000;

/// Flow control between the two ends of one circuit: window and acknowledgements.
pub struct Leg {
    control: Box<dyn Control>,
    /// Tags of the sent cells that the peer must acknowledge, oldest first (proposal 289), and the
    /// time at which each cell was sent.
    owed: VecDeque<(Tag, Time)>,
    /// Number of DATA cells received since the last acknowledgement.
    unacknowledged: u64,
    /// Number of DATA cells received, and number sent.
    transferred: [u64; 2],
    /// Number of acknowledged cells that are not yet applied to the window. They belong to the
    /// trunk: the circuit that continues where the set's legs join, and whose cells this leg
    /// carries. The number is always smaller than the number of cells that one SENDME
    /// acknowledges.
    unsettled: u64,
    /// True if SENDMEs without a tag are accepted (`sendme_accept_min_version` is 0).
    takes_bare: bool,
}

impl Leg {
    /// Returns the flow control of a new circuit.
    pub(crate) fn new(agreed: AgreedFeatures, params: &Params) -> Leg {
        let control = congestion::control(agreed.sendme_inc, params);
        let takes_bare = params.sendme_accept_min == 0;
        let (owed, unacknowledged, transferred, unsettled) = (VecDeque::new(), 0, [0; 2], 0);
        Leg { control, owed, unacknowledged, transferred, unsettled, takes_bare }
    }

    /// Returns true if the window has room for a DATA cell.
    pub(crate) fn has_room(&self) -> bool {
        self.control.room() > 0
    }

    /// Returns the state of the leg (parallel circuit) for a scheduler.
    pub(crate) fn view(&self) -> PathView {
        self.control.view()
    }

    /// Returns true if many cells are in flight: at least the number that one SENDME acknowledges.
    /// If such a leg (parallel circuit) is lost, C tor gives up the whole set of circuits.
    pub(crate) fn has_unacknowledged(&self) -> bool {
        self.control.view().leg.inflight >= self.control.sendme_inc()
    }

    /// Returns the present window in cells.
    pub(crate) fn window(&self) -> u64 {
        self.control.window()
    }

    /// Returns the number of DATA cells received, and the number sent.
    pub(crate) fn transferred(&self) -> [u64; 2] {
        self.transferred
    }

    /// Counts a sent DATA cell with the tag `tag`.
    pub(crate) fn sent(&mut self, now: Time, tag: Tag) {
        if self.control.is_marked() {
            self.owed.push_back((tag, now));
        }
        self.transferred[1] += 1;
        self.control.sent();
    }

    /// Counts a received DATA cell with the tag `tag`. If a SENDME is due, returns the tag to send
    /// in it, otherwise `None`.
    pub(crate) fn received(&mut self, tag: Tag) -> Option<Tag> {
        self.transferred[0] += 1;
        self.unacknowledged += 1;
        if self.unacknowledged < self.control.sendme_inc() {
            return None;
        }
        self.unacknowledged = 0;
        Some(tag)
    }

    /// Makes the leg carry cells of another circuit (the trunk, which continues where the set's
    /// legs join) from now on, instead of its own DATA cells. The leg's initial window is large,
    /// because the trunk's window already limits the cells in flight. A small window would look
    /// like congestion to the trunk.
    pub(crate) fn pass_cells(&mut self, params: &Params) {
        let params = Params { cwnd_init: WIDE, ..params.clone() };
        let sendme_inc = u8::try_from(self.control.sendme_inc()).ok();
        self.control = congestion::control(sendme_inc, &params);
    }

    /// Counts a sent cell of the trunk (the circuit that continues where the set's legs join). The
    /// receiver acknowledges it with a RECEIVED message.
    pub(crate) fn passed(&mut self) {
        self.transferred[1] += 1;
        self.control.sent();
    }

    /// Counts a received cell of the trunk (the circuit that continues where the set's legs join).
    pub(crate) fn counted(&mut self) {
        self.transferred[0] += 1;
    }

    /// Handles a RECEIVED message, which acknowledges `cells` cells of the trunk (the circuit that
    /// continues where the set's legs join). The window changes as if SENDMEs had acknowledged
    /// these cells. If `rtt` is `None` (no useful round-trip time is known), only removes the
    /// cells from those in flight.
    pub(crate) fn settled(&mut self, cells: u64, rtt: Option<Duration>, outlet: Outlet) {
        self.unsettled += cells;
        while self.unsettled >= self.control.sendme_inc() {
            self.unsettled -= self.control.sendme_inc();
            self.control.acknowledged(rtt.unwrap_or_default(), outlet);
        }
    }

    /// Handles a SENDME. A SENDME without a tag acknowledges the same cells as a SENDME with a tag
    /// (C tor and tor-spec, "SENDME message format").
    ///
    /// # Errors
    /// Returns the fault if the SENDME violates the protocol.
    pub(crate) fn acknowledged(
        &mut self,
        now: Time,
        sendme: Sendme,
        outlet: Outlet,
    ) -> Result<(), CircuitFault> {
        if sendme == Sendme::Bare && !self.takes_bare {
            return Err(CircuitFault::SendmeBare);
        }
        let (owed, sent) = self.owed.pop_front().ok_or(CircuitFault::Sendme)?;
        if matches!(sendme, Sendme::Tagged(tag) if tag != owed) {
            return Err(CircuitFault::SendmeTag);
        }
        let is_owed = self.control.acknowledged(now.since(sent), outlet);
        if is_owed { Ok(()) } else { Err(CircuitFault::Sendme) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(n: u8) -> Tag {
        Tag::from_bytes(&[n; 20]).unwrap()
    }

    fn leg() -> Leg {
        let mut leg = Leg::new(AgreedFeatures::default(), &Params::default());
        (1..=200u8).for_each(|n| leg.sent(Time::ZERO, tag(n)));
        leg
    }

    fn tagged(n: u8) -> Sendme {
        Sendme::Tagged(tag(n))
    }

    fn acknowledge(leg: &mut Leg, sendme: Sendme) -> Result<(), CircuitFault> {
        leg.acknowledged(Time::ZERO, sendme, Outlet::default())
    }

    #[test]
    fn acknowledgements_come_in_order_and_only_once() {
        let mut leg = leg();
        for n in [100, 200] {
            assert_eq!(acknowledge(&mut leg, tagged(n)), Ok(()));
        }
        assert_eq!(acknowledge(&mut leg, tagged(200)), Err(CircuitFault::Sendme));
    }

    #[test]
    fn one_without_a_tag_acknowledges_as_much_unless_the_consensus_wants_tags() {
        let mut open = leg();
        let view = |leg: &Leg| leg.view().leg.inflight;
        let before = view(&open);
        assert_eq!(acknowledge(&mut open, Sendme::Bare), Ok(()));
        assert_eq!(view(&open), before - 100);
        assert_eq!(acknowledge(&mut open, tagged(200)), Ok(()), "both kinds, in one circuit");
        assert_eq!(acknowledge(&mut open, Sendme::Bare), Err(CircuitFault::Sendme));

        let strict = Params { sendme_accept_min: 1, ..Params::default() };
        let mut strict = Leg::new(AgreedFeatures::default(), &strict);
        (1..=100u8).for_each(|n| strict.sent(Time::ZERO, tag(n)));
        let refused = acknowledge(&mut strict, Sendme::Bare).unwrap_err();
        assert!(refused.to_string().contains("version 0"), "{refused}");
        assert_eq!(acknowledge(&mut strict, tagged(100)), Ok(()));
    }

    #[test]
    fn a_wrong_tag_is_refused() {
        assert_eq!(acknowledge(&mut leg(), tagged(200)), Err(CircuitFault::SendmeTag));
    }

    #[test]
    fn cells_that_pass_are_settled_by_counts_and_only_a_full_one_is_a_measurement() {
        let mut leg = Leg::new(
            AgreedFeatures { sendme_inc: Some(31), ..AgreedFeatures::default() },
            &Params::default(),
        );
        leg.pass_cells(&Params::default());
        (0..100).for_each(|_| leg.passed());
        let inflight = |leg: &Leg| leg.view().leg.inflight;
        assert_eq!((leg.window(), inflight(&leg)), (1_000, 100));
        leg.settled(30, None, Outlet::default());
        assert_eq!((inflight(&leg), leg.view().rtt), (100, None));
        leg.settled(1, None, Outlet::default());
        assert_eq!((inflight(&leg), leg.view().rtt), (69, None));
        leg.settled(62, Some(Duration::from_millis(40)), Outlet::default());
        assert_eq!((inflight(&leg), leg.view().rtt), (7, Some(Duration::from_millis(40))));
    }

    #[test]
    fn every_hundredth_cell_is_acknowledged_by_its_tag() {
        let mut leg = leg();
        let due: Vec<u8> = (1..=200).filter(|&n| leg.received(tag(n)) == Some(tag(n))).collect();
        assert_eq!(due, [100, 200]);
    }
}
