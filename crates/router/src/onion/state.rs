//! The state of a client that is kept on disk between runs: its guards, and the build times of its
//! circuits.

use std::collections::BTreeMap;
use std::path::Path;

use anabranch_onion::circmgr::KeptGuards;
use anabranch_onion::guards::{Confirmed, SampledGuard};
use anabranch_onion::wire::text::hex;
use serde::{Deserialize, Serialize};

use super::authorities::digest;
use super::kept::{StateContent, Unknown, damaged, read_json};
use super::store::{StoreError, replace};

const FILE: &str = "state.json";

/// State of a client that is kept on disk between runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientState {
    /// Guards of the client, in the order in which they were drawn at random from the consensus.
    pub guards: KeptGuards,
    /// Build times of circuits in milliseconds, oldest first.
    pub build_times: Vec<u32>,
    /// Fields of the state file that this version does not know. They are written back unchanged.
    pub unknown: UnknownState,
}

/// Fields that this version does not know. They can occur at three places in the state file: at
/// the top level, in a guard (identified by its list and fingerprint), and in a guard's
/// confirmation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownState {
    file: Unknown,
    guards: BTreeMap<(List, [u8; 20]), [Unknown; 2]>,
}

/// The lists of guards in the client's state file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum List {
    Default,
    Restricted,
    Bridges,
}

/// Layout of the client's state file.
#[derive(Serialize, Deserialize)]
struct StateFileContent {
    guards: Vec<WrittenGuard>,
    /// Guards that are used while the user's settings permit only few of the relays.
    restricted_guards: Vec<WrittenGuard>,
    /// Bridges, for a user who enters the network through bridges.
    #[serde(default)]
    bridges: Vec<WrittenGuard>,
    build_times_ms: Vec<u32>,
    #[serde(flatten)]
    unknown: Unknown,
}

/// A guard in the client's state file. Times are in seconds since 1970.
#[derive(Serialize, Deserialize)]
struct WrittenGuard {
    fingerprint: String,
    added: u64,
    listed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unlisted_since: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    confirmed: Option<WrittenConfirmed>,
    #[serde(flatten)]
    unknown: Unknown,
}

#[derive(Serialize, Deserialize)]
struct WrittenConfirmed {
    on: u64,
    place: u32,
    #[serde(flatten)]
    unknown: Unknown,
}

impl WrittenGuard {
    fn new(list: List, guard: &SampledGuard<[u8; 20]>, unknown: &UnknownState) -> WrittenGuard {
        let [of_guard, of_confirmed] =
            unknown.guards.get(&(list, guard.id)).cloned().unwrap_or_default();
        let confirmed = guard.confirmed.map(|Confirmed { on, place }| WrittenConfirmed {
            on,
            place,
            unknown: of_confirmed,
        });
        WrittenGuard {
            fingerprint: hex(&guard.id),
            added: guard.added,
            listed: guard.listed,
            unlisted_since: guard.unlisted_since,
            confirmed,
            unknown: of_guard,
        }
    }

    /// Converts this entry of the state file into a guard. Moves to `unknown` the fields of the
    /// entry that this version does not know. The error is a malformed fingerprint.
    fn read(
        self,
        list: List,
        unknown: &mut UnknownState,
    ) -> Result<SampledGuard<[u8; 20]>, String> {
        let Some(id) = digest(&self.fingerprint) else { return Err(self.fingerprint) };
        let (confirmed, of_confirmed) = match self.confirmed {
            Some(WrittenConfirmed { on, place, unknown }) => {
                (Some(Confirmed { on, place }), unknown)
            }
            None => (None, Unknown::new()),
        };
        if !self.unknown.is_empty() || !of_confirmed.is_empty() {
            unknown.guards.insert((list, id), [self.unknown, of_confirmed]);
        }
        let (added, listed, unlisted_since) = (self.added, self.listed, self.unlisted_since);
        Ok(SampledGuard { id, added, listed, unlisted_since, confirmed })
    }
}

impl ClientState {
    /// Reads the client's state from `folder`. Returns an empty state if there is no file.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged. The file is left unchanged, because the user may
    /// need its guards. New guards are never chosen silently.
    pub fn read(folder: &Path) -> Result<ClientState, StoreError> {
        let path = folder.join(FILE);
        let strange = |why: &str| {
            let aside = path.with_extension("json.damaged");
            let (here, aside) = (path.display(), aside.display());
            damaged(
                &path,
                why,
                &format!(
                    "restore the file from a backup, or move it away so that new guards (first \
                     relays) are chosen: mv {here} {aside}"
                ),
            )
        };
        let written: StateFileContent = match read_json(&path)? {
            StateContent::Absent => return Ok(ClientState::default()),
            StateContent::Damaged(why) => return Err(strange(&why)),
            StateContent::Whole(written) => written,
        };
        let mut unknown = UnknownState { file: written.unknown, ..UnknownState::default() };
        let mut read = |list, guards: Vec<WrittenGuard>| -> Result<Vec<_>, StoreError> {
            let read = guards.into_iter().map(|guard| guard.read(list, &mut unknown));
            read.collect::<Result<_, _>>().map_err(|fingerprint: String| {
                strange(&format!("'{}' is not a fingerprint", fingerprint.escape_debug()))
            })
        };
        let guards = KeptGuards {
            default: read(List::Default, written.guards)?,
            restricted: read(List::Restricted, written.restricted_guards)?,
            bridges: read(List::Bridges, written.bridges)?,
        };
        Ok(ClientState { guards, build_times: written.build_times_ms, unknown })
    }

