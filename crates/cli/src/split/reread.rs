//! Rereading of the configuration file on SIGHUP.

use std::path::PathBuf;

use anabranch_splitter::split::Settings;

use super::file;
use super::options::Options;
use super::plan;
use crate::failure::Failure;

/// Sources of the settings: command-line flags and a settings file. Flags override the file.
pub(super) struct Source {
    pub(super) flags: Options,
    pub(super) file: PathBuf,
    /// Options from flags and settings file at the start of the program. Options that must not
    /// change are compared with them.
    pub(super) began: Options,
    /// Whether the local address, the server and the firewall mark come from a WireGuard file
    /// (`--wg`). If so, SIGHUP cannot change them.
    pub(super) tunnel: bool,
}

impl Source {
    /// Reads the settings from flags and file again. Takes the seed of random choices from
    /// `running`, the current settings.
    ///
    /// # Errors
    /// The file cannot be read or is invalid, or a setting has changed that is fixed while the
    /// splitter runs.
    pub(super) fn read(&self, running: &Settings) -> Result<Settings, String> {
        self.options(running).and_then(|options| plan::settings(&options)).map_err(|failure| {
            let (text, name) = (failure.to_string(), self.file.display().to_string());
            if text.contains(&name) { text } else { format!("{name}: {text}") }
        })
    }

    fn options(&self, running: &Settings) -> Result<Options, Failure> {
        let mut options = self.flags.clone().over(file::read(&self.file)?);
        if self.tunnel {
            (options.listen, options.to) = (self.began.listen, self.began.to.clone());
            options.fwmark = self.began.fwmark;
            options.quiet = self.began.quiet;
        }
        options.seed = options.seed.or(Some(running.core.seed));
        for (name, changed) in [
            ("json", self.began.json != options.json),
            ("quiet", self.began.quiet != options.quiet),
            ("verbose", self.began.verbose != options.verbose),
            ("wg", self.began.wg != options.wg),
            ("metrics", self.began.metrics != options.metrics),
        ] {
            if changed {
                let text = format!(
                    "'{name}' cannot change while the splitter runs: undo the change in \
                             the settings file, or restart the splitter"
                );
                return Err(Failure::misuse(text));
            }
        }
        Ok(options)
    }
}
