//! Cells are the pieces that a QUIC link delivers as a whole. This module has the reader that
//! splits a stream into cells.

use crate::{Fault, PeerFault, PeerFaultKind};

/// Properties of a cell, parsed from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// ID of the cell's circuit; cells with ID 0 belong to the link itself.
    pub circuit: u32,
    /// Length of the whole cell in bytes.
    pub length: usize,
    /// True if the cell opens its circuit, that is, for the first cell of a circuit.
    pub creates: bool,
    /// True if the cell ends its circuit. Its sender then sends nothing more on the circuit, and
    /// reads nothing more from it.
    pub ends: bool,
}

/// Format of cells, as the layer above the link defines it.
#[derive(Clone, Copy, Debug)]
pub struct CellFormat {
    /// Function that parses the beginning of a cell. Returns `None` if there are too few bytes. Its
    /// second argument is true for the first cell of circuit 0 in each direction.
    pub head: fn(&[u8], bool) -> Option<Head>,
    /// Function that creates a cell that ends the circuit with the given ID. The link delivers
    /// this cell if the circuit's stream ends without one.
    pub end: fn(u32) -> Vec<u8>,
    /// Maximum length in bytes of a cell of circuit 0, which belongs to the link itself.
    pub longest: usize,
    /// Maximum length in bytes of a cell of any other circuit. It is limited because a peer can
    /// open many circuits, and make each of them buffer an incomplete cell of this length.
    pub longest_of_circuit: usize,
    /// Length in bytes of a lossy cell, which is sent in a DATAGRAM frame (RFC 9221) and never
    /// retransmitted. 0 if the link transfers no lossy cells, and accepts no DATAGRAM frames. A
    /// lossy cell begins with the 4-byte ID of its circuit, so that the sender's queue can serve
    /// circuits in turn.
    pub lossy: usize,
}

/// Reader of the cells of one stream, in one direction.
#[derive(Debug)]
pub struct CellReader {
    /// The received beginning of an incomplete cell.
    rest: Vec<u8>,
    /// True for circuit 0 until its first cell is complete; false for other circuits.
    first: bool,
    circuit: Option<u32>,
}

impl CellReader {
    /// Creates the reader of circuit 0, which belongs to the link itself.
    #[must_use]
    pub fn own() -> CellReader {
        CellReader { rest: Vec::new(), first: true, circuit: Some(0) }
    }

    /// Creates the reader of a stream that the peer opened. The reader learns the circuit's ID
    /// from the stream's first cell.
    #[must_use]
    pub fn unnamed() -> CellReader {
        CellReader { rest: Vec::new(), first: false, circuit: None }
    }

    /// Creates the reader of `circuit`, which we have opened with a cell.
    #[must_use]
    pub fn of(circuit: u32) -> CellReader {
        CellReader { circuit: Some(circuit), ..CellReader::unnamed() }
    }

    /// Returns the ID of the circuit; `None` until the first cell has shown it.
    #[must_use]
    pub fn circuit(&self) -> Option<u32> {
        self.circuit
    }

    /// Returns true if the bytes read so far end with an incomplete cell.
    #[must_use]
    pub fn is_within(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Takes bytes from the front of `received` until a cell is complete, and appends the cell to
    /// `into`. Returns the fields from the beginning of the cell, or `None` if more bytes are
    /// needed; `received` is then empty.
    ///
    /// # Errors
    /// [`Fault::Peer`]: the cell is too long, belongs to another circuit, or is the first of its
    /// circuit without opening it.
    pub fn next(
        &mut self,
        format: &CellFormat,
        received: &mut &[u8],
        into: &mut Vec<u8>,
    ) -> Result<Option<Head>, Fault> {
        loop {
            let known = if self.rest.is_empty() { *received } else { &self.rest[..] };
            let head = (format.head)(known, self.first);
            let wanted = match head {
                Some(head) => self.checked(format, head)?.length,
                None if self.rest.len() > format.longest => {
                    return Err(fault("a received cell is longer than allowed"));
                }
                None => self.rest.len() + 1,
            };
            if let Some(head) = head.filter(|_| self.rest.is_empty() && received.len() >= wanted) {
                let (cell, rest_of_input) = received.split_at(wanted);
                into.extend_from_slice(cell);
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

    /// Appends the complete cells at the front of `received` that continue the circuit to `into`,
    /// all at once. Stops before a cell that opens or ends a circuit, breaks a rule or is
    /// incomplete. Such a cell is left to [`CellReader::next`].
    pub fn next_run(&mut self, format: &CellFormat, received: &mut &[u8], into: &mut Vec<u8>) {
        let Some(circuit) = self.circuit.filter(|circuit| *circuit != 0 && self.rest.is_empty())
        else {
            return;
        };
        let (run, rest_of_input) = received.split_at(run(format, circuit, received));
        into.extend_from_slice(run);
        *received = rest_of_input;
    }

    fn passed(&mut self, head: Head) -> Head {
        (self.first, self.circuit) = (false, Some(head.circuit));
        head
    }

    fn checked(&self, format: &CellFormat, head: Head) -> Result<Head, Fault> {
        let longest = if head.circuit == 0 { format.longest } else { format.longest_of_circuit };
        if head.length > longest || head.length == 0 {
            return Err(fault("a received cell has an invalid length"));
        }
        match self.circuit {
            Some(circuit) if circuit != head.circuit => {
                Err(fault("a cell of another circuit arrived in a circuit's QUIC stream"))
            }
            None if head.circuit == 0 => Err(fault(
                "the neighbour opened a second QUIC stream for cells outside any circuit; only one \
                 is allowed",
            )),
            None if !head.creates => Err(fault(
                "a received QUIC stream of a circuit does not begin with the cell that opens the \
                 circuit",
            )),
            Some(circuit) if circuit != 0 && head.creates => Err(fault("a circuit opened twice")),
            _ => Ok(head),
        }
    }
}

/// Returns the total length in bytes of the complete cells at the front of `bytes` that continue
/// `circuit`, without opening or ending it.
fn run(format: &CellFormat, circuit: u32, bytes: &[u8]) -> usize {
    let mut length = 0;
    while let Some(head) = (format.head)(&bytes[length..], false)
        && (head.circuit, head.creates, head.ends) == (circuit, false, false)
        && (1..=format.longest_of_circuit.min(bytes.len() - length)).contains(&head.length)
    {
        length += head.length;
    }
    length
}

pub(super) fn fault(what: &str) -> Fault {
    Fault::Peer(PeerFault { kind: PeerFaultKind::Other, what: what.to_owned() })
}
