//! Numbers from the text of the FOCI 2013 paper about its Figure 3. The paper has no table of the
//! figure's values.

/// Time, in seconds since the start of the downloads, at which the FOCI 2013 paper compares the
/// shares of complete downloads.
pub const MOMENT: f64 = 5.0;
/// Maximum share of downloads that are complete at [`MOMENT`] over ordered links with 5 % loss,
/// according to the FOCI 2013 paper.
pub const ORDERED: f64 = 0.3;
/// Minimum share of downloads that are complete at [`MOMENT`] over unordered links with 5 % loss,
/// according to the FOCI 2013 paper.
pub const UNORDERED: f64 = 0.5;
/// Share of the downloads, beginning with the fastest, that take the same time over both kinds of
/// links without loss, according to the FOCI 2013 paper.
pub const ALIKE: f64 = 0.8;
/// Share of the downloads, beginning with the slowest, that take less time over unordered links
/// without loss, according to the FOCI 2013 paper.
pub const SLOWEST: f64 = 0.15;
/// Claimed time of the slowest downloads over unordered links, at most, divided by their time over
/// ordered links. It corresponds to 30 % less time; the FOCI 2013 paper states 30 to 40 %.
pub const SLOWEST_TAKE: f64 = 0.7;
/// Number of lines of code of Tor at the FOCI 2013 paper's time, and of the paper's changes to it
/// (Table 1).
pub const LINES: (u32, u32) = (81_418, 95);
