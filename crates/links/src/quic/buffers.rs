//! Reusable buffers for received datagrams. The QUIC library `quinn-proto` requires a separate
//! buffer for each datagram, and drops this buffer when the data is read.

use std::collections::VecDeque;

use bytes::BytesMut;

use super::config::LARGEST_DATAGRAM;

/// Number of buffers, approximately the number of datagrams that arrive at once.
const BUFFERS: usize = 32;
/// Shortest datagram in bytes that gets one of the buffers. The memory limits of `quinn-proto`
/// count the bytes of a datagram, not the size of its buffer. So short datagrams must not occupy
/// whole buffers.
const SHORTEST: usize = 1_000;

/// The reusable buffers of an endpoint, which are filled in a fixed cyclic order. If the QUIC
/// library still uses the memory of a buffer, the buffer gets new memory.
#[derive(Debug, Default)]
pub(super) struct Buffers(VecDeque<BytesMut>);

impl Buffers {
    /// Copies `datagram` into the next reusable buffer, and returns the copy. A datagram that is
    /// shorter than `SHORTEST`, or longer than any buffer, gets memory of its own.
    pub(super) fn copy(&mut self, datagram: &[u8]) -> BytesMut {
        let most = usize::from(LARGEST_DATAGRAM);
        if !(SHORTEST..=most).contains(&datagram.len()) {
            return BytesMut::from(datagram);
        }
        let oldest = if self.0.len() < BUFFERS { None } else { self.0.pop_front() };
        let mut buffer = oldest.unwrap_or_default();
        // Allocates memory only if the library still uses the memory of the buffer.
        buffer.reserve(most);
        buffer.extend_from_slice(datagram);
        let copy = buffer.split();
        self.0.push_back(buffer);
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(fill: u8) -> Vec<u8> {
        vec![fill; SHORTEST]
    }

    #[test]
    fn memory_of_a_read_datagram_is_used_again() {
        let mut buffers = Buffers::default();
        let places: Vec<_> = (0..BUFFERS).map(|_| buffers.copy(&datagram(1)).as_ptr()).collect();
        for fill in 2..10 {
            for place in &places {
                let copy = buffers.copy(&datagram(fill));
                assert_eq!((copy.as_ptr(), &copy[..]), (*place, &datagram(fill)[..]));
            }
        }
    }

    #[test]
    fn unread_data_stays_as_it_is() {
        let mut buffers = Buffers::default();
        let mut first = buffers.copy(&datagram(1));
        let unread = first.split_off(SHORTEST - 1).freeze();
        drop(first);
        let later: Vec<_> = (0..2 * BUFFERS).map(|_| buffers.copy(&datagram(2))).collect();
        assert_eq!(unread[..], [1]);
        assert!(later.iter().all(|copy| copy[..] == datagram(2)));
    }

    #[test]
    fn short_datagrams_take_no_more_memory_than_they_are_long() {
        let mut buffers = Buffers::default();
        for length in [0, 1, SHORTEST - 1, usize::from(LARGEST_DATAGRAM) + 1] {
            assert_eq!(buffers.copy(&vec![7; length]).capacity(), length);
        }
        assert!(buffers.0.is_empty());
    }
}
