//! A live view with its terminal. The view opens below the existing lines, and is cleared at the
//! end.

use std::time::Duration;

use super::frame::{self, Picture};
use super::journal::Journal;
use super::quiet_terminal::QuietTerminal;
use super::view::View;

/// Interval between readings of the counters of a program with a live view. Ten readings per
/// second take less than 1 % of a core (`cli/tests/view.rs`).
pub(crate) const PERIOD: Duration = Duration::from_millis(100);

/// A live view, which exists only while its terminal is available. There is no view on a terminal
/// that does not report the position of its cursor.
pub(crate) struct LiveView<M> {
    view: Option<View<M>>,
    /// Prefix of the lines above the view, with the name of the running program if it has one.
    journal: Journal,
    gone: bool,
    /// Guard that restores the terminal's mode after the view has ended.
    quiet_terminal: Option<QuietTerminal>,
}

impl<M: Picture> LiveView<M> {
    /// Creates a live view that is not open yet. Lines above the view begin with `journal`, as
    /// lines without a view do.
    pub(crate) fn new(journal: Journal) -> LiveView<M> {
        LiveView { view: None, journal, gone: false, quiet_terminal: None }
    }

    /// Opens the view of `model`, if the terminal has accepted all previous lines (`takes_lines`).
    /// Otherwise the terminal is blocked, and drawing a view would block the program.
    pub(crate) fn begin(&mut self, takes_lines: bool, model: M) {
        let height = frame::height(&model);
        if takes_lines {
            self.view = View::open(height, model, self.journal.clone());
        }
        self.quiet_terminal = self.view().and_then(|view| {
            let quiet_terminal = QuietTerminal::begin(height)?;
            view.follow_keys();
            Some(quiet_terminal)
        });
    }

    /// Returns the view; `None` if the view's terminal is not available any more.
    pub(crate) fn view(&mut self) -> Option<&View<M>> {
        self.view = self.view.take().filter(View::runs);
        self.gone = self.view.is_none();
        self.view.as_ref()
    }

    /// Returns whether the terminal has turned out to be unavailable, so that only lines can be
    /// printed.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Closes the view and restores the terminal.
    pub(crate) fn end(&mut self) {
        self.view = None;
        self.quiet_terminal = None;
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::tcgetattr;

    use super::*;
    use crate::screen::frame::tests::Numbers;

    #[test]
    #[ignore = "the program of the test below, on a terminal"]
    fn a_program_that_panics_while_it_has_a_view() {
        let mut live = LiveView::new(Journal::NONE);
        live.begin(true, Numbers::default());
        live.view().expect("a terminal").redraw();
        panic!("on purpose");
    }

    #[test]
    fn a_panic_gives_the_terminal_back_and_its_message_stays() {
        let mut outer = File::from(openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap());
        grantpt(&outer).unwrap();
        unlockpt(&outer).unwrap();
        let name = ptsname(&outer, Vec::new()).unwrap();
        let inner = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let before = tcgetattr(&inner).unwrap().local_modes;
        let stdio = || Stdio::from(inner.try_clone().unwrap());
        let test = "screen::live::tests::a_program_that_panics_while_it_has_a_view";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture"])
            .stdin(stdio())
            .stdout(stdio())
            .stderr(stdio())
            .spawn()
            .unwrap();
        let (mut seen, mut buffer, mut answered) = (String::new(), [0; 4096], 0);
        while !seen.contains("test result") {
            let length = outer.read(&mut buffer).unwrap();
            seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
            while seen.matches("\x1b[6n").count() > answered {
                outer.write_all(b"\x1b[5;1R").unwrap();
                answered += 1;
            }
        }
        assert!(!child.wait().unwrap().success());
        assert_eq!(tcgetattr(&inner).unwrap().local_modes, before);
        let (_, after) = seen.split_once("on purpose").expect("the message of the panic");
        assert!(after.contains("\x1b[?25h"), "the cursor is back: {after:?}");
        assert!(!after.contains("\x1b[J"), "nothing clears the message: {after:?}");
        assert!(seen.rfind("\x1b[?25l") < seen.rfind("\x1b[?25h"), "{seen:?}");
    }
}
