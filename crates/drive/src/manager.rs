//! The service manager that started the program (sd_notify(3)), if one did.

use sd_notify::NotifyState;

/// Tells it something. A manager that does not listen, or has gone, is no reason to fail.
pub(crate) fn tell(state: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(state);
}
