//! What an authority keeps from one run to the next: descriptors (a file each), what is known of
//! relays besides, the last consensus.
//!
//! Each file is whole or not there. One that somebody cut in half costs what it held and is named:
//! a descriptor comes again from its relay, and a consensus is made again. What cannot be had
//! again, which identities belong together and how reliable relays were, stops the start.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anabranch_onion::authority::{Authority, Documents, Fields, History, Past};
use anabranch_onion::wire::text::{bytes, hex, twenty};
use serde::{Deserialize, Serialize};

use crate::onion::store::{StoreError, private_folder, read_text, replace};

const RELAYS: &str = "relays";
const PASTS: &str = "relays.json";
const NS: &str = "consensus";
const MICRODESC: &str = "consensus-microdesc";
const MICRODESCS: &str = "microdescriptors";

/// The files.
pub(super) struct Vault {
    folder: PathBuf,
}

/// A relay in [`PASTS`]; times in seconds since 1970.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    ed25519: String,
    history: Fields,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answered: Option<u64>,
}

impl Vault {
    /// The files of this folder.
    ///
    /// # Errors
    /// A folder cannot be made, or is open to others.
    pub(super) fn open(data: &Path) -> Result<Vault, StoreError> {
        private_folder(&data.join(RELAYS))?;
        Ok(Vault { folder: data.to_owned() })
    }

    /// Takes up the state of an earlier run; what was lost of it, for the operator.
    ///
    /// # Errors
    /// A file cannot be read, or [`PASTS`] is none that we wrote: it is left as it is.
    pub(super) fn restore(
        &self,
        authority: &mut Authority,
        unix_now: u64,
    ) -> Result<Vec<String>, StoreError> {
        let mut troubles = Vec::new();
        for (id, past) in self.pasts()? {
            if !authority.remember(unix_now, &id, past) {
                troubles.push(format!("{}: {PASTS} has its keys twice", hex(&id)));
            }
        }
        troubles.extend(self.relays(authority, unix_now)?);
        troubles.extend(self.consensus(authority, unix_now));
        Ok(troubles)
    }

    /// Keeps what a relay published.
    ///
    /// # Errors
    /// The disk is full, or the like: the old file stays.
    pub(super) fn put(
        &self,
        id: [u8; 20],
        server: &str,
        extra: Option<&str>,
    ) -> Result<(), StoreError> {
        let text = [server, extra.unwrap_or_default()].concat();
        replace(&self.place(&id), text.as_bytes())
    }

    /// Forgets what a relay published.
    pub(super) fn remove(&self, id: &[u8; 20]) {
        // A file that stays is taken up by the next start, and given up again.
        let _ = fs::remove_file(self.place(id));
    }

    /// Keeps everything else.
    ///
    /// # Errors
    /// As [`Vault::put`].
    pub(super) fn keep(&self, authority: &Authority) -> Result<(), StoreError> {
        let Documents { ns, microdesc, microdescs, times } = authority.documents();
        if times.is_some() {
            let microdescs: String = microdescs.values().map(|(text, _)| &text[..]).collect();
            for (file, text) in [(NS, ns), (MICRODESC, microdesc), (MICRODESCS, &microdescs)] {
                replace(&self.folder.join(file), text.as_bytes())?;
            }
        }
        let pasts: BTreeMap<String, Written> =
            authority.pasts().map(|(id, past)| (hex(&id), Written::from(past))).collect();
        let text = serde_json::to_vec_pretty(&pasts).expect("numbers and text are JSON");
        replace(&self.folder.join(PASTS), &text)?;
        Ok(())
    }

    fn place(&self, id: &[u8; 20]) -> PathBuf {
        self.folder.join(RELAYS).join(hex(id))
    }

    fn pasts(&self) -> Result<Vec<([u8; 20], Past)>, StoreError> {
        let path = self.folder.join(PASTS);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|error| StoreError::File(path.clone(), error))?,
        };
        let strange = |what: String| {
            let told = format!(
                "{what}; restore a copy, or remove the file to start without relays' history and \
                 pinned keys"
            );
            StoreError::File(path.clone(), std::io::Error::other(told))
        };
        let written: BTreeMap<String, Written> =
            serde_json::from_str(&text).map_err(|error| strange(error.to_string()))?;
        let read = |(id, written): (String, Written)| {
            written
                .read(&id)
                .ok_or_else(|| strange(format!("'{}' is not a relay's past", id.escape_debug())))
        };
        written.into_iter().map(read).collect()
    }

    fn relays(&self, authority: &mut Authority, now: u64) -> Result<Vec<String>, StoreError> {
        let folder = self.folder.join(RELAYS);
        let told = |error| StoreError::File(folder.clone(), error);
        let mut troubles = Vec::new();
        for file in fs::read_dir(&folder).map_err(told)? {
            let path = file.map_err(told)?.path();
            let id = path.file_name().and_then(|name| twenty(name.to_str()?));
            let (Some(_), Ok(text)) = (id, fs::read_to_string(&path)) else { continue };
            // The relay publishes it again, and that takes the file's place.
            if let Err(refusal) = authority.take_up(now, &text) {
                troubles.push(format!("{}: {refusal}", path.display()));
            }
        }
        Ok(troubles)
    }

    /// Serves the last consensus again; why not, if that cannot be.
    fn consensus(&self, authority: &mut Authority, now: u64) -> Option<String> {
        let [ns, microdesc, microdescs] =
            [NS, MICRODESC, MICRODESCS].map(|name| read_text(&self.folder.join(name)));
        let (ns, microdesc) = (ns?, microdesc?);
        let taken = authority.restore(now, [&ns, &microdesc], &microdescs.unwrap_or_default());
        let told = "the last consensus has expired, is incomplete, or is signed by another key: \
                    making a new one";
        (!taken).then(|| format!("{}: {told}", self.folder.join(NS).display()))
    }
}

impl From<Past> for Written {
    fn from(past: Past) -> Written {
        let ed25519 = hex(&past.edwards);
        Written { ed25519, history: past.history.fields(), answered: past.answered }
    }
}

impl Written {
    fn read(self, id: &str) -> Option<([u8; 20], Past)> {
        let Written { ed25519, history, answered } = self;
        let edwards = bytes(&ed25519)?;
        let history = History::from_fields(history)?;
        Some((twenty(id)?, Past { edwards, history, answered }))
    }
}
