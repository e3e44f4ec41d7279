//! The service manager that started the program (sd_notify(3)), if there is one.

use sd_notify::NotifyState;

/// Notifies the service manager of `state`. Succeeds even if the manager does not listen or has
/// exited.
pub fn notify(state: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(state);
}

/// Notifies the service manager that the settings are being reloaded. A later
/// [`NotifyState::Ready`] reports the end of the reload.
pub fn reloading() {
    // Managers from version 253 on require the time with this state.
    let time = NotifyState::monotonic_usec_now();
    notify(&[NotifyState::Reloading].into_iter().chain(time.ok()).collect::<Vec<_>>());
}
