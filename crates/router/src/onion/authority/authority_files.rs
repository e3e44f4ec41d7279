//! An authority's state on disk between runs: the relays' descriptors (one file for each relay),
//! the history of relays, and the last consensus.
//!
//! Each file is either complete or absent ([`kept`](crate::onion::kept)). A damaged file is
//! renamed and reported. Its content can be replaced, because relays publish descriptors again and
//! the authority makes a new consensus. The exception is [`HISTORIES`], which has the relays'
//! pinned identities and reliability. If [`HISTORIES`] is damaged, the authority does not start.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anabranch_onion::authority::{
    Authority, Documents, Fields, History, Refusal, StoredRelay, Unrestored,
};
use anabranch_onion::wire::netdoc::parse_microdescs;
use anabranch_onion::wire::text::{bytes, hex, twenty};
use serde::{Deserialize, Serialize};

use crate::onion::kept::{StateContent, Unknown, damaged, read_json, read_text, set_aside};
use crate::onion::store::{StoreError, private_folder, replace};

/// Name of the folder with the descriptors that relays have published.
const RELAYS: &str = "relays";
/// Name of the file with each relay's pinned identity and its reliability so far.
const HISTORIES: &str = "relays.json";
/// Name of the file with the latest consensus of flavour `ns`.
const NS: &str = "consensus";
/// Name of the file with the latest consensus of flavour `microdesc`.
const MICRODESC: &str = "consensus-microdesc";
/// Name of the file with the microdescriptors.
const MICRODESCS: &str = "microdescriptors";

/// State files in an authority's data folder.
pub(super) struct AuthorityFiles {
    folder: PathBuf,
    /// Fields of [`HISTORIES`] (the file of relays' identities and reliability) that this version
    /// does not know, by the relay's RSA identity. They are written back unchanged.
    unknown: BTreeMap<[u8; 20], Unknown>,
}

/// A relay's entry in the file [`HISTORIES`]: its identity and its reliability. Times are in
/// seconds since 1970.
#[derive(Serialize, Deserialize)]
struct RelayEntry {
    ed25519: String,
    history: Fields,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answered: Option<u64>,
    #[serde(flatten)]
    unknown: Unknown,
}

impl AuthorityFiles {
    /// Opens the authority's data folder `data`, and creates it if it is missing.
    ///
    /// # Errors
    /// A folder cannot be created, or is accessible to other users.
    pub(super) fn open(data: &Path) -> Result<AuthorityFiles, StoreError> {
        private_folder(&data.join(RELAYS))?;
        Ok(AuthorityFiles { folder: data.to_owned(), unknown: BTreeMap::new() })
    }

    /// Restores the state of an earlier run into `authority`. Returns messages about the parts
    /// that could not be restored.
    ///
    /// # Errors
    /// A file cannot be read, or [`HISTORIES`] (the file of relays' identities and reliability) is
    /// damaged. This function never changes [`HISTORIES`].
    pub(super) fn restore(
        &mut self,
        authority: &mut Authority,
        unix_now: u64,
    ) -> Result<Vec<String>, StoreError> {
        let mut troubles = Vec::new();
        for (id, past) in self.stored_relays()? {
            if !authority.remember(unix_now, &id, past) {
                troubles.push(format!(
                    "relay {}: its entry in {HISTORIES} is ignored, because another relay's entry \
                     has the same key",
                    hex(&id)
                ));
            }
        }
        troubles.extend(self.relays(authority, unix_now)?);
        troubles.extend(self.consensus(authority, unix_now)?);
        Ok(troubles)
    }

    /// Writes to disk the descriptor `server` of the relay `id`, followed by the extra-info
    /// document `extra`, if there is one.
    ///
    /// # Errors
    /// The file cannot be written. The old file is unchanged then.
    pub(super) fn put(
        &self,
        id: [u8; 20],
        server: &str,
        extra: Option<&str>,
    ) -> Result<(), StoreError> {
        let text = [server, extra.unwrap_or_default()].concat();
        replace(&self.place(&id), text.as_bytes())
    }

    /// Deletes the file with the descriptor of the relay `id`.
    pub(super) fn remove(&self, id: &[u8; 20]) {
        // If the file cannot be deleted, the authority reads it at the next start, and then drops
        // the relay again.
        let _ = fs::remove_file(self.place(id));
    }

    /// Writes to disk the documents of the last consensus, and the relays' identities and
    /// reliability.
    ///
    /// # Errors
    /// A file cannot be written. The old file is unchanged then.
    pub(super) fn keep(&self, authority: &Authority) -> Result<(), StoreError> {
        let Documents { ns, microdesc, microdescs, times } = authority.documents();
        if times.is_some() {
            let microdescs: String = microdescs.values().map(|(text, _)| &text[..]).collect();
            for (file, text) in [(NS, ns), (MICRODESC, microdesc), (MICRODESCS, &microdescs)] {
                replace(&self.folder.join(file), text.as_bytes())?;
            }
        }
        let stored_relays: BTreeMap<String, RelayEntry> = authority
            .stored_relays()
            .map(|(id, past)| (hex(&id), self.written(&id, past)))
            .collect();
        let text = serde_json::to_vec_pretty(&stored_relays)
            .expect("numbers and text can be written as JSON");
        replace(&self.folder.join(HISTORIES), &text)?;
        Ok(())
    }

    fn place(&self, id: &[u8; 20]) -> PathBuf {
        self.folder.join(RELAYS).join(hex(id))
    }

