//! A relay's history of transferred bytes, which is kept on disk between runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_onion::directory::bandwidth::{BandwidthHistory, PERIOD_S, Period};
use serde::{Deserialize, Serialize};

use crate::onion::kept::{StateContent, Unknown, read_json, set_aside};
use crate::onion::store::{StoreError, replace};

const FILE: &str = "bandwidth.json";
/// Interval between writes of the history of transferred bytes to disk. If the program is killed,
/// at most the bytes of one interval are lost.
const KEEP: Duration = Duration::from_secs(600);

/// A relay's history of transferred bytes, and the file that stores it.
pub(super) struct HistoryFile {
    pub(super) history: BandwidthHistory,
    /// Fields of the file that this version does not know. They are written back unchanged.
    unknown: Unknown,
    /// Fields of each period in the file that this version does not know, by the period's end in
    /// seconds since 1970. They are written back unchanged.
    unknown_of: BTreeMap<u64, Unknown>,
    path: PathBuf,
    written: Time,
    /// The thread that is writing the file, or wrote it last; `None` if there is no such thread.
    writer: Option<JoinHandle<()>>,
    /// Message for the operator if the file was damaged; otherwise `None`.
    pub(super) trouble: Option<String>,
}

/// Contents of the file: the current period of the history, its end in seconds since 1970, and the
/// earlier periods, oldest first.
#[derive(Serialize, Deserialize)]
struct HistoryFileContent {
    ends: u64,
    present: WrittenPeriod,
    past: Vec<WrittenPeriod>,
    #[serde(flatten)]
    unknown: Unknown,
}

/// A period of the history, as stored in the file. It has the bytes received and sent, and the
/// maximum rates over ten seconds, in bytes per second.
#[derive(Serialize, Deserialize)]
struct WrittenPeriod {
    #[serde(rename = "carried")]
    transferred: [u64; 2],
    most: [u64; 2],
    #[serde(flatten)]
    unknown: Unknown,
}

impl From<&WrittenPeriod> for Period {
    fn from(written: &WrittenPeriod) -> Period {
        Period { transferred: written.transferred, most: written.most }
    }
}

impl HistoryFile {
    /// Reads the history of transferred bytes from the folder `data`. If there is no file, the
    /// history is empty.
    ///
    /// # Errors
    /// The file cannot be read, or it is damaged and cannot be renamed.
    pub(super) fn read(data: &Path) -> Result<HistoryFile, StoreError> {
        let path = data.join(FILE);
        let mut file = HistoryFile {
            history: BandwidthHistory::default(),
            unknown: Unknown::new(),
            unknown_of: BTreeMap::new(),
            path: path.clone(),
            written: Time::ZERO,
            writer: None,
            trouble: None,
        };
        match read_json(&path)? {
            StateContent::Absent => {}
            StateContent::Damaged(why) => {
                file.trouble =
                    Some(set_aside(&path, &why, "the relay's traffic history begins again")?);
            }
            StateContent::Whole(written) => file.take_up(written),
        }
        Ok(file)
    }

    fn take_up(&mut self, written: HistoryFileContent) {
        let HistoryFileContent { ends, present, past, unknown } = written;
        let periods: Vec<Period> = past.iter().map(Period::from).collect();
        self.history = BandwidthHistory::kept(ends, Period::from(&present), &periods);
        self.unknown = unknown;
        let newest_first = [present].into_iter().chain(past.into_iter().rev());
        let unknown = newest_first.zip(ends_before(ends)).map(|(one, ends)| (ends, one.unknown));
        self.unknown_of = unknown.filter(|(_, unknown)| !unknown.is_empty()).collect();
    }

    /// Adds the bytes transferred since the last call to the history. `transferred` has the bytes
    /// received and sent since the start. Every [`KEEP`], writes the history to disk on another
    /// thread.
    pub(super) fn note(&mut self, now: Time, unix_now: u64, transferred: [u64; 2]) {
        self.history.note(now, unix_now, transferred);
        // A new write does not start before the last write has ended, because both would use the
        // same temporary file.
        let is_writing = self.writer.as_ref().is_some_and(|writer| !writer.is_finished());
        if now.since(self.written) < KEEP || is_writing {
            return;
        }
        self.written = now;
        let (path, text) = (self.path.clone(), self.text());
        // If this write fails, the next write includes the same data.
        let work = move || drop(replace(&path, &text));
        self.writer = thread::Builder::new().name("history".into()).spawn(work).ok();
    }

    /// Writes the history to disk now, after any write that is in progress.
    ///
    /// # Errors
    /// The file cannot be written. The old file is unchanged then.
    pub(super) fn write(&mut self) -> Result<(), StoreError> {
        if let Some(writer) = self.writer.take() {
            // The result of the earlier write does not matter, because this write includes its
            // data.
            let _ = writer.join();
        }
        replace(&self.path, &self.text())
    }

