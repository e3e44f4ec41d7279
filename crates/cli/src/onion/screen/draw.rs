//! Drawing only: what to show is in the [`Model`].

use anabranch_onion::circmgr::Stage;
use anabranch_onion::guards::Reach;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table};

use super::model::{Model, Row};
use crate::screen::fitting;
use crate::text::scaled;

/// Circuits that have a line of their own.
const CIRCUITS: u16 = 8;
/// Events that are shown.
const EVENTS: u16 = 5;
/// Lines about the whole.
const HEAD: u16 = 3;
/// Lines of the view.
pub(super) const HEIGHT: u16 = HEAD + 1 + CIRCUITS + EVENTS;
/// Column heads and their widths, the most important first: a narrow terminal shows as many as fit.
const COLUMNS: [(&str, u16); 9] = [
    ("circuit", 7),
    ("path", 32),
    ("state", 8),
    ("streams", 7),
    ("rate down", 11),
    ("rate up", 11),
    ("age", 6),
    ("down", 8),
    ("up", 8),
];

/// Draws `model` over the whole frame.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let parts = [Constraint::Length(HEAD), Constraint::Length(1 + CIRCUITS), Constraint::Min(0)];
    let [top, middle, bottom] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(Paragraph::new(whole(model)), top);
    frame.render_widget(circuits(model, middle.width), middle);
    frame.render_widget(Paragraph::new(model.recent.text(bottom.height)), bottom);
}

fn whole(model: &Model) -> Text<'_> {
    let status = &model.status;
    let [down, up] = model.rates.map(|rate| scaled(rate, "bit/s"));
    let [received, sent] = status.padding;
    let state = format!(
        "{:.0} s (q ends it, ? for keys); {}; down {down}, up {up}",
        status.now.secs_f64(),
        model.progress()
    );
    let (built, building) = status.circuits();
    let numbers = format!(
        "programs: {}; streams: {}; circuits: {built} and {building} being built; links: {}; \
         padding cells: {received} down, {sent} up",
        status.programs, status.streams, status.links
    );
    Text::from(vec![Line::raw(state).bold(), Line::raw(numbers), guards(model)])
}

fn guards(model: &Model) -> Line<'_> {
    let each = model.status.guards.iter().map(|(name, reach)| match reach {
        Reach::Yes => Span::raw(format!(" {name}")).fg(Color::Green),
        Reach::Maybe => Span::raw(format!(" {name} (untried)")),
        Reach::No => Span::raw(format!(" {name} (out of reach)")).fg(Color::Red),
    });
    std::iter::once(Span::raw("guards:")).chain(each).collect()
}

fn circuits(model: &Model, width: u16) -> Table<'_> {
    let columns = &COLUMNS[..fitting(&COLUMNS, width)];
    let heads = columns.iter().map(|(head, _)| Cell::from(*head));
    let widths = columns.iter().map(|(_, width)| Constraint::Length(*width));
    let shown = usize::from(CIRCUITS);
    let hidden = model.rows.len().saturating_sub(shown);
    let rows = model.rows.iter().take(if hidden > 0 { shown - 1 } else { shown });
    let rest =
        (hidden > 0).then(|| TableRow::new(["".to_owned(), format!("and {} more", hidden + 1)]));
    let rows = rows.map(|row| circuit(row, columns.len())).chain(rest);
    Table::new(rows, widths).header(TableRow::new(heads).bold())
}

fn circuit(row: &Row, columns: usize) -> TableRow<'_> {
    let seen = &row.seen;
    let cells = [
        seen.number.to_string(),
        seen.path.join(" "),
        state(seen.stage),
        seen.streams.to_string(),
        scaled(row.rates[0], "bit/s"),
        scaled(row.rates[1], "bit/s"),
        age(seen.age.as_secs()),
        scaled(seen.carried[0] as f64, "B"),
        scaled(seen.carried[1] as f64, "B"),
    ];
    let style = if seen.stage == Stage::Used { Style::new() } else { Style::new().dim() };
    TableRow::new(cells.into_iter().take(columns)).style(style)
}

fn state(stage: Stage) -> String {
    match stage {
        Stage::Building(hops) => format!("{hops} of 3"),
        Stage::Spare => "spare".to_owned(),
        Stage::Used => "used".to_owned(),
        Stage::Ending => "ending".to_owned(),
    }
}

/// A span in the unit that suits it.
fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use anabranch_drive::onion::client::{CircuitStatus, ClientEvent};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::model::tests::status;
    use super::*;

    fn drawn(model: &Model, width: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, HEIGHT)).unwrap();
        terminal.draw(|frame| draw(frame, model)).unwrap();
        terminal.backend().to_string()
    }

    fn model(more: u64) -> Model {
        let mut model = Model::default();
        model.take(&ClientEvent::Ready(9));
        model.take(&ClientEvent::Status(Box::new(status(1, [0; 2]))));
        let mut later = status(2, [1500, 250]);
        let spare = later.circuits[0].clone();
        later
            .circuits
            .extend((10..10 + more).map(|number| CircuitStatus { number, ..spare.clone() }));
        model.take(&ClientEvent::Status(Box::new(later)));
        model
    }

    #[test]
    fn the_view_shows_progress_guards_circuits_rates_and_events() {
        let text = drawn(&model(0), 120);
        for part in [
            "ready, 9 relays",
            "down 12.0 kbit/s, up 2.0 kbit/s",
            "programs: 4; streams: 3; circuits: 2 and 1 being built",
            "padding cells: 5 down, 4 up",
            "guards: guard1 guard9 (out of reach)",
            "guard2 middle2 exit2",
            "1 of 3",
            "1.5 kB",
            "ready: 9 relays are known",
        ] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
    }

    #[test]
    fn the_usual_width_of_80_has_room_for_paths_and_rates() {
        let text = drawn(&model(0), 80);
        assert!(text.contains("guard2 middle2 exit2") && text.contains("12.0 kbit/s"), "{text}");
        assert!(!text.contains("age"), "{text}");
    }

    #[test]
    fn circuits_that_find_no_line_are_counted() {
        let text = drawn(&model(9), 100);
        assert!(text.contains("and 5 more"), "{text}");
        assert!(!drawn(&model(5), 100).contains("more"));
    }

    #[test]
    fn a_small_terminal_is_no_reason_to_panic() {
        for width in [1, 20, 79] {
            drawn(&model(9), width);
        }
    }

    #[test]
    fn ages_are_told_in_the_unit_that_suits_them() {
        assert_eq!([5, 119, 120, 7199, 7200].map(age), ["5 s", "119 s", "2 min", "119 min", "2 h"]);
    }
}