    /// Writes the client's state to a file in `folder`.
    ///
    /// # Errors
    /// The file cannot be written. The old file is unchanged then.
    pub fn write(&self, folder: &Path) -> Result<(), StoreError> {
        let written = |list, guards: &[SampledGuard<[u8; 20]>]| {
            let guards = guards.iter();
            guards.map(|guard| WrittenGuard::new(list, guard, &self.unknown)).collect()
        };
        let written = StateFileContent {
            guards: written(List::Default, &self.guards.default),
            restricted_guards: written(List::Restricted, &self.guards.restricted),
            bridges: written(List::Bridges, &self.guards.bridges),
            build_times_ms: self.build_times.clone(),
            unknown: self.unknown.file.clone(),
        };
        let text =
            serde_json::to_vec_pretty(&written).expect("numbers and text can be written as JSON");
        replace(&folder.join(FILE), &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back_and_what_is_strange_is_told() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(ClientState::read(folder.path()).unwrap(), ClientState::default());
        let new = SampledGuard {
            id: [0xab; 20],
            added: 1,
            listed: true,
            unlisted_since: None,
            confirmed: None,
        };
        let confirmed = Some(Confirmed { on: 2, place: 3 });
        let old = SampledGuard { listed: false, unlisted_since: Some(4), confirmed, ..new.clone() };
        let bridges = vec![new.clone()];
        let guards = KeptGuards { default: vec![old, new.clone()], restricted: vec![new], bridges };
        let kept = ClientState { guards, build_times: vec![5, 6], ..ClientState::default() };
        kept.write(folder.path()).unwrap();
        assert_eq!(ClientState::read(folder.path()).unwrap(), kept);
        let path = folder.path().join(FILE);
        let written = std::fs::read_to_string(&path).unwrap();
        let half = &written[..written.len() / 2];
        let unnamed = written.replace("ABAB", "XYXY");
        for strange in ["", "{}", "[1]", half, &unnamed] {
            std::fs::write(&path, strange).unwrap();
            let error = ClientState::read(folder.path()).unwrap_err().to_string();
            assert!(error.contains("state.json: it is damaged"), "{error}");
            assert!(error.contains("state.json.damaged"), "how to choose new guards: {error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), strange, "it is left alone");
        }
        std::fs::write(&path, [written.as_bytes(), b"\xff"].concat()).unwrap();
        let error = ClientState::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("it is damaged (it is not text"), "{error}");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let error = ClientState::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("the file cannot be read"), "{error}");
    }

    #[test]
    fn an_earlier_programs_file_is_read_and_written_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let text = include_str!("../../../../tests/formats/0e0b824b/client/state.json");
        std::fs::write(folder.path().join(FILE), text).unwrap();
        let kept = ClientState::read(folder.path()).unwrap();
        let [old, new] = &kept.guards.default[..] else { panic!("{kept:?}") };
        assert_eq!((old.id, old.unlisted_since), ([0xab; 20], Some(1_795_300_000)));
        assert_eq!(old.confirmed, Some(Confirmed { on: 1_794_950_000, place: 0 }));
        assert_eq!((new.id, new.listed, &new.confirmed), ([0x12; 20], true, &None));
        assert_eq!(kept.guards.restricted[0].id, [0xcd; 20]);
        assert_eq!(kept.guards.bridges[0].added, 1_795_100_000);
        assert_eq!(kept.build_times, [412, 388, 951]);
        kept.write(folder.path()).unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join(FILE)).unwrap(), text);
    }

    #[test]
    fn a_later_versions_file_keeps_its_guards_and_its_fields() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let guard = |place: u32| {
            serde_json::json!({
                "fingerprint": format!("{place:040}"), "added": 1, "listed": true, "family": place,
                "confirmed": {"on": 2, "place": place, "how": "by \u{e9}"},
            })
        };
        let later = serde_json::json!({
            "format": 2, "guards": [guard(1), guard(2)], "restricted_guards": [guard(1)],
            "bridges": [], "build_times_ms": [7], "vanguards": {"layer2": [1]},
        });
        std::fs::write(&path, later.to_string()).unwrap();
        let mut kept = ClientState::read(folder.path()).unwrap();
        assert_eq!((kept.guards.default.len(), kept.build_times.len()), (2, 1));
        kept.guards.default.remove(0);
        kept.write(folder.path()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let written: serde_json::Value = serde_json::from_str(&text).unwrap();
        let mut expected = later;
        expected["guards"].as_array_mut().unwrap().remove(0);
        assert_eq!(written, expected);
    }
}
