//! The thread that draws a live view. Only this thread blocks if the terminal accepts no output
//! (Ctrl-S).

use std::collections::VecDeque;
use std::io::{self, Stdout};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{MoveTo, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{Clear, ClearType};
use ratatui::text::{Line, Text};
use ratatui::widgets::Widget;
use ratatui::{Terminal, TerminalOptions, Viewport};

use super::frame::{self, Picture, ViewState};
use super::journal::{Journal, Priority};
use super::keys::{self, Key};
use super::palette::Palette;
use crate::text::wrapped;

/// Maximum number of lines queued to be printed above the view.
const KEPT: usize = 256;
/// Maximum time for opening a view. The terminal has to report the position of its cursor in this
/// time.
const OPENING: Duration = Duration::from_secs(3);
/// Maximum time for clearing the view when the program ends.
const CLEARING: Duration = Duration::from_secs(1);

type Screen = Terminal<CrosstermBackend<Stdout>>;

/// A live view, which is redrawn when its model has changed and the terminal accepts output.
pub(crate) struct View<M> {
    shared: Arc<Shared<M>>,
}

impl<M: Picture> View<M> {
    /// Opens a view of `model` that is `height` lines high. Lines above the view begin with
    /// `journal`. Returns `None` if the terminal cannot be opened.
    pub(super) fn open(height: u16, model: M, journal: Journal) -> Option<View<M>> {
        let state = State { journal, ..State::of(model) };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let (drawing, name) = (EndGuard(shared.clone()), "view".to_owned());
        thread::Builder::new().name(name).spawn(move || drawing.0.run(height)).ok()?;
        let view = View { shared };
        let opening = |state: &mut State<M>| state.phase == Phase::Opening;
        view.shared.wait(OPENING, opening);
        view.runs().then_some(view)
    }

    /// Starts a thread that handles keys. Before the call, the caller must set the terminal to a
    /// mode without echo and without line buffering.
    pub(super) fn follow_keys(&self) {
        let shared = Arc::clone(&self.shared);
        let follow = move || keys::follow(|key| shared.take_key(key));
        // If the thread cannot be started, Ctrl-C still works.
        let _ = thread::Builder::new().name("keys".to_owned()).spawn(follow);
    }

    /// Returns whether the terminal is still available.
    pub(super) fn runs(&self) -> bool {
        self.shared.lock().phase == Phase::Running
    }

    /// Applies `change` to the model. The result is drawn after the next [`View::redraw`].
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut M) -> R) -> R {
        change(&mut self.shared.lock().model)
    }

    /// Requests that the view is redrawn as soon as the terminal accepts output. A frozen view is
    /// not redrawn.
    pub(crate) fn redraw(&self) {
        let mut state = self.shared.lock();
        state.wanted |= state.held.is_none();
        self.shared.changed.notify_all();
    }

    /// Prints `text` above the view, where the text remains.
    pub(crate) fn keep(&self, text: &str) {
        self.shared.lock().keep(text);
        self.shared.changed.notify_all();
    }
}

impl<M> Drop for View<M> {
    /// Clears the view, if the terminal accepts output. After a panic the view stays, so that the
    /// panic's message remains readable.
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.stays = thread::panicking();
        state.end(Phase::Ending);
        drop(state);
        self.shared.changed.notify_all();
        self.shared.wait(CLEARING, |state| state.phase != Phase::Ended);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Opening,
    Running,
    Ending,
    Ended,
}

struct State<M> {
    model: M,
    /// State of the model at the moment when the user froze the view; `None` if the view is not
    /// frozen.
    held: Option<M>,
    look: ViewState,
    opened: Instant,
    /// Prefix of the lines above the view, with the name of the running program if it has one.
    journal: Journal,
    kept: VecDeque<String>,
    /// Number of lines dropped because `kept` was full.
    skipped: u64,
    wanted: bool,
    /// Whether the view remains on the terminal at the end, because the message of a panic is
    /// below it.
    stays: bool,
    phase: Phase,
}

impl<M: Picture> State<M> {
    fn of(model: M) -> State<M> {
        State {
            model,
            held: None,
            look: ViewState::new(Palette::of_environment()),
            opened: Instant::now(),
            journal: Journal::NONE,
            kept: VecDeque::new(),
            skipped: 0,
            wanted: false,
            stays: false,
            phase: Phase::Opening,
        }
    }

    /// Executes the request that the user makes with `key`. Returns true if the caller must end
    /// the program by SIGINT. A repeated request to end the program returns false, because a
    /// second SIGINT would discard captures.
    fn execute(&mut self, key: Key) -> bool {
        self.wanted = true;
        let look = &mut self.look;
        match key {
            Key::End => return !std::mem::replace(&mut look.ends, true),
            Key::Hold => {
                look.held = !look.held;
                self.held = look.held.then(|| self.model.clone());
            }
            Key::Help => look.help = !look.help,
            Key::Sort => look.order = (look.order + 1) % self.model.orders().len().max(1),
            Key::Resized => {}
        }
        false
    }

    /// Returns the model to draw, and the options that the user has set by keys, such as the order
    /// of rows.
    fn shown(&self) -> (&M, &ViewState) {
        (self.held.as_ref().unwrap_or(&self.model), &self.look)
    }
}

impl<M> State<M> {
    fn keep(&mut self, text: &str) {
        self.wanted = true;
        if self.kept.len() < KEPT {
            self.kept.push_back(self.journal.line(Priority::Warning, text));
        } else {
            self.skipped += 1;
        }
    }

