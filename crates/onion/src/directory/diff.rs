//! Diffs between two consensuses of one flavour (dir-spec 4.5 and appendix E). A client that has
//! the old consensus can fetch a diff instead of the whole new consensus.
//!
//! Relays are sorted by identity, so both texts are read once, relay by relay. Within each part (a
//! relay's entry, the head before the first entry, or the foot after the last), the diff replaces
//! all lines from the first difference to the last.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use digest::Digest;

use crate::wire::crypto::Sha3_256;
use crate::wire::text::{hex, line};

/// Keyword of a signature line. The signed part of a consensus ends after the first occurrence of
/// this text.
const SIGNATURE: &str = "directory-signature ";

/// Returns the SHA3-256 of the signed part of a consensus. Clients' requests identify the
/// consensus by this digest. Returns `None` if there is no signature.
#[must_use]
pub fn signed_digest(text: &str) -> Option<[u8; 32]> {
    let end = text.find(&format!("\n{SIGNATURE}"))? + 1 + SIGNATURE.len();
    Some(digest(&text[..end]))
}

/// Returns the diff from `old` to `new`. Returns `None` if `old` has no signatures, or if `new`
/// contains the line `.`, which a diff cannot express.
#[must_use]
pub fn diff(old: &str, new: &str) -> Option<String> {
    let (from, to) = (signed_digest(old)?, digest(new));
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let signed = old.iter().position(|line| line.starts_with(SIGNATURE))?;
    if new.contains(&".") {
        return None;
    }
    let mut text = "network-status-diff-version 1\n".to_owned();
    line(&mut text, &format!("hash {} {}", hex(&from), hex(&to)));
    line(&mut text, &format!("{},$d", signed + 1));
    // Hunks go from last to first, so that the line numbers of the others stay valid.
    for hunk in hunks(&old[..signed], &new).into_iter().rev() {
        hunk.write(&mut text, &new);
    }
    Some(text)
}

fn digest(text: &str) -> [u8; 32] {
    Sha3_256::digest(text.as_bytes()).into()
}

/// A range of old lines, and the range of new lines that replaces them. Lines are counted from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LineRanges {
    old: Range<usize>,
    new: Range<usize>,
}

impl LineRanges {
    /// Returns the differing lines within the ranges `a` of the old text and `b` of the new text.
    /// Returns `None` if the lines in both ranges are equal.
    fn of(old: &[&str], new: &[&str], [mut a, mut b]: [Range<usize>; 2]) -> Option<LineRanges> {
        while !a.is_empty() && !b.is_empty() && old[a.start] == new[b.start] {
            (a.start, b.start) = (a.start + 1, b.start + 1);
        }
        while !a.is_empty() && !b.is_empty() && old[a.end - 1] == new[b.end - 1] {
            (a.end, b.end) = (a.end - 1, b.end - 1);
        }
        (!a.is_empty() || !b.is_empty()).then_some(LineRanges { old: a, new: b })
    }

    fn write(&self, text: &mut String, lines: &[&str]) {
        let Range { start, end } = self.old;
        let command = match (self.old.is_empty(), self.new.is_empty()) {
            (true, _) => 'a',
            (false, true) => 'd',
            (false, false) => 'c',
        };
        // New lines are appended after the preceding line. In a diff, lines are counted from 1.
        let first = if self.old.is_empty() { start } else { start + 1 };
        let _ = match self.old.len() {
            0 | 1 => writeln!(text, "{first}{command}"),
            _ => writeln!(text, "{first},{end}{command}"),
        };
        if !self.new.is_empty() {
            lines[self.new.clone()].iter().for_each(|added| line(text, added));
            line(text, ".");
        }
    }
}

/// Returns all differences in the order of lines. At least one equal line lies between any two
/// differences.
fn hunks(old: &[&str], new: &[&str]) -> Vec<LineRanges> {
    let mut hunks: Vec<LineRanges> = Vec::new();
    for pair in pairs(old, new) {
        let Some(hunk) = LineRanges::of(old, new, pair) else { continue };
        match hunks.last_mut().filter(|last| last.old.end == hunk.old.start) {
            Some(last) => (last.old.end, last.new.end) = (hunk.old.end, hunk.new.end),
            None => hunks.push(hunk),
        }
    }
    hunks
}

/// Returns pairs of corresponding line ranges of the old and the new text, in order. Together the
/// ranges contain every line of both texts.
fn pairs(old: &[&str], new: &[&str]) -> Vec<[Range<usize>; 2]> {
    let (olds, news) = (parts(old), parts(new));
    let places: BTreeMap<&str, usize> =
        olds.iter().enumerate().map(|(place, part)| (part.name, place)).collect();
    let (mut next, mut pairs) = (0, Vec::new());
    for part in &news {
        let at = part.lines.clone();
        let here = |place: usize| olds.get(place).map_or(old.len(), |part| part.lines.start);
        match places.get(part.name).copied().filter(|place| *place >= next) {
            Some(place) => {
                pairs.push([here(next)..here(place), at.start..at.start]);
                pairs.push([olds[place].lines.clone(), at]);
                next = place + 1;
            }
            None => pairs.push([here(next)..here(next), at]),
        }
    }
    let rest = olds.get(next).map_or(old.len(), |part| part.lines.start);
    pairs.push([rest..old.len(), new.len()..new.len()]);
    pairs
}

