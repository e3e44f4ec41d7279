//! Flow control of a stream by SENDMEs and a fixed window on each parallel circuit (leg) of the
//! stream's set, as in the published design mTor.

use anabranch_multipath::{PathId, Time};

use super::windows::Windows;
use super::{ArrivedCell, Broken, Flow, Replies};
use crate::conflux::legs::Legs;

/// A separate window for each leg (parallel circuit). Each cell is acknowledged on its leg on
/// arrival, even if earlier cells are missing. If acknowledgements waited for earlier cells, all
/// legs would be as slow as the slowest one.
#[derive(Default)]
pub(super) struct LegWindows {
    legs: Legs<OnLeg>,
}

/// The windows of a stream on one leg (parallel circuit).
struct OnLeg {
    windows: Windows,
    /// Number of cells that arrived on the leg while earlier cells were missing, and still wait
    /// for them. They were counted in the window on arrival, and are not counted again when
    /// delivered.
    early: u64,
}

impl LegWindows {
    /// Returns the stream's windows on `leg` (a parallel circuit). If there are none yet, creates
    /// them, fully open.
    fn on(&mut self, leg: PathId) -> &mut OnLeg {
        self.legs.get_or_insert_with(leg, || OnLeg { windows: Windows::new(), early: 0 })
    }

    /// Returns the leg (parallel circuit) on which a cell arrived, and the stream's windows on it.
    /// Returns `None` if this leg is closed and has no windows any more.
    fn of(&mut self, arrived: &ArrivedCell) -> Option<(PathId, &mut OnLeg)> {
        let leg = arrived.by?;
        Some((leg, self.on(leg)))
    }
}

impl Flow for LegWindows {
    fn may_send(&mut self, now: Time, by: &[PathId]) -> bool {
        by.iter().any(|leg| self.on(*leg).windows.may_send(now, &[]))
    }

    fn wake_at(&self) -> Option<Time> {
        None
    }

    fn sent(&mut self, by: PathId, bytes: usize) {
        self.on(by).windows.sent(by, bytes);
    }

    fn received(
        &mut self,
        now: Time,
        arrived: ArrivedCell,
        replies: &mut Replies<'_>,
    ) -> Result<(), Broken> {
        let Some((leg, on)) = self.of(&arrived) else { return Ok(()) };
        if on.early > 0 {
            on.early -= 1;
            return Ok(());
        }
        on.windows.received(now, arrived, &mut replies.by(leg))
    }

    fn received_early(
        &mut self,
        now: Time,
        arrived: ArrivedCell,
        replies: &mut Replies<'_>,
    ) -> Result<(), Broken> {
        let Some((leg, on)) = self.of(&arrived) else { return Ok(()) };
        on.early += 1;
        on.windows.received(now, arrived, &mut replies.by(leg))
    }

    /// Does nothing: the peer need not be asked to pause, because the windows always limit its
    /// data.
    fn set_paused(&mut self, _: Time, _: bool, _: usize, _: &mut Replies<'_>) {}

    fn consumed(&mut self, now: Time, bytes: usize, waiting: usize, replies: &mut Replies<'_>) {
        for (leg, on) in self.legs.iter_mut() {
            on.windows.consumed(now, bytes, waiting, &mut replies.by(leg));
        }
    }

    fn acknowledged(&mut self, by: PathId) -> Result<(), Broken> {
        self.on(by).windows.acknowledged(by)
    }

    fn set_rate(&mut self, _now: Time, _rate: Option<u32>) -> Result<(), Broken> {
        Err(Broken::OutOfPlace)
    }

    fn lost(&mut self, leg: PathId) {
        self.legs.remove(leg);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::stream::ControlMessage;
    use crate::wire::message::RelayCommand;

    const LEGS: [PathId; 2] = [PathId(0), PathId(1)];

    fn receive(
        windows: &mut LegWindows,
        by: PathId,
        control: &mut VecDeque<ControlMessage>,
    ) -> Result<(), Broken> {
        let arrived = ArrivedCell { bytes: 498, waiting: 0, burst: 0, by: Some(by) };
        windows.received(Time::ZERO, arrived, &mut Replies { stream: 7, by: None, control })
    }

    #[test]
    fn each_leg_has_a_window_of_500_and_opens_by_its_own_sendmes() {
        let mut windows = LegWindows::default();
        let [one, two] = LEGS;
        (0..500).for_each(|_| windows.sent(one, 498));
        assert!(!windows.may_send(Time::ZERO, &[one]));
        assert!(windows.may_send(Time::ZERO, &LEGS) && windows.may_send(Time::ZERO, &[two]));
        assert_eq!(windows.acknowledged(two), Err(Broken::OutOfPlace), "nothing went by it");
        assert_eq!(windows.acknowledged(one), Ok(()));
        (0..49).for_each(|_| windows.sent(one, 498));
        assert!(windows.may_send(Time::ZERO, &[one]), "one of 50 is left");
        windows.sent(one, 498);
        assert!(!windows.may_send(Time::ZERO, &[one]));
    }

    #[test]
    fn what_came_by_a_leg_is_acknowledged_there_and_a_flood_is_told_by_leg() {
        let (mut windows, mut control) = (LegWindows::default(), VecDeque::new());
        let [one, two] = LEGS;
        for _ in 0..49 {
            LEGS.iter().for_each(|leg| receive(&mut windows, *leg, &mut control).unwrap());
        }
        assert!(control.is_empty());
        receive(&mut windows, two, &mut control).unwrap();
        let messages: Vec<_> = control
            .drain(..)
            .map(|control| (control.command, control.stream, control.by))
            .collect();
        assert_eq!(messages, [(RelayCommand::SENDME, 7, Some(two))]);
        let arrived = |by| ArrivedCell { bytes: 498, waiting: 1 << 20, burst: 0, by: Some(by) };
        let mut unread = |by| {
            let mut replies = Replies { stream: 7, by: None, control: &mut control };
            windows.received(Time::ZERO, arrived(by), &mut replies)
        };
        (0..451).for_each(|_| unread(one).unwrap());
        assert_eq!(unread(one), Err(Broken::Flood), "nobody reads");
        assert_eq!(unread(two), Ok(()));
    }
    #[test]
    fn what_comes_early_is_counted_once_and_acknowledged_at_once_unless_much_waits() {
        let mut windows = LegWindows::default();
        let mut early = |waiting, cells| {
            let mut control = VecDeque::new();
            let arrived = ArrivedCell { bytes: 498, waiting, burst: 0, by: Some(LEGS[0]) };
            for _ in 0..cells {
                let mut replies = Replies { stream: 7, by: None, control: &mut control };
                windows.received_early(Time::ZERO, arrived, &mut replies).unwrap();
            }
            control.len()
        };
        assert_eq!([early(0, 50), early(usize::MAX, 100), early(usize::MAX, 350)], [1, 0, 0]);
        let mut control = VecDeque::new();
        (0..500).for_each(|_| receive(&mut windows, LEGS[0], &mut control).unwrap());
        assert!(control.is_empty(), "in their turn they count no more");
        let mut replies = Replies { stream: 7, by: None, control: &mut control };
        windows.consumed(Time::ZERO, 498, 0, &mut replies);
        assert_eq!(control.len(), 9);
    }
}
