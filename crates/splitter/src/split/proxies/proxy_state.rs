//! Decides when to ask a proxy for an association (a UDP relay of the proxy), and when to give up
//! the proxy's path. Does no I/O.

use std::time::Duration;

use anabranch_multipath::Time;

/// Time for which a path counts as working after it has lost its association (a UDP relay of a
/// proxy). A new association usually replaces the lost one within one to three round trips.
const DOUBT: Duration = Duration::from_millis(500);
/// Maximum time for which a session waits for an association (a UDP relay of a proxy).
const PATIENCE: Duration = Duration::from_secs(2);
/// Minimum lifetime of an association (a UDP relay of a proxy) that counts as a success. An
/// association that ends earlier counts as a failed attempt.
const YOUNG: Duration = Duration::from_secs(2);
/// Pause after the first failed attempt to open an association. Each further failure doubles the
/// pause.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Maximum pause after failed attempts to open an association.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Maximum number of simultaneous attempts to open an association. Several sessions that begin
/// together need several attempts.
const AT_ONCE: usize = 8;

/// The state of one proxy: pending attempts to open an association (a UDP relay), the pause
/// between attempts, and whether the proxy works.
#[derive(Debug, Default)]
pub(super) struct ProxyState {
    under_way: usize,
    failures: u32,
    /// End of the pause after a failed attempt to open an association. No attempt begins before;
    /// `None` without a pause.
    rested: Option<Time>,
    /// Deadline for the next association (a UDP relay of the proxy), after which the
    /// path may count as failed; `None` without a deadline.
    doubt: Option<Time>,
    broken: bool,
}

impl ProxyState {
    /// Returns whether the path has failed because of its proxy.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Returns whether an association (a UDP relay of a proxy) can be expected soon: the path has
    /// not failed, and no pause delays the next attempt.
    pub(super) fn is_hopeful(&self, now: Time) -> bool {
        !self.broken && self.rested.is_none_or(|rested| rested <= now)
    }

    /// Returns the number of attempts to open an association that the caller begins now, in
    /// addition to the pending attempts. `wanted` is the number of associations (UDP relays of
    /// proxies) needed.
    pub(super) fn begin(&mut self, now: Time, wanted: usize) -> usize {
        if self.rested.is_some_and(|rested| rested > now) {
            return 0;
        }
        let fresh = wanted.min(AT_ONCE).saturating_sub(self.under_way);
        self.under_way += fresh;
        fresh
    }

    /// Handles an attempt that led to an association (a UDP relay of a proxy).
    pub(super) fn on_success(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
        (self.rested, self.doubt, self.broken) = (None, None, false);
    }

    /// Handles a failed attempt to open an association. `alone` is true if the path has no
    /// association (UDP relay of the proxy) left.
    pub(super) fn on_failure(&mut self, now: Time, alone: bool) {
        self.under_way = self.under_way.saturating_sub(1);
        self.doubt = None;
        self.broken |= alone;
        self.rest(now);
    }

    /// Handles the loss of an association (a UDP relay of the proxy) that had existed for `age`.
    /// `bare` is true if the path has no spare association to replace it.
    pub(super) fn on_loss(&mut self, now: Time, age: Duration, bare: bool) {
        if age < YOUNG {
            self.rest(now);
        } else {
            (self.failures, self.rested) = (0, None);
        }
        if bare {
            self.expect_by(now + DOUBT);
        }
    }

    /// Sets a deadline, because a session begins to wait for an association (a UDP relay of a
    /// proxy).
    pub(super) fn on_wait(&mut self, now: Time) {
        self.expect_by(now + PATIENCE);
    }

    /// Resets the failures, the pause and the pending attempts, because the route to the proxy has
    /// changed. A failed path stays failed until an attempt succeeds.
    pub(super) fn on_move(&mut self, now: Time) {
        *self = ProxyState { broken: self.broken, ..ProxyState::default() };
        self.expect_by(now + PATIENCE);
    }

    /// Sets the count of pending attempts to 0. Their results will be ignored, because they carry
    /// old path indices.
    pub(super) fn on_renumbering(&mut self) {
        self.under_way = 0;
    }

    /// Permits the next attempt at once, without the pause after failures, because the route to
    /// the proxy works again.
    pub(super) fn on_way_back(&mut self) {
        (self.failures, self.rested) = (0, None);
    }

