//! Keys that the user types while a live view is shown.

use std::io;
use std::time::Duration;

use ratatui::crossterm::event::{Event, KeyCode, KeyModifiers, poll, read};
use rustix::process::{Signal, getpgrp, getpid, kill_process};
use rustix::termios::tcgetpgrp;

/// Interval between two checks whether the view has ended, while the user presses no key.
const TURN: Duration = Duration::from_millis(250);

/// Request that the user makes with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// End the program.
    End,
    /// Freeze the view, or update it again.
    Hold,
    /// Show the explanation of the keys, or hide it.
    Help,
    /// Sort the rows by the next order.
    Sort,
    /// Redraw the view, because the terminal's size has changed.
    Resized,
}

impl Key {
    fn of(event: &Event) -> Option<Key> {
        let key = match event {
            Event::Key(key) => key,
            Event::Resize(..) => return Some(Key::Resized),
            _ => return None,
        };
        match key.code {
            // Usually the terminal converts Ctrl-C to SIGINT. While the view asks the terminal for
            // the position of its cursor, the terminal is in raw mode, so Ctrl-C arrives here as a
            // key.
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::End),
            KeyCode::Char('q' | 'Q') => Some(Key::End),
            KeyCode::Char('p' | 'P') => Some(Key::Hold),
            KeyCode::Char('?' | 'h' | 'H') => Some(Key::Help),
            KeyCode::Char('s' | 'S') => Some(Key::Sort),
            _ => None,
        }
    }
}

/// Reads keys, and calls `take` with each of them. If no key is pressed, calls `take` with `None`
/// every [`TURN`]. Returns when `take` returns false (the view has ended), or when keys cannot be
/// read.
///
/// Keys are read by crossterm's event reader, which also reads the terminal's reports of the
/// cursor position. A second reader of the terminal could take these reports away from crossterm.
/// A process in the background reads nothing, because the kernel would stop it (SIGTTIN).
pub(crate) fn follow(mut take: impl FnMut(Option<Key>) -> bool) {
    let mut key = None;
    while take(key.take()) {
        if !is_in_front() {
            std::thread::sleep(TURN);
            continue;
        }
        match poll(TURN).and_then(|ready| ready.then(read).transpose()) {
            Ok(event) => key = event.as_ref().and_then(Key::of),
            Err(_) => return,
        }
    }
}

/// Returns whether this process may read from the terminal. This is so if the process is in the
/// foreground, or if the terminal belongs to another session.
fn is_in_front() -> bool {
    tcgetpgrp(io::stdin()).map_or(true, |group| group == getpgrp())
}

/// Ends the program, as Ctrl-C does.
pub(crate) fn end_run() {
    // If sending the signal is not permitted, Ctrl-C still works.
    let _ = kill_process(getpid(), Signal::INT);
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::KeyEvent;

    use super::*;

    #[test]
    fn few_keys_mean_something() {
        let key = |of| Key::of(&Event::Key(KeyEvent::new(KeyCode::Char(of), KeyModifiers::NONE)));
        assert_eq!(
            ['q', 'p', '?', 'h', 's'].map(key),
            [Key::End, Key::Hold, Key::Help, Key::Help, Key::Sort].map(Some)
        );
        assert_eq!([key('x'), Key::of(&Event::FocusGained)], [None, None]);
        assert_eq!(Key::of(&Event::Resize(80, 24)), Some(Key::Resized));
    }

    #[test]
    fn an_interrupt_that_came_as_a_key_ends_the_run() {
        let key = |with| Key::of(&Event::Key(KeyEvent::new(KeyCode::Char('c'), with)));
        assert_eq!(key(KeyModifiers::CONTROL), Some(Key::End));
        assert_eq!(key(KeyModifiers::NONE), None);
    }
}
