//! Names for exits: the system's resolver, which blocks, on threads of its own.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

use anabranch_onion::StreamKey;
use anabranch_onion::wire::message::Answer;

/// Threads that wait for answers.
const WORKERS: usize = 8;
/// Questions that may wait for a thread.
const WAITING: usize = 1024;
/// Seconds that an answer holds: the system's resolver does not tell (C tor clips to at least as much).
pub(super) const TTL: u32 = 300;

/// A question.
pub(super) struct Question {
    /// Who asks.
    pub(super) stream: StreamKey,
    /// The name, which may be one of in-addr.arpa or ip6.arpa.
    pub(super) name: String,
}

/// An answer.
pub(super) struct Found {
    /// Who asked.
    pub(super) stream: StreamKey,
    /// What is known; never empty.
    pub(super) answers: Vec<Answer>,
}

/// The resolver.
pub(super) struct Resolver {
    questions: SyncSender<Question>,
    found: Receiver<Found>,
    waker: UnixStream,
}

impl Resolver {
    /// Starts the threads, which end with the resolver.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn start() -> io::Result<Resolver> {
        let (questions, asked) = sync_channel(WAITING);
        let (answers, found) = channel();
        let (waker, bell) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        bell.set_nonblocking(true)?;
        let asked = Arc::new(Mutex::new(asked));
        for _ in 0..WORKERS {
            let (asked, answers, bell) = (Arc::clone(&asked), answers.clone(), bell.try_clone()?);
            thread::Builder::new()
                .name("names".into())
                .spawn(move || work(&asked, &answers, bell))?;
        }
        Ok(Resolver { questions, found, waker })
    }

    /// Readable when there are answers.
    pub(super) fn waker(&self) -> &UnixStream {
        &self.waker
    }

    /// Asks; gives the question back if too many wait.
    pub(super) fn ask(&self, question: Question) -> Result<(), Question> {
        self.questions.try_send(question).map_err(|error| match error {
            TrySendError::Full(question) | TrySendError::Disconnected(question) => question,
        })
    }

    /// The answers that have come.
    pub(super) fn take(&mut self) -> Vec<Found> {
        let mut rung = [0; 64];
        while io::Read::read(&mut self.waker, &mut rung).is_ok_and(|count| count == rung.len()) {}
        self.found.try_iter().collect()
    }
}

fn work(asked: &Mutex<Receiver<Question>>, answers: &Sender<Found>, mut bell: UnixStream) {
    loop {
        let question = asked.lock().ok().and_then(|asked| asked.recv().ok());
        let Some(question) = question else { return };
        let found = Found { stream: question.stream, answers: look_up(&question.name) };
        if answers.send(found).is_err() {
            return;
        }
        // A full pipe has been rung already.
        let _ = io::Write::write(&mut bell, &[1]);
    }
}

fn look_up(name: &str) -> Vec<Answer> {
    let found = match address_of(name) {
        Some(address) => {
            let host = dns_lookup::lookup_addr(&address).ok();
            host.filter(|host| host.parse::<IpAddr>().is_err())
                .into_iter()
                .map(Answer::Name)
                .collect()
        }
        None => addresses(name),
    };
    if found.is_empty() { vec![Answer::Never] } else { found }
}

fn addresses(name: &str) -> Vec<Answer> {
    let Ok(found) = (name, 0).to_socket_addrs() else { return Vec::new() };
    let mut addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    addresses.dedup();
    addresses.into_iter().map(Answer::Address).collect()
}

/// The address that a name of in-addr.arpa or ip6.arpa stands for (RFC 1035, section 3.5; RFC 3596, section 2.5).
fn address_of(name: &str) -> Option<IpAddr> {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    if let Some(labels) = name.strip_suffix(".in-addr.arpa") {
        let octets: Vec<u8> =
            labels.split('.').rev().map(str::parse).collect::<Result<_, _>>().ok()?;
        return <[u8; 4]>::try_from(octets).ok().map(IpAddr::from);
    }
    let labels = name.strip_suffix(".ip6.arpa")?;
    let nibbles: Vec<u8> = labels
        .split('.')
        .rev()
        .map(|label| u8::from_str_radix(label, 16))
        .collect::<Result<_, _>>()
        .ok()?;
    let bytes: Vec<u8> = nibbles.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    let sound = nibbles.len() == 32 && nibbles.iter().all(|&nibble| nibble < 16);
    <[u8; 16]>::try_from(bytes).ok().filter(|_| sound).map(IpAddr::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_addresses_are_read() {
        assert_eq!(address_of("1.2.0.192.in-addr.arpa"), Some("192.0.2.1".parse().unwrap()));
        let v6 = "1.".to_owned() + &"0.".repeat(23) + "8.b.d.0.1.0.0.2.ip6.arpa";
        assert_eq!(address_of(&v6), Some("2001:db8::1".parse().unwrap()));
        for other in ["example.com", "1.2.3.in-addr.arpa", "x.2.3.4.in-addr.arpa", "1.ip6.arpa"] {
            assert_eq!(address_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_name_of_this_machine_is_found_and_nonsense_is_not() {
        let mut resolver = Resolver::start().unwrap();
        for (key, name) in [(1, "localhost"), (2, "no.such.name.invalid")] {
            let question = Question { stream: StreamKey(key), name: name.into() };
            assert!(resolver.ask(question).is_ok());
        }
        let mut found = Vec::new();
        while found.len() < 2 {
            std::thread::sleep(std::time::Duration::from_millis(10));
            found.extend(resolver.take());
        }
        found.sort_by_key(|found| found.stream);
        let is_local =
            |answer: &Answer| matches!(answer, Answer::Address(address) if address.is_loopback());
        assert!(found[0].answers.iter().all(is_local));
        assert_eq!(found[1].answers, [Answer::Never]);
    }
}
