//! Recognition of DNS queries (RFC 1035).

use super::{Counter, Family, Mark, Protocol, Side, Verdict};

/// Description of DNS in the list of protocols, [`FAMILIES`](super::FAMILIES).
pub const FAMILY: Family = Family {
    protocol: Protocol::Dns,
    name: "dns",
    title: "DNS",
    selectable: false,
    mark: |datagram| Mark::strong(is_query(datagram)),
    follow,
    one_path: None,
    counter: Counter::Never,
    guide: "any-program",
};

/// The bit in a DNS header that marks a response.
const RESPONSE: u8 = 0x80;

/// Maximum length of a name, in bytes (RFC 1035, section 2.3.4).
const LONGEST_NAME: usize = 255;
/// Maximum length of one label of a name, in bytes.
const LONGEST_LABEL: u8 = 63;

/// Returns whether `datagram` is a query with one well-formed question, followed at most by
/// additional records (EDNS).
pub fn is_query(datagram: &[u8]) -> bool {
    let Some((header, body)) = datagram.split_first_chunk::<12>() else { return false };
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let is_standard_query = word(2) & 0xf80f == 0;
    let counts = (word(4), word(6), word(8));
    is_standard_query
        && counts == (1, 0, 0)
        && question(body).is_some_and(|rest| rest.is_empty() == (word(10) == 0))
}

fn follow(first: &[u8], next: &[u8], side: Side) -> Verdict {
    let is_answer = next.len() >= 12 && next[2] & RESPONSE != 0;
    match side {
        Side::Client => Verdict::whether(is_query(next)),
        Side::Server if is_answer && next[..2] != first[..2] => Verdict::Open,
        Side::Server => Verdict::whether(is_answer),
    }
}

/// Returns the bytes after the question (name, type and class); `None` if the question is
/// malformed.
fn question(body: &[u8]) -> Option<&[u8]> {
    let mut rest = body;
    loop {
        let (&length, after) = rest.split_first()?;
        if length == 0 {
            return after.get(4..);
        }
        if length > LONGEST_LABEL || body.len() - after.len() > LONGEST_NAME {
            return None;
        }
        rest = after.get(usize::from(length)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a query for `example.org`, type A, class IN.
    fn query() -> Vec<u8> {
        let mut bytes = vec![0x12, 0x34, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0];
        bytes.extend(b"\x07example\x03org\x00\x00\x01\x00\x01");
        bytes
    }

    #[test]
    fn a_query_is_recognised_with_and_without_edns() {
        assert!(is_query(&query()));
        let mut edns = query();
        edns[11] = 1;
        edns.extend([0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0]);
        assert!(is_query(&edns));
    }

    #[test]
    fn another_query_and_the_answer_agree() {
        let first = query();
        assert_eq!(follow(&first, &query(), Side::Client), Verdict::Agrees);
        assert_eq!(follow(&first, &[0x17; 60], Side::Client), Verdict::Contradicts);
        let mut answer = query();
        answer[2] |= RESPONSE;
        assert_eq!(follow(&first, &answer, Side::Server), Verdict::Agrees);
        answer[0] ^= 1;
        assert_eq!(follow(&first, &answer, Side::Server), Verdict::Open, "of another query");
        assert_eq!(follow(&first, &query(), Side::Server), Verdict::Contradicts);
    }

    #[test]
    fn responses_truncations_and_other_opcodes_are_none() {
        let changed = |at: usize, value: u8| {
            let mut bytes = query();
            bytes[at] = value;
            bytes
        };
        assert!(!is_query(&changed(2, 0x81)), "a response");
        assert!(!is_query(&changed(2, 0x29)), "an update");
        assert!(!is_query(&changed(5, 2)), "two questions");
        assert!(!is_query(&changed(12, 64)), "a label that is too long");
        for length in 0..query().len() {
            assert!(!is_query(&query()[..length]), "cut to {length}");
        }
    }
}
