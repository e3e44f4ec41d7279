//! What the commands of all experiments share: their options, their folder, and what is in it.

use std::fmt::Display;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anabranch_drive::experiment::{Journal, Record, table};
use clap::Args;
use serde_json::Value;

use super::allowed::{need_networks, need_root};
use crate::failure::Failure;
use crate::html;

/// What was measured, a line for each unit or attempt.
pub(super) const JOURNAL: &str = "units.jsonl";

/// The options of every experiment.
#[derive(Args)]
pub(super) struct Common {
    /// Where results go; made if it is not there
    #[arg(value_name = "FOLDER")]
    pub(super) folder: PathBuf,
    /// Of the order, and of all that is drawn: paths' chances, sites' protocols, the splitter's choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// A further word for `anabranch split` where it splits, such as --split=--quic-tuples=3; repeat for more
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    pub(super) split: Vec<String>,
    /// Where the peers' programs are, if not where tests/interop/setup builds them or in PATH
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Measure nothing: make the results of what is there
    #[arg(long)]
    pub(super) report: bool,
    /// Tell what happens as JSON, one object a line, on standard output
    #[arg(long)]
    pub(super) json: bool,
}

impl Common {
    /// Refuses whoever is not root; `name` is the experiment's.
    ///
    /// # Errors
    /// Misuse.
    pub(super) fn need_root(&self, name: &str) -> Result<(), Failure> {
        need_root(&format!("anabranch experiment {name} {}", self.folder.display()))
    }

    /// The program under test, which is this one, and where the peers' may be.
    ///
    /// # Errors
    /// Trouble: the system does not tell.
    pub(super) fn programs(&self) -> Result<(PathBuf, Option<&Path>), Failure> {
        let own = std::env::current_exe().map_err(Failure::trouble)?;
        Ok((own, self.programs.as_deref()))
    }

    /// The journal to go on with, in the folder, which is made if it is not there.
    ///
    /// # Errors
    /// Misuse: networks cannot be had, and nothing was made; or the journal is another run's.
    pub(super) fn journal<R: Record>(&self, header: &Value) -> Result<Journal<R>, Failure> {
        need_networks()?;
        make(&self.folder)?;
        Journal::open(&self.folder.join(JOURNAL), header).map_err(Failure::misuse)
    }

    /// What a journal holds, whoever wrote it.
    ///
    /// # Errors
    /// Misuse: there is none.
    pub(super) fn read<R: Record>(&self) -> Result<(Value, Vec<R>), Failure> {
        Journal::read(&self.folder.join(JOURNAL)).map_err(Failure::misuse)
    }

    /// Writes the table of an experiment of this name and seed into the folder.
    ///
    /// # Errors
    /// Misuse: it cannot be written.
    pub(super) fn table(
        &self,
        file: &str,
        (name, seed): (&str, u64),
        columns: &[table::Column],
    ) -> Result<(), Failure> {
        let facts = [
            ("anabranch.experiment", name.to_owned()),
            ("anabranch.schema", "1".to_owned()),
            ("anabranch.seed", seed.to_string()),
            ("anabranch.program", html::GENERATOR.to_owned()),
        ];
        let target = self.folder.join(file);
        table::write(&target, columns, &facts).map_err(|e| cannot_write(&target, &e))
    }

    /// Writes a text into the folder, whole or not at all.
    ///
    /// # Errors
    /// Misuse: it cannot be written.
    pub(super) fn write(&self, file: &str, text: &str) -> Result<(), Failure> {
        let target = self.folder.join(file);
        html::write(&target, text).map_err(|e| cannot_write(&target, &e))
    }

    /// Tells people in short what came of it, and where the page is.
    pub(super) fn conclude(&self, text: &str, page: &str) {
        if !self.json {
            // Nobody may be there to read it.
            let page = self.folder.join(page);
            let _ = writeln!(std::io::stdout(), "{text}\n{}", page.display());
        }
    }
}

/// That a file cannot be written, and why.
pub(super) fn cannot_write(what: &Path, error: &dyn Display) -> Failure {
    Failure::misuse(format!("cannot write {}: {error}", what.display()))
}

/// Makes a folder that its owner alone may read, if it is not there yet.
///
/// # Errors
/// Misuse: it cannot be made.
pub(super) fn make(folder: &Path) -> Result<(), Failure> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|e| Failure::misuse(format!("{}: {e}", folder.display())))
}
