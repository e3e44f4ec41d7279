//! The interface between a core (protocol code without I/O) and the event loop that drives the
//! core.

use std::iter;

use crate::Time;

/// A protocol as a state machine: input and time in, actions out.
///
/// A core opens no socket, reads no clock and asks the system for no random numbers. The driver
/// (the event loop around a core) does all this, and repeats four steps:
///
/// 1. Wait for input, or until [`next_timeout`](Core::next_timeout).
/// 2. Pass the input, if any, to [`handle`](Core::handle).
/// 3. Call [`poll`](Core::poll) until it returns `None`, and execute each action.
/// 4. Read `next_timeout` again.
///
/// A timeout is not an input: `poll` processes the timers that have expired. All calls pass times
/// of one monotonic clock. A core may have further methods, such as queries, settings, and reads
/// and writes of streams. After a method that changes the core, the driver continues with step 3.
///
/// After `poll` has returned `None` at the time `now`, it returns `None` again, and `next_timeout`
/// is later than `now`. So a driver never loops without waiting.
///
/// # Example
///
/// ```
/// use std::collections::VecDeque;
/// use std::time::Duration;
///
/// use anabranch_multipath::{Core, Time};
///
/// /// Returns each message after 5 ms.
/// #[derive(Default)]
/// struct Echo(VecDeque<(Time, Vec<u8>)>);
///
/// impl Core for Echo {
///     type In<'a> = &'a [u8];
///     type Out = Vec<u8>;
///
///     fn handle(&mut self, now: Time, message: &[u8]) {
///         self.0.push_back((now + Duration::from_millis(5), message.to_vec()));
///     }
///
///     fn poll(&mut self, now: Time) -> Option<Vec<u8>> {
///         self.0.pop_front_if(|(due, _)| *due <= now).map(|(_, message)| message)
///     }
///
///     fn next_timeout(&self) -> Option<Time> {
///         self.0.front().map(|(due, _)| *due)
///     }
/// }
///
/// let mut echo = Echo::default();
/// echo.handle(Time::ZERO, b"one");
/// echo.handle(Time::ZERO, b"two");
/// assert_eq!(echo.drain(Time::ZERO).count(), 0);
/// let due = echo.next_timeout().unwrap();
/// assert_eq!(due, Time::from_millis(5));
/// assert_eq!(echo.drain(due).collect::<Vec<_>>(), [b"one", b"two"]);
/// assert_eq!(echo.next_timeout(), None);
/// ```
pub trait Core {
    /// An input: a datagram, an event of a connection, a command. It may borrow the driver's
    /// buffers.
    type In<'a>;
    /// An action for the driver, or an event for the layer above.
    type Out;

    /// Processes an input that arrived at `now`.
    fn handle(&mut self, now: Time, input: Self::In<'_>);

    /// Returns the next action, or `None` if there is none. Processes the timers that have expired
    /// by `now`.
    fn poll(&mut self, now: Time) -> Option<Self::Out>;

    /// Returns the time at which to call [`Core::poll`] without an input; `None` if no timer runs.
    /// Valid after `poll` has returned `None`.
    fn next_timeout(&self) -> Option<Time>;

    /// Returns an iterator over the actions that are due at `now`. It calls [`Core::poll`] until
    /// `poll` returns `None`.
    fn drain(&mut self, now: Time) -> impl Iterator<Item = Self::Out> {
        iter::from_fn(move || self.poll(now))
    }
}
