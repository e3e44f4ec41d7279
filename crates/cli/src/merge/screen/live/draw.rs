//! Drawing of the live view. Its content is in the [`Model`].

use std::cmp::Ordering;

use anabranch_pages::figures::scaled;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::Paragraph;

use super::super::model::{Model, Row, from as source};
use crate::screen::Recent;
use crate::screen::frame::{Order, Picture, ViewState, fitted, names, title};
use crate::screen::meter::Meter;
use crate::screen::palette::Palette;
use crate::screen::table::{Column, table};
use crate::text::{share, sparks};

/// Maximum number of paths in the table.
const ROWS: u16 = 12;
/// Number of lines above the table.
const HEAD: u16 = 2;

const COLUMNS: [Column<Row>; 11] = [
    Column::<Row>::text("client", 10, 0, |row, _, _| row.client.clone().into()).up_to(16),
    Column::number("path", 4, 1, |row, _, _| row.path.to_string().into()),
    Column::text("state", 5, 2, state),
    Column::number("bit/s in", 8, 3, |row, _, _| scaled(row.rates[0], "").into()),
    Column::text("share", 10, 5, |row, _, ink| part(row.shares[0], ink)),
    Column::number("bit/s out", 9, 4, |row, _, _| scaled(row.rates[1], "").into()),
    Column::text("share", 10, 6, |row, _, ink| part(row.shares[1], ink)),
    Column::graph("bit/s #s", [10, Meter::SECONDS], 7, past),
    Column::text("from", 21, 8, from).up_to(24),
    Column::number("packets in", 10, 9, |row, _, _| {
        scaled(row.counters.inward.datagrams as f64, "").into()
    }),
    Column::number("packets out", 11, 10, |row, _, _| {
        scaled(row.counters.outward.datagrams as f64, "").into()
    }),
];

const ORDERS: [Order<Row>; 3] = [
    ("client", |_, _| Ordering::Equal),
    ("rate", |a, b| b.rates.iter().sum::<f64>().total_cmp(&a.rates.iter().sum())),
    ("state", |a, b| a.counters.up.cmp(&b.counters.up)),
];

impl Picture for Model {
    fn orders(&self) -> Vec<&'static str> {
        names(&ORDERS)
    }

    /// Returns the height of the view: the lines above the table, its head and its rows.
    fn height(&self) -> u16 {
        HEAD + 1 + ROWS
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect, look: &ViewState) {
        let ink = look.palette;
        let lines = area.height.min(HEAD);
        let whole = fitted(self.whole(ink), area.width);
        frame.render_widget(Paragraph::new(whole), Rect { height: lines, ..area });
        let room = usize::from(area.height.saturating_sub(HEAD + 1));
        let sorted = look.sorted(&ORDERS, &self.rows).into_iter();
        let paths = table(&COLUMNS, sorted.take(room), area.width, ink);
        let below = Rect { y: area.y + lines, height: area.height - lines, ..area };
        frame.render_widget(paths, below);
    }

    fn recent(&self) -> &Recent {
        &self.recent
    }
}

impl Model {
    /// Returns two lines about the far end as a whole.
    fn whole(&self, ink: Palette) -> Text<'static> {
        let clients = self.snapshot.clients.iter().filter(|client| client.up).count();
        let [inward, outward] = self.rates().map(|rate| scaled(rate, "bit/s"));
        let more = self.rows.len().saturating_sub(usize::from(ROWS));
        let hidden = if more > 0 { format!(" · {more} paths not shown") } else { String::new() };
        let flows = self.snapshot.flows;
        let whole = Line::from(vec![
            Span::styled(
                format!("{}  {:.0} s", title("merge", self.name.as_deref()), self.time.secs_f64()),
                ink.head(),
            ),
            format!(" · in {inward} · out {outward} · clients {clients} · flows {flows}{hidden}")
                .into(),
        ]);
        let losses = match self.losses() {
            Some(losses) => Span::styled(losses, ink.doubtful()),
            None => Span::styled("no packet dropped", ink.faint()),
        };
        let others = [self.backlogs(), self.decoys()].into_iter().flatten();
        let others = others.map(|text| Span::raw(format!(" · {text}")));
        Text::from(vec![whole, Line::from_iter([losses].into_iter().chain(others))])
    }
}

fn state(row: &Row, _: u16, ink: Palette) -> Span<'static> {
    match row.counters.up {
        true => Span::styled("up", ink.good()),
        false => Span::styled("down", ink.bad()),
    }
}

fn part(of: f64, ink: Palette) -> Span<'static> {
    Span::styled(share(of), ink.share())
}

fn past(row: &Row, width: u16, ink: Palette) -> Span<'static> {
    let width = usize::from(width);
    Span::styled(sparks(row.past(), row.most.over(width), width), ink.past())
}

fn from(row: &Row, _: u16, _: Palette) -> Span<'static> {
    source(&row.counters).into()
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::Time;
    use anabranch_splitter::merge::StreamSnapshot;

    use super::super::super::model::tests::snapshot;
    use super::*;
    use crate::screen::frame::tests::words;
    use crate::screen::golden::check;

    /// Returns the state after 40 seconds of a client with two paths. One path no longer receives
    /// packets.
    fn model() -> Model {
        let mut model = Model::default();
        for second in 0..=40_u64 {
            let mut counters = snapshot([second * 900_000, second * second * 8_000]);
            counters.clients[1].paths[0].outward.bytes = second * 30_000;
            counters.clients[1].paths[1].up = second < 30;
            model.snapshot(Time::from_secs(second), &counters);
        }
        model.recent.keep(Time::ZERO, "client 'home' connected from 192.0.2.1:4000".to_owned());
        let words = "client 'home': path 1 down".to_owned();
        model.recent.keep(Time::from_secs(30), words);
        let words = "no server listens at 127.0.0.1:9: its port is closed".to_owned();
        model.recent.warn(Time::from_secs(31), words);
        model
    }

    #[test]
    fn a_far_end_looks_as_it_did() {
        check("merge", &model());
    }

    #[test]
    fn paths_that_find_no_line_are_counted() {
        let mut model = model();
        model.rows = vec![model.rows[0].clone(); 15];
        assert!(words(&model, 160).contains("3 paths not shown"));
    }

    #[test]
    fn the_queues_of_tcp_connections_are_shown() {
        let mut model = model();
        let unshown = words(&model, 160);
        assert!(!unshown.contains("TCP connections"), "{unshown}");
        model.rows[0].counters.stream = Some(StreamSnapshot { queued: 1_200, aged: 3 });
        let shown = words(&model, 160);
        assert!(shown.contains("home 0 1.2 kB queued, 3 packets dropped after waiting"), "{shown}");
    }
}
