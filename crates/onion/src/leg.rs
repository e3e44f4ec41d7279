//! One path's share in flow control: the window of what we send by it, and the acknowledgements of
//! what came by it.
//!
//! Streams are not a leg's: they belong to its [`Set`](crate::set::Set).

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_multipath::{PathView, Time};

use crate::congestion::{self, Control, Outlet, Params};
use crate::crypto::Tag;
use crate::event::CircuitFault;
use crate::handshake::extension::Agreed;
use crate::wire::message::Sendme;

/// Cells that may be under way on a leg by which others' cells pass before anything is known of it:
/// as many as on any circuit without congestion control.
const WIDE: u64 = 1_000;

/// Window and acknowledgements between two ends of a circuit.
pub struct Leg {
    control: Box<dyn Control>,
    /// Tags of our cells that the peer will acknowledge, oldest first (proposal 289), and when each
    /// was sent.
    owed: VecDeque<(Tag, Time)>,
    /// DATA cells that came since the last acknowledgement.
    unacknowledged: u64,
    /// DATA cells: received, sent.
    carried: [u64; 2],
    /// Cells that passed and were acknowledged, fewer than a SENDME stands for.
    unsettled: u64,
    /// Whether a SENDME needs no tag (`sendme_accept_min_version` is 0).
    takes_bare: bool,
}

impl Leg {
    /// A new circuit's.
    pub(crate) fn new(agreed: Agreed, params: &Params) -> Leg {
        let control = congestion::control(agreed.sendme_inc, params);
        let takes_bare = params.sendme_accept_min == 0;
        let (owed, unacknowledged, carried, unsettled) = (VecDeque::new(), 0, [0; 2], 0);
        Leg { control, owed, unacknowledged, carried, unsettled, takes_bare }
    }

    /// Whether a DATA cell may be sent.
    pub(crate) fn has_room(&self) -> bool {
        self.control.room() > 0
    }

    /// What a scheduler may know of it.
    pub(crate) fn view(&self) -> PathView {
        self.control.view()
    }

    /// Whether as much is under way as one SENDME stands for: C tor takes a set for lost with it.
    pub(crate) fn has_unacknowledged(&self) -> bool {
        self.control.view().leg.inflight >= self.control.sendme_inc()
    }

    /// The present window, in cells.
    pub(crate) fn window(&self) -> u64 {
        self.control.window()
    }

    /// DATA cells so far: received, sent.
    pub(crate) fn carried(&self) -> [u64; 2] {
        self.carried
    }

    /// A DATA cell was sent.
    pub(crate) fn sent(&mut self, now: Time, tag: Tag) {
        if self.control.is_marked() {
            self.owed.push_back((tag, now));
        }
        self.carried[1] += 1;
        self.control.sent();
    }

    /// A DATA cell came: the tag to send back in a SENDME, if one is due.
    pub(crate) fn received(&mut self, tag: Tag) -> Option<Tag> {
        self.carried[0] += 1;
        self.unacknowledged += 1;
        if self.unacknowledged < self.control.sendme_inc() {
            return None;
        }
        self.unacknowledged = 0;
        Some(tag)
    }

    /// Cells of a circuit beyond pass from now on, and none with DATA. The window begins wide: that
    /// of the circuit beyond bounds what is under way in all, and would take a leg whose window has
    /// yet to grow for a busy one.
    pub(crate) fn pass_cells(&mut self, params: &Params) {
        let params = Params { cwnd_init: WIDE, ..params.clone() };
        let sendme_inc = u8::try_from(self.control.sendme_inc()).ok();
        self.control = congestion::control(sendme_inc, &params);
    }

    /// A cell passed that the other end counts: RECEIVED will acknowledge it.
    pub(crate) fn passed(&mut self) {
        self.carried[1] += 1;
        self.control.sent();
    }

    /// A cell passed that we count.
    pub(crate) fn counted(&mut self) {
        self.carried[0] += 1;
    }

    /// RECEIVED came, of so many cells that passed. The window moves as by SENDMEs, one for as many
    /// cells as those stand for; without a round trip that means something it only opens.
    pub(crate) fn settled(&mut self, cells: u64, rtt: Option<Duration>, outlet: Outlet) {
        self.unsettled += cells;
        while self.unsettled >= self.control.sendme_inc() {
            self.unsettled -= self.control.sendme_inc();
            self.control.acknowledged(rtt.unwrap_or_default(), outlet);
        }
    }

    /// A SENDME came. One without a tag acknowledges the same cells (C tor and tor-spec, "SENDME
    /// message format").
    ///
    /// # Errors
    /// What is wrong with it.
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
        let mut leg = Leg::new(Agreed::default(), &Params::default());
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
        let mut strict = Leg::new(Agreed::default(), &strict);
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
        let mut leg =
            Leg::new(Agreed { sendme_inc: Some(31), ..Agreed::default() }, &Params::default());
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
