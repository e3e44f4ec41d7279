//! The record of a splitter's changes to the machine's network, written before the changes are
//! made. If the splitter is killed, the next splitter that starts undoes these changes.
//!
//! `/run/anabranch` has a file for each slot (a splitter's set of numbers for marks, tables and
//! rules) of each network namespace. A splitter holds a lock on its file as long as it lives. If a
//! file has content and is not locked, a killed splitter has left it.

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

/// Directory of the record files, which list the changes that splitters have made.
const FOLDER: &str = "/run/anabranch";
/// Maximum time to wait for another splitter that starts or ends.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval between attempts to take a lock that another splitter holds.
const PAUSE: Duration = Duration::from_millis(5);

/// A record of the changes that a splitter has to undo. It does not list the objects with the
/// names and numbers of the splitter's slot (a set of numbers for marks, tables and rules), which
/// are always removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Notes {
    /// ID of the process that made the changes.
    pub(crate) process: u32,
    /// Name of the splitter's interface.
    pub(crate) tun: String,
    /// Name of the namespace that the splitter made; `None` if it made none.
    pub(crate) netns: Option<String>,
    /// The kernel's number of the namespace `netns`. The number identifies the namespace even if
    /// the name later belongs to another namespace. `None` if no namespace was made.
    pub(crate) netns_number: Option<u64>,
    /// Settings of the machine, with the values that they had before any splitter
    /// changed them.
    pub(crate) settings: Vec<Setting>,
    /// Files that the splitter made.
    pub(crate) files: Vec<CreatedFile>,
    /// Directories that the splitter made. They are removed at the end if they contain nothing
    /// else.
    pub(crate) folders: Vec<PathBuf>,
}

/// A file that a splitter made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CreatedFile {
    pub(crate) path: PathBuf,
    /// Text that the splitter has written to the file.
    pub(crate) text: String,
}

impl CreatedFile {
    /// Returns whether the file exists with our content, or the beginning of it: a splitter may
    /// have been killed while it wrote the file.
    pub(crate) fn is_still(&self) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|found| self.text.starts_with(&found))
    }
}

/// The locked record file of a splitter's slot (its set of numbers for tables, rules and marks).
#[derive(Debug)]
pub(crate) struct Ledger {
    file: FileLock,
    path: PathBuf,
    pub(crate) slot: Slot,
}

/// The records of all splitters (running or killed) in one network namespace.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Record files of killed splitters, which this process has locked, and their content.
    pub(crate) left: Vec<(Ledger, Notes)>,
    /// Records of running splitters, each with the splitter's slot (its set of numbers for marks,
    /// tables and rules).
    pub(crate) held: Vec<(Slot, Notes)>,
}

impl Survey {
    /// Returns the settings of the machine that running splitters have changed, with the original
    /// values. Excludes the splitter in slot `but`.
    pub(crate) fn needed(&self, but: Slot) -> Vec<Setting> {
        let others = self.held.iter().filter(|(slot, _)| *slot != but);
        others.flat_map(|(_, notes)| notes.settings.clone()).collect()
    }
}

/// A lock that a splitter holds while it reads the records of all slots and makes its changes.
/// Without the lock, splitters that start and end at the same time would not see each other's
/// records.
#[derive(Debug)]
pub(crate) struct SurveyLock {
    /// The lock; `None` if another splitter has held it for longer than [`PATIENCE`].
    _folder: Option<FileLock>,
}

impl Drop for SurveyLock {
    fn drop(&mut self) {
        // This fails while the directory contains files of splitters.
        let _ = fs::remove_dir(FOLDER);
    }
}

/// Returns whether the directory of records exists. The directory is removed together with the
/// last record.
pub(crate) fn any() -> bool {
    Path::new(FOLDER).is_dir()
}

/// Takes the lock that a splitter holds while it starts or ends. Returns without the lock after
/// [`PATIENCE`], because a hanging splitter must not prevent others from undoing their changes.
///
/// # Errors
/// `PermissionDenied` if the process may not write to the directory.
pub(crate) fn alone() -> io::Result<SurveyLock> {
    let until = Instant::now() + PATIENCE;
    loop {
        fs::create_dir_all(FOLDER)?;
        match FileLock::take(File::open(FOLDER)?)? {
            Some(folder) if !is_at(&folder, Path::new(FOLDER)) => {}
            None if Instant::now() < until => thread::sleep(PAUSE),
            folder => return Ok(SurveyLock { _folder: folder }),
        }
    }
}

/// Reads the files of all slots in the network namespace with the number `namespace`. Locks the
/// files that no splitter has locked.
///
/// # Errors
/// `PermissionDenied` if the process may not read the directory.
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

/// Locks the record file of the first free slot (a set of numbers for a splitter's tables, rules
/// and marks); returns `None` if no slot is free.
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

/// Returns the first slot (a set of numbers for a splitter's tables, rules and marks) without a
/// record file; `None` if there is none. Locks and creates nothing.
pub(crate) fn likely(namespace: u64) -> Option<Slot> {
    (0..SLOTS).map(Slot).find(|slot| !path(namespace, *slot).exists())
}

fn path(namespace: u64, slot: Slot) -> PathBuf {
    Path::new(FOLDER).join(format!("{namespace:x}-{}.json", slot.0))
}

/// Opens and locks the file `path`; if `create`, creates a missing file. Returns `None` if another
/// process has locked the file.
fn lock(path: &Path, create: bool) -> io::Result<Option<FileLock>> {
    loop {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(create).truncate(false).open(path)?;
        match FileLock::take(file)? {
            // The last holder of the lock removed the file after it was opened here.
            Some(file) if !is_at(&file, path) => {}
            found => return Ok(found),
        }
    }
}

/// Returns whether `path` still leads to the open file `file`, which another process may have
/// removed or replaced.
fn is_at(file: &File, path: &Path) -> bool {
    let number = |about: fs::Metadata| (about.dev(), about.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(one), Ok(other)) => number(one) == number(other),
        _ => false,
    }
}

/// Reads the record in a file. A damaged or empty record counts as a record without a namespace,
/// settings and files.
fn read(file: &mut File) -> io::Result<Notes> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let damaged = |_| Notes { tun: "?".into(), ..Notes::default() };
    Ok(serde_json::from_str(&text).unwrap_or_else(damaged))
}

impl Ledger {
    /// Writes `notes` to the record file, and returns once they are on disk. Only then does the
    /// caller make the changes.
    pub(crate) fn write(&mut self, notes: &Notes) -> io::Result<()> {
        let text = serde_json::to_vec(notes)
            .expect("notes contain only texts and numbers, so JSON can hold them");
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(&text)?;
        self.file.sync_all()
    }

    /// Removes the record after all changes have been undone.
    pub(crate) fn discard(self) -> io::Result<()> {
        fs::remove_file(&self.path)?;
        // The last holder of the directory's lock removes the directory. If it were removed here,
        // two later splitters could hold locks on different directories.
        if let Ok(folder) = File::open(FOLDER)
            && let Ok(Some(folder)) = FileLock::take(folder)
            && is_at(&folder, Path::new(FOLDER))
        {
            drop(SurveyLock { _folder: Some(folder) });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a namespace number that no kernel assigns.
    fn namespace() -> u64 {
        u64::MAX - u64::from(std::process::id())
    }

    #[test]
    fn who_looks_at_all_is_alone() {
        let Ok(first) = alone() else { return println!("skipped: not root") };
        // A splitter that ends meanwhile must not remove the directory.
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
        let made = CreatedFile { path: path.clone(), text: "nameserver 192.0.2.53\n".into() };
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
