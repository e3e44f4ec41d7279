//! The live view: clients and their paths, redrawn twice a second; warnings stay above it.

use std::time::Duration;

use anabranch_drive::merge::{Listening, News, Screen, Snapshot};
use anabranch_multipath::Time;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table};

use super::model::{Model, Row};
use super::plain::{Plain, reloaded as words_of};
use super::{is_warning, words};
use crate::screen::fitting;
use crate::screen::hush::Hush;
use crate::screen::view::View;
use crate::text::scaled;

/// Between two drawings.
const PERIOD: Duration = Duration::from_millis(500);
/// Rows of paths, and lines of news.
const ROWS: u16 = 12;
const EVENTS: u16 = 5;
const HEIGHT: u16 = 2 + ROWS + EVENTS;
/// Column heads and their widths, the most important first: a narrow terminal shows as many as fit.
const COLUMNS: [(&str, u16); 8] = [
    ("client", 12),
    ("path", 4),
    ("state", 5),
    ("rate in", 11),
    ("rate out", 11),
    ("from", 24),
    ("packets in", 10),
    ("packets out", 11),
];

/// A screen that is a view while its terminal is there, and lines otherwise.
pub(super) struct Live {
    plain: Plain,
    view: Option<View<Model>>,
    gone: bool,
    _hush: Option<Hush>,
}

impl Live {
    pub(super) fn new(plain: Plain) -> Live {
        Live { plain, view: None, gone: false, _hush: None }
    }

    /// The view, while its terminal is there.
    fn view(&mut self) -> Option<&View<Model>> {
        self.view = self.view.take().filter(View::runs);
        self.gone = self.view.is_none();
        self.view.as_ref()
    }
}

impl Screen for Live {
    fn listening(&mut self, about: &Listening) {
        self.plain.listening(about);
        // A terminal that takes no lines would take no view either.
        if self.plain.flush() {
            self.view = View::open(HEIGHT, Model::default(), draw);
        }
        if self.view().is_some() {
            self._hush = Hush::begin(HEIGHT);
        }
    }

    fn reloaded(&mut self, now: Time, about: &Listening) {
        let Some(view) = self.view() else { return self.plain.reloaded(now, about) };
        view.change(|model| model.recent.keep(now, words_of(about)));
    }

    fn news(&mut self, now: Time, news: &News) {
        let Some(view) = self.view() else { return self.plain.news(now, news) };
        let words = words(news);
        view.change(|model| model.recent.keep(now, words.clone()));
        if is_warning(news) {
            view.keep(format!("{:9.3}  warning: {words}", now.secs_f64()));
        }
    }

    fn snapshot(&mut self, now: Time, snapshot: &Snapshot) {
        let Some(view) = self.view() else { return self.plain.snapshot(now, snapshot) };
        view.change(|model| model.snapshot(now, snapshot));
        view.redraw();
    }

    fn finish(&mut self, now: Time, snapshot: &Snapshot) {
        self.view = None;
        self._hush = None;
        self.plain.finish(now, snapshot);
    }

    fn warn(&mut self, text: &str) {
        let Some(view) = self.view() else { return self.plain.warn(text) };
        view.keep(format!("warning: {text}"));
    }

    fn interval(&self) -> Duration {
        if self.gone { self.plain.interval() } else { PERIOD }
    }
}

/// Draws `model` over the whole frame.
fn draw(frame: &mut Frame<'_>, model: &Model) {
    let parts = [Constraint::Length(1 + ROWS), Constraint::Length(1), Constraint::Min(0)];
    let [top, middle, bottom] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(paths(model, top.width), top);
    frame.render_widget(Paragraph::new(Line::raw(head(model)).bold()), middle);
    frame.render_widget(Paragraph::new(model.recent.text(bottom.height)), bottom);
}

fn head(model: &Model) -> String {
    let clients = model.snapshot.clients.iter().filter(|client| client.up).count();
    let more = model.rows.len().saturating_sub(usize::from(ROWS));
    let hidden = if more > 0 { format!("; {more} paths not shown") } else { String::new() };
    let losses = model.losses().map_or_else(String::new, |losses| format!("; {losses}"));
    format!(
        "{:.0} s; clients: {clients}; flows: {}{hidden}{losses}",
        model.time.secs_f64(),
        model.snapshot.flows
    )
}

fn paths(model: &Model, width: u16) -> Table<'_> {
    let columns = &COLUMNS[..fitting(&COLUMNS, width)];
    let heads = columns.iter().map(|(head, _)| Cell::from(*head));
    let widths = columns.iter().map(|(_, width)| Constraint::Length(*width));
    let rows = model.rows.iter().take(usize::from(ROWS)).map(|row| cells(row, columns.len()));
    Table::new(rows, widths).header(TableRow::new(heads).bold())
}

fn cells(row: &Row, columns: usize) -> TableRow<'_> {
    let counters = &row.counters;
    let [inward, outward] = row.rates.map(|rate| scaled(rate, "bit/s"));
    let cells = [
        row.client.clone(),
        row.path.to_string(),
        if counters.up { "up" } else { "down" }.to_owned(),
        inward,
        outward,
        counters.from.map_or_else(|| "-".to_owned(), |from| from.to_string()),
        scaled(counters.inward.datagrams as f64, ""),
        scaled(counters.outward.datagrams as f64, ""),
    ];
    let style = if counters.up { Style::new() } else { Style::new().fg(Color::Red) };
    TableRow::new(cells.into_iter().take(columns)).style(style)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::model::tests::snapshot;
    use super::*;

    fn drawn(width: u16) -> String {
        let mut model = Model::default();
        model.snapshot(Time::from_secs(1), &snapshot([0, 0]));
        model.snapshot(Time::from_secs(2), &snapshot([1000, 0]));
        model.recent.keep(Time::ZERO, "'home' has come".to_owned());
        let mut terminal = Terminal::new(TestBackend::new(width, HEIGHT)).unwrap();
        terminal.draw(|frame| draw(frame, &model)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn the_view_shows_clients_paths_rates_and_news() {
        let text = drawn(110);
        for part in ["home", "8.0 kbit/s", "192.0.2.1:4000", "clients: 1", "has come", "strangers"]
        {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        assert!(!text.contains("away"), "{text}");
    }

    #[test]
    fn a_small_terminal_is_no_reason_to_panic() {
        for width in [1, 20, 79] {
            drawn(width);
        }
    }
}
