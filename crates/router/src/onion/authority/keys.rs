//! An authority's long-term keys on disk, in C tor's files: the identity key, the signing key and
//! its certificate. The identity key may be kept on another machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anabranch_onion::wire::dirkeys::{AuthorityKeys, BadKeys, IdentityKey, SignatureError};
use anabranch_onion::wire::netdoc::{AuthorityCert, parse_certs};
use rand_core::CryptoRng;

use crate::onion::kept::{StateContent, damaged, read_text, set_aside};
use crate::onion::store::{StoreError, is_any_there, private_folder, replace};

/// Name of the file with the identity key (C tor's name).
const IDENTITY: &str = "authority_identity_key";
/// Name of the file with the signing key (C tor's name).
const SIGNING: &str = "authority_signing_key";
/// Name of the file with the certificate in which the identity key certifies the signing key (C
/// tor's name).
const CERTIFICATE: &str = "authority_certificate";
/// Name of the file with the previous certificate. It is still served, because its signing key may
/// have signed the latest consensus.
const BEFORE: &str = "authority_certificate.old";
/// Name of the file with a new certificate. The file is renamed to its final name once the
/// certified signing key is on disk.
const COMING: &str = "authority_certificate.coming";
/// Time in seconds before a certificate's expiry at which the authority renews the certificate.
/// For short-lived certificates, a third of their lifetime is used instead.
const EARLY: u64 = 30 * 86_400;
/// Time, in seconds, from the start of a new certificate's validity to its creation. The validity
/// starts early so that machines with slow clocks accept the certificate at once.
const SKEW: u64 = 600;

/// Identity and signing keys of an authority, in the folder `keys` of its data folder.
pub struct AuthorityKeyStore {
    folder: PathBuf,
    /// Identity key; `None` if the operator keeps it on another machine.
    identity: Option<IdentityKey>,
    certified_for: u64,
    present: AuthorityCert,
    before: Option<AuthorityCert>,
    /// Messages about damaged certificate files that were renamed.
    troubles: Vec<String>,
}

impl AuthorityKeyStore {
    /// Reads the authority's keys, and generates missing ones. Certificates of new signing keys
    /// are valid for `certified_for` seconds.
    ///
    /// # Errors
    /// A file cannot be read or written, is malformed, or does not match the other files.
    /// Then no file is changed, except damaged certificates that the authority can run without
    /// ([`AuthorityKeyStore::troubles`]).
    pub fn open<R: CryptoRng>(
        data: &Path,
        rng: &mut R,
        unix_now: u64,
        certified_for: u64,
    ) -> Result<(AuthorityKeyStore, AuthorityKeys), StoreError> {
        let folder = data.join("keys");
        private_folder(&folder)?;
        let identity = match is_any_there(&folder, &[IDENTITY, SIGNING, CERTIFICATE])? {
            true => identity(&folder)?,
            false => Some(make_identity(&folder, rng)?),
        };
        let mut troubles = Vec::new();
        let keys = match (is_any_there(&folder, &[SIGNING, CERTIFICATE])?, &identity) {
            (false, Some(identity)) => certify(&folder, identity, rng, [unix_now, certified_for])?,
            _ => signing(&folder, &mut troubles)?,
        };
        let id = keys.cert().keys().0;
        if identity.as_ref().is_some_and(|identity| identity.identity() != id) {
            let message = format!(
                "this authority's certificate was made with another identity key: remove {SIGNING} \
                 and {CERTIFICATE}, so that new ones are made, or put back the right {IDENTITY}"
            );
            return Err(strange(&folder.join(CERTIFICATE), message));
        }
        let (present, before) = (keys.cert().clone(), before(&folder, &mut troubles)?);
        Ok((AuthorityKeyStore { folder, identity, certified_for, present, before, troubles }, keys))
    }

    /// Returns messages about damaged files that were renamed.
    #[must_use]
    pub fn troubles(&self) -> &[String] {
        &self.troubles
    }

    /// Sets the lifetime of the next signing key's certificate to `seconds`.
    pub fn set_certified_for(&mut self, seconds: u64) {
        self.certified_for = seconds;
    }

    /// Returns the digest of the identity key, which is `v3ident` in `DirAuthority` lines.
    #[must_use]
    pub fn identity(&self) -> [u8; 20] {
        self.present.keys().0
    }

    /// Returns the certificates that clients may need, the current certificate first.
    #[must_use]
    pub fn certificates(&self) -> Vec<AuthorityCert> {
        [self.present.clone()].into_iter().chain(self.before.clone()).collect()
    }

