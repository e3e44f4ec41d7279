//! Tables that fit the terminal. A narrow terminal shows only the most important columns. A wide
//! terminal shows longer graphs.

use ratatui::layout::{Alignment, Constraint};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Row, Table};

use super::frame::cut;
use super::palette::Palette;

/// Function that draws a cell of a row, with the available width in columns of the terminal.
type Draw<R> = fn(&R, u16, Palette) -> Span<'static>;

/// A column of a table in a live view. `R` is the type of the table's rows.
pub(crate) struct Column<R> {
    /// Heading of the column, in which `#` stands for the column's width.
    head: &'static str,
    width: u16,
    /// Maximum width. A graph uses all of it if there is room. Any other column is only as wide as
    /// its widest cell.
    most: u16,
    is_graph: bool,
    /// Priority of the column. If there is too little room, columns with the highest number are
    /// omitted first.
    rank: u8,
    align: Alignment,
    cell: Draw<R>,
}

impl<R> Column<R> {
    /// Creates a column of texts, aligned to the left. `rank` is the column's priority.
    pub(crate) const fn text(head: &'static str, width: u16, rank: u8, cell: Draw<R>) -> Column<R> {
        Column { head, width, most: width, is_graph: false, rank, align: Alignment::Left, cell }
    }

    /// Creates a column of numbers, aligned to the right.
    pub(crate) const fn number(
        head: &'static str,
        width: u16,
        rank: u8,
        cell: Draw<R>,
    ) -> Column<R> {
        Column { head, width, most: width, is_graph: false, rank, align: Alignment::Right, cell }
    }

    /// Creates a column of graphs. Each graph is at least `width` and at most `most` columns of
    /// the terminal wide.
    pub(crate) const fn graph(
        head: &'static str,
        [width, most]: [u16; 2],
        rank: u8,
        cell: Draw<R>,
    ) -> Column<R> {
        Column { head, width, most, is_graph: true, rank, align: Alignment::Left, cell }
    }

    /// Returns this column with a width that adapts to its widest cell, up to `most`.
    pub(crate) const fn up_to(self, most: u16) -> Column<R> {
        Column { most, ..self }
    }

    /// Returns the width with which the column shows the cells of `rows` completely.
    fn preferred_width(&self, rows: &[&R], palette: Palette) -> u16 {
        if self.is_graph || self.most == self.width {
            return self.most;
        }
        let widths = rows.iter().map(|row| (self.cell)(row, self.most, palette).width());
        let widest = widths.max().and_then(|width| u16::try_from(width).ok()).unwrap_or(0);
        widest.clamp(self.width, self.most)
    }
}

/// Returns a table of `rows` that is `width` columns of the terminal wide.
pub(crate) fn table<'r, R: 'r>(
    columns: &[Column<R>],
    rows: impl Iterator<Item = &'r R>,
    width: u16,
    palette: Palette,
) -> Table<'static> {
    let rows: Vec<&R> = rows.collect();
    let shown = fitting(columns, width, |column| column.preferred_width(&rows, palette));
    let heads = shown.iter().map(|(column, width)| {
        let head = column.head.replace('#', &width.to_string());
        Cell::from(Line::raw(head).alignment(column.align))
    });
    let heads = Row::new(heads).style(palette.head());
    let cells = |row: &R| {
        let cell = |(column, width): &(&Column<R>, u16)| {
            let line = Line::from((column.cell)(row, *width, palette));
            Cell::from(cut(line, *width).alignment(column.align))
        };
        Row::new(shown.iter().map(cell).collect::<Vec<_>>())
    };
    let widths: Vec<_> = shown.iter().map(|(_, width)| Constraint::Length(*width)).collect();
    Table::new(rows.into_iter().map(cells).collect::<Vec<_>>(), widths).header(heads)
}

/// Returns the columns that fit into `width` with a space between them, each with its width. There
/// is always at least one column. Remaining width goes to the columns from left to right, but no
/// column becomes wider than the result of `preferred_width`.
fn fitting<R>(
    columns: &[Column<R>],
    width: u16,
    preferred_width: impl Fn(&Column<R>) -> u16,
) -> Vec<(&Column<R>, u16)> {
    let needed =
        |shown: &[&Column<R>]| shown.iter().map(|column| column.width + 1).sum::<u16>() - 1;
    let mut shown: Vec<&Column<R>> = columns.iter().collect();
    while shown.len() > 1 && needed(&shown) > width {
        let ranks = shown.iter().enumerate().map(|(place, column)| (column.rank, place));
        let (_, least) = ranks.max().expect("at least two columns are shown");
        shown.remove(least);
    }
    let mut left = width.saturating_sub(needed(&shown));
    let widened = shown.into_iter().map(|column| {
        let more = left.min(preferred_width(column) - column.width);
        left -= more;
        (column, column.width + more)
    });
    widened.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn column(head: &'static str, width: u16, rank: u8) -> Column<()> {
        Column::text(head, width, rank, |(), _, _| Span::raw(""))
    }

    #[test]
    fn columns_that_matter_least_leave_first_and_graphs_take_what_is_left() {
        let graph = Column::graph("d", [4, 10], 3, |(), _, _| Span::raw(""));
        let columns = [column("a", 4, 0), column("b", 4, 2), column("c", 4, 1), graph];
        let shown = |width| -> Vec<(&str, u16)> {
            fitting(&columns, width, |column| column.preferred_width(&[], Palette::new(true)))
                .into_iter()
                .map(|(column, width)| (column.head, width))
                .collect()
        };
        assert_eq!(shown(1), [("a", 4)]);
        assert_eq!(shown(9), [("a", 4), ("c", 4)]);
        assert_eq!(shown(18), [("a", 4), ("b", 4), ("c", 4)]);
        assert_eq!(shown(21)[3..], [("d", 6)]);
        assert_eq!(shown(99)[3..], [("d", 10)]);
    }
    #[test]
    fn words_get_the_room_that_they_need_before_graphs_do() {
        let names = Column::<&str>::text("name", 3, 0, |name, _, _| (*name).into()).up_to(6);
        let columns = [names, Column::graph("graph", [2, 60], 1, |_, _, _| Span::raw(""))];
        let widths = |rows: &[&&'static str]| -> Vec<u16> {
            let shown =
                fitting(&columns, 20, |column| column.preferred_width(rows, Palette::new(true)));
            shown.into_iter().map(|(_, width)| width).collect()
        };
        assert_eq!(widths(&[]), [3, 16]);
        assert_eq!(widths(&[&"lte", &"wlan0"]), [5, 14]);
        assert_eq!(widths(&[&"enp0s31f6"]), [6, 13], "never more than it may");
    }
}
