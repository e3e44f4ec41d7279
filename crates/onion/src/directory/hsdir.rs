//! The directory of onion services (HSDir). It stores the descriptors that services publish, and
//! clients request them by key (rend-spec-v3 2.2.6).
//!
//! Services and clients compute which directories are responsible from the time period, the shared
//! random value and the replica. A directory accepts every descriptor, as C tor does, because a
//! service and its directory may have different consensuses. It rejects descriptors of older time
//! periods, because their certificate has expired or will expire soon.

use std::collections::BTreeMap;
use std::fmt;

use super::http::Request;
use super::reply::{Encoding, Reply};
use crate::wire::hsdesc::{HsDescError, HsDescOuter, read_blinded_key};

/// Prefix of the path of clients' requests for descriptors. The blinded key follows it.
const BY_KEY: &str = "/tor/hs/3/";
/// Path for services' uploads of their descriptors.
const PUBLISH: &str = "/tor/hs/3/publish";
/// Maximum total bytes of all descriptors in a directory.
pub const MOST_BYTES: usize = 100 << 20;
/// Memory in bytes that each descriptor takes in addition to its content, for its key and its
/// table entry.
const BESIDE: usize = 128;
/// Divisor of a directory's size limit. When the limit is exceeded, descriptors are removed until
/// an eighth of the limit is free.
const SPARE: usize = 8;
/// Interval in seconds between removals of expired descriptors.
const SWEEP: u64 = 60;
/// Length of an Ed25519 signature in bytes.
const SIGNATURE: usize = 64;

/// The reason why a descriptor is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotStored {
    /// The upload is not a valid descriptor of a service.
    Bad(HsDescError),
    /// The stored descriptor has the same or a higher revision counter. Contains that counter.
    Old(u64),
}

impl fmt::Display for NotStored {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotStored::Bad(error) => error.fmt(out),
            NotStored::Old(revision) => write!(
                out,
                "this directory already has revision \
                                                     {revision} of the descriptor"
            ),
        }
    }
}

/// The descriptors of onion services that a directory stores, by blinded key.
#[derive(Debug)]
pub struct HsDir {
    stored: BTreeMap<[u8; 32], StoredDescriptor>,
    bytes: usize,
    max_bytes: usize,
    swept: u64,
}

impl Default for HsDir {
    fn default() -> HsDir {
        HsDir::new(MOST_BYTES)
    }
}

/// A stored descriptor.
#[derive(Debug)]
struct StoredDescriptor {
    revision: u64,
    /// Time at which the descriptor expires, in seconds since 1970.
    ends: u64,
    kept: StoredContent,
    lifetime: u16,
    fetched: u32,
}

/// A descriptor's content. It is stored as binary parts if possible, because base64 text takes one
/// third more space.
#[derive(Debug)]
enum StoredContent {
    /// Certificate, signature and encrypted part, concatenated, and the certificate's length in
    /// bytes.
    Parts(Box<[u8]>, u16),
    /// The descriptor's text. It is stored if a text rebuilt from the parts would differ from it.
    Text(Box<str>),
}

impl StoredDescriptor {
    fn new(text: &str, outer: &HsDescOuter, ends: u64) -> StoredDescriptor {
        let kept = match u16::try_from(outer.cert.len()) {
            Ok(length) if outer.text() == text => {
                let parts = [&outer.cert[..], &outer.signature, &outer.encrypted].concat();
                StoredContent::Parts(parts.into(), length)
            }
            _ => StoredContent::Text(text.into()),
        };
        StoredDescriptor {
            revision: outer.revision,
            ends,
            kept,
            lifetime: outer.lifetime,
            fetched: 0,
        }
    }

    fn bytes(&self) -> usize {
        BESIDE
            + match &self.kept {
                StoredContent::Parts(parts, _) => parts.len(),
                StoredContent::Text(text) => text.len(),
            }
    }

    fn text(&self, blinded_key: [u8; 32]) -> String {
        let (parts, length) = match &self.kept {
            StoredContent::Text(text) => return text.to_string(),
            StoredContent::Parts(parts, length) => (parts, usize::from(*length)),
        };
        let (cert, rest) = parts.split_at(length);
        let (signature, encrypted) = rest.split_at(SIGNATURE);
        let outer = HsDescOuter {
            blinded_key,
            revision: self.revision,
            lifetime: self.lifetime,
            cert: cert.to_vec(),
            encrypted: encrypted.to_vec(),
            signature: signature
                .try_into()
                .expect("the stored parts begin with a certificate and a signature"),
        };
        outer.text()
    }
}

impl HsDir {
    /// Creates an empty directory. Its descriptors may use at most `max_bytes` bytes.
    #[must_use]
    pub fn new(max_bytes: usize) -> HsDir {
        HsDir { stored: BTreeMap::new(), bytes: 0, max_bytes, swept: 0 }
    }