    /// Returns whether the current certificate has expired at `unix_now`, or is due for renewal.
    #[must_use]
    pub fn is_old(&self, unix_now: u64) -> bool {
        let (from, until) = self.present.holds();
        unix_now + EARLY.min(until.saturating_sub(from) / 3) >= until
    }

    /// Returns the time at which the signing key's current certificate expires, in seconds since
    /// 1970.
    #[must_use]
    pub fn ends(&self) -> u64 {
        self.present.holds().1
    }

    /// Generates a new signing key with `rng`, and certifies it with the identity key.
    ///
    /// # Errors
    /// The identity key is not on this machine, or a file cannot be written. The current
    /// keys stay in use then.
    pub fn renew<R: CryptoRng>(
        &mut self,
        rng: &mut R,
        unix_now: u64,
    ) -> Result<AuthorityKeys, StoreError> {
        let Some(identity) = &self.identity else {
            let message = "the identity key is not in this folder, so no new signing key can be \
                           certified. On the machine with the identity key, make \
                           authority_signing_key and authority_certificate, and copy both to this \
                           folder";
            return Err(strange(&self.folder.join(IDENTITY), message));
        };
        replace(&self.folder.join(BEFORE), self.present.text().as_bytes())?;
        let keys = certify(&self.folder, identity, rng, [unix_now, self.certified_for])?;
        self.before = Some(std::mem::replace(&mut self.present, keys.cert().clone()));
        Ok(keys)
    }
}

fn strange(path: &Path, what: impl ToString) -> StoreError {
    StoreError::File(path.to_owned(), io::Error::other(what.to_string()))
}

fn identity(folder: &Path) -> Result<Option<IdentityKey>, StoreError> {
    let path = folder.join(IDENTITY);
    let cure = "restore this file from a copy. Without a copy, remove the authority's folder: a \
                new authority is created, and each relay and client needs the new DirAuthority \
                line";
    let Some(text) = key_text(&path, cure)? else { return Ok(None) };
    let bad = |error: BadKeys| damaged(&path, &error.to_string(), cure);
    IdentityKey::from_pem(&text).map(Some).map_err(bad)
}

/// Reads the key file `path`. Returns `None` if the file does not exist. If it is damaged, the
/// authority does not start.
///
/// # Errors
/// The file cannot be read, is empty, or is not text. The error text includes `cure`, the
/// remedy.
fn key_text(path: &Path, cure: &str) -> Result<Option<String>, StoreError> {
    match read_text(path)? {
        StateContent::Absent => Ok(None),
        StateContent::Damaged(why) => Err(damaged(path, &why, cure)),
        StateContent::Whole(text) if text.trim().is_empty() => {
            Err(damaged(path, "it is empty", cure))
        }
        StateContent::Whole(text) => Ok(Some(text)),
    }
}

fn make_identity(folder: &Path, rng: &mut impl CryptoRng) -> Result<IdentityKey, StoreError> {
    let path = folder.join(IDENTITY);
    let to_error = |error: SignatureError| strange(&path, error);
    let identity = IdentityKey::generate(rng).map_err(to_error)?;
    replace(&path, identity.to_pem().map_err(to_error)?.as_bytes())?;
    Ok(identity)
}

/// Generates a signing key, certifies it with `identity`, and writes the files of the key and its
/// certificate. If the program ends before both files are written, [`signing`] completes or
/// discards the change at the next start.
fn certify(
    folder: &Path,
    identity: &IdentityKey,
    rng: &mut impl CryptoRng,
    [now, seconds]: [u64; 2],
) -> Result<AuthorityKeys, StoreError> {
    let to_error = |error: SignatureError| strange(&folder.join(SIGNING), error);
    let keys = identity.certify(rng, now.saturating_sub(SKEW), now + seconds).map_err(to_error)?;
    let coming = folder.join(COMING);
    replace(&coming, keys.certificate().as_bytes())?;
    let pem = keys.to_pem().map_err(to_error)?;
    if let Err(error) = replace(&folder.join(SIGNING), pem.as_bytes()) {
        let _ = fs::remove_file(&coming);
        return Err(error);
    }
    rename(folder)?;
    Ok(keys)
}

fn rename(folder: &Path) -> Result<(), StoreError> {
    let path = folder.join(CERTIFICATE);
    fs::rename(folder.join(COMING), &path).map_err(|error| StoreError::File(path, error))
}

