//! Common frame of all live views: the body, the latest events below it, and a line of keys.

use std::cmp::Ordering;
use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Clear, Paragraph};
use textwrap::core::display_width;

use super::Recent;
use super::palette::Palette;
use crate::text::wrapped;

/// Number of events in a view.
const EVENTS: u16 = 5;

/// Width in columns of the list of keys and terms on the help screen of a live view.
const KEYS_COLUMN: usize = 12;
/// Minimum width in columns of the explanations on the help screen of a live view.
const LEAST_ROOM: usize = 20;

/// Content of a live view at one moment, which can be drawn.
pub(crate) trait Picture: Clone + Send + 'static {
    /// Returns the names of the orders in which the view's rows can be sorted. The key `s` cycles
    /// through them.
    fn orders(&self) -> Vec<&'static str>;
    /// Returns the height of the view's body, in lines.
    fn height(&self) -> u16;
    /// Draws the view's body into `area`.
    fn draw(&self, frame: &mut Frame<'_>, area: Rect, look: &ViewState);
    /// Returns the latest events.
    fn recent(&self) -> &Recent;
    /// Returns the terms of the view's tables, each with its explanation. They are shown below the
    /// explanation of the keys.
    fn legend(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
    /// Sets the time since the view was opened. Returns whether the view must be redrawn.
    fn grow_older(&mut self, _: Duration) -> bool {
        false
    }
}

/// State of a view that the user has chosen with keys, and the view's styles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ViewState {
    pub(crate) palette: Palette,
    /// Index in [`Picture::orders`] of the order of rows.
    pub(crate) order: usize,
    /// Whether the view is frozen.
    pub(crate) held: bool,
    /// Whether the explanation of keys and words is shown.
    pub(crate) help: bool,
    /// Whether the user has requested the end of the program.
    pub(crate) ends: bool,
}

impl ViewState {
    /// Creates the state before any key was pressed.
    pub(crate) fn new(palette: Palette) -> ViewState {
        ViewState { palette, order: 0, held: false, help: false, ends: false }
    }

    /// Returns `rows` sorted in the order that the user has chosen among `orders`.
    pub(crate) fn sorted<'r, R>(&self, orders: &[Order<R>], rows: &'r [R]) -> Vec<&'r R> {
        let mut sorted: Vec<&R> = rows.iter().collect();
        if let Some((_, compare)) = orders.get(self.order) {
            sorted.sort_by(|a, b| compare(a, b));
        }
        sorted
    }
}

/// An order in which rows can be sorted: its name, and the comparison of two rows.
pub(crate) type Order<R> = (&'static str, fn(&R, &R) -> Ordering);

/// Returns the names of `orders`.
pub(crate) fn names<R>(orders: &[Order<R>]) -> Vec<&'static str> {
    orders.iter().map(|(name, _)| *name).collect()
}

/// Returns the height of a whole view in lines, with its frame.
pub(crate) fn height(picture: &impl Picture) -> u16 {
    picture.height().saturating_add(EVENTS + 1)
}

/// Draws a view over the whole `frame`. If the height does not suffice, leaves out events first,
/// and then the end of the body.
pub(crate) fn draw(frame: &mut Frame<'_>, picture: &impl Picture, look: &ViewState) {
    let area = frame.area();
    let keys = area.height.min(1);
    let body = picture.height().min(area.height - keys);
    let events = area.height - keys - body;
    picture.draw(frame, Rect { height: body, ..area }, look);
    let recent = fitted(picture.recent().text(events, look.palette), area.width);
    frame.render_widget(Paragraph::new(recent), Rect { y: area.y + body, height: events, ..area });
    let orders = picture.orders();
    if look.help {
        let area = Rect { height: body + events, ..area };
        explain(frame, area, (&orders, picture.legend()), look);
    }
    let line = cut(keys_line(&orders, look), area.width);
    frame.render_widget(line, Rect { y: area.bottom() - keys, height: keys, ..area });
}

/// Returns the title of a view: the name of the program and, if the user has given one, the name
/// of this execution (`--name`).
pub(crate) fn title(program: &str, name: Option<&str>) -> String {
    name.map_or_else(|| program.to_owned(), |name| format!("{program} '{name}'"))
}

