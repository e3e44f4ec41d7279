//! What a client keeps from one run to the next: guards, and how long circuits took to build.

use std::path::Path;

use anabranch_onion::directory::guard::Guard;
use serde::{Deserialize, Serialize};

use super::authorities::digest;
use super::store::{StoreError, read_text, replace};

const FILE: &str = "state.json";

/// The kept state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Guards, oldest first.
    pub guards: Vec<Guard>,
    /// Build times in milliseconds, oldest first.
    pub build_times: Vec<u32>,
}

/// The file as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    guards: Vec<WrittenGuard>,
    build_times_ms: Vec<u32>,
}

/// Times in seconds since 1970.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenGuard {
    fingerprint: String,
    chosen: u64,
    confirmed: bool,
    listed: u64,
    failures: u32,
    rests_until: u64,
}

impl Kept {
    /// Reads what the folder holds; nothing if there is nothing.
    ///
    /// # Errors
    /// The file is not one that we wrote. It is left alone: it may hold a guard that its owner wants.
    pub fn read(folder: &Path) -> Result<Kept, StoreError> {
        let path = folder.join(FILE);
        let Some(text) = read_text(&path) else { return Ok(Kept::default()) };
        let strange = |error: String| {
            let told = format!("{error}; remove the file to choose new guards");
            StoreError::File(path.clone(), std::io::Error::other(told))
        };
        let written: Written =
            serde_json::from_str(&text).map_err(|error| strange(error.to_string()))?;
        let guards = written.guards.into_iter().map(|guard| {
            let told = || strange(format!("{:?} is no fingerprint", guard.fingerprint));
            Ok(Guard {
                rsa_identity: digest(&guard.fingerprint).ok_or_else(told)?,
                chosen: guard.chosen,
                confirmed: guard.confirmed,
                listed: guard.listed,
                failures: guard.failures,
                rests_until: guard.rests_until,
            })
        });
        let guards = guards.collect::<Result<_, StoreError>>()?;
        Ok(Kept { guards, build_times: written.build_times_ms })
    }

    /// Writes it; the old file stays if that fails.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&self, folder: &Path) -> Result<(), StoreError> {
        let guards = self.guards.iter().map(|guard| WrittenGuard {
            fingerprint: guard.rsa_identity.iter().map(|byte| format!("{byte:02X}")).collect(),
            chosen: guard.chosen,
            confirmed: guard.confirmed,
            listed: guard.listed,
            failures: guard.failures,
            rests_until: guard.rests_until,
        });
        let build_times_ms = self.build_times.clone();
        let written = Written { guards: guards.collect(), build_times_ms };
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
        assert_eq!(Kept::read(folder.path()).unwrap(), Kept::default());
        let guard = Guard {
            rsa_identity: [0xab; 20],
            chosen: 1,
            confirmed: true,
            listed: 2,
            failures: 3,
            rests_until: 4,
        };
        let kept = Kept { guards: vec![guard], build_times: vec![5, 6] };
        kept.write(folder.path()).unwrap();
        assert_eq!(Kept::read(folder.path()).unwrap(), kept);
        let path = folder.path().join(FILE);
        for strange in ["", "{}", "[1]"] {
            std::fs::write(&path, strange).unwrap();
            let error = Kept::read(folder.path()).unwrap_err().to_string();
            assert!(error.contains("state.json") && error.contains("remove"), "{error}");
        }
    }
}
