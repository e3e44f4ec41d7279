//! What a relay carried, kept on disk from one run to the next.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_onion::directory::bandwidth::{BandwidthHistory, Period};
use serde::{Deserialize, Serialize};

use crate::onion::store::{StoreError, replace};

const FILE: &str = "bandwidth.json";
/// A run that is killed loses at most so much.
const KEEP: Duration = Duration::from_secs(600);

/// The history and its file.
pub(super) struct HistoryFile {
    pub(super) history: BandwidthHistory,
    path: PathBuf,
    written: Time,
}

/// The file: when the present period ends, in seconds since 1970, that period, and those before
/// with the oldest first.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    ends: u64,
    present: WrittenPeriod,
    past: Vec<WrittenPeriod>,
}

/// Bytes received and sent in all, and the most a second for ten seconds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPeriod {
    carried: [u64; 2],
    most: [u64; 2],
}

impl From<&Period> for WrittenPeriod {
    fn from(period: &Period) -> WrittenPeriod {
        WrittenPeriod { carried: period.carried, most: period.most }
    }
}

impl From<&WrittenPeriod> for Period {
    fn from(written: &WrittenPeriod) -> Period {
        Period { carried: written.carried, most: written.most }
    }
}

impl HistoryFile {
    /// What an earlier run kept in this folder, or nothing.
    ///
    /// # Errors
    /// There is a file, and it is none that we wrote.
    pub(super) fn read(data: &Path) -> Result<HistoryFile, StoreError> {
        let path = data.join(FILE);
        let history = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => BandwidthHistory::default(),
            Err(error) => return Err(StoreError::File(path, error)),
            Ok(text) => history(&text).map_err(|error| {
                let told = format!("{error}; remove the file to start without a history");
                StoreError::File(path.clone(), io::Error::other(told))
            })?,
        };
        Ok(HistoryFile { history, path, written: Time::ZERO })
    }

    /// Takes what was carried since the start; writes it from time to time, on a thread that may
    /// wait for the disk.
    pub(super) fn note(&mut self, now: Time, unix_now: u64, carried: [u64; 2]) {
        self.history.note(now, unix_now, carried);
        if now.since(self.written) < KEEP {
            return;
        }
        self.written = now;
        let (path, text) = (self.path.clone(), text(&self.history));
        // What is lost for want of a thread or of room is written at the next time.
        let work = move || drop(replace(&path, &text));
        drop(thread::Builder::new().name("history".into()).spawn(work));
    }

    /// Writes it now.
    ///
    /// # Errors
    /// The system's: the old file stays.
    pub(super) fn write(&self) -> Result<(), StoreError> {
        replace(&self.path, &text(&self.history))
    }
}

fn text(history: &BandwidthHistory) -> Vec<u8> {
    let (ends, present, past) = history.fields();
    let past = past.iter().map(WrittenPeriod::from).collect();
    let written = Written { ends, present: WrittenPeriod::from(&present), past };
    serde_json::to_vec_pretty(&written).expect("numbers are JSON")
}

fn history(text: &str) -> Result<BandwidthHistory, serde_json::Error> {
    let Written { ends, present, past } = serde_json::from_str(text)?;
    let past: Vec<Period> = past.iter().map(Period::from).collect();
    Ok(BandwidthHistory::kept(ends, Period::from(&present), &past))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn what_was_carried_comes_back_and_what_is_strange_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = HistoryFile::read(folder.path()).unwrap();
        assert_eq!(kept.history.observed(), 0);
        let at = |second: u64| Time::from_millis(second * 1000);
        (0..20).for_each(|n| kept.note(at(n), NOW + n, [n * 900, n * 700]));
        kept.write().unwrap();
        let again = HistoryFile::read(folder.path()).unwrap();
        assert_eq!((again.history.observed(), kept.history.observed()), (700, 700));
        assert_eq!(again.history.fields(), kept.history.fields());
        let path = folder.path().join(FILE);
        for strange in ["", "{}", "{\"ends\":1,\"present\":{\"carried\":[1,2]},\"past\":[]}"] {
            fs::write(&path, strange).unwrap();
            let Err(error) = HistoryFile::read(folder.path()) else { panic!("{strange}") };
            assert!(error.to_string().contains("remove the file"), "{error}");
        }
    }

    #[test]
    fn it_is_written_by_itself_before_a_kill() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = HistoryFile::read(folder.path()).unwrap();
        kept.note(Time::from_millis(599_000), NOW, [0; 2]);
        assert!(!folder.path().join(FILE).exists());
        kept.note(Time::from_millis(600_000), NOW + 1, [5; 2]);
        let until = std::time::Instant::now() + Duration::from_secs(30);
        while !folder.path().join(FILE).exists() && std::time::Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        let (_, present, _) = HistoryFile::read(folder.path()).unwrap().history.fields();
        assert_eq!(present.carried, [5; 2]);
    }
}
