//! A relay's keys on disk, the lock and permissions of their folder, and atomic replacement of
//! files. To replace a file, the new file is written under another name and then renamed.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anabranch_onion::wire::keys::{FILES, RelayKeys};
use rand_core::CryptoRng;
use rustix::process::geteuid;

use super::kept::read_bytes;
pub use super::store_error::StoreError;
use anabranch_os::file_lock::FileLock;

/// Name of the lock file in the data folder. A process holds a lock on this file while it uses the
/// folder. C tor uses the same file name and the same system call.
const LOCK: &str = "lock";

/// Creates the folder `path`, if it is missing, with access for its owner only.
///
/// # Errors
/// The folder cannot be created, or is accessible to other users.
pub fn private_folder(path: &Path) -> Result<(), StoreError> {
    let to_error = |error| StoreError::File(path.to_owned(), error);
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(to_error)?;
    let mode = fs::metadata(path).map_err(to_error)?.permissions().mode() & 0o777;
    if mode & 0o077 == 0 { Ok(()) } else { Err(StoreError::Open(path.to_owned(), mode)) }
}

/// Exclusive use of a data folder by this process, until this value is dropped. The kernel ends it
/// when the process ends for any reason.
#[derive(Debug)]
pub struct Claim {
    _lock: FileLock,
    /// Messages about folders that other users could access. Their access has been removed.
    pub tightened: Vec<String>,
}

/// Creates the data folder `data` if it is missing, and reserves it for this process.
///
/// # Errors
/// [`StoreError::Busy`] if another process uses the folder, and the errors of
/// [`own_folder`].
pub fn claim(data: &Path) -> Result<Claim, StoreError> {
    let tightened = own_folder(data)?;
    Ok(Claim { _lock: locked(data)?, tightened })
}

/// Creates the data folder `data` if it is missing. If this user owns it, removes other users'
/// access to it and to its folder of keys. Returns a message for each folder whose permissions
/// were changed.
///
/// # Errors
/// The folder cannot be created. [`StoreError::Open`] if other users can access the folder and it
/// has another owner.
pub fn own_folder(data: &Path) -> Result<Vec<String>, StoreError> {
    let mut tightened = Vec::new();
    for folder in [data.to_owned(), data.join("keys")] {
        if folder.exists() {
            tightened.extend(tighten(&folder)?);
        }
    }
    private_folder(data)?;
    Ok(tightened)
}

/// Removes other users' access to `folder`, if this user owns it. Returns a message if it has
/// removed access, otherwise `None`.
fn tighten(folder: &Path) -> Result<Option<String>, StoreError> {
    let to_error = |error| StoreError::File(folder.to_owned(), error);
    let metadata = fs::metadata(folder).map_err(to_error)?;
    let mode = metadata.permissions().mode() & 0o777;
    if !metadata.is_dir() || mode & 0o077 == 0 || metadata.uid() != geteuid().as_raw() {
        return Ok(None);
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).map_err(to_error)?;
    let shown = folder.display();
    Ok(Some(format!(
        "{shown}: other users could read this folder (mode {mode:o}); its mode is 700 now"
    )))
}

/// Reserves the folder `data` for this process until the returned lock is dropped.
pub(super) fn locked(data: &Path) -> Result<FileLock, StoreError> {
    let path = data.join(LOCK);
    let to_error = |error| StoreError::File(path.clone(), error);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path).map_err(to_error)?;
    let Some(mut lock) = FileLock::take(file).map_err(to_error)? else {
        // The process that has the lock may not write its process ID; C tor does not.
        let owner = fs::read_to_string(&path).unwrap_or_default();
        return Err(StoreError::Busy(data.to_owned(), owner.trim().parse().ok()));
    };
    lock.set_len(0).map_err(to_error)?;
    writeln!(lock, "{}", std::process::id()).map_err(to_error)?;
    Ok(lock)
}