/// Reads the signing key and its certificate from `folder`. If an interrupted renewal left a
/// damaged certificate, renames its file and adds a message to `troubles`.
fn signing(folder: &Path, troubles: &mut Vec<String>) -> Result<AuthorityKeys, StoreError> {
    let cure = format!(
        "if {IDENTITY} is in the same folder, remove {SIGNING} and {CERTIFICATE}, so that new \
         ones are made; otherwise copy {SIGNING} and {CERTIFICATE} here again"
    );
    let read = |name: &str| {
        let path = folder.join(name);
        let missing = || strange(&path, format!("this file is missing: {cure}"));
        key_text(&path, &cure)?.ok_or_else(missing)
    };
    let key = read(SIGNING)?;
    let coming =
        certificate(&folder.join(COMING), "the current certificate stays in use", troubles)?;
    if let Some(coming) = coming
        && let Ok(keys) = AuthorityKeys::from_files(&key, coming.text())
    {
        rename(folder)?;
        return Ok(keys);
    }
    let to_error = |bad: BadKeys| strange(&folder.join(SIGNING), format!("{bad}; {cure}"));
    AuthorityKeys::from_files(&key, &read(CERTIFICATE)?).map_err(to_error)
}

/// Reads the previous certificate from `folder`; `None` if there is none. If its file is damaged,
/// renames the file, adds a message to `troubles`, and also returns `None`.
fn before(folder: &Path, troubles: &mut Vec<String>) -> Result<Option<AuthorityCert>, StoreError> {
    let instead = "clients cannot verify documents that the previous signing key signed";
    certificate(&folder.join(BEFORE), instead, troubles)
}

