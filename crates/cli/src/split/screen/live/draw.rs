//! Drawing only: what to show is in the [`Model`].

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table};

use super::super::model::{Model, Past, Row, losses};
use crate::screen::fitting;
use crate::text::{bars, millis, percent, scaled};

/// Sessions that have a line of their own.
const SESSIONS: u16 = 4;
/// Events that are shown.
const EVENTS: u16 = 5;
/// Column heads and their widths, the most important first: a narrow terminal shows as many as fit.
const COLUMNS: [(&str, u16); 12] = [
    ("path", 12),
    ("state", 9),
    ("rate up", 11),
    ("share", 5),
    ("rate down", 11),
    ("share", 5),
    ("RTT", 8),
    ("dropped", 7),
    ("last 12 s", Past::SECONDS),
    ("switches", 8),
    ("packets up", 10),
    ("packets down", 12),
];

/// Lines of the view for so many paths.
pub(super) fn height(paths: usize) -> u16 {
    let paths = u16::try_from(paths).unwrap_or(u16::MAX);
    paths.saturating_add(1 + 1 + SESSIONS + EVENTS)
}

/// Draws `model` over the whole frame.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let paths = u16::try_from(model.rows.len()).unwrap_or(u16::MAX);
    let parts = [
        Constraint::Length(paths.saturating_add(1)),
        Constraint::Length(1 + SESSIONS),
        Constraint::Min(0),
    ];
    let [top, middle, bottom] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(paths_table(model, top.width), top);
    frame.render_widget(Paragraph::new(sessions(model)), middle);
    frame.render_widget(Paragraph::new(model.recent.text(bottom.height)), bottom);
}

fn paths_table(model: &Model, width: u16) -> Table<'_> {
    let columns = &COLUMNS[..fitting(&COLUMNS, width)];
    let heads = columns.iter().map(|(head, _)| Cell::from(*head));
    let widths = columns.iter().map(|(_, width)| Constraint::Length(*width));
    let rates = model.rows.iter().flat_map(|row| row.past.rates());
    let most = rates.fold(0.0, f64::max);
    let rows = model.rows.iter().map(|row| path(row, columns.len(), most));
    Table::new(rows, widths).header(TableRow::new(heads).bold())
}

/// One path; `most` is what any carried in a second of those that are shown.
fn path(row: &Row, columns: usize, most: f64) -> TableRow<'_> {
    let counters = &row.counters;
    let cells = [
        row.name.clone(),
        row.state(),
        scaled(row.up.rate, "bit/s"),
        percent(row.up.share),
        scaled(row.down.rate, "bit/s"),
        percent(row.down.share),
        millis(counters.rtt),
        scaled(row.dropped() as f64, ""),
        bars(row.past.rates(), most),
        scaled(counters.switches as f64, ""),
        scaled(counters.up.datagrams as f64, ""),
        scaled(counters.down.datagrams as f64, ""),
    ];
    TableRow::new(cells.into_iter().take(columns)).style(colour(row))
}

fn colour(row: &Row) -> Style {
    match (row.counters.works, row.counters.silent_sessions) {
        (false, _) => Style::new().fg(Color::Red),
        (true, 0) => Style::new(),
        (true, _) => Style::new().fg(Color::Yellow),
    }
}

fn sessions(model: &Model) -> Text<'_> {
    let snapshot = &model.snapshot;
    let head = format!(
        "{:.0} s (q ends it, ? for keys); sessions: {}; datagrams that wait for a path: {}{}",
        model.time.secs_f64(),
        snapshot.sessions,
        snapshot.waiting,
        losses(snapshot).map_or_else(String::new, |text| format!("; {text}"))
    );
    let newest = model.book.sessions.iter().rev().take(usize::from(SESSIONS));
    let lines = newest.map(|(number, session)| {
        let protocol = session.protocol.map_or("not recognised yet", |protocol| protocol.name());
        Line::raw(format!("  session {number}  {}  {protocol}", session.ends()))
    });
    let pinned = model.pinned().map(Line::raw);
    let room = usize::from(SESSIONS);
    let lines = pinned.into_iter().chain(lines).take(room);
    std::iter::once(Line::raw(head).bold()).chain(lines).collect()
}

#[cfg(test)]
mod tests {
    use anabranch_comps::{Event, SessionId};
    use anabranch_multipath::Time;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::super::model::tests::snapshot;
    use super::*;

    fn drawn(model: &Model, width: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height(2))).unwrap();
        terminal.draw(|frame| draw(frame, model)).unwrap();
        terminal.backend().to_string()
    }

    fn model() -> Model {
        let mut model = Model::default();
        let (session, client) = (SessionId(0), "127.0.0.1:9".parse().unwrap());
        model.event(Time::ZERO, &Event::Opened { session, client, server: None });
        model.snapshot(Time::ZERO, &snapshot(&[(0, 0), (0, 0)]));
        let mut counters = snapshot(&[(1000, 3000), (3000, 1000)]);
        counters.paths[1].works = false;
        model.snapshot(Time::from_secs(2), &counters);
        model
    }

    #[test]
    fn the_view_shows_rates_shares_sessions_and_events() {
        let text = drawn(&model(), 120);
        assert!(text.contains("last 12 s") && text.contains('█'), "{text}");
        for part in
            ["4.0 kbit/s", "25 %", "12.0 kbit/s", "75 %", "down", "sessions: 1", "opened by"]
        {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
    }

    #[test]
    fn the_usual_width_of_80_has_room_for_rates_shares_and_times() {
        let text = drawn(&model(), 80);
        assert!(text.contains("dropped") && !text.contains("last 12 s"), "{text}");
        assert!(text.contains("12.0 kbit/s") && text.contains("75 %"), "{text}");
    }

    #[test]
    fn a_small_terminal_is_no_reason_to_panic() {
        for width in [1, 20, 79] {
            drawn(&model(), width);
        }
    }
}
