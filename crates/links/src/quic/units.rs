//! Units are the pieces (cells) that a QUIC link delivers as a whole. This module has the reader
//! that splits a stream into units.

use crate::{Fault, PeerFault, PeerFaultKind};

/// Fields read from the beginning of a unit (cell).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Number of the unit's lane (the order domain of one circuit); lane 0 belongs to the link
    /// itself.
    pub lane: u32,
    /// Length of the whole unit (cell) in bytes.
    pub length: usize,
    /// True if the unit opens its lane, that is, for the first unit of a lane.
    pub makes: bool,
    /// True if the unit (cell) ends its lane. Its sender then sends nothing more on the lane, and
    /// reads nothing more from it.
    pub ends: bool,
}

/// Format of units (cells), as the layer above the link defines it.
#[derive(Clone, Copy, Debug)]
pub struct Units {
    /// Function that parses the beginning of a unit (cell). Returns `None` if there are too few
    /// bytes. Its second argument is true for the first unit of lane 0 in each direction.
    pub head: fn(&[u8], bool) -> Option<Head>,
    /// Function that returns the unit (cell) that ends the lane with this number. It is used if
    /// the stream of the lane ends without such a unit.
    pub end: fn(u32) -> Vec<u8>,
    /// Maximum length in bytes of a unit (cell) of lane 0, which belongs to the link itself.
    pub longest: usize,
    /// Maximum length in bytes of a unit (cell) of any other lane. It is limited because a peer
    /// can open many lanes, and make each of them buffer an incomplete unit of this length.
    pub longest_of_lane: usize,
    /// Length in bytes of a lossy unit (a cell that may be lost); 0 if the link carries none and
    /// accepts no datagrams (RFC 9221). A lossy unit begins with the number of its lane in 4
    /// bytes, so that lanes can take turns.
    pub lossy: usize,
}

/// Reader of the units (cells) of one stream, in one direction.
#[derive(Debug)]
pub struct UnitReader {
    /// The received beginning of an incomplete unit (cell).
    rest: Vec<u8>,
    /// True if nothing was read yet.
    first: bool,
    lane: Option<u32>,
}

impl UnitReader {
    /// Creates the reader of lane 0, which belongs to the link itself.
    #[must_use]
    pub fn own() -> UnitReader {
        UnitReader { rest: Vec::new(), first: true, lane: Some(0) }
    }

    /// Creates the reader of a stream that the peer opened. The lane's number is in the stream's
    /// first unit.
    #[must_use]
    pub fn unnamed() -> UnitReader {
        UnitReader { rest: Vec::new(), first: false, lane: None }
    }

    /// Creates the reader of `lane`, which we have opened with a unit (cell).
    #[must_use]
    pub fn of(lane: u32) -> UnitReader {
        UnitReader { lane: Some(lane), ..UnitReader::unnamed() }
    }

    /// Returns the number of the lane, if it is known.
    #[must_use]
    pub fn lane(&self) -> Option<u32> {
        self.lane
    }

    /// Returns true if the bytes read so far end within a unit (cell).
    #[must_use]
    pub fn is_within(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Takes bytes from the front of `received` until a unit (cell) is complete, and appends the
    /// unit to `into`. Returns the fields from the beginning of the unit, or `None` if more bytes
    /// are needed; `received` is then empty.
    ///
    /// # Errors
    /// [`Fault::Peer`]: the unit is too long, belongs to another lane, or is the first of its lane
    /// without opening it.
    pub fn next(
        &mut self,
        units: &Units,
        received: &mut &[u8],
        into: &mut Vec<u8>,
    ) -> Result<Option<Head>, Fault> {
        loop {
            let known = if self.rest.is_empty() { *received } else { &self.rest[..] };
            let head = (units.head)(known, self.first);
            let wanted = match head {
                Some(head) => self.checked(units, head)?.length,
                None if self.rest.len() > units.longest => {
                    return Err(fault("a received cell is longer than allowed"));
                }
                None => self.rest.len() + 1,
            };
            if let Some(head) = head.filter(|_| self.rest.is_empty() && received.len() >= wanted) {
                let (unit, rest_of_input) = received.split_at(wanted);
                into.extend_from_slice(unit);
                *received = rest_of_input;
                return Ok(Some(self.passed(head)));
            }
            if let Some(head) = head.filter(|head| self.rest.len() >= head.length) {
                into.append(&mut self.rest);
                return Ok(Some(self.passed(head)));
            }
            if received.is_empty() {
                return Ok(None);
            }
            let (more, rest_of_input) =
                received.split_at(received.len().min(wanted - self.rest.len()));
            self.rest.extend_from_slice(more);
            *received = rest_of_input;
        }
    }

    /// Appends the complete units (cells) at the front of `received` that continue the lane to
    /// `into`, all at once. Stops before a unit that opens or ends a lane, breaks a rule or is
    /// incomplete. Such a unit is left to [`UnitReader::next`].
    pub fn next_run(&mut self, units: &Units, received: &mut &[u8], into: &mut Vec<u8>) {
        let Some(lane) = self.lane.filter(|lane| *lane != 0 && self.rest.is_empty()) else {
            return;
        };
        let (run, rest_of_input) = received.split_at(run(units, lane, received));
        into.extend_from_slice(run);
        *received = rest_of_input;
    }

    fn passed(&mut self, head: Head) -> Head {
        (self.first, self.lane) = (false, Some(head.lane));
        head
    }

    fn checked(&self, units: &Units, head: Head) -> Result<Head, Fault> {
        let longest = if head.lane == 0 { units.longest } else { units.longest_of_lane };
        if head.length > longest || head.length == 0 {
            return Err(fault("a received cell has an invalid length"));
        }
        match self.lane {
            Some(lane) if lane != head.lane => {
                Err(fault("a cell of another circuit arrived in a circuit's QUIC stream"))
            }
            None if head.lane == 0 => Err(fault(
                "the neighbour opened a second QUIC stream for cells outside any circuit; only one \
                 is allowed",
            )),
            None if !head.makes => Err(fault(
                "a received QUIC stream of a circuit does not begin with the cell that opens the \
                 circuit",
            )),
            Some(lane) if lane != 0 && head.makes => Err(fault("a circuit opened twice")),
            _ => Ok(head),
        }
    }
}

/// Returns the total length in bytes of the complete units (cells) at the front of `bytes` that
/// continue `lane`, without opening or ending it.
fn run(units: &Units, lane: u32, bytes: &[u8]) -> usize {
    let mut length = 0;
    while let Some(head) = (units.head)(&bytes[length..], false)
        && (head.lane, head.makes, head.ends) == (lane, false, false)
        && (1..=units.longest_of_lane.min(bytes.len() - length)).contains(&head.length)
    {
        length += head.length;
    }
    length
}

pub(super) fn fault(what: &str) -> Fault {
    Fault::Peer(PeerFault { kind: PeerFaultKind::Other, what: what.to_owned() })
}
