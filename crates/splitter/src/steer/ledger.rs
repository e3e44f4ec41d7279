//! What a run changes, written down before it does: whoever starts next undoes it if the run could
//! not.
//!
//! A file for each slot and each network namespace lies in `/run/anabranch`. A run holds a lock on
//! its file for as long as it lives, however it ends, so a file with words in it and no lock tells
//! of a run that was killed.

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

/// Where the files lie.
const FOLDER: &str = "/run/anabranch";
/// How long another run may take to begin or to end, and how often it is looked at meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// What is to be undone, beside all that the slot's names and numbers tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Notes {
    /// The process that wrote this.
    pub(crate) process: u32,
    /// Its interface.
    pub(crate) tun: String,
    /// The namespace that it made.
    pub(crate) netns: Option<String>,
    /// The kernel's number for that namespace: the name may be somebody else's by the time that it
    /// is undone.
    pub(crate) netns_number: Option<u64>,
    /// Settings as they were before any run of ours.
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
    /// What was written in it.
    pub(crate) text: String,
}

impl MadeFile {
    /// Whether it is there, and nobody else's. A run may have been killed while it wrote.
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

/// What the files tell.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// What killed runs left.
    pub(crate) left: Vec<(Ledger, Notes)>,
    /// What runs that live have written.
    pub(crate) held: Vec<(Slot, Notes)>,
}

impl Survey {
    /// Settings as they were before the runs of other slots than `but` that live.
    pub(crate) fn needed(&self, but: Slot) -> Vec<Setting> {
        let others = self.held.iter().filter(|(slot, _)| *slot != but);
        others.flat_map(|(_, notes)| notes.settings.clone()).collect()
    }
}

/// Held by whoever looks at the files of all slots and then changes something: runs that begin and
/// end at once would else not know of each other.
#[derive(Debug)]
pub(crate) struct Alone {
    /// None if another has hung for so long that nobody waits for it any more.
    _folder: Option<FileLock>,
}

impl Drop for Alone {
    fn drop(&mut self) {
        // Runs' files may lie there.
        let _ = fs::remove_dir(FOLDER);
    }
}

/// Whether there is anything to look at.
pub(crate) fn any() -> bool {
    Path::new(FOLDER).is_dir()
}

/// Waits until nobody else begins or ends, but not for ever: one that hangs must not keep all
/// others from undoing.
///
/// # Errors
/// `PermissionDenied` without the right to write there.
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

/// Looks at the files of all slots and locks those that nobody holds. `namespace` tells this
/// network namespace from others.
///
/// # Errors
/// `PermissionDenied` without the right to read there.
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

/// The first slot that nobody holds, now ours; `None` if there is none.
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

/// Without locking or making anything: the first slot that no run has written to.
pub(crate) fn likely(namespace: u64) -> Option<Slot> {
    (0..SLOTS).map(Slot).find(|slot| !path(namespace, *slot).exists())
}

fn path(namespace: u64, slot: Slot) -> PathBuf {
    Path::new(FOLDER).join(format!("{namespace:x}-{}.json", slot.0))
}

/// Opens and locks a file; `None` if somebody else holds it.
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

/// Whether the file is still the one that has this path.
fn is_at(file: &File, path: &Path) -> bool {
    let number = |about: fs::Metadata| (about.dev(), about.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(one), Ok(other)) => number(one) == number(other),
        _ => false,
    }
}

/// What is written in a file. What is damaged or empty tells only that there may be something to
/// clean.
fn read(file: &mut File) -> io::Result<Notes> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let damaged = |_| Notes { tun: "?".into(), ..Notes::default() };
    Ok(serde_json::from_str(&text).unwrap_or_else(damaged))
}

impl Ledger {
    /// Writes `notes`, and returns when they are in the file: before anything that they tell of
    /// happens.
    pub(crate) fn write(&mut self, notes: &Notes) -> io::Result<()> {
        let text = serde_json::to_vec(notes).expect("notes are plain texts and numbers");
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(&text)?;
        self.file.sync_all()
    }

    /// Nothing is left to undo.
    pub(crate) fn discard(self) -> io::Result<()> {
        fs::remove_file(&self.path)?;
        // Whoever is alone takes the folder away in the end: if it went now, the next one would be
        // alone with another.
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
