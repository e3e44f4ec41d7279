//! A program that runs in a topology, and the search for its executable file on this machine.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, access};
use serde::Deserialize;

use anabranch_os::toml_keys::TomlError;

/// A program that runs in a host of the topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Unique name of the program, also used for its log files.
    pub name: String,
    /// Host in which the program runs, as an index into
    /// [`Topology::hosts`](super::Topology::hosts).
    pub host: usize,
    /// The program, as a name or a path, and its arguments. The list is never empty.
    pub command: Vec<String>,
    /// Environment variables that are set in addition to the variables of this process.
    pub environment: BTreeMap<String, String>,
    /// Working directory. `None` means the working directory of this process.
    pub directory: Option<PathBuf>,
    /// Start time, counted from the time at which the network is up.
    pub start: Duration,
    /// True if the emulation may end before the program ends.
    pub background: bool,
    /// Expected end of the program.
    pub expect: Expect,
    /// Line of the program's command in the topology file, counted from 1.
    pub line: usize,
}

/// Expected end of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expect {
    /// The program ends with status 0. A background program may also be stopped when the emulation
    /// ends.
    Success,
    /// The program ends with any status, or is stopped.
    Any,
    /// The program runs until the emulation stops it.
    Running,
}

/// The way in which a program actually ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramEnd {
    /// The program ended with this status.
    Code(i32),
    /// The program was ended by this signal.
    Signal(i32),
    /// The program was stopped with the emulation.
    Stopped,
    /// The emulation ended before the program's start time.
    NotStarted,
    /// The program could not be started, for this reason.
    Failed(String),
}

impl Program {
    /// Returns whether the program ended in the way that [`Program::expect`] requires.
    pub fn is_expected(&self, ended: &ProgramEnd) -> bool {
        let stopped = *ended == ProgramEnd::Stopped || *ended == ProgramEnd::NotStarted;
        match self.expect {
            Expect::Success => *ended == ProgramEnd::Code(0) || stopped && self.background,
            Expect::Any => !matches!(ended, ProgramEnd::Failed(_)),
            Expect::Running => stopped,
        }
    }

    /// Returns the path of the file to execute.
    ///
    /// # Errors
    /// This machine lacks the program or its directory. The error contains `file`, the name of the
    /// topology file as the user entered it, and the line of the command in this file.
    pub fn locate(&self, file: &str) -> Result<PathBuf, TomlError> {
        let error = |message| TomlError { file: file.to_owned(), line: self.line, message };
        let directory = self.directory.as_deref().unwrap_or(Path::new("."));
        if !directory.is_dir() {
            let path = directory.display();
            return Err(error(format!(
                "there is no directory `{path}`; make it, or name another one"
            )));
        }
        let name = &self.command[0];
        let path = match self.environment.get("PATH") {
            Some(path) => path.into(),
            None => env::var_os("PATH").unwrap_or_default(),
        };
        let found = if name.contains('/') {
            Some(directory.join(name)).filter(|file| is_executable(file))
        } else {
            env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_executable(file))
        };
        let place = if name.contains('/') { "there" } else { "in PATH" };
        let missing = format!("there is no program `{name}` {place}; install it, or give its path");
        let found = found.ok_or_else(|| error(missing))?;
        // The path is made absolute, because the program may run in another directory.
        std::path::absolute(found).map_err(|cause| error(cause.to_string()))
    }
}

fn is_executable(file: &Path) -> bool {
    file.is_file() && access(file, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(command: &str) -> Program {
        Program {
            name: "x".to_owned(),
            host: 0,
            command: vec![command.to_owned()],
            environment: BTreeMap::new(),
            directory: None,
            start: Duration::ZERO,
            background: false,
            expect: Expect::Success,
            line: 7,
        }
    }

    #[test]
    fn programs_are_looked_for_in_path_or_taken_by_their_path() {
        let found = program("sh").locate("t.toml").unwrap();
        assert!(found.is_absolute() && found.ends_with("sh"), "{found:?}");
        assert_eq!(program("/bin/sh").locate("t.toml").unwrap(), Path::new("/bin/sh"));
        let relative = Program { directory: Some("/bin".into()), ..program("./sh") };
        assert!(relative.locate("t.toml").is_ok());
        let elsewhere =
            Program { environment: [("PATH".into(), "/proc".into())].into(), ..program("sh") };
        assert!(elsewhere.locate("t.toml").is_err());
    }

    #[test]
    fn what_is_missing_is_told_with_its_line() {
        let error = |program: Program| program.locate("t.toml").unwrap_err().to_string();
        assert_eq!(
            error(program("no-such-thing")),
            "t.toml:7: there is no program `no-such-thing` in PATH; install it, or give its path"
        );
        assert!(
            error(program("/etc/passwd"))
                .starts_with("t.toml:7: there is no program `/etc/passwd` there")
        );
        let lost = Program { directory: Some("/no/where".into()), ..program("sh") };
        assert!(error(lost).starts_with("t.toml:7: there is no directory `/no/where`"));
    }

    #[test]
    fn an_end_is_judged_by_what_was_expected() {
        let judge = |expect, background, ended| {
            Program { expect, background, ..program("x") }.is_expected(&ended)
        };
        assert!(judge(Expect::Success, false, ProgramEnd::Code(0)));
        assert!(!judge(Expect::Success, false, ProgramEnd::Code(1)));
        assert!(!judge(Expect::Success, false, ProgramEnd::Stopped));
        assert!(judge(Expect::Success, true, ProgramEnd::Stopped));
        assert!(judge(Expect::Any, false, ProgramEnd::Signal(9)));
        assert!(!judge(Expect::Any, false, ProgramEnd::Failed("no".to_owned())));
        assert!(judge(Expect::Running, true, ProgramEnd::Stopped));
        assert!(!judge(Expect::Running, true, ProgramEnd::Code(0)));
    }
}
