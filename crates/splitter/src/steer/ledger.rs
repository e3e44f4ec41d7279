//! Records the changes of a run before they are made: the next start undoes them if the run could
//! not.
//!
//! There is a file for each slot and each network namespace in `/run/anabranch`. A run holds a
//! lock on its file as long as it lives. A file with content and without a lock is therefore that
//! of a killed run.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_os::file_lock::FileLock;
use serde::{Deserialize, Serialize};

use super::Slot;
use super::slot::SLOTS;
use super::sysctl::Setting;

/// Folder of the files.
const FOLDER: &str = "/run/anabranch";
/// Maximum wait for another run that starts or ends, and the polling interval.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// Changes to undo, beyond the objects with the slot's names and numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Notes {
    /// The process that wrote this.
    pub(crate) process: u32,
    /// Its interface.
    pub(crate) tun: String,
    /// The namespace that it made.
    pub(crate) netns: Option<String>,
    /// The kernel's number for that namespace: its name may belong to another one by the time of
    /// the undo.
    pub(crate) netns_number: Option<u64>,
    /// Settings as they were before any run of ours changed them.
    pub(crate) settings: Vec<Setting>,
    /// Files that it made.
    pub(crate) files: Vec<MadeFile>,
    /// Folders that it made, to be removed if nothing else is in them.
    pub(crate) folders: Vec<PathBuf>,
}

/// A file that a run made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MadeFile {
    pub(crate) path: PathBuf,
    /// Content of the file.
    pub(crate) text: String,
}

impl MadeFile {
    /// Returns whether the file exists with our content. The content may be incomplete, if the run
    /// was killed while it wrote.
    pub(crate) fn is_still(&self) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|found| self.text.starts_with(&found))
    }
}

/// A slot's file, locked.
#[derive(Debug)]
pub(crate) struct Ledger {
    file: FileLock,
    path: PathBuf,
    pub(crate) slot: Slot,
}

/// Content of all files.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Records of killed runs.
    pub(crate) left: Vec<(Ledger, Notes)>,
    /// Records of live runs.
    pub(crate) held: Vec<(Slot, Notes)>,
}

impl Survey {
    /// Returns the original settings recorded by the live runs of slots other than `but`.
    pub(crate) fn needed(&self, but: Slot) -> Vec<Setting> {
        let others = self.held.iter().filter(|(slot, _)| *slot != but);
        others.flat_map(|(_, notes)| notes.settings.clone()).collect()
    }
}

/// A lock for reading the files of all slots and then changing something. Without it, runs that
/// start and end at the same time would not see each other.
#[derive(Debug)]
pub(crate) struct Alone {
    /// `None` if another run has held it for longer than `PATIENCE`.
    _folder: Option<FileLock>,
}

impl Drop for Alone {
    fn drop(&mut self) {
        // This fails while files of runs are there.
        let _ = fs::remove_dir(FOLDER);
    }
}

/// Returns whether there are any records.
pub(crate) fn any() -> bool {
    Path::new(FOLDER).is_dir()
}

/// Waits until no other run starts or ends, at most `PATIENCE`: a hanging run must not keep all
/// others from undoing.
///
/// # Errors
/// `PermissionDenied` without the right to write to the folder.
pub(crate) fn alone() -> io::Result<Alone> {
    let until = Instant::now() + PATIENCE;
    loop {
        fs::create_dir_all(FOLDER)?;
        match FileLock::take(File::open(FOLDER)?)? {
            Some(folder) if !is_at(&folder, Path::new(FOLDER)) => {}
            None if Instant::now() < until => thread::sleep(PAUSE),
            folder => return Ok(Alone { _folder: folder }),
        }
    }
}

