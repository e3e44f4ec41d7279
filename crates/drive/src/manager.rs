//! The service manager that started the program (sd_notify(3)), if one did.

use sd_notify::NotifyState;

/// Tells it something. A manager that does not listen, or has gone, is no reason to fail.
pub(crate) fn tell(state: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(state);
}

/// The settings are read again; ends with [`NotifyState::Ready`].
pub(crate) fn reloading() {
    // The time is what managers from version 253 on want to have beside it.
    let time = NotifyState::monotonic_usec_now();
    tell(&[NotifyState::Reloading].into_iter().chain(time.ok()).collect::<Vec<_>>());
}
