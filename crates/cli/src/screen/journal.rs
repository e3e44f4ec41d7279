//! What is different where systemd's journal takes the lines.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

use anabranch_drive::toml_keys::without_codes;

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

/// Whether systemd's journal takes the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Journal {
    /// Lines begin with their priority: the journal knows the time, and filters.
    priorities: bool,
}

impl Journal {
    /// No journal.
    pub(crate) const NONE: Journal = Journal { priorities: false };

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
        Journal { priorities: named.is_some() && named == own() }
    }

    /// Whether the journal takes the lines.
    pub(crate) fn is_there(self) -> bool {
        self.priorities
    }

    /// `text`, each line with its priority where the journal takes it.
    pub(crate) fn line(self, priority: Priority, text: &str) -> String {
        let text = without_codes(text);
        if !self.priorities {
            return text;
        }
        let number = priority as u8;
        let lines: Vec<_> = text.lines().map(|line| format!("<{number}>{line}")).collect();
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_bears_its_priority_in_the_journal_and_none_elsewhere() {
        let journal = Journal { priorities: true };
        assert_eq!(journal.line(Priority::Warning, "a\nb"), "<4>a\n<4>b");
        assert_eq!(journal.line(Priority::Information, "a"), "<6>a");
        assert_eq!(Journal::NONE.line(Priority::Error, "a\nb"), "a\nb");
        let told = "path 'a': Network is down (os error 100)";
        assert_eq!(Journal::NONE.line(Priority::Error, told), "path 'a': Network is down");
    }
}
