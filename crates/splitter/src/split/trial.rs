//! A test, before the listener is opened, of whether the sockets of the paths can be opened.
//!
//! Without the test, a missing permission would appear only with the first client, as paths that
//! are down.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket as PlainSocket};

use anabranch_os::udp::{UdpOptions, UdpSocket};

use crate::paths::{self, Egress};

use super::sockets::options;
use super::{ActiveSettings, Failure, Settings};

/// Opens a socket for each path, sends nothing, and closes the socket. Returns warnings about
/// failures that may be temporary, such as an address that is not ready yet.
///
/// # Errors
/// The system does not permit the requested settings.
pub(super) fn try_paths(egresses: &[Egress], fwmark: Option<u32>) -> Result<Vec<String>, Failure> {
    let mut warnings = Vec::new();
    for egress in egresses {
        let options = options(egress, fwmark);
        match open(egress, &options) {
            Err(error) if is_forbidden(&error) => {
                return Err(Failure::Forbidden(blame(egress, &options, &error)));
            }
            Err(error) => {
                warnings.push(format!("path '{}': cannot open a socket yet: {error}", egress.name))
            }
            Ok(()) => {}
        }
    }
    Ok(warnings)
}

/// Checks the settings as the start of the splitter does, without starting a splitter. If `known`
/// is false, the server is not known yet, and only the other settings are checked. Programs that
/// do other work before they start the splitter call this function. Sends nothing on a path.
///
/// # Errors
/// A path cannot be used, or the system does not permit the requested settings.
pub fn look_ahead(settings: &Settings, known: bool) -> Result<(), Failure> {
    if known {
        let about = ActiveSettings::look(settings)?;
        return try_paths(&about.egresses, settings.fwmark).map(drop);
    }
    paths::check(&settings.specs, settings.same_egress)?;
    match settings.fwmark {
        Some(mark) if !may_mark(mark) => Err(Failure::Forbidden(unmarkable(mark))),
        _ => Ok(()),
    }
}

/// Returns whether this process may set the mark `mark` on its packets. Sends nothing.
pub fn may_mark(mark: u32) -> bool {
    let options = UdpOptions { mark: Some(mark), ..UdpOptions::default() };
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), &options).is_ok()
}

/// Returns a loopback address to listen on. Its port is `port`. If `port` is taken, forbidden or
/// equal to `avoid`, the kernel chooses the port. The address is free now, but not reserved.
///
/// # Errors
/// The kernel provides no port.
pub fn free_loopback(port: u16, avoid: Option<u16>) -> io::Result<SocketAddr> {
    let bind = |port| PlainSocket::bind((Ipv4Addr::LOCALHOST, port))?.local_addr();
    if Some(port) != avoid
        && let Ok(wanted) = bind(port)
    {
        return Ok(wanted);
    }
    // The kernel may choose the port `avoid` once, but not a second time while the first socket
    // holds it.
    let first = PlainSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let given = first.local_addr()?;
    if Some(given.port()) == avoid { bind(0) } else { Ok(given) }
}

fn open(egress: &Egress, options: &UdpOptions) -> io::Result<()> {
    let server = egress.remote(egress.peer());
    UdpSocket::connect(Some(egress.local(server)), server, options).map(drop)
}

fn is_forbidden(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// Returns a message that names the missing permission. To find this permission, opens the socket
/// again without the packet mark, and without the binding to an interface.
fn blame(egress: &Egress, options: &UdpOptions, error: &io::Error) -> String {
    let unmarked = UdpOptions { mark: None, ..options.clone() };
    let unbound = UdpOptions { device: None, ..options.clone() };
    let opens =
        |options: &UdpOptions| !open(egress, options).is_err_and(|error| is_forbidden(&error));
    let (name, device) = (&egress.name, options.device.as_deref().unwrap_or_default());
    match options.mark {
        Some(mark) if opens(&unmarked) => unmarkable(mark),
        _ if opens(&unbound) => format!(
            "path '{name}': on Linux before 5.7, binding to the interface '{device}' needs root or \
             the capability CAP_NET_RAW"
        ),
        _ => format!(
            "path '{name}': the system does not allow this program to open a socket to {}: \
             {error}",
            egress.server
        ),
    }
}

fn unmarkable(mark: u32) -> String {
    format!(
        "--fwmark {mark:#x} needs root or the capability CAP_NET_ADMIN; without it, remove \
         --fwmark and name an interface for each path (if:DEVICE)"
    )
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

    use super::*;
    use crate::paths::{self, PathSpec};

    fn egresses(server: std::net::SocketAddr) -> Vec<Egress> {
        let specs: [PathSpec; 1] = ["a=addr:127.0.0.2".parse().unwrap()];
        paths::resolve(&specs, &[server], None, false).unwrap()
    }

    /// Runs `work` in a thread without capabilities. Capabilities belong to a thread, so other
    /// tests keep theirs.
    fn without_rights(work: impl FnOnce() + Send + 'static) {
        let body = || {
            let CapabilitySets { permitted, inheritable, .. } = capabilities(None).unwrap();
            let effective = CapabilitySet::empty();
            set_capabilities(None, CapabilitySets { effective, permitted, inheritable }).unwrap();
            work();
        };
        std::thread::spawn(body).join().unwrap();
    }

    #[test]
    fn a_mark_without_the_right_to_it_is_refused_with_what_works_instead() {
        without_rights(|| {
            let failure = try_paths(&egresses("127.0.0.1:9".parse().unwrap()), Some(81));
            let failure = failure.unwrap_err();
            assert!(failure.is_misuse());
            let text = failure.to_string();
            assert!(text.starts_with("--fwmark 0x51 needs root"), "{text}");
            assert!(text.contains("if:DEVICE") && !text.contains('\n'));
        });
    }

    #[test]
    fn whether_marks_are_allowed_is_known_beforehand() {
        without_rights(|| assert!(!may_mark(81)));
    }

    #[test]
    fn a_port_that_cannot_be_had_gives_way_to_another() {
        let holder = PlainSocket::bind("127.0.0.1:0").unwrap();
        let taken = holder.local_addr().unwrap();
        assert_ne!(free_loopback(taken.port(), None).unwrap(), taken);
        drop(holder);
        // A child process that another test has just forked may still hold the port for a moment.
        let end = Instant::now() + Duration::from_secs(10);
        while free_loopback(taken.port(), None).unwrap() != taken {
            assert!(Instant::now() < end, "{taken} is free");
        }
        assert_ne!(free_loopback(taken.port(), Some(taken.port())).unwrap(), taken);
    }

    #[test]
    fn without_a_mark_no_right_is_needed_and_nothing_is_sent() {
        without_rights(|| {
            let server = PlainSocket::bind("127.0.0.1:0").unwrap();
            server.set_nonblocking(true).unwrap();
            let none: [String; 0] = [];
            assert_eq!(try_paths(&egresses(server.local_addr().unwrap()), None).unwrap(), none);
            assert!(server.recv(&mut [0; 1]).is_err());
        });
    }

    #[test]
    fn an_address_that_is_not_there_yet_is_a_warning() {
        let mut egresses = egresses("127.0.0.1:9".parse().unwrap());
        egresses[0].source = Some("192.0.2.7".parse().unwrap());
        let warnings = try_paths(&egresses, None).unwrap();
        assert!(
            warnings.len() == 1 && warnings[0].starts_with("path 'a': cannot open a socket yet: ")
        );
    }
}
