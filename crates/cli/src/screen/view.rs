//! The thread that draws: a terminal that takes nothing (Ctrl-S) stops only this one.

use std::collections::VecDeque;
use std::io::{self, Stdout};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{MoveTo, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{Clear, ClearType};
use ratatui::text::Line;
use ratatui::widgets::Widget;
use ratatui::{Terminal, TerminalOptions, Viewport};

use super::super::model::Model;
use super::draw;

/// Lines that may wait to be put above the view.
const KEPT: usize = 256;
/// How long a terminal may take to open: it has to answer where its cursor is.
const OPENING: Duration = Duration::from_secs(3);
/// How long it may take to be cleared at the end.
const CLEARING: Duration = Duration::from_secs(1);

type Screen = Terminal<CrosstermBackend<Stdout>>;

/// A view that redraws itself whenever its model was changed and the terminal takes it.
pub(super) struct View {
    shared: Arc<Shared>,
}

impl View {
    /// A view of so many lines; `None` where the terminal cannot be opened.
    pub(super) fn open(height: u16, model: Model) -> Option<View> {
        let state = State { model, ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let (drawing, name) = (Over(shared.clone()), "view".to_owned());
        thread::Builder::new().name(name).spawn(move || drawing.0.run(height)).ok()?;
        let view = View { shared };
        let opening = |state: &mut State| state.phase == Phase::Opening;
        view.shared.wait(OPENING, opening);
        view.runs().then_some(view)
    }

    /// Whether the terminal is still there.
    pub(super) fn runs(&self) -> bool {
        self.shared.lock().phase == Phase::Running
    }

    /// Follows what happens; it is drawn with the next [`View::redraw`].
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Model) -> R) -> R {
        change(&mut self.shared.lock().model)
    }

    /// Draws anew, as soon as the terminal takes it.
    pub(super) fn redraw(&self) {
        self.shared.lock().wanted = true;
        self.shared.changed.notify_all();
    }

    /// A line that stays above the view.
    pub(super) fn keep(&self, text: String) {
        self.shared.lock().keep(text);
        self.redraw();
    }
}

impl Drop for View {
    /// Clears the view, unless the terminal takes nothing.
    fn drop(&mut self) {
        self.shared.lock().end(Phase::Ending);
        self.shared.changed.notify_all();
        self.shared.wait(CLEARING, |state| state.phase != Phase::Ended);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    #[default]
    Opening,
    Running,
    Ending,
    Ended,
}

#[derive(Default)]
struct State {
    model: Model,
    kept: VecDeque<String>,
    /// Lines that found no room in `kept`.
    skipped: u64,
    wanted: bool,
    phase: Phase,
}

impl State {
    fn keep(&mut self, text: String) {
        if self.kept.len() < KEPT {
            self.kept.push_back(text);
        } else {
            self.skipped += 1;
        }
    }

    /// The lines that wait, and a word on those that found no room.
    fn take_kept(&mut self) -> Vec<String> {
        let skipped = std::mem::take(&mut self.skipped);
        let notice =
            (skipped > 0).then(|| format!("warning: {skipped} further warnings not shown"));
        self.kept.drain(..).chain(notice).collect()
    }

    /// A phase never comes back.
    fn end(&mut self, phase: Phase) {
        self.phase = self.phase.max(phase);
    }
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while drawing leaves the model whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, span: Duration, busy: impl FnMut(&mut State) -> bool) {
        // Who waited in vain goes on all the same.
        drop(self.changed.wait_timeout_while(self.lock(), span, busy));
    }

    /// The thread: opens the terminal, draws when asked, clears the view at the end. A terminal
    /// that fails is gone: what SIGHUP does not end goes on without a view.
    fn run(&self, height: u16) {
        let Ok(mut terminal) = open(height) else { return };
        self.lock().end(Phase::Running);
        self.changed.notify_all();
        while let Some(kept) = self.wanted() {
            if self.draw(&mut terminal, kept).is_err() {
                return;
            }
        }
        clear(terminal);
    }

    /// Waits for something to draw. `None` at the end.
    fn wanted(&self) -> Option<Vec<String>> {
        let idle = |state: &mut State| !state.wanted && state.phase == Phase::Running;
        let state = self.changed.wait_while(self.lock(), idle);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.wanted = false;
        // What was to be kept is kept at the end too.
        let kept = state.take_kept();
        (state.phase == Phase::Running || !kept.is_empty()).then_some(kept)
    }

    fn draw(&self, terminal: &mut Screen, kept: Vec<String>) -> io::Result<()> {
        for text in kept {
            let line = Line::raw(text);
            terminal.insert_before(1, |buffer| line.render(buffer.area, buffer))?;
        }
        // Only while the frame is made is the model held, not while it is written.
        terminal.draw(|frame| draw::draw(frame, &self.lock().model)).map(drop)
    }
}

/// Whatever ends the thread, nobody waits for it in vain.
struct Over(Arc<Shared>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.lock().end(Phase::Ended);
        self.0.changed.notify_all();
    }
}

fn open(height: u16) -> io::Result<Screen> {
    let viewport = Viewport::Inline(height);
    Terminal::with_options(CrosstermBackend::new(io::stdout()), TerminalOptions { viewport })
}

fn clear(mut terminal: Screen) {
    // `Terminal::clear` would ask the terminal where its cursor is; we know where the view begins.
    let top = terminal.get_frame().area().top();
    drop(terminal);
    let _ = execute!(io::stdout(), MoveTo(0, top), Clear(ClearType::FromCursorDown), Show);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_that_a_stalled_terminal_does_not_take_are_bounded_and_counted() {
        let mut state = State::default();
        (0..1000).for_each(|number| state.keep(number.to_string()));
        let kept = state.take_kept();
        assert_eq!((kept.len(), kept[255].as_str()), (257, "255"));
        assert_eq!(kept[256], "warning: 744 further warnings not shown");
        assert!(state.take_kept().is_empty());
    }

    #[test]
    fn a_view_that_ended_does_not_begin_again() {
        let mut state = State::default();
        state.end(Phase::Ended);
        state.end(Phase::Running);
        assert_eq!(state.phase, Phase::Ended);
    }
}