/// The lines of one part of a consensus: a relay's entry (with the relay's identity as the name),
/// the head (before the first entry), or the foot (after the last entry).
struct Part<'a> {
    name: &'a str,
    lines: Range<usize>,
}

fn parts<'a>(lines: &[&'a str]) -> Vec<Part<'a>> {
    let mut parts = vec![Part { name: "", lines: 0..lines.len() }];
    for (place, text) in lines.iter().enumerate() {
        let name = match text.strip_prefix("r ") {
            Some(rest) => rest.split(' ').nth(1).unwrap_or_default(),
            None if *text == "directory-footer" => "directory-footer",
            None => continue,
        };
        if let Some(last) = parts.last_mut() {
            last.lines.end = place;
        }
        parts.push(Part { name, lines: place..lines.len() });
    }
    parts
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed::stream;
    use rand_core::Rng;

    use super::*;

    /// Applies `diff` to `old` by the rules of dir-spec, appendix E, and accepts nothing else.
    fn apply(old: &str, diff: &str) -> String {
        let mut lines: Vec<String> = old.lines().map(str::to_owned).collect();
        let mut commands = diff.lines();
        assert_eq!(commands.next(), Some("network-status-diff-version 1"));
        let hashes: Vec<&str> = commands.next().unwrap().split(' ').collect();
        assert_eq!(hashes[..2], ["hash", &hex(&signed_digest(old).unwrap())]);
        let mut before = usize::MAX;
        while let Some(command) = commands.next() {
            let (range, kind) = command.split_at(command.len() - 1);
            let (first, last) = range.split_once(',').unwrap_or((range, range));
            let first: usize = first.parse().unwrap();
            let last = if last == "$" { lines.len() } else { last.parse().unwrap() };
            assert!(first <= last && last < before, "from back to front");
            before = first;
            let block: Vec<String> = match kind {
                "d" => Vec::new(),
                _ => commands.by_ref().take_while(|line| *line != ".").map(str::to_owned).collect(),
            };
            let taken = if kind == "a" { first..first } else { first - 1..last };
            lines.splice(taken, block);
        }
        let text = lines.join("\n") + "\n";
        assert_eq!(hashes[2], hex(&digest(&text)));
        text
    }

    fn consensus(time: u64, relays: &[(u32, u32)]) -> String {
        let mut text =
            format!("network-status-version 3 microdesc\nvalid-after {time}\nparams x\n");
        for (id, bandwidth) in relays {
            line(&mut text, &format!("r relay{id} ID{id:05} 2038\nm M{id}\ns Fast\nw {bandwidth}"));
        }
        let foot = "directory-footer\nbandwidth-weights Wbd=0\ndirectory-signature sha256 A B";
        line(&mut text, foot);
        line(&mut text, &format!("-----BEGIN SIGNATURE-----\n{time}\n-----END SIGNATURE-----"));
        text
    }

    #[test]
    fn what_a_diff_is_applied_to_becomes_the_new_consensus() {
        let mut rng = stream(1, 0, "diff");
        let mut below = |limit: u32| rng.next_u32() % limit;
        let mut relays: Vec<(u32, u32)> = (0..40).map(|id| (id, 1)).collect();
        for round in 0..50 {
            let old = consensus(round, &relays);
            relays.retain(|_| below(10) > 0);
            relays.iter_mut().filter(|_| below(5) == 0).for_each(|one| one.1 += 1);
            let more: Vec<u32> = (0..4).map(|_| below(99)).collect();
            relays.extend(more.into_iter().map(|id| (id, 7)));
            relays.sort_unstable();
            relays.dedup_by_key(|one| one.0);
            let new = consensus(round + 1, &relays);
            assert_eq!(apply(&old, &diff(&old, &new).unwrap()), new);
        }
    }

    #[test]
    fn little_is_said_of_little() {
        let relays: Vec<(u32, u32)> = (0..40).map(|id| (id, 1)).collect();
        let (old, new) = (consensus(1, &relays), consensus(2, &relays[1..]));
        let text = diff(&old, &new).unwrap();
        let commands: Vec<&str> = text.lines().skip(2).filter(|line| line.len() < 8).collect();
        assert_eq!(commands, ["166,$d", "165a", "2", ".", "4,7d", "2c", "."]);
        assert_eq!(apply(&old, &text), new);
    }

    #[test]
    fn other_orders_and_no_relays_at_all_are_no_trouble() {
        let one = consensus(1, &[(3, 1), (1, 1), (2, 1)]);
        let other = consensus(1, &[(1, 1), (2, 2), (3, 1)]);
        let none = consensus(1, &[]);
        for (old, new) in
            [(&one, &other), (&other, &one), (&one, &none), (&none, &one), (&one, &one)]
        {
            assert_eq!(&apply(old, &diff(old, new).unwrap()), new);
        }
        assert_eq!(diff("network-status-version 3\n", &one), None, "it is not signed");
        assert_eq!(diff(&one, "network-status-version 3\n.\n"), None);
    }
}