/// Cuts each line of `text` to `width` columns. Cut lines end in "…".
pub(crate) fn fitted(text: Text<'_>, width: u16) -> Text<'_> {
    Text { lines: text.lines.into_iter().map(|line| cut(line, width)).collect(), ..text }
}

/// Cuts `line` to `width` columns. A cut line ends in "…".
pub(crate) fn cut(line: Line<'_>, width: u16) -> Line<'_> {
    let width = usize::from(width);
    if line.width() <= width {
        return line;
    }
    let mut left = width.saturating_sub(1);
    let mut spans = Vec::new();
    for span in line.spans {
        let room = left;
        left = left.saturating_sub(span.width());
        if span.width() <= room {
            spans.push(span);
            continue;
        }
        let text = beginning(&span.content, room) + if width > 0 { "…" } else { "" };
        spans.push(Span::styled(text, span.style));
        break;
    }
    Line { spans, ..line }
}

/// Returns the longest prefix of `text` that fits in `width` columns.
fn beginning(text: &str, width: usize) -> String {
    let mut left = width;
    let fits = |c: &char| {
        let needed = display_width(c.encode_utf8(&mut [0; 4]));
        let fits = needed <= left;
        left = left.saturating_sub(needed);
        fits
    };
    text.chars().take_while(fits).collect()
}

/// Draws the help screen, which explains the keys and terms, over the lowest lines of `area`.
fn explain(
    frame: &mut Frame<'_>,
    area: Rect,
    (orders, legend): (&[&str], &[(&'static str, &'static str)]),
    look: &ViewState,
) {
    let mut lines = vec![
        ("q, Ctrl-C", "stop the program; Ctrl-C again stops it at once".to_owned()),
        ("p", "pause or resume this view; the program continues".to_owned()),
        ("?", "show or hide these lines".to_owned()),
    ];
    if orders.len() > 1 {
        lines.insert(2, ("s", format!("change the order of the rows: {}", orders.join(", "))));
    }
    lines.extend(legend.iter().map(|(word, what)| (*word, (*what).to_owned())));
    let room = usize::from(area.width).saturating_sub(KEYS_COLUMN);
    let lines = lines.into_iter().flat_map(|(keys, what)| {
        let parts = wrapped(&what, room.max(LEAST_ROOM)).into_iter().enumerate();
        let lines = parts.map(|(part, what)| {
            let keys = if part == 0 { format!("  {keys:<10}") } else { " ".repeat(KEYS_COLUMN) };
            Line::from(vec![
                Span::styled(keys, look.palette.head()),
                what.trim_start().to_owned().into(),
            ])
        });
        lines.collect::<Vec<_>>()
    });
    let text: Text<'_> =
        std::iter::once(Line::styled("keys", look.palette.head())).chain(lines).collect();
    let text = fitted(text, area.width);
    let height = (text.lines.len() as u16).min(area.height);
    let area = Rect { y: area.bottom() - height, height, ..area };
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(text), area);
}

/// Returns the line of a view that lists the keys.
fn keys_line(orders: &[&'static str], look: &ViewState) -> Line<'static> {
    let palette = look.palette;
    let mut spans = Vec::new();
    if look.held {
        spans.extend([Span::styled(" PAUSED ", palette.striking()), Span::raw("  ")]);
    }
    if look.ends {
        spans.extend([Span::styled(" ENDING ", palette.striking()), Span::raw("  ")]);
    }
    let sort = orders.get(look.order).filter(|_| orders.len() > 1);
    let sort = sort.map(|order| ("s", format!("sort: {order}")));
    let pause = if look.held { "go on" } else { "pause" };
    let first = [("q", "quit".to_owned()), ("p", pause.to_owned())];
    for (key, what) in first.into_iter().chain(sort).chain([("?", "keys".to_owned())]) {
        let what = Span::styled(format!(" {what}   "), palette.faint());
        spans.extend([Span::styled(key, palette.head()), what]);
    }
    Line::from(spans)
}

#[cfg(test)]
pub(crate) mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Buffer;

    use super::*;

    /// Returns the screen that shows `picture` on a terminal of `width` columns with room for all
    /// lines.
    pub(crate) fn seen(picture: &impl Picture, width: u16, look: &ViewState) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(width, height(picture))).unwrap();
        terminal.draw(|frame| draw(frame, picture, look)).unwrap();
        terminal.backend().buffer().clone()
    }

    /// Returns the text on the screen of [`seen`], before any key was pressed.
    pub(crate) fn words(picture: &impl Picture, width: u16) -> String {
        let buffer = seen(picture, width, &ViewState::new(Palette::new(true)));
        crate::screen::golden::text(&buffer)
    }

    /// A view of numbers, one per line.
    #[derive(Clone, Default)]
    pub(crate) struct Numbers(pub(crate) Vec<u32>, pub(crate) Recent);

    const ORDERS: [Order<u32>; 2] = [("given", |_, _| Ordering::Equal), ("size", u32::cmp)];

    impl Picture for Numbers {
        fn orders(&self) -> Vec<&'static str> {
            names(&ORDERS)
        }

        fn height(&self) -> u16 {
            self.0.len() as u16
        }

        fn draw(&self, frame: &mut Frame<'_>, area: Rect, look: &ViewState) {
            let rows = look.sorted(&ORDERS, &self.0);
            let text: Text<'_> = rows.iter().map(|row| Line::raw(row.to_string())).collect();
            frame.render_widget(Paragraph::new(text), area);
        }

        fn recent(&self) -> &Recent {
            &self.1
        }
    }

    fn lines(look: &ViewState) -> Vec<String> {
        let buffer = seen(&Numbers(vec![3, 1, 2], Recent::default()), 80, look);
        crate::screen::golden::text(&buffer).lines().map(str::to_owned).collect()
    }

    #[test]
    fn rows_are_sorted_as_was_chosen_and_the_keys_say_how() {
        let mut look = ViewState::new(Palette::new(true));
        let screen = lines(&look);
        assert_eq!(screen[..3], ["3", "1", "2"]);
        assert_eq!(screen[8], "q quit   p pause   s sort: given   ? keys");
        look.order = 1;
        let screen = lines(&look);
        assert_eq!(screen[..3], ["1", "2", "3"]);
        assert_eq!(screen[8], "q quit   p pause   s sort: size   ? keys");
    }

    #[test]
    fn help_a_pause_and_the_end_can_be_seen() {
        let look =
            ViewState { held: true, help: true, ends: true, ..ViewState::new(Palette::new(true)) };
        let screen = lines(&look);
        assert_eq!(screen[3], "keys");
        assert!(screen[6].ends_with("change the order of the rows: given, size"), "{screen:?}");
        assert!(screen[8].starts_with(" PAUSED    ENDING   q quit   p go on"), "{screen:?}");
    }

    #[test]
    fn what_finds_no_room_in_a_line_is_marked() {
        let shown = |width| {
            let spans = vec![Span::raw("abc"), Span::raw("d日本e")];
            cut(Line::from(spans), width).to_string()
        };
        assert_eq!([shown(9), shown(8)], ["abcd日本e", "abcd日…"]);
        assert_eq!([shown(7), shown(5)], ["abcd日…", "abcd…"]);
        assert_eq!([shown(4), shown(1), shown(0)], ["abc…", "…", ""]);
        let mut recent = Recent::default();
        recent.keep(Default::default(), "x".repeat(100));
        let buffer = seen(&Numbers(vec![1], recent), 80, &ViewState::new(Palette::new(true)));
        let text = crate::screen::golden::text(&buffer);
        let line = text.lines().find(|line| line.contains('x')).unwrap();
        assert!(line.ends_with("x…") && line.chars().count() == 80, "{line}");
    }

    #[test]
    fn a_narrow_terminal_shows_the_whole_explanation() {
        let look = ViewState { help: true, ..ViewState::new(Palette::new(true)) };
        let mut terminal = Terminal::new(TestBackend::new(40, 20)).unwrap();
        let numbers = Numbers(vec![1, 2], Recent::default());
        terminal.draw(|frame| draw(frame, &numbers, &look)).unwrap();
        let text = crate::screen::golden::text(terminal.backend().buffer());
        let words: Vec<_> = text.split_whitespace().collect();
        assert!(words.join(" ").contains("stop the program; Ctrl-C again stops it"), "{text}");
        assert!(words.join(" ").contains("change the order of the rows: given, size"), "{text}");
        let mut terminal = Terminal::new(TestBackend::new(20, 20)).unwrap();
        terminal.draw(|frame| draw(frame, &numbers, &look)).unwrap();
        let text = crate::screen::golden::text(terminal.backend().buffer());
        assert!(text.lines().last().unwrap().ends_with('…'), "{text}");
    }

    #[test]
    fn a_small_terminal_is_no_reason_to_panic() {
        let look = ViewState { help: true, ..ViewState::new(Palette::new(true)) };
        for (width, height) in [(1, 1), (20, 2), (79, 4), (1, 30), (0, 0)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            let numbers = Numbers(vec![1, 2], Recent::default());
            terminal.draw(|frame| draw(frame, &numbers, &look)).unwrap();
        }
    }
}
