//! Drawing of the live view. Its content is in the [`Model`].

use std::cmp::{Ordering, Reverse};
use std::time::Duration;

use anabranch_onion::LegNumbers;
use anabranch_onion::circmgr::Stage;
use anabranch_onion::guards::GuardReachability;
use anabranch_pages::figures::scaled;
use anabranch_router::onion::client::Status;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::Paragraph;

use super::model::{Model, Row, SetRow, StreamMeters};
use crate::screen::Recent;
use crate::screen::frame::{Order, Picture, ViewState, fitted, names, title};
use crate::screen::meter::{Meter, Peaks};
use crate::screen::palette::Palette;
use crate::screen::table::{Column, table};
use crate::text::{age, share, sparks};

/// Height in lines of the tables of sets and of circuits together, with their headings. A set
/// consists of circuits that carry the same streams together.
const CIRCUITS: u16 = 12;
/// Number of lines of [`CIRCUITS`] that are reserved for circuits outside sets.
const ALONE: u16 = 3;
/// Number of lines about the whole client. One of them, about links other than plain TLS, is
/// optional. Without it, the table of circuits is one line longer.
const HEAD: u16 = 5;

/// A line of the table of circuits in the live view.
enum CircuitLine {
    Circuit(Box<Row>),
    /// Last line if the table is too short: the number of circuits that are not shown.
    More(usize),
}

const COLUMNS: [Column<CircuitLine>; 9] = [
    Column::number("circuit", 7, 0, |line, _, _| line.of(|row| row.seen.number.to_string())),
    Column::text("path", 30, 1, path).up_to(60),
    Column::text("state", 6, 2, state),
    Column::number("bit/s down", 10, 3, |line, _, _| line.of(|row| rate(&row.transferred, 0))),
    Column::number("bit/s up", 8, 4, |line, _, _| line.of(|row| rate(&row.transferred, 1))),
    Column::number("streams", 7, 5, |line, _, _| line.of(|row| row.seen.streams.to_string())),
    Column::number("age", 7, 7, |line, _, _| line.of(|row| age(row.seen.age))),
    Column::<CircuitLine>::graph("bit/s #s", [12, Meter::SECONDS], 6, |line, width, ink| {
        Span::styled(line.words(|row| past(&row.transferred, width)), ink.past())
    }),
    Column::number("bytes", 8, 8, |line, _, _| {
        line.of(|row| scaled(row.seen.transferred.iter().sum::<u64>() as f64, "B"))
    }),
];

const ORDERS: [Order<Row>; 4] = [
    ("use", |_, _| Ordering::Equal),
    ("rate", |a, b| total(&b.transferred).total_cmp(&total(&a.transferred))),
    ("age", |a, b| a.seen.age.cmp(&b.seen.age)),
    ("streams", |a, b| Reverse(a.seen.streams).cmp(&Reverse(b.seen.streams))),
];

/// A line of the table of sets (circuits that carry the same streams together).
enum SetLine {
    Set(Box<SetRow>),
    /// Line of a leg (one circuit of a set): its number, its relays, its counters, and its shares
    /// of the set's bytes, down and up.
    Leg(usize, String, LegNumbers, [f64; 2]),
    /// Last line if the table is too short: the number of lines that are not shown.
    More(usize),
}

const SET_COLUMNS: [Column<SetLine>; 10] = [
    Column::text("set", 6, 0, |line, _, ink| line.number(ink)),
    Column::<SetLine>::text("schedule, relays", 30, 1, |line, _, _| line.name().into()).up_to(50),
    Column::text("down", 11, 2, |line, _, ink| line.transferred(0, ink)),
    Column::text("up", 11, 3, |line, _, ink| line.transferred(1, ink)),
    Column::text("rtt", 7, 4, SetLine::rtt),
    Column::text("window", 9, 5, |line, _, _| line.window().into()),
    Column::text("least rtt", 9, 7, |line, _, _| line.least().into()),
    Column::number("circuit", 7, 8, |line, _, _| {
        line.of_leg(|leg| leg.circuit.map(|circuit| circuit.to_string()).unwrap_or_default())
    }),
    Column::number("queued", 6, 9, |line, _, _| line.of_leg(|leg| leg.queued.to_string())),
    Column::<SetLine>::graph("bit/s #s", [12, Meter::SECONDS], 6, |line, width, ink| match line {
        SetLine::Set(row) => Span::styled(past(&row.transferred, width), ink.past()),
        _ => Span::default(),
    }),
];

