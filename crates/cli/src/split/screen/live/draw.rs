//! Drawing of the live view. Its content is in the [`Model`].

use std::cmp::{Ordering, Reverse};

use anabranch_pages::figures::scaled;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::Paragraph;

use super::super::advice;
use super::super::model::{Model, Row, backlogs, losses};
use crate::screen::Recent;
use crate::screen::frame::{Order, Picture, ViewState, cut, fitted, names, title};
use crate::screen::meter::Meter;
use crate::screen::palette::Palette;
use crate::screen::table::{Column, table};
use crate::text::{millis, share, sparks};

/// Maximum number of lines below the table of paths, which describe problems, TCP connections and
/// the newest sessions.
const SESSIONS: u16 = 4;

const COLUMNS: [Column<Row>; 12] = [
    Column::<Row>::text("path", 10, 0, |row, _, _| row.label().into()).up_to(16),
    Column::text("state", 9, 1, state),
    Column::number("bit/s up", 8, 2, |row, _, _| scaled(row.up.rate, "").into()),
    Column::text("share", 10, 4, |row, _, ink| part(row.up.share, ink)),
    Column::number("bit/s down", 10, 3, |row, _, _| scaled(row.down.rate, "").into()),
    Column::text("share", 10, 5, |row, _, ink| part(row.down.share, ink)),
    Column::number("RTT", 8, 6, |row, _, _| millis(row.counters.rtt).into()),
    Column::graph("bit/s #s", [8, Meter::SECONDS], 7, past),
    Column::number("dropped", 7, 8, |row, _, ink| dropped(row, ink)),
    Column::number("switches", 8, 9, |row, _, _| scaled(row.counters.switches as f64, "").into()),
    Column::number("packets up", 10, 10, |row, _, _| {
        scaled(row.counters.up.datagrams as f64, "").into()
    }),
    Column::number("packets down", 12, 11, |row, _, _| {
        scaled(row.counters.down.datagrams as f64, "").into()
    }),
];

const ORDERS: [Order<Row>; 5] = [
    ("settings", |_, _| Ordering::Equal),
    ("rate", |a, b| (b.up.rate + b.down.rate).total_cmp(&(a.up.rate + a.down.rate))),
    ("share", |a, b| (b.up.share + b.down.share).total_cmp(&(a.up.share + a.down.share))),
    // Paths without a round-trip time are sorted last.
    ("RTT", |a, b| {
        let key = |row: &Row| (row.counters.rtt.is_none(), row.counters.rtt);
        key(a).cmp(&key(b))
    }),
    ("dropped", |a, b| Reverse(a.dropped()).cmp(&Reverse(b.dropped()))),
];

impl Picture for Model {
    fn orders(&self) -> Vec<&'static str> {
        names(&ORDERS)
    }

    /// Returns the height of the view: a line about the splitter as a whole, the table of paths,
    /// and sessions.
    fn height(&self) -> u16 {
        self.table_height().saturating_add(1 + SESSIONS)
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect, look: &ViewState) {
        let ink = look.palette;
        let lines = area.height.min(1);
        let rows = self.table_height().min(area.height - lines);
        frame.render_widget(cut(self.whole(ink), area.width), Rect { height: lines, ..area });
        let sorted = look.sorted(&ORDERS, &self.rows).into_iter();
        let paths = table(&COLUMNS, sorted, area.width, ink);
        frame.render_widget(paths, Rect { y: area.y + lines, height: rows, ..area });
        let above = lines + rows;
        let below = Rect { y: area.y + above, height: area.height - above, ..area };
        let sessions = fitted(self.sessions(ink), area.width);
        frame.render_widget(Paragraph::new(sessions), below);
    }

    fn recent(&self) -> &Recent {
        &self.recent
    }

    fn legend(&self) -> &'static [(&'static str, &'static str)] {
        &[("silent N", "N sessions got no answer on this path, and use the other paths")]
    }
}

impl Model {
    /// Returns the height of the table: its headings and a line for each path.
    fn table_height(&self) -> u16 {
        u16::try_from(self.session_table.paths().max(self.rows.len()))
            .unwrap_or(u16::MAX)
            .saturating_add(1)
    }

    /// Returns the line about the splitter as a whole.
    fn whole(&self, ink: Palette) -> Line<'static> {
        let [up, down] = self.rates().map(|rate| scaled(rate, "bit/s"));
        let sessions = self.snapshot.sessions;
        let s = if sessions == 1 { "" } else { "s" };
        let waiting = match self.snapshot.waiting {
            0 => String::new(),
            waiting => format!(" · {waiting} datagrams waiting for a path"),
        };
        Line::from(vec![
            Span::styled(
                format!("{}  {:.0} s", title("split", self.name.as_deref()), self.time.secs_f64()),
                ink.head(),
            ),
            format!(" · up {up} · down {down} · {sessions} session{s}{waiting}").into(),
        ])
    }

    /// Returns lines about silent servers, losses, TCP connections, pinned flows, decoys and the
    /// newest sessions, at most [`SESSIONS`] lines.
    fn sessions(&self, ink: Palette) -> Text<'static> {
        let newest = self.session_table.sessions.iter().rev().take(usize::from(SESSIONS));
        let lines = newest.map(|(number, session)| {
            Line::raw(format!("  session {number}  {}  {}", session.ends(), session.protocol()))
        });
        let silent = self.snapshot.silent.map(|silent| advice::silent(&silent));
        let silent = silent.map(|text| Line::styled(text, ink.bad()));
        let lost = losses(&self.snapshot).map(|text| Line::styled(text, ink.doubtful()));
        let backlogs = backlogs(&self.rows).map(Line::raw);
        let pinned = self.pinned().map(Line::raw);
        let decoys = self.snapshot.far_end.and_then(|far| advice::decoys(far.decoys));
        let notices = silent
            .into_iter()
            .chain(lost)
            .chain(backlogs)
            .chain(pinned)
            .chain(decoys.map(Line::raw));
        notices.chain(lines).take(usize::from(SESSIONS)).collect()
    }
}

