//! Rotation of a relay's keys: its signing and onion keys are replaced at intervals. A replaced
//! onion key stays valid for a while, for clients whose consensus still names it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use anabranch_onion::wire::crypto::CurveKeys;
use anabranch_onion::wire::keys::{ONION_FILES, RelayKeys, ntor_of_file};
use rand_core::CryptoRng;

use super::kept::read_bytes;
use super::store::{StoreError, load, load_or_make, replace, save};

const DAY_S: u64 = 24 * 3600;
/// Lifetime of an onion key in seconds (dir-spec: default of `onion-key-rotation-days`).
const ROTATION_S: u64 = 28 * DAY_S;
/// Time in seconds for which an onion key is still accepted after its lifetime (dir-spec: default
/// of `onion-key-grace-period-days`).
const GRACE_S: u64 = 7 * DAY_S;

/// A relay's keys, in the folder `keys` of its data folder. As in C tor, a replaced onion key is
/// stored in a file with the suffix `.old`. The modification time of an onion key's file is the
/// key's creation time.
pub struct KeyRing {
    folder: PathBuf,
    keys: Arc<RelayKeys>,
    previous: Option<[u8; 32]>,
}

impl KeyRing {
    /// Reads the relay's keys, or generates them if there are none. Replaces keys that are too
    /// old.
    ///
    /// # Errors
    /// Keys cannot be read or written, or do not match each other.
    pub fn open<R: CryptoRng>(
        data: &Path,
        rng: &mut R,
        unix_now: u64,
    ) -> Result<KeyRing, StoreError> {
        let keys = Arc::new(load_or_make(data, rng, unix_now)?);
        let folder = data.join("keys");
        let previous = previous(&folder)?;
        let mut ring = KeyRing { folder, keys, previous };
        ring.renew(rng, unix_now)?;
        Ok(ring)
    }

    /// Returns the relay's data folder, which contains the folder `keys`.
    #[must_use]
    pub fn data(&self) -> &Path {
        self.folder.parent().unwrap_or(&self.folder)
    }

    /// Returns the relay's current keys.
    #[must_use]
    pub fn keys(&self) -> &Arc<RelayKeys> {
        &self.keys
    }

    /// Returns the onion keys that clients' circuits may use, the current key first.
    #[must_use]
    pub fn onion_keys(&self) -> Vec<CurveKeys> {
        let secrets = [Some(self.keys.ntor().0), self.previous];
        secrets.into_iter().flatten().map(CurveKeys::from).collect()
    }

    /// Replaces keys that are too old, and drops a replaced onion key after its grace period.
    /// Returns whether any key has changed. Replacing the onion keys includes generating an RSA
    /// key, which blocks for a moment.
    ///
    /// # Errors
    /// Files cannot be read or written. The keys do not change then.
    pub fn renew<R: CryptoRng>(&mut self, rng: &mut R, unix_now: u64) -> Result<bool, StoreError> {
        let age = unix_now.saturating_sub(made(&self.folder)?);
        let (signing, onion) = (self.keys.signing_is_old(unix_now), age >= ROTATION_S);
        let over = self.previous.is_some() && age >= GRACE_S;
        if over {
            ONION_FILES.iter().for_each(|name| drop(fs::remove_file(old(&self.folder, name))));
            self.previous = None;
        }
        if !signing && !onion {
            return Ok(over);
        }
        let to_error = |error| StoreError::Keys(self.folder.clone(), error);
        let mut keys = load(&self.folder)?;
        if signing {
            keys.renew_signing(rng, unix_now).map_err(to_error)?;
        }
        if onion {
            keys.renew_onion(rng).map_err(to_error)?;
            ONION_FILES.iter().try_for_each(|name| set_aside(&self.folder, name))?;
        }
        save(&self.folder, &keys)?;
        if onion {
            self.previous = Some(self.keys.ntor().0);
        }
        self.keys = Arc::new(keys);
        Ok(true)
    }
}

fn old(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.old"))
}

fn set_aside(folder: &Path, name: &str) -> Result<(), StoreError> {
    let path = folder.join(name);
    let content = fs::read(&path).map_err(|error| StoreError::File(path, error))?;
    replace(&old(folder, name), &content)
}

/// Returns the time at which the current onion keys were made, in seconds since 1970.
fn made(folder: &Path) -> Result<u64, StoreError> {
    let path = folder.join(ONION_FILES[0]);
    let modified = fs::metadata(&path).and_then(|metadata| metadata.modified());
    let time = modified.map_err(|error| StoreError::File(path, error))?;
    Ok(time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// Reads the onion key that was in use before the current key; `None` if there is no file of it.
fn previous(folder: &Path) -> Result<Option<[u8; 32]>, StoreError> {
    let Some(content) = read_bytes(&old(folder, ONION_FILES[0]))? else { return Ok(None) };
    let to_error = |error| StoreError::Keys(folder.to_owned(), error);
    ntor_of_file(&content).map(Some).map_err(to_error)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::onion::dirclient::unix;

    /// Makes the current onion key `days` days old.
    fn age(ring: &KeyRing, days: u64) {
        let then = SystemTime::now() - Duration::from_secs(days * DAY_S);
        let file = fs::File::options().append(true).open(ring.folder.join(ONION_FILES[0]));
        file.unwrap().set_modified(then).unwrap();
    }

    fn secrets(ring: &KeyRing) -> Vec<[u8; 32]> {
        ring.onion_keys().iter().map(|keys| *keys.public()).collect()
    }

    #[test]
    fn an_old_onion_key_is_replaced_and_honoured_for_a_week() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path().join("relay");
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let mut ring = KeyRing::open(&data, &mut rng, unix()).unwrap();
        let first = secrets(&ring);
        assert_eq!(first.len(), 1);
        age(&ring, 27);
        assert!(!ring.renew(&mut rng, unix()).unwrap(), "not yet");
        age(&ring, 29);
        let identity = ring.keys().ed_identity();
        assert!(ring.renew(&mut rng, unix()).unwrap());
        let both = secrets(&ring);
        assert!(both.len() == 2 && both[0] != first[0] && both[1] == first[0]);
        assert_eq!(ring.keys().ed_identity(), identity);
        let ring = KeyRing::open(&data, &mut rng, unix()).unwrap();
        assert_eq!(secrets(&ring), both, "a restart forgets neither");
        age(&ring, 8);
        let ring = KeyRing::open(&data, &mut rng, unix()).unwrap();
        assert_eq!(secrets(&ring), both[..1], "its time is over");
        assert_eq!(fs::read_dir(&ring.folder).unwrap().count(), 7, "its files are gone");
    }

    #[test]
    fn a_new_signing_key_does_not_make_onion_keys_young() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path().join("relay");
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let mut ring = KeyRing::open(&data, &mut rng, unix()).unwrap();
        let (before, cert) = (made(&ring.folder).unwrap(), ring.keys().signing_cert().to_vec());
        assert!(ring.renew(&mut rng, unix() + 26 * DAY_S).unwrap());
        assert_ne!(ring.keys().signing_cert(), cert);
        assert_eq!((made(&ring.folder).unwrap(), secrets(&ring).len()), (before, 1));
    }
}
