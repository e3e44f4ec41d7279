//! A terminal that does not echo what is typed into the view, hands on each key at once, and is
//! given back as it was.

use std::io::{self, IsTerminal, Stdin, Write};
use std::panic;
use std::sync::Once;

use ratatui::crossterm::cursor::{MoveDown, Show};
use ratatui::crossterm::execute;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// Echo and lines are off while this lives. Ctrl-C still sends SIGINT: the terminal is not in raw
/// mode.
pub(super) struct Hush {
    stdin: Stdin,
    before: Termios,
}

impl Hush {
    /// `None` where stdin is no terminal: there is no echo then.
    pub(super) fn begin(height: u16) -> Option<Hush> {
        show_panics_below(height);
        let stdin = io::stdin();
        let before = stdin.is_terminal().then(|| tcgetattr(&stdin).ok()).flatten()?;
        let mut silent = before.clone();
        silent.local_modes -= LocalModes::ECHO | LocalModes::ICANON;
        tcsetattr(&stdin, OptionalActions::Now, &silent).ok()?;
        Some(Hush { stdin, before })
    }
}

impl Drop for Hush {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.stdin, OptionalActions::Now, &self.before);
    }
}

/// The message of a panic would be written into the view; unwinding restores all else.
fn show_panics_below(height: u16) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let _ = execute!(io::stdout(), MoveDown(height), Show);
            let _ = writeln!(io::stderr());
            usual(info);
        }));
    });
}
