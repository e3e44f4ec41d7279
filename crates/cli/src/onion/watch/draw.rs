//! Drawing only: what to show is in the [`Model`].

use std::cmp::Reverse;

use anabranch_onion::SetNumbers;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::Paragraph;

use super::model::{Model, Row};
use crate::screen::Recent;
use crate::screen::frame::{Look, Order, Picture, names};
use crate::screen::meter::Meter;
use crate::screen::palette::Palette;
use crate::screen::table::{Column, table};
use crate::text::{scaled, share, sparks};

/// Lines about the whole, and below the first table.
const HEAD: u16 = 1;
const FOOT: u16 = 2;
/// Lines of the first table, and of sets, with their heads.
const ROWS: u16 = 5;
const SETS: u16 = 6;

const COLUMNS: [Column<Row>; 5] = [
    Column::text("links", 9, 0, |row, _, _| row.name.into()),
    Column::number("now", 11, 1, |row, _, _| {
        scaled(row.meter.rate() * row.scale, row.units[0]).into()
    }),
    Column::text("of --rate", 10, 3, |row, _, ink| {
        Span::styled(row.share.map(share).unwrap_or_default(), ink.share())
    }),
    Column::number("sum", 8, 2, |row, _, _| scaled(row.sum as f64, row.units[1]).into()),
    Column::graph("last # s", [12, Meter::SECONDS], 4, past),
];

const SET_COLUMNS: [Column<SetNumbers>; 8] = [
    Column::<SetNumbers>::text("fullest sets", 20, 0, |set, _, _| {
        set.schedule.replace(" --every", "").into()
    })
    .up_to(30),
    Column::number("streams", 7, 1, |set, _, _| set.streams.to_string().into()),
    Column::number("legs", 4, 2, |set, _, _| set.legs.len().to_string().into()),
    Column::number("waiting", 8, 3, |set, _, ink| {
        let style = if set.resting { ink.doubtful() } else { ink.faint() };
        Span::styled(scaled(set.reordered as f64, "B"), style)
    }),
    Column::text("of limit", 10, 4, |set, _, ink| {
        let part = set.reordered as f64 / set.budget.max(1) as f64;
        Span::styled(share(part), ink.share())
    }),
    Column::text("first leg", 10, 5, |set, _, ink| {
        let shares = set.shares();
        Span::styled(shares.first().map(|[_, sent]| share(*sent)).unwrap_or_default(), ink.share())
    }),
    Column::number("window", 9, 6, window),
    Column::number("most", 8, 7, |set, _, _| scaled(set.most_reordered as f64, "B").into()),
];

const ORDERS: [Order<SetNumbers>; 3] = [
    ("waiting", |a, b| Reverse(a.reordered).cmp(&Reverse(b.reordered))),
    ("streams", |a, b| Reverse(a.streams).cmp(&Reverse(b.streams))),
    ("legs", |a, b| Reverse(a.legs.len()).cmp(&Reverse(b.legs.len()))),
];

impl Picture for Model {
    fn orders(&self) -> Vec<&'static str> {
        names(&ORDERS)
    }

    fn height(&self) -> u16 {
        HEAD + ROWS + FOOT + SETS
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect, look: &Look) {
        let ink = look.palette;
        let mut rest = area;
        frame.render_widget(whole(self, ink), cut(&mut rest, HEAD));
        let rows = cut(&mut rest, ROWS);
        frame.render_widget(table(&COLUMNS, self.rows.iter(), rows.width, ink), rows);
        frame.render_widget(Paragraph::new(foot(self, ink)), cut(&mut rest, FOOT));
        if !self.numbers.sets.is_empty() {
            let room = usize::from(rest.height.saturating_sub(1));
            let sets = look.sorted(&ORDERS, &self.numbers.sets).into_iter().take(room);
            frame.render_widget(table(&SET_COLUMNS, sets, rest.width, ink), rest);
        }
    }

    fn recent(&self) -> &Recent {
        &self.recent
    }
}

