//! Rotation of the keys of a relay's TLS links.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_onion::wire::keys::{LinkKey, RelayKeys};
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};

use crate::onion::dirclient::unix;

/// Lifetime of a TLS link key and its certificate. C tor has the same lifetime, so observers
/// cannot recognise this relay by its key rotation.
const ROTATION: Duration = Duration::from_secs(2 * 3600);

/// Generator of TLS link keys. It runs on its own thread, because generating an RSA key takes
/// longer than cells may wait.
#[derive(Default)]
pub(super) struct LinkKeys {
    begun: Time,
    coming: Option<Receiver<io::Result<LinkKey>>>,
}

impl LinkKeys {
    /// Returns a new TLS key if it has been generated; `None` otherwise. Must be called about once
    /// a second.
    pub(super) fn made(&mut self, now: Time, keys: &Arc<RelayKeys>) -> Option<io::Result<LinkKey>> {
        if now.since(self.begun) >= ROTATION {
            self.begun = now;
            match begin(Arc::clone(keys)) {
                Ok(coming) => self.coming = Some(coming),
                Err(error) => return Some(Err(error)),
            }
        }
        let made = match self.coming.as_ref()?.try_recv() {
            Ok(made) => made,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => {
                Err(io::Error::other("the thread that makes the key has panicked"))
            }
        };
        self.coming = None;
        Some(made)
    }
}

/// Generates a TLS key and certificate for links of the relay with the identity `keys`.
///
/// # Errors
/// The kernel returns no randomness, or the library fails to generate the key.
pub(super) fn link_key(keys: &RelayKeys) -> io::Result<LinkKey> {
    // The library of the other keys takes twice as long for this key, and eight times as long
    // during `anabranch up`.
    let pair = KeyPair::generate(KeySize::Rsa2048).map_err(io::Error::other)?;
    let private: Pkcs8V1Der<'_> = pair.as_der().map_err(io::Error::other)?;
    let rng = &mut anabranch_os::entropy::generator()?;
    keys.link_key(rng, private.as_ref().to_vec(), unix()).map_err(io::Error::other)
}

fn begin(keys: Arc<RelayKeys>) -> io::Result<Receiver<io::Result<LinkKey>>> {
    let (bring, coming) = sync_channel(1);
    // If there is no receiver, the relay has ended meanwhile.
    let work = move || drop(bring.send(link_key(&keys)));
    thread::Builder::new().name("link key".into()).spawn(work)?;
    Ok(coming)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use anabranch_multipath::seed::stream;

    use super::*;

    #[test]
    fn a_new_key_is_made_every_two_hours_and_nobody_waits_for_it() {
        let keys = Arc::new(RelayKeys::generate(&mut stream(1, 0, "relay"), unix()).unwrap());
        let mut link_keys = LinkKeys::default();
        assert!(link_keys.made(Time::from_secs(7199), &keys).is_none());
        let mut certificates = Vec::new();
        for round in 1..=2 {
            let end = Instant::now() + Duration::from_secs(60);
            let made = loop {
                if let Some(made) = link_keys.made(Time::from_secs(round * 7200), &keys) {
                    break made.unwrap();
                }
                assert!(Instant::now() < end, "it takes too long");
                thread::sleep(Duration::from_millis(20));
            };
            certificates.push(made.certificate);
            assert!(link_keys.made(Time::from_secs(round * 7200 + 7199), &keys).is_none());
        }
        assert_ne!(certificates[0], certificates[1]);
    }
}