    fn text(&self) -> Vec<u8> {
        let (ends, present, past) = self.history.fields();
        let periods = [present].into_iter().chain(past.into_iter().rev());
        let write = |(Period { transferred, most }, ends): (Period, u64)| {
            let unknown = self.unknown_of.get(&ends).cloned().unwrap_or_default();
            WrittenPeriod { transferred, most, unknown }
        };
        let mut past: Vec<WrittenPeriod> = periods.zip(ends_before(ends)).map(write).collect();
        past.reverse();
        let present = past.pop().expect("the list of periods contains the present one");
        let written = HistoryFileContent { ends, present, past, unknown: self.unknown.clone() };
        serde_json::to_vec_pretty(&written).expect("numbers can be written as JSON")
    }
}

/// Returns the end times of the history's periods in seconds since 1970, newest first. The newest
/// is `ends`.
fn ends_before(ends: u64) -> impl Iterator<Item = u64> {
    (0..).map(move |ago: u64| ends.saturating_sub(ago * PERIOD_S))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn read(data: &Path) -> HistoryFile {
        let file = HistoryFile::read(data).unwrap();
        assert_eq!(file.trouble, None);
        file
    }

    #[test]
    fn an_earlier_programs_file_is_read_and_written_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let text = include_str!("../../../../../tests/formats/0e0b824b/relay/bandwidth.json");
        fs::write(folder.path().join(FILE), text).unwrap();
        let mut kept = HistoryFile::read(folder.path()).unwrap();
        let (ends, present, past) = kept.history.fields();
        assert_eq!((ends, present.transferred), (1_795_046_400, [1_048_576, 2_097_152]));
        assert_eq!((past.len(), kept.history.observed()), (2, 80_000));
        kept.write().unwrap();
        assert_eq!(fs::read_to_string(folder.path().join(FILE)).unwrap(), text);
    }

    #[test]
    fn what_was_carried_comes_back_and_what_is_strange_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = read(folder.path());
        assert_eq!(kept.history.observed(), 0);
        let at = |second: u64| Time::from_millis(second * 1000);
        (0..20).for_each(|n| kept.note(at(n), NOW + n, [n * 900, n * 700]));
        kept.write().unwrap();
        let again = read(folder.path());
        assert_eq!((again.history.observed(), kept.history.observed()), (700, 700));
        assert_eq!(again.history.fields(), kept.history.fields());
        let path = folder.path().join(FILE);
        for strange in ["", "{}", "{\"ends\":1,\"present\":{\"carried\":[1,2]},\"past\":[]}"] {
            fs::write(&path, strange).unwrap();
            let kept = HistoryFile::read(folder.path()).unwrap();
            let trouble = kept.trouble.unwrap();
            assert!(trouble.contains("bandwidth.json was damaged"), "{trouble}");
            assert!(trouble.contains("the relay's traffic history begins again"), "{trouble}");
            assert_eq!(kept.history.observed(), 0);
            assert!(!path.exists(), "it has another name");
        }
        fs::create_dir(&path).unwrap();
        let Err(error) = HistoryFile::read(folder.path()) else { panic!("a folder was read") };
        assert!(error.to_string().contains("bandwidth.json: the file cannot be read"), "{error}");
    }

    #[test]
    fn a_later_versions_file_keeps_its_fields_as_periods_pass() {
        let folder = tempfile::tempdir().unwrap();
        let period = |name: &str| serde_json::json!({"carried": [1, 2], "most": [3, 4], "n": name});
        let later = serde_json::json!({
            "ends": NOW, "present": period("c"), "past": [period("a"), period("b")], "format": 2,
        });
        let path = folder.path().join(FILE);
        fs::write(&path, later.to_string()).unwrap();
        let mut kept = read(folder.path());
        kept.write().unwrap();
        let written = || -> serde_json::Value {
            serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap()
        };
        assert_eq!(written(), later);
        kept.history.note(Time::ZERO, NOW + 1, [0; 2]);
        kept.write().unwrap();
        let past = &written()["past"];
        assert_eq!(past[past.as_array().unwrap().len() - 1]["n"], "c", "{past}");
    }

    #[test]
    fn the_last_write_follows_one_that_has_begun() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let mut kept = read(folder.path());
        let slow = path.clone();
        kept.writer = Some(thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            replace(&slow, b"older").unwrap();
        }));
        kept.write().unwrap();
        assert_ne!(fs::read(&path).unwrap(), b"older");
    }

    #[test]
    fn it_is_written_by_itself_before_a_kill() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = read(folder.path());
        kept.note(Time::from_millis(599_000), NOW, [0; 2]);
        assert!(!folder.path().join(FILE).exists());
        kept.note(Time::from_millis(600_000), NOW + 1, [5; 2]);
        let until = std::time::Instant::now() + Duration::from_secs(30);
        while !folder.path().join(FILE).exists() && std::time::Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        let (_, present, _) = read(folder.path()).history.fields();
        assert_eq!(present.transferred, [5; 2]);
    }
}
