//! A link without handshake and records, for tests of code that uses OR links.

use anabranch_links::{Fault, Link, Promises, State, StreamLink};
use anabranch_multipath::Time;

/// A link over a byte stream that is open from the start. The link sends written bytes unchanged,
/// and ignores received bytes.
#[derive(Debug)]
pub struct MockLink {
    record: usize,
    unsent: Vec<u8>,
    /// A byte that the link sends although nothing was written, and the time of sending; `None` if
    /// there is no such byte.
    due: Option<(Time, u8)>,
}

impl MockLink {
    /// Creates a link whose records hold `record` bytes of content.
    #[must_use]
    pub fn new(record: usize) -> MockLink {
        MockLink { record, unsent: Vec::new(), due: None }
    }

    /// Creates a link that sends `byte` at `time`, although nothing was written.
    #[must_use]
    pub fn late(time: Time, byte: u8) -> MockLink {
        MockLink { due: Some((time, byte)), ..MockLink::new(1) }
    }
}

impl Link for MockLink {
    fn promises(&self) -> Promises {
        Promises { in_order: true, stream_per_circuit: false, record: self.record }
    }

    fn state(&self) -> State {
        State::Open
    }

    fn read(&mut self, _: &mut Vec<u8>) -> Result<usize, Fault> {
        Ok(0)
    }

    fn write(&mut self, plain: &[u8]) -> Result<(), Fault> {
        self.unsent.extend_from_slice(plain);
        Ok(())
    }

    fn peer_certificate(&self) -> Option<&[u8]> {
        None
    }

    fn own_certificate(&self) -> &[u8] {
        &[]
    }

    fn export(&self, _: &[u8], _: &[u8]) -> Result<[u8; 32], Fault> {
        Err(Fault::Misuse("it has no keys"))
    }

    fn shrink_buffers(&mut self) -> usize {
        0
    }

    fn close(&mut self) {}
}

impl StreamLink for MockLink {
    fn receive(&mut self, _: Time, _: &[u8]) -> Result<(), Fault> {
        Ok(())
    }

    fn transmit(&mut self, now: Time, into: &mut Vec<u8>) -> bool {
        into.append(&mut self.unsent);
        let due = self.due.take_if(|(time, _)| *time <= now);
        into.extend(due.map(|(_, byte)| byte));
        !into.is_empty()
    }

    fn next_timeout(&self) -> Option<Time> {
        self.due.map(|(time, _)| time)
    }
}
