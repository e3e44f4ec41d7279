//! Rereading of the configuration file and the keys on SIGHUP.

use std::path::PathBuf;

use anabranch_splitter::merge::Settings;

use super::options::{self, Options};
use crate::failure::Failure;

/// Sources of the settings: command-line flags and a settings file. Flags override the file.
pub(super) struct Source {
    pub(super) flags: Options,
    pub(super) file: PathBuf,
    /// Options from flags and settings file at the start of the program. Options that must not
    /// change are compared with them.
    pub(super) began: Options,
}

impl Source {
    /// Reads the settings from flags and file again. Takes the random seed from `running`, the
    /// current settings.
    ///
    /// # Errors
    /// The file or the keys cannot be read or are invalid, or a setting has changed that is fixed
    /// while the far end runs.
    pub(super) fn read(&self, running: &Settings) -> Result<Settings, String> {
        let read = self.options(running).and_then(|options| options.settings());
        read.map_err(|failure| {
            let (text, name) = (failure.to_string(), self.file.display().to_string());
            if text.contains(&name) { text } else { format!("{name}: {text}") }
        })
    }

    fn options(&self, running: &Settings) -> Result<Options, Failure> {
        let options = self.flags.clone().over(options::read(&self.file)?).seeded(running.seed);
        match options.changed(&self.began) {
            Some(name) => Err(Failure::misuse(format!(
                "'{name}' cannot change while the far end runs: undo the change in the settings \
                 file, or restart the far end"
            ))),
            None => Ok(options),
        }
    }
}
