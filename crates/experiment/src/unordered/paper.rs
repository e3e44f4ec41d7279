//! What the paper says of its Figure 3 in words: it has no table of it.

/// The moment of which it speaks, in seconds from the downloads' beginning.
pub const MOMENT: f64 = 5.0;
/// The share of downloads that are done then at 5 % loss, at most, in order.
pub const ORDERED: f64 = 0.3;
/// The share that is done then, at least, unordered.
pub const UNORDERED: f64 = 0.5;
/// Without loss, the share of downloads that take alike.
pub const ALIKE: f64 = 0.8;
/// Without loss, the share of downloads that take less time unordered: the slowest.
pub const SLOWEST: f64 = 0.15;
/// The part of their time that these take at most: 30 % less, of the paper's 30 to 40 %.
pub const SLOWEST_TAKE: f64 = 0.7;
/// Lines of code of the Tor of then, and of its changes (Table 1).
pub const LINES: (u32, u32) = (81_418, 95);
