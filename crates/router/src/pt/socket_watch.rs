//! Events for which the poller watches a socket of a client or server of our transport.

use std::io;
use std::os::fd::AsFd;

use anabranch_os::poller::{Interest, Poller};

/// Events for which a poller watches a socket. `None` means that the socket is not registered with
/// the poller: for a registered socket, the kernel would report errors and hang-ups (`EPOLLERR`,
/// `EPOLLHUP`) again and again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SocketWatch(Option<Interest>);

impl SocketWatch {
    /// Describes a socket that is already registered with a poller.
    pub(super) fn of(interest: Interest) -> SocketWatch {
        SocketWatch(Some(interest))
    }

    /// Watches the socket for the events in `wanted` from now on.
    ///
    /// # Errors
    /// A system call fails. The previous events are then still watched.
    pub(super) fn set(
        &mut self,
        poller: &Poller,
        (socket, token): (impl AsFd, u64),
        wanted: Interest,
    ) -> io::Result<()> {
        let wanted = Some(wanted).filter(|wanted| wanted.read || wanted.write);
        match (self.0, wanted) {
            (known, wanted) if known == wanted => {}
            (Some(_), Some(wanted)) => poller.change(socket, token, wanted)?,
            (None, Some(wanted)) => poller.add_for(socket, token, wanted)?,
            (_, None) => poller.remove(socket)?,
        }
        self.0 = wanted;
        Ok(())
    }
}