    fn stored_relays(&mut self) -> Result<Vec<([u8; 20], StoredRelay)>, StoreError> {
        let path = self.folder.join(HISTORIES);
        let strange = |why: &str| {
            let cure = "restore it from a backup, or move the file away to start without the \
                        recorded history and keys of the relays";
            damaged(&path, why, cure)
        };
        let written: BTreeMap<String, RelayEntry> = match read_json(&path)? {
            StateContent::Absent => return Ok(Vec::new()),
            StateContent::Damaged(why) => return Err(strange(&why)),
            StateContent::Whole(written) => written,
        };
        let mut stored_relays = Vec::new();
        for (id, written) in written {
            let read = written.read(&id);
            let to_error =
                || strange(&format!("the entry '{}' is not a relay's history", id.escape_debug()));
            let (id, past, unknown) = read.ok_or_else(to_error)?;
            if !unknown.is_empty() {
                self.unknown.insert(id, unknown);
            }
            stored_relays.push((id, past));
        }
        Ok(stored_relays)
    }

    fn relays(&self, authority: &mut Authority, now: u64) -> Result<Vec<String>, StoreError> {
        let folder = self.folder.join(RELAYS);
        let to_error = |error| StoreError::File(folder.clone(), error);
        let mut troubles = Vec::new();
        for file in fs::read_dir(&folder).map_err(to_error)? {
            let path = file.map_err(to_error)?.path();
            let id = path.file_name().and_then(|name| twenty(name.to_str()?));
            if id.is_none() {
                continue;
            }
            let remedy = "the relay will publish its descriptor again";
            let text = match read_text(&path)? {
                StateContent::Whole(text) => text,
                StateContent::Damaged(why) => {
                    troubles.push(set_aside(&path, &why, remedy)?);
                    continue;
                }
                StateContent::Absent => continue,
            };
            match authority.take_up(now, &text) {
                Ok(_) => {}
                Err(refusal @ (Refusal::Document(_) | Refusal::ExtraText)) => {
                    troubles.push(set_aside(&path, &refusal.to_string(), remedy)?);
                }
                // The relay will publish a descriptor again, which replaces the file.
                Err(refusal) => troubles.push(format!("{}: {refusal}", path.display())),
            }
        }
        Ok(troubles)
    }

    /// Restores the last consensus into `authority`. Returns messages about files that are
    /// damaged, or whose consensus can no longer be used.
    fn consensus(&self, authority: &mut Authority, now: u64) -> Result<Vec<String>, StoreError> {
        let mut troubles = Vec::new();
        let mut texts = Vec::new();
        for name in [NS, MICRODESC, MICRODESCS] {
            let path = self.folder.join(name);
            texts.push(match read_text(&path)? {
                StateContent::Absent => None,
                StateContent::Whole(text) => Some(text),
                StateContent::Damaged(why) => {
                    troubles.push(set_aside(&path, &why, "a new consensus will be made")?);
                    None
                }
            });
        }
        let [Some(ns), Some(microdesc), microdescs] = &texts[..] else { return Ok(troubles) };
        let microdescs = microdescs.as_deref().unwrap_or_default();
        let why = match parse_microdescs(microdescs) {
            Ok((_, 0)) => None,
            Ok((_, 1)) => Some("1 entry of the file is invalid".to_owned()),
            Ok((_, bad)) => Some(format!("{bad} entries of the file are invalid")),
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = why.filter(|_| !microdescs.is_empty()) {
            let instead =
                "the authority makes the missing microdescriptors again, with its next consensus";
            troubles.push(set_aside(&self.folder.join(MICRODESCS), &why, instead)?);
        }
        let message =
            "the last consensus has expired or is signed by another key: making a new one";
        match authority.restore(now, [ns, microdesc], microdescs) {
            Ok(()) => {}
            Err(Unrestored::Useless) => {
                troubles.push(format!("{}: {message}", self.folder.join(NS).display()));
            }
            Err(Unrestored::Damaged(which)) => {
                for (name, _) in [NS, MICRODESC].into_iter().zip(which).filter(|(_, is)| *is) {
                    let path = self.folder.join(name);
                    let why = "it is not a consensus, or its signature is invalid";
                    troubles.push(set_aside(&path, why, "a new consensus will be made")?);
                }
            }
        }
        Ok(troubles)
    }

    fn written(&self, id: &[u8; 20], past: StoredRelay) -> RelayEntry {
        let ed25519 = hex(&past.edwards);
        let unknown = self.unknown.get(id).cloned().unwrap_or_default();
        RelayEntry { ed25519, history: past.history.fields(), answered: past.answered, unknown }
    }
}

impl RelayEntry {
    fn read(self, id: &str) -> Option<([u8; 20], StoredRelay, Unknown)> {
        let RelayEntry { ed25519, history, answered, unknown } = self;
        let edwards = bytes(&ed25519)?;
        let history = History::from_fields(history)?;
        Some((twenty(id)?, StoredRelay { edwards, history, answered }, unknown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_programs_pasts_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let text = include_str!("../../../../../tests/formats/0e0b824b/authority/relays.json");
        fs::write(folder.path().join(HISTORIES), text).unwrap();
        let mut authority_files = AuthorityFiles::open(folder.path()).unwrap();
        let stored_relays = authority_files.stored_relays().unwrap();
        let [(one, past), (_, other)] = &stored_relays[..] else {
            panic!("{} relays", stored_relays.len())
        };
        assert_eq!(hex(one), "1AB12EEC57757DE9442B6A4E4C547E27A90D971E");
        assert_eq!(hex(&past.edwards)[..8], *"B62B5985");
        assert_eq!((past.answered, other.answered), (Some(1_795_951_442), None));
        assert_eq!(past.history.fields()[2..5], [65.0, 65.0, 1_795_951_452.0]);
        assert!(authority_files.unknown.is_empty(), "no field is strange");
    }
}
