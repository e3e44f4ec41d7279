//! Notifications to the service manager that started the program (sd_notify(3)). Without a service
//! manager they have no effect.

use anabranch_os::manager::notify;
use sd_notify::NotifyState;

use super::ActiveSettings;

/// Notifies the service manager (such as systemd) that clients can connect.
pub(super) fn ready(about: &ActiveSettings) {
    let paths: Vec<_> = about.egresses.iter().map(|egress| egress.name.as_str()).collect();
    let ingress = match (&about.listen, &about.tun) {
        (_, Some(plan)) => format!("interface {}", plan.request.tun),
        (Some(listen), None) => format!("listening on {listen}"),
        (None, None) => String::new(),
    };
    let status = format!("{ingress}, paths {}", paths.join(", "));
    notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// Notifies the service manager that the program is ending. The program may then run for some
/// time, until the packet captures are complete.
pub(super) fn stopping() {
    notify(&[NotifyState::Stopping]);
}