/// Orders in which the user can sort the table of sets (circuits that carry the same streams
/// together). Their names are the names in [`ORDERS`]. Sets with lower identifiers are older.
const SET_ORDERS: [Order<SetRow>; 4] = [
    ("use", |_, _| Ordering::Equal),
    ("rate", |a, b| total(&b.transferred).total_cmp(&total(&a.transferred))),
    ("age", |a, b| Reverse(a.set.number).cmp(&Reverse(b.set.number))),
    ("streams", |a, b| Reverse(a.set.seen.streams).cmp(&Reverse(b.set.seen.streams))),
];

impl Picture for Model {
    fn orders(&self) -> Vec<&'static str> {
        names(&ORDERS)
    }

    fn height(&self) -> u16 {
        HEAD + CIRCUITS
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect, look: &ViewState) {
        let ink = look.palette;
        let whole = whole(self, area.width, ink);
        let head = area.height.min(whole.height() as u16);
        let whole = fitted(whole, area.width);
        frame.render_widget(Paragraph::new(whole), Rect { height: head, ..area });
        let sets = set_lines(self, look);
        let lines = if sets.is_empty() { 0 } else { sets.len() as u16 + 1 };
        let lines = lines.min(area.height - head);
        let upper = Rect { y: area.y + head, height: lines, ..area };
        if lines > 0 {
            frame.render_widget(table(&SET_COLUMNS, sets.iter(), area.width, ink), upper);
        }
        let lower = Rect { y: upper.bottom(), height: area.height - head - lines, ..area };
        let circuits = circuit_lines(self, look, usize::from(lower.height.saturating_sub(1)));
        frame.render_widget(table(&COLUMNS, circuits.iter(), area.width, ink), lower);
    }

    fn recent(&self) -> &Recent {
        &self.recent
    }
}

/// Returns the lines about the whole client.
fn whole(model: &Model, width: u16, ink: Palette) -> Text<'_> {
    let status = &model.status;
    let [received, sent] = status.padding;
    let progress = if model.ready { ink.good() } else { ink.doubtful() };
    let state = Line::from(vec![
        Span::styled(
            format!("{}  {:.0} s", title("client", model.name.as_deref()), status.now.secs_f64()),
            ink.head(),
        ),
        " · ".into(),
        Span::styled(model.progress(), progress),
        format!(" · padding cells: {received} down, {sent} up").into(),
    ]);
    let (built, building) = status.circuits();
    let numbers = format!(
        "programs: {}; streams: {}; circuits: {built} and {building} being built; links: {}",
        status.programs, status.streams, status.links
    );
    let links = links(status).map(Line::raw);
    let first = [state, Line::raw(numbers)].into_iter().chain(links);
    first.chain([rates(model, width, ink), guards(model, ink)]).collect()
}

/// Describes links other than plain TLS; `None` if there are none.
fn links(status: &Status) -> Option<String> {
    let tap = status
        .tap
        .map(|tap| format!("utls by {tap}: {} records out of order", status.early.opened));
    let quic = status
        .quic
        .map(|[links, circuits]| format!("QUIC links: {links} with {circuits} circuits"));
    let parts: Vec<String> = tap.into_iter().chain(quic).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Returns a line with the rate over all links and the rate's history. One half of the line is for
/// received data, the other for sent data.
fn rates(model: &Model, width: u16, ink: Palette) -> Line<'static> {
    let graph = usize::from((width / 2).saturating_sub(18).min(Meter::SECONDS));
    let way = |place: usize, name: &str| {
        let meter = &model.wire[place];
        let most = Peaks::of([meter.past()].into_iter()).over(graph);
        let rate = scaled(model.rates()[place], "bit/s");
        let past = Span::styled(sparks(meter.past(), most, graph), ink.past());
        [format!("{name:<4} {rate:>11} ").into(), past]
    };
    way(0, "down").into_iter().chain([Span::raw("  ")]).chain(way(1, "up")).collect()
}

fn guards(model: &Model, ink: Palette) -> Line<'_> {
    let each = model.status.guards.iter().map(|(name, reach)| match reach {
        GuardReachability::Yes => Span::styled(format!(" {name}"), ink.good()),
        GuardReachability::Maybe => Span::raw(format!(" {name} (untried)")),
        GuardReachability::No => Span::styled(format!(" {name} (out of reach)"), ink.bad()),
    });
    std::iter::once(Span::raw("guards:")).chain(each).collect()
}

/// Returns a line for each set (circuits that carry the same streams together) and for each of its
/// legs (the circuits). If there is too little room, the last line shows the number of omitted
/// lines.
fn set_lines(model: &Model, look: &ViewState) -> Vec<SetLine> {
    let most = usize::from(CIRCUITS - ALONE - 1);
    let sorted = look.sorted(&SET_ORDERS, &model.sets);
    let mut lines: Vec<_> = sorted.into_iter().flat_map(block).collect();
    if lines.len() > most {
        let hidden = lines.len() - most + 1;
        lines.truncate(most - 1);
        lines.push(SetLine::More(hidden));
    }
    lines
}

