//! WireGuard's messages by type and length (protocol description, section 5.4).

/// A WireGuard message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Type 1, 148 bytes.
    Initiation,
    /// Type 2, 92 bytes.
    Response,
    /// Type 3, 64 bytes.
    CookieReply,
    /// Type 4 with an empty payload: 32 bytes.
    Keepalive,
    /// Type 4: header, payload padded to 16 bytes, tag.
    Data,
}

impl Message {
    /// The message in `datagram`, if its type, its reserved bytes and its length agree.
    pub fn of(datagram: &[u8]) -> Option<Message> {
        let &[kind, 0, 0, 0, ..] = datagram else { return None };
        match (kind, datagram.len()) {
            (1, 148) => Some(Message::Initiation),
            (2, 92) => Some(Message::Response),
            (3, 64) => Some(Message::CookieReply),
            (4, 32) => Some(Message::Keepalive),
            (4, length) if length > 32 && length.is_multiple_of(16) => Some(Message::Data),
            _ => None,
        }
    }

    /// Whether it belongs to a handshake: by these a censor knows the protocol.
    pub fn is_handshake(self) -> bool {
        matches!(self, Message::Initiation | Message::Response | Message::CookieReply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, length: usize) -> Option<Message> {
        let mut datagram = vec![0; length];
        datagram[0] = kind;
        Message::of(&datagram)
    }

    #[test]
    fn type_and_length_must_agree() {
        assert_eq!(message(1, 148), Some(Message::Initiation));
        assert_eq!(message(4, 32), Some(Message::Keepalive));
        assert_eq!(message(4, 1456), Some(Message::Data));
        for (kind, length) in [(1, 147), (2, 148), (4, 33), (4, 16), (5, 148), (0, 32)] {
            assert_eq!(message(kind, length), None, "type {kind}, {length} bytes");
        }
    }

    #[test]
    fn the_reserved_bytes_must_be_zero() {
        assert_eq!(Message::of(&[4, 0, 1, 0].repeat(8)), None);
    }
}
