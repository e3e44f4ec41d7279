//! Statements in the paper's text about its Figure 3, which has no table.

/// Time that the statements are about, in seconds since the downloads' start.
pub const MOMENT: f64 = 5.0;
/// Maximum share of downloads that are done by then over ordered links, at 5 % loss.
pub const ORDERED: f64 = 0.3;
/// Minimum share of downloads that are done by then over unordered links.
pub const UNORDERED: f64 = 0.5;
/// Share of downloads that take the same time without loss.
pub const ALIKE: f64 = 0.8;
/// Share of downloads, the slowest, that take less time over unordered links without loss.
pub const SLOWEST: f64 = 0.15;
/// Maximum ratio of their times: 30 % less, of the paper's 30 to 40 %.
pub const SLOWEST_TAKE: f64 = 0.7;
/// Lines of code of Tor at that time, and of the paper's changes to it (Table 1).
pub const LINES: (u32, u32) = (81_418, 95);