/// Reads the files of all slots and locks the free ones. `namespace` is the number of this network
/// namespace.
///
/// # Errors
/// `PermissionDenied` without the right to read the folder.
pub(crate) fn survey(namespace: u64) -> io::Result<Survey> {
    let mut survey = Survey::default();
    for slot in (0..SLOTS).map(Slot) {
        let path = path(namespace, slot);
        match lock(&path, false) {
            Ok(Some(mut file)) => {
                let notes = read(&mut file)?;
                survey.left.push((Ledger { file, path, slot }, notes));
            }
            Ok(None) => survey.held.push((slot, read(&mut File::open(&path)?)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(survey)
}

/// Locks the first free slot; returns `None` if there is none.
pub(crate) fn claim(namespace: u64) -> io::Result<Option<Ledger>> {
    fs::create_dir_all(FOLDER)?;
    for slot in (0..SLOTS).map(Slot) {
        let path = path(namespace, slot);
        if let Some(file) = lock(&path, true)? {
            return Ok(Some(Ledger { file, path, slot }));
        }
    }
    Ok(None)
}

/// Returns the first slot without a file. Does not lock or make anything.
pub(crate) fn likely(namespace: u64) -> Option<Slot> {
    (0..SLOTS).map(Slot).find(|slot| !path(namespace, *slot).exists())
}

fn path(namespace: u64, slot: Slot) -> PathBuf {
    Path::new(FOLDER).join(format!("{namespace:x}-{}.json", slot.0))
}

/// Opens and locks a file; returns `None` if another process holds it.
fn lock(path: &Path, create: bool) -> io::Result<Option<FileLock>> {
    loop {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(create).truncate(false).open(path)?;
        match FileLock::take(file)? {
            // Its last holder removed it after it was opened.
            Some(file) if !is_at(&file, path) => {}
            found => return Ok(found),
        }
    }
}

/// Returns whether the file is still the one at this path.
fn is_at(file: &File, path: &Path) -> bool {
    let number = |about: fs::Metadata| (about.dev(), about.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(one), Ok(other)) => number(one) == number(other),
        _ => false,
    }
}

/// Reads the record in a file. A damaged or empty one means only that there may be something to
/// undo.
fn read(file: &mut File) -> io::Result<Notes> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let damaged = |_| Notes { tun: "?".into(), ..Notes::default() };
    Ok(serde_json::from_str(&text).unwrap_or_else(damaged))
}

impl Ledger {
    /// Writes `notes`, and returns once they are stored, so that the caller makes the changes
    /// afterwards.
    pub(crate) fn write(&mut self, notes: &Notes) -> io::Result<()> {
        let text = serde_json::to_vec(notes).expect("notes are plain texts and numbers");
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(&text)?;
        self.file.sync_all()
    }

    /// Removes the record after everything is undone.
    pub(crate) fn discard(self) -> io::Result<()> {
        fs::remove_file(&self.path)?;
        // The last holder of the folder's lock removes the folder. Removed now, two later runs
        // could hold locks on different folders.
        if let Ok(folder) = File::open(FOLDER)
            && let Ok(Some(folder)) = FileLock::take(folder)
            && is_at(&folder, Path::new(FOLDER))
        {
            drop(Alone { _folder: Some(folder) });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A namespace number that no kernel gives.
    fn namespace() -> u64 {
        u64::MAX - u64::from(std::process::id())
    }

    #[test]
    fn who_looks_at_all_is_alone() {
        let Ok(first) = alone() else { return println!("skipped: not root") };
        // A run that ends meanwhile must not take the folder away.
        claim(namespace() - (1 << 40)).unwrap().unwrap().discard().unwrap();
        let second = thread::spawn(|| alone().map(|_| Instant::now()));
        thread::sleep(Duration::from_millis(100));
        let freed = Instant::now();
        drop(first);
        assert!(second.join().unwrap().unwrap() >= freed);
    }

    #[test]
    fn a_file_that_somebody_else_has_written_since_is_not_ours() {
        let path = std::env::temp_dir().join(format!("anabranch-made-{}", std::process::id()));
        let made = MadeFile { path: path.clone(), text: "nameserver 192.0.2.53\n".into() };
        assert!(!made.is_still());
        for (text, ours) in
            [("", true), ("nameserver 192", true), ("nameserver 192.0.2.9\n", false)]
        {
            fs::write(&path, text).unwrap();
            assert_eq!(made.is_still(), ours, "{text}");
        }
        fs::write(&path, &made.text).unwrap();
        assert!(made.is_still());
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_lock_tells_a_run_that_lives_from_one_that_was_killed() {
        let number = namespace();
        let Ok(Some(mut ledger)) = claim(number) else { return println!("skipped: not root") };
        let settings = vec![Setting::new("ipv4/conf/p0/forwarding".into(), "0")];
        let (tun, netns) = ("any0".into(), Some("b".into()));
        let notes = Notes { tun, netns, settings, ..Notes::default() };
        ledger.write(&Notes { tun: "longer than the other".into(), ..notes.clone() }).unwrap();
        ledger.write(&notes).unwrap();
        let seen = survey(number).unwrap();
        assert_eq!((seen.left.len(), &seen.held), (0, &vec![(Slot(0), notes.clone())]));
        assert_eq!(seen.needed(Slot(0)), []);
        assert_eq!(seen.needed(Slot(1)), notes.settings);
        assert_eq!(likely(number), Some(Slot(1)));
        let second = claim(number).unwrap().unwrap();
        assert_eq!(second.slot, Slot(1));
        second.discard().unwrap();
        drop(ledger);
        let mut seen = survey(number).unwrap();
        let (ledger, left) = seen.left.pop().unwrap();
        assert_eq!((left, seen.held.len()), (notes, 0));
        ledger.discard().unwrap();
        assert_eq!(survey(number).unwrap().left.len(), 0);
        assert_eq!(likely(number), Some(Slot(0)));
    }
}