fn state(row: &Row, _: u16, ink: Palette) -> Span<'static> {
    let style = match (row.counters.works, row.counters.silent_sessions) {
        (false, _) => ink.bad(),
        (true, 0) => ink.good(),
        (true, _) => ink.doubtful(),
    };
    Span::styled(row.state(), style)
}

fn part(of: f64, ink: Palette) -> Span<'static> {
    Span::styled(share(of), ink.share())
}

fn past(row: &Row, width: u16, ink: Palette) -> Span<'static> {
    let width = usize::from(width);
    Span::styled(sparks(row.past(), row.most.over(width), width), ink.past())
}

fn dropped(row: &Row, ink: Palette) -> Span<'static> {
    let style = if row.dropped() > 0 { ink.doubtful() } else { ink.faint() };
    Span::styled(scaled(row.dropped() as f64, ""), style)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anabranch_comps::protocol::Confidence;
    use anabranch_comps::{Event, FarEndCounters, Flow, Pinned, Protocol, SessionId, Silent};
    use anabranch_multipath::Time;

    use super::super::super::model::tests::{about, snapshot};
    use super::*;
    use crate::screen::frame::tests::{seen, words};
    use crate::screen::golden::{check, check_look, text};

    /// Returns the state of three paths after a minute and a half: the first works, the second is
    /// silent, and the third is down.
    fn model() -> Model {
        let mut model = Model::default();
        model.begin(&about(&["wlan", "lte", "dsl"]));
        let (session, client) = (SessionId(0), "127.0.0.1:40000".parse().unwrap());
        model.event(Time::ZERO, &Event::Opened { session, client, server: None });
        let (protocol, confidence) = (Protocol::WireGuard, Confidence::Certain);
        model.event(Time::from_millis(20), &Event::Recognised { session, protocol, confidence });
        for second in 0..=88_u64 {
            // The first path carries a wave with a period of half a minute, the second a ramp, and
            // the third little.
            let wave = second * 1_000_000 + (second % 30) * (second % 30) * 20_000;
            let bytes = [(wave, wave / 10), (second * second * 9_000, 0), (second * 10, second)];
            let mut counters = snapshot(&bytes);
            counters.paths[0].rtt = Some(Duration::from_micros(10_400));
            counters.paths[1].rtt = Some(Duration::from_millis(48));
            counters.paths[1].silent_sessions = 2;
            counters.paths[1].drops.full = 31;
            counters.paths[2].works = second < 60;
            model.snapshot(Time::from_secs(second), &counters);
        }
        let server = "127.0.0.1:9".parse().ok();
        let waited = Duration::from_secs(10);
        let event = Event::Unanswered { session, server, waited, last: None };
        model.event(Time::from_secs(88), &event);
        model
    }

    #[test]
    fn a_splitter_looks_as_it_did() {
        check("split", &model());
        let ink = Palette::new(true);
        let look = ViewState { order: 2, held: true, help: true, ..ViewState::new(ink) };
        check_look("split-keys", &model(), &look);
        check_look("split-no-colour", &model(), &ViewState::new(Palette::new(false)));
    }

    /// Pinned flows and losses have their own lines.
    #[test]
    fn an_interface_looks_as_it_did() {
        let mut model = model();
        model.snapshot.pinned = vec![Pinned { flows: 3, ..Pinned::default() }; 3];
        model.snapshot.refused = 12;
        model.snapshot.waiting = 4;
        check("split-tun", &model);
    }

    #[test]
    fn decoys_have_a_line_of_their_own() {
        let mut model = model();
        assert!(!words(&model, 80).contains("decoys"));
        let decoys = [Flow { datagrams: 20, bytes: 18_000 }, Flow { datagrams: 9, bytes: 9_000 }];
        model.snapshot.far_end = Some(FarEndCounters { decoys, ..FarEndCounters::default() });
        let words = words(&model, 80);
        assert!(
            words.contains("decoys (dummy packets): 18.0 kB sent, 9.0 kB received and dropped"),
            "{words}"
        );
    }

    #[test]
    fn a_server_that_is_silent_is_a_line_of_its_own() {
        let mut model = model();
        let (waited, last) = (Duration::from_secs(12), Some(Time::from_secs(3753)));
        model.snapshot.silent = Some(Silent { sessions: 1, waited, last });
        let words = words(&model, 80);
        let line = "no answer from a server for 12 s on any path, last answer at 01:02:33";
        assert!(words.contains(line), "{words}");
    }

    #[test]
    fn paths_are_sorted_by_what_a_key_chose() {
        let model = model();
        let first = |order| {
            let buffer =
                seen(&model, 80, &ViewState { order, ..ViewState::new(Palette::new(true)) });
            let text = text(&buffer);
            let names = text.lines().skip(2).map(|line| line.split(' ').next().unwrap().to_owned());
            names.take(3).collect::<Vec<_>>()
        };
        assert_eq!(first(0), ["wlan", "lte", "dsl"]);
        assert_eq!(first(3), ["wlan", "lte", "dsl"], "without a time last");
        assert_eq!(first(4), ["lte", "wlan", "dsl"]);
    }

    #[test]
    fn what_no_path_has_carried_yet_can_be_drawn() {
        let mut model = Model::default();
        model.begin(&about(&["wlan"]));
        assert!(words(&model, 80).contains("split  0 s"));
    }
}
