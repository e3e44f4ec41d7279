//! The configuration file and the keys once more, on SIGHUP.

use std::path::PathBuf;

use anabranch_splitter::merge::Settings;

use super::options::{self, Options};
use crate::failure::Failure;

/// Where the settings came from: flags, over a file.
pub(super) struct Source {
    pub(super) flags: Options,
    pub(super) file: PathBuf,
    /// What both came to when the run began.
    pub(super) began: Options,
}

impl Source {
    /// The settings that the file gives now; those `running` keep the seed that they drew.
    ///
    /// # Errors
    /// The file or the keys cannot be read or make no sense, or something was changed in it that
    /// holds for a whole run.
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
                "'{name}' cannot change while the far end runs: restart the far end"
            ))),
            None => Ok(options),
        }
    }
}