/// Returns the line of one set of circuits, and the lines of its legs (the circuits).
fn block(row: &SetRow) -> impl Iterator<Item = SetLine> {
    let seen = &row.set.seen;
    let legs = row.set.places.iter().zip(seen.legs.iter().zip(seen.shares()));
    let legs = legs.map(|(place, (leg, shares))| {
        let names: Vec<&str> = place.relays.iter().map(|relay| &*relay.nickname).collect();
        SetLine::Leg(place.leg, names.join(" "), leg.clone(), shares)
    });
    std::iter::once(SetLine::Set(Box::new(row.clone()))).chain(legs)
}

impl SetLine {
    fn number(&self, ink: Palette) -> Span<'static> {
        match self {
            SetLine::Set(row) => Span::styled(row.set.number.to_string(), ink.head()),
            SetLine::Leg(number, ..) => Span::raw(format!(" leg {number}")),
            SetLine::More(_) => Span::default(),
        }
    }

    fn name(&self) -> String {
        match self {
            SetLine::Set(row) => {
                let seen = &row.set.seen;
                let streams = if seen.streams == 1 { "stream" } else { "streams" };
                let resting = if seen.paused { "; resting" } else { "" };
                let schedule = seen.schedule.replace(" --every", "");
                format!("{schedule}; {} {streams}{resting}", seen.streams)
            }
            SetLine::Leg(_, relays, ..) => relays.clone(),
            SetLine::More(lines) => format!("and {lines} more lines"),
        }
    }

    /// Returns the rate of a set of circuits, or a circuit's share of its set's rate. `way` is 0
    /// for received and 1 for sent data.
    fn transferred(&self, way: usize, ink: Palette) -> Span<'static> {
        match self {
            SetLine::Set(row) => scaled(row.transferred.rates()[way], "bit/s").into(),
            SetLine::Leg(_, _, _, shares) => Span::styled(share(shares[way]), ink.share()),
            SetLine::More(_) => Span::default(),
        }
    }

    fn rtt(&self, _: u16, ink: Palette) -> Span<'static> {
        match self {
            SetLine::Set(_) => Span::raw("waiting"),
            SetLine::Leg(_, _, leg, _) if leg.is_linked => {
                Span::styled(whole_ms(leg.rtt), ink.good())
            }
            SetLine::Leg(..) => Span::styled("linking", ink.doubtful()),
            SetLine::More(_) => Span::default(),
        }
    }

    /// Returns, for a set of circuits, the number of bytes in its reorder buffer. For a leg (one
    /// circuit of a set), returns the number of cells in flight and the congestion window in
    /// cells.
    fn window(&self) -> String {
        match self {
            SetLine::Set(row) => scaled(row.set.seen.reordered as f64, "B"),
            SetLine::Leg(_, _, leg, _) => format!("{}/{}", leg.inflight, leg.window),
            SetLine::More(_) => String::new(),
        }
    }

    /// Returns, for a set of circuits, the highest fill level in bytes of its reorder buffer so
    /// far. For a leg (one circuit of a set), returns the minimum round-trip time.
    fn least(&self) -> String {
        match self {
            SetLine::Set(row) => scaled(row.set.seen.most_reordered as f64, "B"),
            SetLine::Leg(_, _, leg, _) => whole_ms(leg.least_rtt),
            SetLine::More(_) => String::new(),
        }
    }

    fn of_leg(&self, words: impl Fn(&LegNumbers) -> String) -> Span<'static> {
        match self {
            SetLine::Leg(_, _, leg, _) => words(leg).into(),
            _ => Span::default(),
        }
    }
}

/// Returns the lines of the circuits in the chosen order, at most `room`.
fn circuit_lines(model: &Model, look: &ViewState, room: usize) -> Vec<CircuitLine> {
    let sorted = look.sorted(&ORDERS, &model.rows);
    let hidden = sorted.len().saturating_sub(room);
    let shown = if hidden > 0 { room.saturating_sub(1) } else { room };
    let rows =
        sorted.into_iter().take(shown).map(|row| CircuitLine::Circuit(Box::new(row.clone())));
    rows.chain((hidden > 0).then_some(CircuitLine::More(hidden + 1))).collect()
}

impl CircuitLine {
    fn words(&self, words: impl Fn(&Row) -> String) -> String {
        match self {
            CircuitLine::Circuit(row) => words(row),
            CircuitLine::More(_) => String::new(),
        }
    }

