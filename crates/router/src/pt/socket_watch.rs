//! What a socket of a station is watched for.

use std::io;
use std::os::fd::AsFd;

use anabranch_os::poller::{Interest, Poller};

/// What a socket is watched for. One of which nothing is wanted is not watched at all: the kernel
/// tells of errors, and of connections that both ends have ended, whether anybody asks or not and
/// as often as it is waited for, so that a station would do nothing but hear of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SocketWatch(Option<Interest>);

impl SocketWatch {
    /// Of a socket that a poller has already.
    pub(super) fn of(interest: Interest) -> SocketWatch {
        SocketWatch(Some(interest))
    }

    /// Watches a socket, by its token, for this from now on.
    ///
    /// # Errors
    /// The kernel's: all is as it was.
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