    /// Removes and returns the lines that wait to be printed above the view, followed by a notice
    /// of the number of dropped lines.
    fn take_kept(&mut self) -> Vec<String> {
        let skipped = std::mem::take(&mut self.skipped);
        let notice = (skipped > 0).then(|| {
            let text = format!("warning: {skipped} further warnings not shown");
            self.journal.line(Priority::Warning, &text)
        });
        self.kept.drain(..).chain(notice).collect()
    }

    /// Advances the view's phase to `phase`. If the view is already in a later phase, does
    /// nothing.
    fn end(&mut self, phase: Phase) {
        self.phase = self.phase.max(phase);
    }
}

struct Shared<M> {
    state: Mutex<State<M>>,
    changed: Condvar,
}

impl<M> Shared<M> {
    fn lock(&self) -> MutexGuard<'_, State<M>> {
        // A panic while drawing leaves the model intact.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, span: Duration, busy: impl FnMut(&mut State<M>) -> bool) {
        // The caller continues in the same way after a timeout.
        drop(self.changed.wait_timeout_while(self.lock(), span, busy));
    }

    /// Opens the terminal, draws on request, and clears the view at the end. This is the main
    /// function of the thread. If the terminal fails, this thread ends, and the program continues
    /// without a view.
    fn run(&self, height: u16)
    where
        M: Picture,
    {
        let Ok(mut terminal) = open(height) else { return };
        self.lock().end(Phase::Running);
        self.changed.notify_all();
        while let Some(kept) = self.wanted() {
            if self.draw(&mut terminal, kept).is_err() {
                return;
            }
        }
        if !self.lock().stays {
            clear(terminal);
        }
    }

    /// Waits for a request to draw. Returns the queued lines to print; `None` once the view has
    /// ended.
    fn wanted(&self) -> Option<Vec<String>> {
        let idle = |state: &mut State<M>| !state.wanted && state.phase == Phase::Running;
        let state = self.changed.wait_while(self.lock(), idle);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.wanted = false;
        // Queued lines are printed at the end too.
        let kept = state.take_kept();
        (state.phase == Phase::Running || !kept.is_empty()).then_some(kept)
    }

    fn draw(&self, terminal: &mut Screen, kept: Vec<String>) -> io::Result<()>
    where
        M: Picture,
    {
        for text in kept {
            let width = usize::from(terminal.get_frame().area().width);
            let lines: Vec<Line<'_>> = wrapped(&text, width).into_iter().map(Line::raw).collect();
            let height = u16::try_from(lines.len()).unwrap_or(u16::MAX);
            let text = Text::from(lines);
            terminal.insert_before(height, |buffer| text.render(buffer.area, buffer))?;
        }
        // The lock on the model is held only while the frame is built, not while it is written.
        let draw = |frame: &mut ratatui::Frame<'_>| {
            let state = self.lock();
            let (picture, look) = state.shown();
            frame::draw(frame, picture, look);
        };
        terminal.draw(draw).map(drop)
    }
}

impl<M: Picture> Shared<M> {
    /// Executes the request that the user makes with `key`, if there is one. Returns false once
    /// the view has ended.
    fn take_key(&self, key: Option<Key>) -> bool {
        let mut state = self.lock();
        if key.is_some_and(|key| state.execute(key)) {
            keys::end_run();
        }
        let age = state.opened.elapsed();
        state.wanted |= state.model.grow_older(age) && state.held.is_none();
        self.changed.notify_all();
        state.phase == Phase::Running
    }
}

/// Guard that sets [`Phase::Ended`] when the drawing thread returns or panics, so that no other
/// thread waits for that thread.
struct EndGuard<M>(Arc<Shared<M>>);

impl<M> Drop for EndGuard<M> {
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
    // `Terminal::clear` would ask the terminal for the position of its cursor. The lines are
    // therefore cleared from the view's known start.
    let top = terminal.get_frame().area().top();
    drop(terminal);
    let _ = execute!(io::stdout(), MoveTo(0, top), Clear(ClearType::FromCursorDown), Show);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::frame::tests::Numbers;

    #[test]
    fn a_view_that_is_held_shows_what_was_then_in_any_order() {
        let mut state = State::of(Numbers::default());
        assert!(!state.execute(Key::Hold));
        state.model.0.push(7);
        assert!(!state.execute(Key::Sort));
        assert_eq!((state.shown().0.0.len(), state.look.order), (0, 1));
        assert!(!state.execute(Key::Hold) && !state.execute(Key::Sort));
        assert_eq!((state.shown().0.0.len(), state.look.order), (1, 0));
        let ends = [Key::Help, Key::End, Key::End].map(|key| state.execute(key));
        assert_eq!((ends, state.look.help), ([false, true, false], true), "the end is told once");
    }

    #[test]
    fn warnings_that_a_stalled_terminal_does_not_take_are_bounded_and_counted() {
        let mut state = State::of(Numbers::default());
        (0..1000).for_each(|number| state.keep(&number.to_string()));
        let kept = state.take_kept();
        assert_eq!((kept.len(), kept[255].as_str()), (257, "255"));
        assert_eq!(kept[256], "warning: 744 further warnings not shown");
        assert!(state.take_kept().is_empty());
    }

    #[test]
    fn each_line_above_the_view_of_a_run_begins_with_its_name() {
        let journal = Journal::NONE.of_run(Some("home"));
        let mut state = State { journal, ..State::of(Numbers::default()) };
        (0..257).for_each(|_| state.keep("warning: a"));
        let kept = state.take_kept();
        let ends = (kept[0].as_str(), kept[256].as_str());
        assert_eq!(ends, ("[home] warning: a", "[home] warning: 1 further warnings not shown"));
    }

    #[test]
    fn a_view_that_ended_does_not_begin_again() {
        let mut state = State::of(Numbers::default());
        state.end(Phase::Ended);
        state.end(Phase::Running);
        assert_eq!(state.phase, Phase::Ended);
    }
}
