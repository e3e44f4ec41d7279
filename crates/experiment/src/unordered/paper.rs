//! Statements in the paper's text about its Figure 3, which has no table.

/// Time that the paper's statements are about, in seconds since the downloads' start.
pub const MOMENT: f64 = 5.0;
/// Maximum share of downloads that are done at [`MOMENT`] over ordered links, at 5 % loss.
pub const ORDERED: f64 = 0.3;
/// Minimum share of downloads that are done at [`MOMENT`] over unordered links, at 5 % loss.
pub const UNORDERED: f64 = 0.5;
/// Share of downloads, from the fastest, that take the same time over both kinds of links without
/// loss.
pub const ALIKE: f64 = 0.8;
/// Share of downloads, from the slowest, that take less time over unordered links without loss.
pub const SLOWEST: f64 = 0.15;
/// Maximum ratio of the time of the slowest downloads over unordered links to that over ordered
/// ones. It is 30 % less than 1; the paper states 30 to 40 %.
pub const SLOWEST_TAKE: f64 = 0.7;
/// Number of lines of code of Tor at the paper's time, and of the paper's changes to it (Table 1).
pub const LINES: (u32, u32) = (81_418, 95);