/// Reads a certificate whose loss is harmless for the authority. Returns `None` if the file is
/// absent or damaged. If the file is damaged, renames it and adds a message to `troubles`.
/// `instead` describes the consequence of the damage, and becomes part of the message.
fn certificate(
    path: &Path,
    instead: &str,
    troubles: &mut Vec<String>,
) -> Result<Option<AuthorityCert>, StoreError> {
    let why = match read_text(path)? {
        StateContent::Absent => return Ok(None),
        StateContent::Damaged(why) => why,
        StateContent::Whole(text) => match parse_certs(&text) {
            Ok((mut certs, 0)) if certs.len() == 1 => return Ok(certs.pop()),
            Ok(_) => {
                "it does not contain exactly one certificate with a valid signature".to_owned()
            }
            Err(error) => error.to_string(),
        },
    };
    troubles.push(set_aside(path, &why, instead)?);
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    const NOW: u64 = 1_800_000_000;
    const YEAR: u64 = 365 * 86_400;

    fn open(data: &Path) -> Result<(AuthorityKeyStore, AuthorityKeys), StoreError> {
        AuthorityKeyStore::open(data, &mut ChaCha20Rng::seed_from_u64(1), NOW, YEAR)
    }

    #[test]
    fn keys_are_made_once_renewed_in_time_and_survive_what_is_cut_short() {
        let data = tempfile::tempdir().unwrap();
        let (mut key_store, first) = open(data.path()).unwrap();
        let folder = data.path().join("keys");
        for file in fs::read_dir(&folder).unwrap() {
            let mode = file.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "only its owner reads it");
        }
        let (again, same) = open(data.path()).unwrap();
        assert_eq!(again.identity(), key_store.identity());
        assert_eq!(same.certificate(), first.certificate());
        assert!(!key_store.is_old(NOW) && key_store.is_old(NOW + YEAR - EARLY));
        let mut rng = ChaCha20Rng::seed_from_u64(2);
        let second = key_store.renew(&mut rng, NOW + YEAR - EARLY).unwrap();
        assert_ne!(second.certificate(), first.certificate());
        assert!(!key_store.is_old(NOW + YEAR - EARLY));
        let texts = |key_store: &AuthorityKeyStore| -> Vec<String> {
            key_store.certificates().iter().map(|cert| cert.text().to_owned()).collect()
        };
        assert_eq!(texts(&key_store), [second.certificate(), first.certificate()]);
        // The renewal was interrupted after one of its two files was written.
        fs::rename(folder.join(CERTIFICATE), folder.join(COMING)).unwrap();
        fs::copy(folder.join(BEFORE), folder.join(CERTIFICATE)).unwrap();
        let (again, keys) = open(data.path()).unwrap();
        assert_eq!(keys.certificate(), second.certificate());
        assert_eq!(texts(&again), texts(&key_store));
        damaged_certificates_are_set_aside(data.path(), &folder);
        half_a_key_and_strangers_keys_are_told(data.path(), &folder);
    }

    fn damaged_certificates_are_set_aside(data: &Path, folder: &Path) {
        let whole = fs::read(folder.join(BEFORE)).unwrap();
        let mut bent = whole.clone();
        let place = bent.len() / 2;
        bent[place] ^= 1;
        let damaged = [&whole[..whole.len() / 2], b"", b"nonsense\n", &bent, b"\xff"];
        for (number, text) in damaged.iter().enumerate() {
            fs::write(folder.join(BEFORE), text).unwrap();
            fs::write(folder.join(COMING), text).unwrap();
            let (key_store, _) = open(data).unwrap();
            assert_eq!(key_store.certificates().len(), 1, "{number}: the present one");
            for (name, trouble) in [COMING, BEFORE].into_iter().zip(key_store.troubles()) {
                let ending = if number == 0 { String::new() } else { format!("-{}", number + 1) };
                let aside = format!("{name}.damaged{ending}");
                assert!(trouble.contains(&format!("/{name} was damaged")), "{trouble}");
                assert_eq!(fs::read(folder.join(aside)).unwrap(), *text, "{trouble}");
                assert!(!folder.join(name).exists());
            }
            assert_eq!(key_store.troubles().len(), 2);
            assert!(open(data).unwrap().0.troubles().is_empty(), "it is reported once");
        }
        fs::write(folder.join(BEFORE), whole).unwrap();
    }

    fn half_a_key_and_strangers_keys_are_told(data: &Path, folder: &Path) {
        let path = folder.join(SIGNING);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let error = open(data).err().unwrap().to_string();
        assert!(error.contains(SIGNING) && error.contains("remove"), "{error}");
        assert_eq!(fs::read(&path).unwrap().len(), whole.len() / 2, "it is left as it is");
        fs::write(&path, &whole).unwrap();
        let identity = fs::read(folder.join(IDENTITY)).unwrap();
        fs::remove_file(folder.join(IDENTITY)).unwrap();
        let (mut key_store, _) = open(data).unwrap();
        let error = key_store.renew(&mut ChaCha20Rng::seed_from_u64(3), NOW).err().unwrap();
        assert!(error.to_string().contains("the identity key is not in this folder"), "{error}");
        fs::write(folder.join(IDENTITY), &identity[..identity.len() / 2]).unwrap();
        let error = open(data).err().unwrap().to_string();
        assert!(error.contains(IDENTITY), "{error}");
        let mut rng = ChaCha20Rng::seed_from_u64(4);
        let other = IdentityKey::generate(&mut rng).unwrap().to_pem().unwrap();
        fs::write(folder.join(IDENTITY), other).unwrap();
        let error = open(data).err().unwrap().to_string();
        assert!(error.contains("another identity"), "{error}");
    }

    #[test]
    fn empty_unreadable_and_missing_keys_are_reported_with_the_remedy() {
        let data = tempfile::tempdir().unwrap();
        open(data.path()).unwrap();
        let folder = data.path().join("keys");
        for (name, cure) in [
            (IDENTITY, "restore this file from a copy"),
            (SIGNING, "so that new ones are made"),
            (CERTIFICATE, "so that new ones are made"),
        ] {
            let path = folder.join(name);
            let whole = fs::read(&path).unwrap();
            let open_error = || open(data.path()).err().unwrap().to_string();
            for (text, why) in [(&b""[..], "it is empty"), (b"\xff", "it is not text")] {
                fs::write(&path, text).unwrap();
                let error = open_error();
                assert!(error.contains(name) && error.contains(why), "{error}");
                assert!(error.contains(cure), "{error}");
                assert_eq!(fs::read(&path).unwrap(), text, "{name} is left as it is");
            }
            fs::remove_file(&path).unwrap();
            if name != IDENTITY {
                let error = open_error();
                assert!(error.contains(name) && error.contains("missing"), "{error}");
                assert!(error.contains(cure), "{error}");
            }
            // A folder cannot be read as a file, even by root.
            fs::create_dir(&path).unwrap();
            let error = open_error();
            assert!(error.contains(name) && error.contains("cannot be read"), "{error}");
            assert!(error.contains("make it readable"), "{error}");
            fs::remove_dir(&path).unwrap();
            fs::write(&path, whole).unwrap();
        }
        open(data.path()).unwrap();
    }
}