    /// Returns whether the wait for an association (a UDP relay of the proxy) has lasted too long.
    /// In that case the path has failed, unless it still has an association (`alone` is false).
    pub(super) fn gives_up(&mut self, now: Time, alone: bool) -> bool {
        let over = self.doubt.is_some_and(|doubt| doubt <= now);
        if over {
            self.doubt = None;
            self.broken |= alone;
        }
        over
    }

    /// Returns the time at which the next timer expires; `None` if no timer runs. `wanted` is the
    /// number of associations (UDP relays of proxies) needed.
    pub(super) fn next_timeout(&self, wanted: usize) -> Option<Time> {
        let rested = self.rested.filter(|_| wanted > self.under_way);
        rested.into_iter().chain(self.doubt).min()
    }

    fn expect_by(&mut self, time: Time) {
        if !self.broken {
            self.doubt = Some(self.doubt.map_or(time, |doubt| doubt.min(time)));
        }
    }

    fn rest(&mut self, now: Time) {
        let doublings = self.failures.min(8);
        self.failures = self.failures.saturating_add(1);
        self.rested = Some(now + (FIRST_PAUSE * (1 << doublings)).min(LONGEST_PAUSE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Duration = Duration::from_secs(60);

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn no_more_attempts_than_associations_are_missing() {
        let mut proxy_state = ProxyState::default();
        assert_eq!((proxy_state.begin(ms(0), 1), proxy_state.begin(ms(0), 1)), (1, 0));
        assert_eq!(proxy_state.begin(ms(0), 3), 2);
        assert_eq!(proxy_state.begin(ms(0), 100), AT_ONCE - 3);
        proxy_state.on_success();
        assert_eq!(proxy_state.begin(ms(0), 100), 1);
    }

    #[test]
    fn a_loss_that_is_made_good_soon_breaks_nothing() {
        let mut proxy_state = ProxyState::default();
        proxy_state.on_loss(ms(0), OLD, true);
        assert_eq!(proxy_state.begin(ms(0), 1), 1);
        proxy_state.on_success();
        assert!(!proxy_state.gives_up(ms(0) + DOUBT, true) && !proxy_state.is_broken());
        assert_eq!(proxy_state.next_timeout(0), None);
    }

    #[test]
    fn a_loss_that_is_not_made_good_breaks_the_path_until_an_attempt_succeeds() {
        let mut proxy_state = ProxyState::default();
        proxy_state.on_loss(ms(0), OLD, true);
        assert_eq!(proxy_state.begin(ms(0), 1), 1);
        assert_eq!(proxy_state.next_timeout(1), Some(ms(0) + DOUBT));
        assert!(proxy_state.gives_up(ms(0) + DOUBT, true) && proxy_state.is_broken());
        proxy_state.on_success();
        assert!(!proxy_state.is_broken());
    }

    #[test]
    fn failures_pause_longer_and_longer() {
        let (mut proxy_state, mut now) = (ProxyState::default(), ms(0));
        let mut pauses = Vec::new();
        for _ in 0..7 {
            assert_eq!(proxy_state.begin(now, 1), 1);
            proxy_state.on_failure(now, true);
            let next = proxy_state.next_timeout(1).unwrap();
            assert_eq!(proxy_state.begin(next - Duration::from_millis(1), 1), 0);
            pauses.push(next.since(now).as_millis());
            now = next;
        }
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 15_000, 15_000]);
        assert!(proxy_state.is_broken());
    }

    #[test]
    fn a_refusal_while_another_association_works_breaks_nothing() {
        let mut proxy_state = ProxyState::default();
        proxy_state.begin(ms(0), 1);
        proxy_state.on_failure(ms(0), false);
        assert!(!proxy_state.is_broken() && !proxy_state.is_hopeful(ms(0)));
        proxy_state.on_loss(ms(100), OLD, true);
        assert_eq!(proxy_state.begin(ms(100), 1), 1, "the other one is lost: try at once");
        proxy_state.on_failure(ms(110), true);
        assert!(proxy_state.is_broken());
    }

    #[test]
    fn a_proxy_that_throws_us_out_again_and_again_is_not_asked_in_a_tight_loop() {
        let (mut proxy_state, mut now) = (ProxyState::default(), ms(0));
        let mut attempts = 0;
        while now < Time::from_secs(60) {
            attempts += proxy_state.begin(now, 1);
            proxy_state.on_success();
            proxy_state.on_loss(now, Duration::ZERO, true);
            now += Duration::from_millis(10);
        }
        assert!(attempts <= 9, "{attempts} in a minute");
    }
}