    fn of(&self, words: impl Fn(&Row) -> String) -> Span<'static> {
        self.words(words).into()
    }
}

fn path(line: &CircuitLine, _: u16, ink: Palette) -> Span<'static> {
    match line {
        CircuitLine::Circuit(row) if row.seen.stage == Stage::Used => {
            row.seen.path.join(" ").into()
        }
        CircuitLine::Circuit(row) => Span::styled(row.seen.path.join(" "), ink.faint()),
        CircuitLine::More(circuits) => format!("and {circuits} more").into(),
    }
}

fn state(line: &CircuitLine, _: u16, ink: Palette) -> Span<'static> {
    let CircuitLine::Circuit(row) = line else { return Span::default() };
    match row.seen.stage {
        Stage::Building(hops) => Span::styled(format!("{hops} of 3"), ink.doubtful()),
        Stage::Spare => Span::styled("spare", ink.faint()),
        Stage::Used => Span::styled("used", ink.good()),
        Stage::Ending => Span::styled("ending", ink.faint()),
    }
}

fn rate(transferred: &StreamMeters, way: usize) -> String {
    scaled(transferred.rates()[way], "")
}

fn total(transferred: &StreamMeters) -> f64 {
    transferred.rates().iter().sum()
}

/// Draws the history of a circuit's rate. Each graph is scaled to the circuit's own busiest
/// second, because the rates of circuits differ too much for a common scale.
fn past(transferred: &StreamMeters, width: u16) -> String {
    let width = usize::from(width);
    sparks(transferred.past(), Peaks::of([transferred.past()].into_iter()).over(width), width)
}

fn whole_ms(rtt: Option<Duration>) -> String {
    rtt.map(|rtt| format!("{:.0} ms", rtt.as_secs_f64() * 1e3)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use anabranch_router::onion::client::{CircuitStatus, ClientEvent, SetStatus};

    use super::super::model::tests::{status, with_links, with_set};
    use super::*;
    use crate::screen::frame::tests::words;
    use crate::screen::golden::check;

    /// Returns the state of a client over half a minute. The second circuit carries more and more,
    /// and there are `more` spare circuits.
    fn model(more: u64) -> Model {
        model_and(more, |now| now)
    }

    fn model_and(more: u64, change: fn(Status) -> Status) -> Model {
        let mut model = Model::default();
        model.take(&ClientEvent::Ready(9));
        for second in 1..=30 {
            let mut now = change(status(second, [second * second * 1500, second * 250]));
            let spare = now.circuits[0].clone();
            let more = (10..10 + more).map(|number| CircuitStatus { number, ..spare.clone() });
            now.circuits.extend(more);
            model.take(&ClientEvent::Status(Box::new(now)));
        }
        let trouble = "no authority answers: the consensus is of 14:00".to_owned();
        model.take(&ClientEvent::Trouble(trouble));
        model
    }

    fn model_of_sets(sets: u64) -> Model {
        model_of_sets_and(sets, |now| now)
    }

    fn model_of_sets_and(sets: u64, change: fn(Status) -> Status) -> Model {
        let mut model = Model::default();
        for second in 1..=30 {
            let now = with_set(second, [second * 150_000, second * second * 250]);
            let mut now = change(now);
            let set = now.sets[0].clone();
            now.sets = (4..4 + sets).map(|number| SetStatus { number, ..set.clone() }).collect();
            model.take(&ClientEvent::Status(Box::new(now)));
        }
        model
    }

    #[test]
    fn a_client_looks_as_it_did() {
        check("client", &model(0));
        check("client-sets", &model_of_sets(1));
        check("client-links", &model_and(0, with_links));
    }

    #[test]
    fn many_sets_leave_lines_to_circuits() {
        let text = words(&model_of_sets(4), 80);
        assert!(text.contains("and 5 more lines"), "{text}");
        assert!(text.contains("2 guard2 middle2 exit2") && !text.contains("and 2 more"), "{text}");
        let text = words(&model_of_sets_and(4, with_links), 80);
        assert!(text.contains("and 5 more lines"), "{text}");
        assert!(text.contains("2 guard2 middle2 exit2") && text.contains("and 2 more"), "{text}");
    }

    #[test]
    fn circuits_that_find_no_line_are_counted() {
        let text = words(&model(10), 100);
        assert!(text.contains("and 2 more"), "{text}");
        assert!(!words(&model(9), 100).contains("more"));
    }

    #[test]
    fn a_small_terminal_is_no_reason_to_panic() {
        for width in [1, 20, 79] {
            words(&model(9), width);
            words(&model_of_sets(9), width);
        }
    }
}