    /// Returns whether a request concerns the descriptors of onion services.
    #[must_use]
    pub fn is_asked(request: &Request) -> bool {
        request.path.starts_with("/tor/hs/")
    }

    /// Answers a request for which [`HsDir::is_asked`] is true. `by_relay` is true if the request
    /// arrived through a relay. A direct request is refused, as in C tor, because it would reveal
    /// to the directory which client requests which service.
    pub fn answer(&mut self, request: &Request, by_relay: bool, unix_now: u64) -> Reply {
        if !by_relay {
            return Reply::new(503, "Requests about onion services need a circuit of several hops");
        }
        if request.get {
            let key = request.path.strip_prefix(BY_KEY).and_then(read_blinded_key);
            return match key.and_then(|key| self.find(&key, unix_now)) {
                Some(text) => Reply::packed(text.into_bytes().into(), Encoding::Identity),
                None => Reply::new(404, "Not found"),
            };
        }
        let text = std::str::from_utf8(&request.body).ok().filter(|_| request.path == PUBLISH);
        match text.map(|text| self.publish(text, unix_now)) {
            Some(Ok(())) => Reply::new(200, "HS descriptor stored successfully."),
            Some(Err(why)) => Reply::new(400, &format!("HS descriptor rejected: {why}")),
            None => Reply::new(400, "HS descriptor rejected"),
        }
    }

    /// Checks and stores a descriptor.
    ///
    /// # Errors
    /// Returns [`NotStored`] if the descriptor is invalid or not newer than the stored one.
    pub fn publish(&mut self, text: &str, unix_now: u64) -> Result<(), NotStored> {
        self.sweep(unix_now);
        let outer = HsDescOuter::check(text, unix_now).map_err(NotStored::Bad)?;
        if let Some(old) = self.stored.get(&outer.blinded_key)
            && old.ends > unix_now
            && old.revision >= outer.revision
        {
            return Err(NotStored::Old(old.revision));
        }
        let ends = unix_now + 60 * u64::from(outer.lifetime);
        let stored = StoredDescriptor::new(text, &outer, ends);
        self.bytes += stored.bytes();
        let before = self.stored.insert(outer.blinded_key, stored);
        self.bytes -= before.map_or(0, |before| before.bytes());
        self.relieve(&outer.blinded_key);
        Ok(())
    }

    /// Returns the text of the descriptor with the key `blinded_key`; `None` if there is none, or
    /// if it has expired.
    pub fn find(&mut self, blinded_key: &[u8; 32], unix_now: u64) -> Option<String> {
        let stored = self.stored.get_mut(blinded_key).filter(|stored| stored.ends > unix_now)?;
        stored.fetched = stored.fetched.saturating_add(1);
        Some(stored.text(*blinded_key))
    }

