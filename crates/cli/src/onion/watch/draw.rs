//! Drawing of the live view. Its content is in the [`Model`].

use std::cmp::Reverse;

use anabranch_onion::{LossyStats, SetNumbers};
use anabranch_pages::figures::scaled;
use anabranch_router::onion::MptcpCounts;
use anabranch_router::onion::relay::Numbers;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::Paragraph;

use super::model::{Model, Row};
use crate::screen::Recent;
use crate::screen::frame::{Order, Picture, ViewState, cut, fitted, names, title};
use crate::screen::meter::{Meter, Peaks};
use crate::screen::palette::Palette;
use crate::screen::table::{Column, table};
use crate::text::{share, sparks};

/// Number of lines about the relay as a whole.
const HEAD: u16 = 1;
/// Number of lines of the table below the lines about the whole relay, with its headings.
const ROWS: u16 = 5;
/// Number of lines below the table: other totals, and as many sets of circuits as fit, with their
/// headings.
const REST: u16 = 9;

/// Separator between two parts of a line.
const BETWEEN: &str = " · ";

const COLUMNS: [Column<Row>; 5] = [
    Column::text("links", 9, 0, |row, _, _| row.name.into()),
    Column::number("now", 11, 1, |row, _, _| {
        scaled(row.meter.rate() * row.scale, row.units[0]).into()
    }),
    Column::text("of --rate", 10, 3, |row, _, ink| {
        Span::styled(row.share.map(share).unwrap_or_default(), ink.share())
    }),
    Column::number("sum", 8, 2, |row, _, _| scaled(row.sum as f64, row.units[1]).into()),
    Column::graph("rate # s", [12, Meter::SECONDS], 4, past),
];

const SET_COLUMNS: [Column<SetNumbers>; 8] = [
    Column::<SetNumbers>::text("circuit sets", 20, 0, |set, _, _| {
        set.schedule.replace(" --every", "").into()
    })
    .up_to(30),
    Column::number("streams", 7, 1, |set, _, _| set.streams.to_string().into()),
    Column::number("legs", 4, 2, |set, _, _| set.legs.len().to_string().into()),
    Column::number("waiting", 8, 3, |set, _, ink| {
        let style = if set.paused { ink.doubtful() } else { ink.faint() };
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
        HEAD + ROWS + REST
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect, look: &ViewState) {
        let ink = look.palette;
        let mut rest = area;
        let head = top(&mut rest, HEAD);
        frame.render_widget(cut(whole(self, ink), head.width), head);
        let rows = top(&mut rest, ROWS);
        frame.render_widget(table(&COLUMNS, self.rows.iter(), rows.width, ink), rows);
        let footer = fitted(footer(self, rest.width, ink), rest.width);
        let lines = footer.height() as u16;
        frame.render_widget(Paragraph::new(footer), top(&mut rest, lines));
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

/// Removes the first `lines` lines from `rest`, or all lines if there are fewer. Returns the area
/// of the removed lines.
fn top(rest: &mut Rect, lines: u16) -> Rect {
    let height = lines.min(rest.height);
    let part = Rect { height, ..*rest };
    *rest = Rect { y: rest.y + height, height: rest.height - height, ..*rest };
    part
}

/// Returns the line about the relay as a whole.
fn whole(model: &Model, ink: Palette) -> Line<'static> {
    let (numbers, stats) = (&model.numbers, &model.numbers.stats);
    Line::from(vec![
        Span::styled(
            format!(
                "{}  {:.0} s",
                title(&format!("relay {}", model.nickname), model.name.as_deref()),
                model.time.secs_f64()
            ),
            ink.head(),
        ),
        format!(
            " · links {} · circuits {} · streams {} · cells waiting {}",
            numbers.links, stats.circuits, stats.streams, stats.cells
        )
        .into(),
    ])
}

/// Returns the lines below the table. They have the totals of sets of circuits, padding, links and
/// faults.
fn footer(model: &Model, width: u16, ink: Palette) -> Text<'static> {
    let stats = &model.numbers.stats;
    let [received, sent] = stats.padding;
    let sets = vec![
        format!("sets {}", stats.sets),
        format!("legs {}", stats.legs),
        format!("waiting {}", scaled(stats.reordered as f64, "B")),
        format!("padding cells {received} in, {sent} out"),
        format!("CGO circuits {}", stats.circuits_cgo),
    ];
    let complaints = match model.complaints() {
        Some(text) => Line::styled(text, ink.doubtful()),
        None => Line::styled("no connection refused, no protocol violation", ink.faint()),
    };
    let links = wrapped(links(&model.numbers), width);
    let lines = wrapped(sets, width).into_iter().chain(links).map(Line::raw);
    lines.chain([complaints]).collect()
}

/// Describes links other than plain TLS, with one text for each kind. The result is empty if there
/// are no such links.
fn links(numbers: &Numbers) -> Vec<String> {
    let stats = &numbers.stats;
    let unordered = numbers.tap.into_iter().flat_map(|tap| {
        [
            format!("unordered links {}", stats.unordered_links),
            format!("TCP read by {tap}"),
            format!("TLS records out of order {}", numbers.early.opened),
        ]
    });
    let quic = numbers.quic.map(|counts| {
        let (links, circuits) = (stats.quic_links, stats.quic_circuits);
        format!("QUIC links {links} with {circuits} circuits, {} failed", counts.failed)
    });
    let dedicated = (stats.dedicated_links > 0)
        .then(|| format!("links for one circuit each {}", stats.dedicated_links));
    let lossy = numbers.grants_lossy.then(|| {
        let LossyStats { received, garbage, .. } = stats.lossy;
        format!(
            "UDP-OR circuits {}, cells received {received}, closed because of forged cells \
             {garbage}",
            stats.circuits_lossy
        )
    });
    let mptcp = numbers.mptcp.map(|counts| {
        let MptcpCounts { links, subflows, fell_back } = counts;
        format!("MPTCP links {links} with {subflows} subflows, {fell_back} fell back to plain TCP")
    });
    unordered.chain(quic).chain(lossy).chain(dedicated).chain(mptcp).collect()
}

/// Joins `parts` into lines of at most `width` columns.
fn wrapped(parts: Vec<String>, width: u16) -> Vec<String> {
    let length = |text: &str| text.chars().count();
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if length(line) + length(BETWEEN) + length(&part) <= usize::from(width) => {
                *line += BETWEEN;
                *line += &part;
            }
            _ => lines.push(part),
        }
    }
    lines
}

