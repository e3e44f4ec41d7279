//! Names are resolved on a thread of their own: a slow name server must not stop the sessions that are under way.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use anabranch_comps::SessionId;

use super::Target;

/// An answer: the session that asked, and all addresses of the server (none if its name does not resolve).
pub(super) type Answer = (SessionId, Vec<SocketAddr>);

/// Asks for the server's addresses, once for each session. Poll its descriptor, then take the [`Resolver::answers`].
#[derive(Debug)]
pub(super) struct Resolver {
    questions: Sender<SessionId>,
    answers: Receiver<Answer>,
    bell: UnixStream,
}

impl Resolver {
    /// Starts the thread. It ends when the resolver is dropped and its last question is answered.
    pub(super) fn start(target: Target) -> io::Result<Resolver> {
        let (questions, asked) = mpsc::channel::<SessionId>();
        let (answered, answers) = mpsc::channel();
        let (bell, mut ring) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        thread::Builder::new().name("resolver".into()).spawn(move || {
            for session in asked {
                let found = target.resolve().unwrap_or_default();
                if answered.send((session, found)).is_err() || ring.write_all(&[0]).is_err() {
                    return;
                }
            }
        })?;
        Ok(Resolver { questions, answers, bell })
    }

    /// Asks for a session.
    pub(super) fn ask(&self, session: SessionId) {
        // The thread lives as long as this end of the channel; if it died all the same, the session waits and expires.
        let _ = self.questions.send(session);
    }

    /// The answers that are there.
    pub(super) fn answers(&mut self) -> Vec<Answer> {
        let mut rings = [0; 64];
        while matches!(self.bell.read(&mut rings), Ok(count) if count == rings.len()) {}
        self.answers.try_iter().collect()
    }
}

impl AsFd for Resolver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
