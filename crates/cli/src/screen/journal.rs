//! The head of each line: its priority where systemd's journal takes it, and the run's name.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

use anabranch_os::toml_keys::without_codes;

/// How much a line matters (sd-daemon(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// The program ends by it.
    Error = 3,
    /// Not as it should be.
    Warning = 4,
    /// What happens.
    Information = 6,
}

/// Whether systemd's journal takes the lines, and the name of the run that they are of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Journal {
    /// Lines begin with their priority: the journal knows the time, and filters.
    priorities: bool,
    /// `--name`, to distinguish the lines of several runs in one log.
    name: Option<String>,
}

impl Journal {
    /// No journal, and a run without a name.
    pub(crate) const NONE: Journal = Journal { priorities: false, name: None };

    /// What stdout leads to.
    pub(crate) fn of_stdout() -> Journal {
        Journal::of(io::stdout().as_fd())
    }

    /// What stderr leads to.
    pub(crate) fn of_stderr() -> Journal {
        Journal::of(io::stderr().as_fd())
    }

    /// By the device and inode that systemd names (systemd.exec(5)).
    fn of(file: BorrowedFd<'_>) -> Journal {
        let named = std::env::var("JOURNAL_STREAM").ok();
        let own = || {
            let about = File::from(file.try_clone_to_owned().ok()?).metadata().ok()?;
            Some(format!("{}:{}", about.dev(), about.ino()))
        };
        Journal { priorities: named.is_some() && named == own(), name: None }
    }

    /// The same for lines of the run with this name, if it has one.
    pub(crate) fn of_run(self, name: Option<&str>) -> Journal {
        Journal { name: name.map(str::to_owned), ..self }
    }

    /// Whether the journal takes the lines.
    pub(crate) fn is_there(&self) -> bool {
        self.priorities
    }

    /// `text`, each line with its priority where the journal takes it, and the run's name.
    pub(crate) fn line(&self, priority: Priority, text: &str) -> String {
        let text = without_codes(text);
        let priority = self.priorities.then(|| format!("<{}>", priority as u8));
        let name = self.name.as_ref().map(|name| format!("[{name}] "));
        let head = priority.unwrap_or_default() + &name.unwrap_or_default();
        if head.is_empty() {
            return text;
        }
        let lines: Vec<_> = text.lines().map(|line| format!("{head}{line}")).collect();
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_bears_its_priority_in_the_journal_and_none_elsewhere() {
        let journal = Journal { priorities: true, name: None };
        assert_eq!(journal.line(Priority::Warning, "a\nb"), "<4>a\n<4>b");
        assert_eq!(journal.line(Priority::Information, "a"), "<6>a");
        assert_eq!(Journal::NONE.line(Priority::Error, "a\nb"), "a\nb");
        let told = "path 'a': Network is down (os error 100)";
        assert_eq!(Journal::NONE.line(Priority::Error, told), "path 'a': Network is down");
    }

    #[test]
    fn each_line_of_a_run_begins_with_its_name() {
        let named = |journal: Journal| journal.of_run(Some("home"));
        assert_eq!(named(Journal::NONE).line(Priority::Error, "a\nb"), "[home] a\n[home] b");
        let journal = Journal { priorities: true, name: None };
        assert_eq!(named(journal).line(Priority::Warning, "a"), "<4>[home] a");
    }
}