/// Draws the history of a row's rate, scaled to the busiest second of this row, because rows have
/// different units.
fn past(row: &Row, width: u16, ink: Palette) -> Span<'static> {
    let width = usize::from(width);
    let most = Peaks::of([row.meter.past()].into_iter()).over(width);
    Span::styled(sparks(row.meter.past(), most, width), ink.past())
}

/// Returns the number of cells in flight and the congestion window of a set of circuits, each
/// summed over all circuits of the set.
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
    use super::super::model::tests::{numbers, with_links};
    use super::*;
    use crate::screen::frame::tests::words;
    use crate::screen::golden::check;

    fn model(seconds: u64) -> Model {
        model_of(seconds, numbers)
    }

    fn model_of(seconds: u64, numbers: fn(u64) -> Numbers) -> Model {
        let limit = Limit::default();
        limit.set(4_000_000);
        let mut model = Model::new("river1".to_owned(), None, limit);
        (1..=seconds).for_each(|second| model.renew(Time::from_secs(second), &numbers(second)));
        model.recent.keep(Time::from_secs(3), "note: reachable from outside".to_owned());
        let text = "this machine's clock is 7 min ahead, by the word of dam".to_owned();
        model.recent.warn(Time::from_secs(9), text);
        model
    }

    #[test]
    fn a_relay_looks_as_it_did() {
        check("relay", &model(45));
        check("relay-links", &model_of(45, with_links));
    }

    #[test]
    fn nothing_of_links_is_cut_off_at_80_columns() {
        let text = words(&model_of(45, with_links), 80);
        let parts = links(&with_links(45));
        assert_eq!(parts.len(), 6);
        for part in parts {
            assert!(text.contains(&part), "{part}: {text}");
        }
        assert!(text.contains("2 connections refused"), "{text}");
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
            words(&model_of(9, with_links), width);
        }
    }
}
