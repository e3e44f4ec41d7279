//! Drawing only: what to show is in the [`Model`].

use std::time::Duration;

use anabranch_onion::LegNumbers;
use anabranch_onion::circmgr::Stage;
use anabranch_onion::guards::Reach;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table};

use super::model::{Model, Row, SetRow};
use crate::screen::fitting;
use crate::text::scaled;

/// Lines of sets and circuits, and their heads.
const CIRCUITS: u16 = 12;
/// Of these, lines that sets leave to circuits.
const ALONE: u16 = 3;
/// Events that are shown.
const EVENTS: u16 = 5;
/// Lines about the whole.
const HEAD: u16 = 3;
/// Lines of the view.
pub(super) const HEIGHT: u16 = HEAD + CIRCUITS + EVENTS;
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

/// The same of sets and their legs.
const SET_COLUMNS: [(&str, u16); 10] = [
    ("set", 6),
    ("schedule, relays", 31),
    ("down", 11),
    ("up", 11),
    ("rtt", 7),
    ("window", 9),
    ("least rtt", 9),
    ("most", 8),
    ("circuit", 7),
    ("queued", 6),
];

/// Draws `model` over the whole frame.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let area = frame.area();
    let (sets, lines) = sets(model, area.width);
    let parts = [HEAD, lines, CIRCUITS - lines].map(Constraint::Length);
    let parts = parts.into_iter().chain([Constraint::Min(0)]);
    let [top, upper, middle, bottom] = Layout::vertical(parts).areas(area);
    frame.render_widget(Paragraph::new(whole(model)), top);
    frame.render_widget(sets, upper);
    frame.render_widget(circuits(model, middle.width, CIRCUITS - lines - 1), middle);
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

/// A block for each set with a row for each leg, and their lines; none where there is no set.
fn sets(model: &Model, width: u16) -> (Table<'_>, u16) {
    let columns = &SET_COLUMNS[..fitting(&SET_COLUMNS, width)];
    let heads = columns.iter().map(|(head, _)| Cell::from(*head));
    let widths = columns.iter().map(|(_, width)| Constraint::Length(*width));
    let most = usize::from(CIRCUITS - ALONE - 1);
    let mut rows: Vec<_> = model.sets.iter().flat_map(|row| block(row, columns.len())).collect();
    if rows.len() > most {
        let hidden = rows.len() - most + 1;
        rows.truncate(most - 1);
        rows.push(TableRow::new(["".to_owned(), format!("and {hidden} more lines")]));
    }
    let lines = if rows.is_empty() { 0 } else { rows.len() as u16 + 1 };
    (Table::new(rows, widths).header(TableRow::new(heads).bold()), lines)
}

/// The lines of one set.
fn block(row: &SetRow, columns: usize) -> Vec<TableRow<'_>> {
    let (number, seen) = (row.set.number, &row.set.seen);
    let streams = if seen.streams == 1 { "stream" } else { "streams" };
    let resting = if seen.resting { "; resting" } else { "" };
    let cells = [
        number.to_string(),
        format!("{}; {} {streams}{resting}", seen.schedule.replace(" --every", ""), seen.streams),
        scaled(row.rates[0], "bit/s"),
        scaled(row.rates[1], "bit/s"),
        "waiting".to_owned(),
        scaled(seen.reordered as f64, "B"),
        String::new(),
        scaled(seen.most_reordered as f64, "B"),
    ];
    let head = TableRow::new(cells.into_iter().take(columns));
    let legs = row.set.places.iter().zip(seen.legs.iter().zip(seen.shares()));
    let legs = legs.map(|(place, (leg, shares))| {
        let names: Vec<&str> = place.relays.iter().map(|relay| &*relay.nickname).collect();
        let cells = leg_cells(place.leg, &names.join(" "), leg, shares);
        let style = if leg.is_linked { Style::new() } else { Style::new().dim() };
        TableRow::new(cells.into_iter().take(columns)).style(style)
    });
    std::iter::once(head).chain(legs).collect()
}

/// The cells of a leg's line.
fn leg_cells(number: usize, relays: &str, leg: &LegNumbers, shares: [f64; 2]) -> [String; 10] {
    let [down, up] = shares.map(|share| format!("{:.0} %", share * 100.0));
    let ms = |rtt: Option<Duration>| rtt.map(|rtt| format!("{:.0} ms", rtt.as_secs_f64() * 1e3));
    [
        format!(" leg {number}"),
        relays.to_owned(),
        down,
        up,
        if leg.is_linked { ms(leg.rtt).unwrap_or_default() } else { "linking".to_owned() },
        format!("{}/{}", leg.inflight, leg.window),
        ms(leg.least_rtt).unwrap_or_default(),
        String::new(),
        leg.circuit.map(|circuit| circuit.to_string()).unwrap_or_default(),
        leg.queued.to_string(),
    ]
}

fn circuits(model: &Model, width: u16, lines: u16) -> Table<'_> {
    let columns = &COLUMNS[..fitting(&COLUMNS, width)];
    let heads = columns.iter().map(|(head, _)| Cell::from(*head));
    let widths = columns.iter().map(|(_, width)| Constraint::Length(*width));
    let shown = usize::from(lines);
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
    use anabranch_drive::onion::client::{CircuitStatus, ClientEvent, SetStatus};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::model::tests::{status, with_set};
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

    fn model_of_sets(sets: u64) -> Model {
        let mut model = Model::default();
        model.take(&ClientEvent::Status(Box::new(with_set(1, [0; 2]))));
        let mut later = with_set(2, [1500, 250]);
        let set = later.sets[0].clone();
        later.sets = (4..4 + sets).map(|number| SetStatus { number, ..set.clone() }).collect();
        model.take(&ClientEvent::Status(Box::new(later)));
        model
    }

    #[test]
    fn a_set_is_a_block_with_a_row_for_each_leg_within_80_columns() {
        let text = drawn(&model_of_sets(1), 80);
        let lines: Vec<&str> = text.lines().map(|line| line.trim_matches('"').trim_end()).collect();
        for line in [
            "set    schedule, relays                down        up          rtt     window",
            "4      lowrtt 1p; 3 streams            12.0 kbit/s 2.0 kbit/s  waiting 12.0 kB",
            " leg 0 guard4 middle4 exit4            75 %        50 %        40 ms   31/124",
            " leg 1 guard5 middle5 exit5            25 %        50 %        linking 0/124",
        ] {
            assert!(lines.contains(&line), "{line} is missing:\n{text}");
        }
        assert!(!text.contains("4       guard4"), "no circuit beside it:\n{text}");
        assert!(text.contains("guard1 middle1 exit1"), "circuits that go alone remain:\n{text}");
        assert!(drawn(&model_of_sets(1), 140).contains("least rtt"));
    }

    #[test]
    fn many_sets_leave_lines_to_circuits() {
        let text = drawn(&model_of_sets(4), 80);
        assert!(text.contains("and 5 more lines"), "{text}");
        assert!(text.contains("2       guard2") && text.contains("and 2 more"), "{text}");
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
        assert!(text.contains("and 2 more"), "{text}");
        assert!(!drawn(&model(8), 100).contains("more"));
    }

    #[test]
    fn a_small_terminal_is_no_reason_to_panic() {
        for width in [1, 20, 79] {
            drawn(&model(9), width);
            drawn(&model_of_sets(9), width);
        }
    }

    #[test]
    fn ages_are_told_in_the_unit_that_suits_them() {
        assert_eq!([5, 119, 120, 7199, 7200].map(age), ["5 s", "119 s", "2 min", "119 min", "2 h"]);
    }
}