    /// Returns the number of stored descriptors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.stored.len()
    }

    /// Returns whether no descriptors are stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stored.is_empty()
    }

    /// Returns the memory used by the descriptors, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Removes expired descriptors. Acts at most once in `SWEEP` seconds, unless the clock was set
    /// back.
    fn sweep(&mut self, unix_now: u64) {
        if (self.swept..self.swept + SWEEP).contains(&unix_now) {
            return;
        }
        self.swept = unix_now;
        self.stored.retain(|_, stored| stored.ends > unix_now);
        self.bytes = self.stored.values().map(StoredDescriptor::bytes).sum();
    }

    /// Frees space if the limit is exceeded. Removes the descriptors with the fewest fetches
    /// first, and among equal ones the earliest to expire. The descriptor with the key `newest`
    /// stays, as in C tor, because its publisher cannot know the limit.
    fn relieve(&mut self, newest: &[u8; 32]) {
        if self.bytes <= self.max_bytes {
            return;
        }
        let others = self.stored.iter().filter(|(key, _)| *key != newest);
        let mut order: Vec<(u32, u64, [u8; 32])> =
            others.map(|(key, stored)| (stored.fetched, stored.ends, *key)).collect();
        order.sort_unstable();
        for (_, _, key) in order {
            if self.bytes <= self.max_bytes - self.max_bytes / SPARE {
                break;
            }
            self.bytes -= self.stored.remove(&key).map_or(0, |stored| stored.bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use anabranch_testkit::onion_service;

    use super::*;
    use crate::directory::http::{RequestReader, get, post};
    use crate::wire::hsdesc::put_blinded_key;

    const NOW: u64 = 1_800_000_000;

    fn descriptor(service: u8, revision: u64, bytes: usize) -> HsDescOuter {
        let seeds = [[service; 32], [service ^ 128; 32]];
        let encrypted = vec![service; bytes];
        let text = onion_service::descriptor(seeds, NOW + 86_400, revision, &encrypted);
        HsDescOuter::check(&text, NOW).unwrap()
    }

    fn status(dir: &mut HsDir, bytes: &[u8], by_relay: bool) -> (u16, String) {
        let request = RequestReader::new(60_000).push(bytes).unwrap().unwrap();
        assert!(HsDir::is_asked(&request));
        let reply = dir.answer(&request, by_relay, NOW);
        let text = String::from_utf8(reply.bytes()).unwrap();
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        (reply.status(), body.to_owned())
    }

    #[test]
    fn what_is_published_is_found_by_its_blinded_key_until_it_ends() {
        let (mut dir, one) = (HsDir::default(), descriptor(1, 5, 10_048));
        let put = post(PUBLISH, "127.0.0.1", one.text().as_bytes());
        let ask = get(&format!("{BY_KEY}{}", put_blinded_key(&one.blinded_key)));
        assert_eq!(status(&mut dir, &ask, true).0, 404);
        assert_eq!(status(&mut dir, &put, true).0, 200);
        assert_eq!(status(&mut dir, &ask, true), (200, one.text()));
        assert_eq!(status(&mut dir, &get("/tor/hs/3/nonsense"), true).0, 404);
        assert_eq!(status(&mut dir, &get("/tor/hs/2/abc"), true).0, 404);
        assert_eq!(dir.find(&one.blinded_key, NOW + 3 * 3600), None, "three hours later");
        dir.publish(&descriptor(2, 1, 10).text(), NOW + 3 * 3600).unwrap();
        assert_eq!((dir.len(), dir.bytes() < 1000), (1, true), "it is forgotten");
    }

    #[test]
    fn who_comes_without_a_relay_is_refused() {
        let (mut dir, one) = (HsDir::default(), descriptor(1, 5, 100));
        let put = post(PUBLISH, "127.0.0.1", one.text().as_bytes());
        let ask = get(&format!("{BY_KEY}{}", put_blinded_key(&one.blinded_key)));
        assert_eq!(status(&mut dir, &put, false).0, 503);
        assert!(dir.is_empty());
        assert_eq!(status(&mut dir, &put, true).0, 200);
        assert_eq!(status(&mut dir, &ask, false).0, 503);
    }

    #[test]
    fn only_a_higher_revision_takes_the_place_of_one() {
        let mut dir = HsDir::default();
        let mut publish = |revision| dir.publish(&descriptor(1, revision, 100).text(), NOW);
        assert_eq!(publish(5), Ok(()));
        assert_eq!(publish(5), Err(NotStored::Old(5)), "replayed");
        assert_eq!(publish(4), Err(NotStored::Old(5)));
        assert_eq!(publish(6), Ok(()));
        let bytes = dir.bytes();
        let key = descriptor(1, 6, 100).blinded_key;
        assert_eq!(dir.find(&key, NOW), Some(descriptor(1, 6, 100).text()));
        dir.sweep(NOW + 61);
        assert_eq!((dir.len(), dir.bytes()), (1, bytes));
        let put = post(PUBLISH, "x", descriptor(1, 5, 100).text().as_bytes());
        assert_eq!(status(&mut dir, &put, true).0, 400);
        assert_eq!(status(&mut dir, &post("/tor/hs/2/publish", "x", b"y"), true).0, 400);
        assert_eq!(status(&mut dir, &post(PUBLISH, "x", b"\xff"), true).0, 400);
    }

    #[test]
    fn what_is_not_written_as_stock_services_do_is_given_back_as_it_came() {
        // The service has signed the descriptor, although it contains an unknown line.
        let outer = descriptor(3, 1, 100);
        let text = outer.text().replace("hs-descriptor 3\n", "hs-descriptor 3\nnews\n");
        let stored = StoredDescriptor::new(&text, &outer, NOW);
        assert_eq!(
            (stored.text(outer.blinded_key), stored.bytes()),
            (text.clone(), BESIDE + text.len())
        );
    }

    #[test]
    fn a_flood_of_descriptors_is_bounded_and_drives_out_what_nobody_fetches() {
        let max_bytes = 200_000;
        let mut dir = HsDir::new(max_bytes);
        let wanted = descriptor(200, 1, 5_000);
        dir.publish(&wanted.text(), NOW).unwrap();
        (0..2).for_each(|_| assert!(dir.find(&wanted.blinded_key, NOW).is_some()));
        for service in 0..120 {
            let one = descriptor(service, 1, 5_000);
            dir.publish(&one.text(), NOW + u64::from(service)).unwrap();
            assert!(dir.bytes() <= max_bytes, "{} bytes", dir.bytes());
            assert!(dir.find(&one.blinded_key, NOW + u64::from(service)).is_some());
        }
        let sum: usize = dir.stored.values().map(StoredDescriptor::bytes).sum();
        assert_eq!(sum, dir.bytes());
        assert!(dir.len() > 20 && dir.find(&wanted.blinded_key, NOW + 200).is_some());
    }
}