/// Writes the file `path` atomically: at any moment it has either the old contents or the new.
///
/// # Errors
/// The file cannot be written, for example because the disk is full. The old file is unchanged
/// then, and no other file is left.
pub fn replace(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    // `with_extension` would use the same temporary name for a certificate and its renewal.
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let outcome = write_temporary(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    outcome.map_err(|error| {
        let _ = fs::remove_file(&temporary);
        StoreError::File(path.to_owned(), error)
    })
}

/// Reads a relay's keys from the folder `keys` of `data`. The files have C tor's names and
/// formats. Generates all keys if there are none.
///
/// # Errors
/// Files cannot be read or written, some are missing, or they do not match each other.
/// Existing files are left unchanged.
pub fn load_or_make<R: CryptoRng>(
    data: &Path,
    rng: &mut R,
    unix_now: u64,
) -> Result<RelayKeys, StoreError> {
    let folder = data.join("keys");
    private_folder(data)?;
    private_folder(&folder)?;
    let to_error = |error| StoreError::Keys(folder.clone(), error);
    let mut keys = if is_any_there(&folder, &FILES)? {
        load(&folder)?
    } else {
        let keys = RelayKeys::generate(rng, unix_now).map_err(to_error)?;
        save(&folder, &keys)?;
        keys
    };
    if keys.signing_is_old(unix_now) {
        keys.renew_signing(rng, unix_now).map_err(to_error)?;
        save(&folder, &keys)?;
    }
    Ok(keys)
}

/// Returns whether any of the files in `names` exists in `folder`.
///
/// # Errors
/// The folder cannot be accessed.
pub(super) fn is_any_there(folder: &Path, names: &[&str]) -> Result<bool, StoreError> {
    for name in names {
        let path = folder.join(name);
        if path.try_exists().map_err(|error| StoreError::File(path, error))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads a relay's keys from `folder`.
pub(super) fn load(folder: &Path) -> Result<RelayKeys, StoreError> {
    // All files are read before any key is parsed, so that an unreadable file is not taken for a
    // missing one.
    let read = |name| Ok((name, read_bytes(&folder.join(name))?));
    let files: BTreeMap<&str, _> = FILES.into_iter().map(read).collect::<Result<_, _>>()?;
    let keys = RelayKeys::from_files(|name| files.get(name)?.clone());
    keys.map_err(|error| StoreError::Keys(folder.to_owned(), error))
}

/// Writes the keys that have changed to files in `folder`. All new files are written under
/// temporary names before the first one is renamed, so an interrupted first run leaves no key
/// file.
pub(super) fn save(folder: &Path, keys: &RelayKeys) -> Result<(), StoreError> {
    let mut files = keys.files().map_err(|error| StoreError::Keys(folder.to_owned(), error))?;
    files.retain(|file| fs::read(folder.join(file.name)).map_or(true, |old| old != file.content));
    let place = |name: &str| (folder.join(name), folder.join(format!("{name}.new")));
    let written = files.iter().try_for_each(|file| {
        let (_, temporary) = place(file.name);
        write_temporary(&temporary, &file.content)
            .map_err(|error| StoreError::File(temporary, error))
    });
    if let Err(error) = written {
        files.iter().for_each(|file| drop(fs::remove_file(place(file.name).1)));
        return Err(error);
    }
    files.iter().try_for_each(|file| {
        let (path, temporary) = place(file.name);
        fs::rename(temporary, &path).map_err(|error| StoreError::File(path, error))
    })
}

/// Writes `content` to a new file `path` that only its owner can read, and waits until it is on
/// disk. An old file of that name is deleted first.
fn write_temporary(path: &Path, content: &[u8]) -> io::Result<()> {
    let _ = fs::remove_file(path);
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn rng() -> ChaCha20Rng {
        ChaCha20Rng::seed_from_u64(1)
    }

    fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        let mut found: Vec<_> = entries
            .map(|entry| {
                (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
            })
            .collect();
        found.sort();
        found
    }

    #[test]
    fn files_that_differ_in_their_ending_have_temporary_names_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("certificate.new")).unwrap();
        let renewed = folder.path().join("certificate.coming");
        replace(&renewed, b"c").unwrap();
        assert_eq!(fs::read(&renewed).unwrap(), b"c");
    }

    #[test]
    fn an_earlier_programs_keys_are_read_and_left_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("relay");
        let keys = data.join("keys");
        private_folder(&keys).unwrap();
        private_folder(&data).unwrap();
        let earlier =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/formats/0e0b824b/relay/keys");
        for (name, content) in files(&earlier) {
            fs::write(keys.join(name), content).unwrap();
        }
        let read = load_or_make(&data, &mut rng(), 1_795_951_440).unwrap();
        let fingerprint = anabranch_onion::wire::text::hex(&read.rsa_identity());
        assert_eq!(fingerprint, "D21629184037A0F24CD85510555B7A76A1CC3832");
        assert_eq!(files(&keys), files(&earlier));
    }

    #[test]
    fn keys_are_made_once_and_read_ever_after() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path().join("relay");
        let made = load_or_make(&data, &mut rng(), NOW).unwrap();
        let kept = files(&data.join("keys"));
        assert_eq!(kept.len(), 7);
        let read = load_or_make(&data, &mut rng(), NOW).unwrap();
        assert_eq!(read.ed_identity(), made.ed_identity());
        assert_eq!(files(&data.join("keys")), kept);
        for (name, _) in kept {
            let mode = fs::metadata(data.join("keys").join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn a_signing_key_that_grows_old_is_replaced_on_disk() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path().join("relay");
        let made = load_or_make(&data, &mut rng(), NOW).unwrap();
        let later = load_or_make(&data, &mut rng(), NOW + 29 * 86_400).unwrap();
        assert_eq!(later.ed_identity(), made.ed_identity());
        assert_ne!(later.signing_cert(), made.signing_cert());
    }

    #[test]
    fn a_missing_or_foreign_file_is_told_and_nothing_is_changed() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path().join("relay");
        load_or_make(&data, &mut rng(), NOW).unwrap();
        let id = data.join("keys/secret_id_key");
        fs::remove_file(&id).unwrap();
        let kept = files(&data.join("keys"));
        let error = load_or_make(&data, &mut rng(), NOW).unwrap_err().to_string();
        assert!(error.contains("secret_id_key is missing"), "{error}");
        fs::write(&id, "something else").unwrap();
        let error = load_or_make(&data, &mut rng(), NOW).unwrap_err().to_string();
        assert!(error.contains("secret_id_key") && error.contains("RSA"), "{error}");
        fs::remove_file(&id).unwrap();
        assert_eq!(files(&data.join("keys")), kept);
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_folder_of_ours_that_is_open_to_others_is_closed_and_one_of_somebody_else_refused() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("relay");
        assert_eq!(own_folder(&data).unwrap(), Vec::<String>::new());
        load_or_make(&data, &mut rng(), NOW).unwrap();
        for path in [data.clone(), data.join("keys")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let warnings = own_folder(&data).unwrap();
        assert!(warnings.len() == 2 && warnings[0].contains("mode 755"), "{warnings:?}");
        assert_eq!((mode(&data), mode(&data.join("keys"))), (0o700, 0o700));
        assert_eq!(own_folder(&data).unwrap(), Vec::<String>::new(), "once is enough");
        // Only root may change a folder's owner.
        if geteuid().is_root() {
            fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
            std::os::unix::fs::chown(&data, Some(65_534), None).unwrap();
            assert!(matches!(own_folder(&data), Err(StoreError::Open(_, 0o755))));
            assert_eq!(mode(&data), 0o755);
        }
    }

    #[test]
    fn a_folder_is_one_process_alone_as_long_as_it_is_held() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("relay");
        let held = claim(&data).unwrap();
        let error = claim(&data).unwrap_err().to_string();
        let us = std::process::id();
        let message = format!("another process {us} uses this folder; start this program with");
        assert!(error.contains(&message) && error.ends_with("--data DIR"), "{error}");
        drop(held);
        claim(&data).unwrap();
    }

    #[test]
    fn a_full_disk_is_told_and_the_old_file_stays() {
        // A limit on the file size has the same effect on a writer as a full disk, and needs no
        // root privilege.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        replace(&path, b"old").unwrap();
        let script = "ulimit -f 1; trap '' XFSZ; exec \"$0\" --exact --ignored \
                      onion::store::tests::writes_more_than_it_may";
        let me = std::env::current_exe().unwrap();
        let done = std::process::Command::new("sh")
            .args(["-c", script])
            .arg(me)
            .env("STATE", &path)
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(files(folder.path()).len(), 1, "nothing else is left");
    }

    #[test]
    #[ignore = "run by the test above, under a limit on the size of files"]
    fn writes_more_than_it_may() {
        let Some(path) = std::env::var_os("STATE") else { return };
        let error = replace(Path::new(&path), &vec![7; 1 << 20]).unwrap_err();
        assert!(error.to_string().contains("File too large"), "{error}");
        // No key file of a new relay remains, not even a file that is below the limit.
        let keys = Path::new(&path).with_file_name("relay");
        let error = load_or_make(&keys, &mut rng(), NOW).unwrap_err();
        assert!(error.to_string().contains("secret_id_key"), "{error}");
        assert!(files(&keys.join("keys")).is_empty());
        fs::remove_dir_all(keys).unwrap();
    }

    #[test]
    fn a_folder_that_others_read_is_refused() {
        let data = tempfile::tempdir().unwrap();
        fs::set_permissions(data.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let error = load_or_make(data.path(), &mut rng(), NOW).unwrap_err().to_string();
        assert!(error.contains("chmod 700"), "{error}");
    }
}
