//! The service manager that started the program (sd_notify(3)), if one did.

use sd_notify::NotifyState;

/// Notifies the manager of `state`. A manager that does not listen, or has gone, is no reason to
/// fail.
pub fn tell(state: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(state);
}

/// Notifies the manager that the settings are being read again; ends with [`NotifyState::Ready`].
pub fn reloading() {
    // The time is what managers from version 253 on want to have beside it.
    let time = NotifyState::monotonic_usec_now();
    tell(&[NotifyState::Reloading].into_iter().chain(time.ok()).collect::<Vec<_>>());
}
