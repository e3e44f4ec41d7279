//! Live view of an experiment: its progress, the measurements under way, and the latest results.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use anabranch_experiment::Progress;
use anabranch_multipath::Time;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::bar::remaining;
use crate::screen::Recent;
use crate::screen::frame::{Order, Picture, ViewState, cut, names};
use crate::screen::palette::Palette;
use crate::screen::table::{Column, table};
use crate::text::{age, bar, percent};

/// Number of results in the view.
const RESULTS: u16 = 10;
/// Number of lines of the view above the list of results.
const HEAD: u16 = 3;

/// The state of an experiment that its view draws.
#[derive(Clone, Debug)]
pub(super) struct Model {
    name: &'static str,
    /// Time since the view was opened.
    age: Duration,
    progress: Option<Progress>,
    /// Measurements under way, each with the age of the view when the measurement began.
    begun: Vec<(String, Duration)>,
    /// Latest results, the newest first.
    results: VecDeque<Outcome>,
    recent: Recent,
}

/// Result of a measurement.
#[derive(Clone, Debug)]
struct Outcome {
    unit: String,
    elapsed: Duration,
    result: String,
}

const COLUMNS: [Column<Outcome>; 3] = [
    Column::<Outcome>::text("measured", 34, 0, |outcome, _, _| outcome.unit.clone().into())
        .up_to(60),
    Column::number("took", 7, 2, |outcome, _, ink| Span::styled(age(outcome.elapsed), ink.faint())),
    Column::<Outcome>::text("result", 30, 1, |outcome, _, _| outcome.result.clone().into())
        .up_to(80),
];

const ORDERS: [Order<Outcome>; 4] = [
    ("time", |_, _| Ordering::Equal),
    ("name", |a, b| a.unit.cmp(&b.unit)),
    ("result", |a, b| a.result.cmp(&b.result)),
    ("length", |a, b| b.elapsed.cmp(&a.elapsed)),
];

impl Model {
    /// Creates the state before the first measurement.
    pub(super) fn new(name: &'static str) -> Model {
        Model {
            name,
            age: Duration::ZERO,
            progress: None,
            begun: Vec::new(),
            results: VecDeque::new(),
            recent: Recent::default(),
        }
    }

    /// Adds a measurement that has begun.
    pub(super) fn begin(&mut self, progress: &Progress, unit: String) {
        self.progress = Some(progress.clone());
        self.begun.push((unit, self.age));
    }

    /// Removes `unit` (a measurement) from the measurements under way, and adds its result.
    pub(super) fn done(&mut self, progress: &Progress, unit: String, result: String) {
        self.progress = Some(progress.clone());
        let elapsed = self.take(&unit).map_or(Duration::ZERO, |since| self.age - since);
        self.results.push_front(Outcome { unit, elapsed, result });
        self.results.truncate(usize::from(RESULTS));
    }

    /// Removes `unit` (a measurement) from the measurements under way, because it will be
    /// repeated, and shows the reason `why`.
    pub(super) fn again(&mut self, unit: &str, why: &str) {
        self.take(unit);
        let now = Time::ZERO + self.age;
        self.recent.warn(now, format!("{unit} will be repeated: {why}"));
    }

    /// Removes `unit` (a measurement) from the measurements under way. Returns the age of the view
    /// at the moment when the measurement began.
    fn take(&mut self, unit: &str) -> Option<Duration> {
        let place = self.begun.iter().position(|(begun, _)| begun == unit)?;
        Some(self.begun.remove(place).1)
    }

    fn whole(&self, ink: Palette) -> Line<'static> {
        let head = Span::styled(format!("experiment {}", self.name), ink.head());
        let Some(progress) = &self.progress else { return Line::from(head) };
        let (done, total) = progress.counts();
        let text = format!(" · {done} of {total} · {} left", remaining(progress.left()));
        Line::from(vec![head, Span::raw(text)])
    }

    /// Returns the share of the measurements that are finished, from 0 to 1.
    fn part(&self) -> f64 {
        let (done, total) = self.progress.as_ref().map_or((0, 0), Progress::counts);
        if total > 0 { done as f64 / total as f64 } else { 0.0 }
    }

    fn under_way(&self) -> String {
        let each = self
            .begun
            .iter()
            .map(|(unit, since)| format!("{unit} for {}", age(self.age.saturating_sub(*since))));
        format!("now  {}", each.collect::<Vec<_>>().join("; "))
    }
}

impl Picture for Model {
    fn orders(&self) -> Vec<&'static str> {
        names(&ORDERS)
    }

    fn height(&self) -> u16 {
        HEAD + 1 + RESULTS
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect, look: &ViewState) {
        let ink = look.palette;
        let done = percent(self.part());
        let cells = usize::from(area.width).saturating_sub(done.len() + 1);
        let long = Span::styled(bar(self.part(), cells), ink.share());
        let head = [
            self.whole(ink),
            Line::from(vec![long, Span::raw(format!(" {done}"))]),
            Line::raw(self.under_way()),
        ];
        let lines = (head.len() as u16).min(area.height);
        for (line, place) in head.into_iter().zip(0..lines) {
            let line = cut(line, area.width);
            frame.render_widget(line, Rect { y: area.y + place, height: 1, ..area });
        }
        let results: Vec<_> = self.results.iter().cloned().collect();
        let sorted = look.sorted(&ORDERS, &results).into_iter();
        let below = Rect { y: area.y + lines, height: area.height - lines, ..area };
        frame.render_widget(table(&COLUMNS, sorted, area.width, ink), below);
    }

    fn recent(&self) -> &Recent {
        &self.recent
    }

    /// Sets the age of the view (the time since it was opened). Returns whether the view must be
    /// redrawn: once a second, because the view shows durations in whole seconds.
    fn grow_older(&mut self, age: Duration) -> bool {
        let before = std::mem::replace(&mut self.age, age);
        before.as_secs() != age.as_secs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::frame::tests::words;
    use crate::screen::golden::check;

    fn model() -> Model {
        let second = Duration::from_secs(1);
        let mut model = Model::new("overhead");
        let mut progress = Progress::new(12, [11 * second; 36].into_iter());
        for unit in 0..14 {
            let name = format!("wireguard-{}-3-{}ms", ["equal", "unequal"][unit % 2], unit * 50);
            model.begin(&progress, name.clone());
            model.grow_older(second * (unit as u32 + 1) * 12);
            progress.done(11 * second, 12 * second);
            model.done(&progress, name, format!("{}.4 Mbit/s", 91 - unit));
        }
        model.begin(&progress, "quinn-equal-3-100ms".to_owned());
        model.again("quinn-equal-3-100ms", "the server did not come up");
        model.begin(&progress, "quinn-equal-3-100ms".to_owned());
        model.grow_older(second * 175);
        model
    }

    #[test]
    fn an_experiment_looks_as_it_did() {
        check("experiment", &model());
    }

    #[test]
    fn the_view_is_drawn_anew_when_a_second_has_passed() {
        let mut model = Model::new("pages");
        let changes = [100, 900, 1000, 1900].map(|ms| model.grow_older(Duration::from_millis(ms)));
        assert_eq!(changes, [false, false, true, false]);
    }

    #[test]
    fn a_small_terminal_is_no_reason_to_panic() {
        assert!(words(&Model::new("pages"), 80).starts_with("experiment pages\n"));
        for width in [1, 20, 79] {
            words(&model(), width);
        }
    }
}