/// So many lines from the top of `rest`, or as many as there are.
fn cut(rest: &mut Rect, lines: u16) -> Rect {
    let height = lines.min(rest.height);
    let part = Rect { height, ..*rest };
    *rest = Rect { y: rest.y + height, height: rest.height - height, ..*rest };
    part
}

/// The relay in a line.
fn whole(model: &Model, ink: Palette) -> Line<'static> {
    let (numbers, stats) = (&model.numbers, &model.numbers.stats);
    Line::from(vec![
        Span::styled(
            format!("relay {}  {:.0} s", model.nickname, model.time.secs_f64()),
            ink.head(),
        ),
        format!(
            " · links {} · circuits {} · streams {} · cells waiting {}",
            numbers.links, stats.circuits, stats.streams, stats.cells
        )
        .into(),
    ])
}

/// What else is known of all together.
fn foot(model: &Model, ink: Palette) -> Text<'static> {
    let stats = &model.numbers.stats;
    let [received, sent] = stats.padding;
    let sets = format!(
        "sets {} · legs {} · waiting {} · padding cells {received} in, {sent} out · by CGO {}",
        stats.sets,
        stats.legs,
        scaled(stats.reordered as f64, "B"),
        stats.circuits_cgo,
    );
    let sets = match model.numbers.tap {
        Some(tap) => format!(
            "{sets} · unordered links {} · tap {tap} · early records {}",
            stats.unordered_links, model.numbers.early.opened
        ),
        None => sets,
    };
    let sets = match model.numbers.quic {
        Some(counts) => format!(
            "{sets} · QUIC links {} with {} circuits, {} failed",
            stats.quic_links, stats.quic_circuits, counts.failed
        ),
        None => sets,
    };
    let sets = match stats.dedicated_links {
        0 => sets,
        links => format!("{sets} · links of one circuit {links}"),
    };
    let sets = match model.numbers.mptcp {
        Some(counts) => format!(
            "{sets} · MPTCP links {} with {} subflows, {} by TCP",
            counts.links, counts.subflows, counts.fell_back
        ),
        None => sets,
    };
    let complaints = match model.complaints() {
        Some(text) => Line::styled(text, ink.doubtful()),
        None => Line::styled("nothing refused, no breach of the protocol", ink.faint()),
    };
    Text::from(vec![Line::raw(sets), complaints])
}

/// Each against its own busiest second: cells and circuits have no common scale.
fn past(row: &Row, width: u16, ink: Palette) -> Span<'static> {
    let most = row.meter.past().fold(0.0, f64::max);
    Span::styled(sparks(row.meter.past(), most, usize::from(width)), ink.past())
}

/// Cells under way and windows of all legs.
fn window(set: &SetNumbers, _: u16, _: Palette) -> Span<'static> {
    let [inflight, window] = set
        .legs
        .iter()
        .fold([0, 0], |[inflight, window], leg| [inflight + leg.inflight, window + leg.window]);
    format!("{inflight}/{window}").into()
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::Time;

    use super::super::model::Limit;
    use super::super::model::tests::numbers;
    use super::*;
    use crate::screen::frame::tests::words;
    use crate::screen::golden::check;

    fn model(seconds: u64) -> Model {
        let limit = Limit::default();
        limit.set(4_000_000);
        let mut model = Model::new("river1".to_owned(), limit);
        (1..=seconds).for_each(|second| model.renew(Time::from_secs(second), &numbers(second)));
        model.recent.keep(Time::from_secs(3), "note: reachable from outside".to_owned());
        let text = "this machine's clock is 7 min ahead, by the word of dam".to_owned();
        model.recent.warn(Time::from_secs(9), text);
        model
    }

    #[test]
    fn a_relay_looks_as_it_did() {
        check("relay", &model(45));
    }

    #[test]
    fn a_relay_that_has_carried_nothing_can_be_drawn() {
        let text = words(&model(0), 80);
        assert!(text.contains("relay river1  0 s") && !text.contains("fullest"), "{text}");
    }

    #[test]
    fn a_small_terminal_is_no_reason_to_panic() {
        for width in [1, 20, 79] {
            words(&model(9), width);
        }
    }
}
