//! Terminal mode of a live view: typed characters are not echoed, and each key is delivered at
//! once. The previous mode is restored at the end.

use std::io::{self, IsTerminal, Stdin, Write};
use std::panic;
use std::sync::Once;

use ratatui::crossterm::cursor::{MoveDown, Show};
use ratatui::crossterm::execute;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// Guard that disables the terminal's echo and line buffering until it is dropped. Ctrl-C still
/// sends SIGINT, because the terminal is not in raw mode.
pub(super) struct QuietTerminal {
    stdin: Stdin,
    before: Termios,
}

impl QuietTerminal {
    /// Changes the terminal's mode. Returns `None` if standard input is not a terminal, because
    /// then no typed characters are echoed. The message of a panic is printed below the view,
    /// which is `height` lines high.
    pub(super) fn begin(height: u16) -> Option<QuietTerminal> {
        show_panics_below(height);
        let stdin = io::stdin();
        let before = stdin.is_terminal().then(|| tcgetattr(&stdin).ok()).flatten()?;
        let mut silent = before.clone();
        silent.local_modes -= LocalModes::ECHO | LocalModes::ICANON;
        tcsetattr(&stdin, OptionalActions::Now, &silent).ok()?;
        Some(QuietTerminal { stdin, before })
    }
}

impl Drop for QuietTerminal {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.stdin, OptionalActions::Now, &self.before);
    }
}

/// Installs a panic hook that prints the message of a panic below the view instead of over it. The
/// mode of the terminal is restored while the panic unwinds.
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
