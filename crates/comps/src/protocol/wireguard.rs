//! Recognition of WireGuard by the types and lengths of its messages (protocol description,
//! section 5.4).
//!
//! The three bytes after the type are reserved and zero, except where a service marks its clients
//! with them (Cloudflare's WARP). Some implementations pad a payload to a multiple of 16 bytes
//! within the MTU, and others do not pad, so data messages may have any length. AmneziaWG changes
//! types and lengths, so only the counter of its packets is recognised.

use super::{Counter, Family, Mark, Protocol, Side, Verdict, goes_on};

/// Description of WireGuard in the list of protocols, [`FAMILIES`](super::FAMILIES).
pub const FAMILY: Family = Family {
    protocol: Protocol::WireGuard,
    name: "wireguard",
    title: "WireGuard",
    selectable: true,
    mark,
    follow,
    one_path: None,
    counter: Counter::Always,
    guide: "wireguard",
};

/// Length in bytes of the shortest data message: header and tag.
const SHORTEST_DATA: usize = 16 + 16;
/// Packet counter that no session reaches, 2^40. A datagram with a counter this high is not
/// WireGuard's.
const OLD: u64 = 1 << 40;

/// A WireGuard message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Handshake initiation: type 1, 148 bytes.
    Initiation,
    /// Handshake response: type 2, 92 bytes.
    Response,
    /// Cookie reply: type 3, 64 bytes.
    CookieReply,
    /// Keepalive: type 4 with an empty payload, 32 bytes.
    Keepalive,
    /// Data message: type 4 with header, payload and tag.
    Data,
}

impl Message {
    /// Returns the type of the message in `datagram`; `None` unless the datagram's first byte and
    /// its length match one type.
    ///
    /// A match is weak evidence: use this function only for sessions known to be WireGuard's.
    pub fn of(datagram: &[u8]) -> Option<Message> {
        match (datagram.first()?, datagram.len()) {
            (1, 148) => Some(Message::Initiation),
            (2, 92) => Some(Message::Response),
            (3, 64) => Some(Message::CookieReply),
            (4, SHORTEST_DATA) => Some(Message::Keepalive),
            (4, length) if length > SHORTEST_DATA => Some(Message::Data),
            _ => None,
        }
    }

    /// Returns whether the message belongs to a handshake. A censor recognises the protocol by
    /// these messages.
    pub fn is_handshake(self) -> bool {
        matches!(self, Message::Initiation | Message::Response | Message::CookieReply)
    }
}

fn mark(datagram: &[u8]) -> Mark {
    match Message::of(datagram) {
        None => Mark::None,
        Some(message) if message.is_handshake() => match datagram[1..4] {
            [0, 0, 0] => Mark::Strong,
            _ => Mark::Weak,
        },
        Some(_) => Mark::weak(counter(datagram) < OLD),
    }
}

/// Returns whether `next` belongs to the same tunnel as `first`. A client's data messages must
/// continue with the same receiver index and the next counter, or begin with a new receiver index
/// and a counter near 0. A response or cookie reply contains the sender index of the message that
/// it answers.
fn follow(first: &[u8], next: &[u8], side: Side) -> Verdict {
    let Some(message) = Message::of(next) else { return Verdict::Contradicts };
    let begins = first[0] == 1;
    match (side, message) {
        (Side::Server, Message::Response) if begins && next[8..12] != first[4..8] => Verdict::Open,
        (Side::Server, Message::CookieReply) if next[4..8] != first[4..8] => Verdict::Open,
        (_, message) if message.is_handshake() => {
            Verdict::whether(side == Side::Server || next[1..4] == first[1..4])
        }
        (Side::Server, _) => Verdict::whether(counter(next) < OLD),
        (Side::Client, _) => Verdict::whether(next[1..4] == first[1..4] && counts(first, next)),
    }
}

/// Returns whether the packet counter of the data message `next` is one of the next after that of
/// `first`. If `first` has another receiver or is a handshake, `next` must have one of the first
/// counters.
fn counts(first: &[u8], next: &[u8]) -> bool {
    let is_data = first[0] == 4 && first[4..8] == next[4..8];
    let before = if is_data { counter(first) } else { u64::MAX };
    goes_on(before, counter(next))
}

/// Returns the counter of a data message.
fn counter(datagram: &[u8]) -> u64 {
    datagram[8..].first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, length: usize) -> Option<Message> {
        let mut datagram = vec![0; length];
        datagram[0] = kind;
        Message::of(&datagram)
    }

    /// Returns a data message of `length` bytes to the receiver index `receiver`.
    fn data(receiver: u8, counter: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![4, 0, 0, 0, receiver, 7, 7, 7];
        bytes.extend(counter.to_le_bytes());
        bytes.resize(length, 0xa5);
        bytes
    }

    /// Returns a handshake message of the type `kind`, with the value `reserved` in its three
    /// reserved bytes.
    fn handshake(kind: u8, reserved: u8, length: usize) -> Vec<u8> {
        let mut bytes = vec![kind, reserved, reserved, reserved];
        bytes.resize(length, 0x33);
        bytes
    }

    #[test]
    fn type_and_length_must_agree() {
        assert_eq!(message(1, 148), Some(Message::Initiation));
        assert_eq!(message(4, 32), Some(Message::Keepalive));
        for (kind, length) in [(1, 147), (2, 148), (4, 31), (4, 16), (5, 148), (0, 32)] {
            assert_eq!(message(kind, length), None, "type {kind}, {length} bytes");
        }
    }

    #[test]
    fn data_may_have_any_length() {
        // The first two lengths are of a full packet at MTU 1420. The other two are of 51 bytes of
        // ping, which boringtun 0.7.1 does not pad, and of one byte.
        for length in [1452, 1456, 111, 33] {
            assert_eq!(message(4, length), Some(Message::Data));
            assert_eq!(mark(&data(1, 3, length)), Mark::Weak);
            let next = follow(&data(1, 3, length), &data(1, 4, 1452), Side::Client);
            assert_eq!(next, Verdict::Agrees);
        }
    }

    #[test]
    fn data_of_another_counter_are_of_another_session() {
        let first = data(1, 500, 96);
        for (receiver, counter) in [(1, 500), (1, 499), (1, 9_000), (2, 501)] {
            let verdict = follow(&first, &data(receiver, counter, 96), Side::Client);
            assert_eq!(verdict, Verdict::Contradicts, "{receiver}, {counter}");
        }
        assert_eq!(follow(&first, &data(2, 0, 96), Side::Client), Verdict::Agrees, "new keys");
        assert_eq!(mark(&data(1, 1 << 40, 96)), Mark::None);
    }

    #[test]
    fn reserved_bytes_that_are_set_want_a_second_message() {
        let (plain, marked) = (handshake(1, 0, 148), handshake(1, 9, 148));
        assert_eq!((mark(&plain), mark(&marked)), (Mark::Strong, Mark::Weak));
        assert_eq!(follow(&marked, &handshake(1, 9, 148), Side::Client), Verdict::Agrees);
        assert_eq!(follow(&marked, &handshake(1, 8, 148), Side::Client), Verdict::Contradicts);
        let mut answer = handshake(2, 0, 92);
        assert_eq!(follow(&marked, &answer, Side::Server), Verdict::Agrees);
        answer[8] = 0x34;
        assert_eq!(follow(&marked, &answer, Side::Server), Verdict::Open, "of another handshake");
    }
}
