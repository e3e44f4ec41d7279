//! What a client keeps from one run to the next: guards, and how long circuits took to build.

use std::path::Path;

use anabranch_onion::circmgr::KeptGuards;
use anabranch_onion::guards::{Confirmed, Sampled};
use anabranch_onion::wire::text::hex;
use serde::{Deserialize, Serialize};

use super::authorities::digest;
use super::store::{StoreError, read_text, replace};

const FILE: &str = "state.json";

/// The kept state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientState {
    /// Guards, in the order in which they were drawn.
    pub guards: KeptGuards,
    /// Build times in milliseconds, oldest first.
    pub build_times: Vec<u32>,
}

/// The file as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    guards: Vec<WrittenGuard>,
    /// The guards of a user who allows but few relays.
    restricted_guards: Vec<WrittenGuard>,
    /// Bridges, of a user who enters by them.
    #[serde(default)]
    bridges: Vec<WrittenGuard>,
    build_times_ms: Vec<u32>,
}

/// Times in seconds since 1970.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenGuard {
    fingerprint: String,
    added: u64,
    listed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unlisted_since: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    confirmed: Option<WrittenConfirmed>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenConfirmed {
    on: u64,
    place: u32,
}

impl From<&Sampled<[u8; 20]>> for WrittenGuard {
    fn from(guard: &Sampled<[u8; 20]>) -> WrittenGuard {
        let confirmed =
            guard.confirmed.map(|Confirmed { on, place }| WrittenConfirmed { on, place });
        WrittenGuard {
            fingerprint: hex(&guard.id),
            added: guard.added,
            listed: guard.listed,
            unlisted_since: guard.unlisted_since,
            confirmed,
        }
    }
}

impl WrittenGuard {
    /// The guard; the fingerprint if it is none.
    fn read(self) -> Result<Sampled<[u8; 20]>, String> {
        let Some(id) = digest(&self.fingerprint) else { return Err(self.fingerprint) };
        let confirmed =
            self.confirmed.map(|WrittenConfirmed { on, place }| Confirmed { on, place });
        let (added, listed, unlisted_since) = (self.added, self.listed, self.unlisted_since);
        Ok(Sampled { id, added, listed, unlisted_since, confirmed })
    }
}

impl ClientState {
    /// Reads what the folder holds; nothing if there is nothing.
    ///
    /// # Errors
    /// The file is not one that we wrote. It is left alone: it may hold a guard that its owner
    /// wants.
    pub fn read(folder: &Path) -> Result<ClientState, StoreError> {
        let path = folder.join(FILE);
        let Some(text) = read_text(&path) else { return Ok(ClientState::default()) };
        let strange = |error: String| {
            let told = format!("{error}; remove the file to choose new guards");
            StoreError::File(path.clone(), std::io::Error::other(told))
        };
        let written: Written =
            serde_json::from_str(&text).map_err(|error| strange(error.to_string()))?;
        let read = |guards: Vec<WrittenGuard>| -> Result<Vec<_>, String> {
            guards.into_iter().map(WrittenGuard::read).collect()
        };
        let told = |fingerprint: String| {
            strange(format!("'{}' is not a fingerprint", fingerprint.escape_debug()))
        };
        let default = read(written.guards).map_err(told)?;
        let restricted = read(written.restricted_guards).map_err(told)?;
        let bridges = read(written.bridges).map_err(told)?;
        let guards = KeptGuards { default, restricted, bridges };
        Ok(ClientState { guards, build_times: written.build_times_ms })
    }

    /// Writes it; the old file stays if that fails.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&self, folder: &Path) -> Result<(), StoreError> {
        let written = Written {
            guards: self.guards.default.iter().map(WrittenGuard::from).collect(),
            restricted_guards: self.guards.restricted.iter().map(WrittenGuard::from).collect(),
            bridges: self.guards.bridges.iter().map(WrittenGuard::from).collect(),
            build_times_ms: self.build_times.clone(),
        };
        let text = serde_json::to_vec_pretty(&written).expect("numbers and text are JSON");
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
        let new = Sampled {
            id: [0xab; 20],
            added: 1,
            listed: true,
            unlisted_since: None,
            confirmed: None,
        };
        let confirmed = Some(Confirmed { on: 2, place: 3 });
        let old = Sampled { listed: false, unlisted_since: Some(4), confirmed, ..new.clone() };
        let bridges = vec![new.clone()];
        let guards = KeptGuards { default: vec![old, new.clone()], restricted: vec![new], bridges };
        let kept = ClientState { guards, build_times: vec![5, 6] };
        kept.write(folder.path()).unwrap();
        assert_eq!(ClientState::read(folder.path()).unwrap(), kept);
        let path = folder.path().join(FILE);
        let written = std::fs::read_to_string(&path).unwrap();
        let half = &written[..written.len() / 2];
        let unnamed = written.replace("ABAB", "XYXY");
        for strange in ["", "{}", "[1]", half, &unnamed] {
            std::fs::write(&path, strange).unwrap();
            let error = ClientState::read(folder.path()).unwrap_err().to_string();
            assert!(error.contains("state.json") && error.contains("remove"), "{error}");
        }
    }
}
