//! What is typed at a view.

use std::io;
use std::time::Duration;

use ratatui::crossterm::event::{Event, KeyCode, KeyModifiers, poll, read};
use rustix::process::{Signal, getpgrp, getpid, kill_process};
use rustix::termios::tcgetpgrp;

/// How long the end of a view may go unnoticed.
const TURN: Duration = Duration::from_millis(250);

/// What somebody wants of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// The end of the run.
    End,
    /// That the view stands still, or goes on.
    Hold,
    /// What the keys are, or that no more.
    Help,
    /// Another order of the rows.
    Sort,
    /// The terminal has another size.
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
            // The terminal sends SIGINT for it, but not while it is asked where its cursor is: for
            // the answer it is in raw mode.
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::End),
            KeyCode::Char('q' | 'Q') => Some(Key::End),
            KeyCode::Char('p' | 'P') => Some(Key::Hold),
            KeyCode::Char('?' | 'h' | 'H') => Some(Key::Help),
            KeyCode::Char('s' | 'S') => Some(Key::Sort),
            _ => None,
        }
    }
}

/// Hands on each key until `take` says that the view has ended; it is asked with `None` after each
/// pause.
///
/// They are read where the terminal's other answers are, so that none takes what is another's. In
/// the background nothing is: the kernel would stop the program.
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

/// Whether the terminal is ours to read; one that is not our session's is.
fn is_in_front() -> bool {
    tcgetpgrp(io::stdin()).map_or(true, |group| group == getpgrp())
}

/// Ends this run as Ctrl-C does.
pub(crate) fn end_run() {
    // Without permission to signal ourselves there is still Ctrl-C.
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
