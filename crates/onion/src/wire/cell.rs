//! Cells on a link (tor-spec, "Cells (messages on channels)"): the parser that splits a byte
//! stream into cells.
//!
//! Cells are not copied: [`Cells`] lends each cell from the received bytes, and a relay cell is
//! decrypted in place.

/// Length in bytes of a fixed-length cell, in link protocol 4 and later.
pub const CELL: usize = 514;
/// Length in bytes of a fixed-length cell's body.
pub const BODY: usize = 509;
/// Length in bytes of circuit ID and command.
pub const HEADER: usize = CELL - BODY;
/// Length in bytes of a cell that carries a number after its command. Cells that may arrive out of
/// order carry a sequence number, and lossy cells (sent in datagrams) carry a counter.
pub const NUMBERED_CELL: usize = CELL + NUMBER;
/// Length in bytes of the sequence number or counter in a cell.
const NUMBER: usize = 4;
/// Length in bytes of a variable-length cell's header: circuit ID, command, length.
pub const VAR_HEADER: usize = 7;

/// A fixed-length cell's body.
pub type Body = [u8; BODY];

/// The command of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Command(pub u8);

/// The commands of tor-spec, "Cells (messages on channels)", and of padding-spec.
impl Command {
    /// A cell without content (tor-spec, "Cells").
    pub const PADDING: Command = Command(0);
    /// Creates a circuit with the TAP handshake (tor-spec, obsolete).
    pub const CREATE: Command = Command(1);
    /// Answers CREATE (tor-spec, obsolete).
    pub const CREATED: Command = Command(2);
    /// Transfers encrypted data on a circuit (tor-spec, "Relay cells").
    pub const RELAY: Command = Command(3);
    /// Closes a circuit (tor-spec, "Tearing down circuits").
    pub const DESTROY: Command = Command(4);
    /// Creates a circuit without a public key (tor-spec, "CREATE_FAST/CREATED_FAST").
    pub const CREATE_FAST: Command = Command(5);
    /// Answers CREATE_FAST (tor-spec, "CREATE_FAST/CREATED_FAST").
    pub const CREATED_FAST: Command = Command(6);
    /// Lists the sender's link protocol versions (tor-spec, "Negotiating versions").
    pub const VERSIONS: Command = Command(7);
    /// Contains the sender's time and the two ends' addresses (tor-spec, "NETINFO cells").
    pub const NETINFO: Command = Command(8);
    /// A RELAY cell that may extend the circuit (tor-spec, "RELAY_EARLY cells").
    pub const RELAY_EARLY: Command = Command(9);
    /// Creates a circuit with a given handshake type (tor-spec, "CREATE and CREATED cells").
    pub const CREATE2: Command = Command(10);
    /// Answers CREATE2 (tor-spec, "CREATE and CREATED cells").
    pub const CREATED2: Command = Command(11);
    /// Switches the neighbour's padding on or off (padding-spec).
    pub const PADDING_NEGOTIATE: Command = Command(12);
    /// Announces the UDP port for QUIC links. Sent on circuit 0 of a TLS link if both ends agreed
    /// on QUIC links (`docs/spec/quic-links.md`).
    pub const QUIC: Command = Command(72);
    /// Identifies the TLS link that is parallel to a QUIC link. Sent on circuit 0 of the QUIC
    /// link; the answer has the same command.
    pub const BESIDE: Command = Command(73);
    /// Acknowledges cells: contains the number of received cells of each listed circuit. Sent on
    /// circuit 0 of a QUIC link.
    pub const ARRIVED: Command = Command(74);
    /// Lists the extensions that the sender requests (`docs/spec/numbers.md`, "Capabilities").
    /// Sent on circuit 0, directly before NETINFO, if both ends listed link protocol 103.
    pub const CAPABILITIES: Command = Command(75);
    /// A cell of a lossy circuit. Sent in a datagram of a QUIC link, if both ends agreed on lossy
    /// cells. Its layout is that of a cell with a sequence number; this number is the originator's
    /// counter (`docs/spec/lossy-circuits.md`).
    pub const RELAY_LOSSY: Command = Command(76);
    /// Asks another shard (thread) of this relay to extend the circuit over one of that shard's
    /// links. The body is that of EXTEND2. Sent between shards only, never on the network.
    pub const ONWARD: Command = Command(64);
    /// Asks another shard (thread) of this relay to forward an INTRODUCE1 to an onion service that
    /// is connected to that shard. The answer is DESTROY, whose reason is the outcome.
    pub const INTRODUCE: Command = Command(65);
    /// Asks another shard (thread) of this relay to join the circuit, on which a RENDEZVOUS1
    /// arrived, to the circuit of a client that waits on that shard.
    pub const MEET: Command = Command(66);
    /// Asks another shard (thread) of this relay to close an introduction point, because the
    /// service has a newer one. Sent on circuit 0.
    pub const REPLACED: Command = Command(67);
    /// Asks another shard (thread) of this relay to take over a leg (circuit) of a set that this
    /// other shard manages. The leg's link stays with the sending shard, which passes the cells
    /// on. The body contains the identifier under which the leg's state is stored for the
    /// receiving shard.
    pub const ADOPT: Command = Command(68);
    /// A lossy cell (a cell for datagrams) of a leg (circuit of a set), sent between two shards
    /// (threads) of one relay. One shard has the leg's link, and the other has taken over the leg.
    /// The body contains the counter and the body of the lossy cell.
    pub const ACROSS: Command = Command(195);
    /// A cell of variable length without content (tor-spec, "Cells").
    pub const VPADDING: Command = Command(128);
    /// Contains the sender's certificates (tor-spec, "CERTS cells").
    pub const CERTS: Command = Command(129);
    /// Requests an AUTHENTICATE cell (tor-spec, "AUTH_CHALLENGE cells").
    pub const AUTH_CHALLENGE: Command = Command(130);
    /// Proves the identity of the link's initiator (tor-spec, "AUTHENTICATE cells").
    pub const AUTHENTICATE: Command = Command(131);
    /// Reserved for authorized clients, and not used (tor-spec, "Cells").
    pub const AUTHORIZE: Command = Command(132);
    /// Moves the circuits of a QUIC link to the parallel TLS link. Contains, for each circuit, the
    /// number of cells that arrived over QUIC. Sent on the TLS link.
    pub const MOVE: Command = Command(192);
    /// A cell of a circuit that moved from a QUIC link to the parallel TLS link. Sent on the TLS
    /// link.
    pub const DETOUR: Command = Command(193);
    /// Reports that all circuits of a QUIC link have ended. Sent on the parallel TLS link.
    pub const MOVE_OVER: Command = Command(194);
}

impl Command {
    /// Returns true if cells with this command contain their length.
    pub fn is_variable(self) -> bool {
        self == Command::VERSIONS || self.0 >= 128
    }
}

/// A cell that borrows the received bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Cell<'a> {
    /// The circuit ID on this link; 0 for the link itself.
    pub circuit: u32,
    /// The command.
    pub command: Command,
    /// The cell's sequence number among the cells with the same circuit ID; `None` if the link's
    /// cells have no sequence numbers.
    pub number: Option<u32>,
    /// The received bytes before the body.
    pub head: &'a [u8],
    /// The body: [`BODY`] bytes, or the length given in a variable-length cell.
    pub body: &'a mut [u8],
}

/// Error for a variable-length cell that exceeds the reader's limit. Contains the cell's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong(pub usize);

/// Width of circuit IDs on a link. The width depends on the negotiated version of the link
/// protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Circuit IDs have two bytes: in VERSIONS cells, which precede the negotiation, and in link
    /// protocol 3.
    Two,
    /// Circuit IDs have four bytes: in link protocol 4 and later.
    Four,
}

/// Parses the beginning of a cell. Returns the circuit ID, the command, and the length of the
/// whole cell; `None` if there are too few bytes.
#[must_use]
pub fn head(bytes: &[u8], width: Width) -> Option<(u32, Command, usize)> {
    let id = if width == Width::Two { 2 } else { 4 };
    let circuit = bytes.get(..id)?.iter().fold(0, |id, &byte| id << 8 | u32::from(byte));
    let command = Command(*bytes.get(id)?);
    if !command.is_variable() {
        return Some((circuit, command, id + 1 + BODY));
    }
    let length = u16::from_be_bytes(*bytes.get(id + 1..)?.first_chunk()?);
    Some((circuit, command, id + 3 + usize::from(length)))
}

/// Fields from the beginning of a cell on a QUIC link (`docs/spec/quic-links.md`). On such a link,
/// each circuit has its own QUIC stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellHead {
    /// Circuit ID; 0 for cells of the link itself.
    pub circuit: u32,
    /// Length of the whole cell in bytes.
    pub length: usize,
    /// True if the cell creates the circuit of its QUIC stream (CREATE, CREATE2 or CREATE_FAST).
    pub creates: bool,
    /// True if the cell is the last of its QUIC stream: a DESTROY cell.
    pub ends: bool,
}

impl CellHead {
    /// Maximum length in bytes, including the header, of a cell with circuit ID 0 (a cell of the
    /// link itself).
    pub const LONGEST: usize = VAR_HEADER + 8192;

    /// Parses the beginning of a cell. Returns `None` if there are too few bytes. `first` is true
    /// for VERSIONS, the first cell in each direction. Its circuit ID has 2 bytes, because it
    /// precedes the agreement on the link version.
    #[must_use]
    pub fn parse(bytes: &[u8], first: bool) -> Option<CellHead> {
        let width = if first { Width::Two } else { Width::Four };
        let (circuit, command, length) = head(bytes, width)?;
        let creates = matches!(command, Command::CREATE | Command::CREATE2 | Command::CREATE_FAST);
        Some(CellHead { circuit, length, creates, ends: command == Command::DESTROY })
    }

    /// Returns a DESTROY cell for `circuit`. It replaces the rest of the circuit's QUIC stream,
    /// which the peer has reset (tor-spec, "Tearing down circuits").
    #[must_use]
    pub fn destroy_cell(circuit: u32) -> Vec<u8> {
        const CHANNEL_CLOSED: u8 = 8;
        let mut cell = Vec::with_capacity(CELL);
        put_fixed(&mut cell, circuit, Command::DESTROY, &[CHANNEL_CLOSED]);
        cell
    }
}

/// Reader that returns the complete cells in a buffer of received bytes.
#[derive(Debug)]
pub struct Cells<'a> {
    rest: &'a mut [u8],
    width: Width,
    longest: usize,
    numbered: bool,
    taken: usize,
}

impl<'a> Cells<'a> {
    /// Creates a reader of `bytes`, with circuit IDs of `width`. Variable-length bodies may have
    /// up to `longest` bytes.
    pub fn new(bytes: &'a mut [u8], width: Width, longest: usize) -> Cells<'a> {
        Cells { rest: bytes, width, longest, numbered: false, taken: 0 }
    }

    /// Sets the width of circuit IDs for the cells that follow.
    pub fn set_width(&mut self, width: Width) {
        self.width = width;
    }

    /// Makes the reader expect cells with sequence numbers from now on. Each cell then has
    /// [`NUMBERED_CELL`] bytes and a circuit ID of 4 bytes, whatever its command.
    pub fn expect_numbers(&mut self) {
        (self.width, self.numbered) = (Width::Four, true);
    }

    /// Returns the total length in bytes of the cells returned so far.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Returns the next complete cell, or `None` if more bytes are needed.
    ///
    /// # Errors
    /// Returns [`TooLong`] for a variable-length cell above the limit. The bytes after such a cell
    /// cannot be parsed.
    pub fn next_cell(&mut self) -> Result<Option<Cell<'a>>, TooLong> {
        let Some((head, length)) = self.measure()? else { return Ok(None) };
        if self.rest.len() < head + length {
            return Ok(None);
        }
        let (cell, rest) = std::mem::take(&mut self.rest).split_at_mut(head + length);
        self.rest = rest;
        self.taken += cell.len();
        let (header, body) = cell.split_at_mut(head);
        let (circuit, command) = self.read_header(header);
        let number = header[HEADER.min(head)..].first_chunk().filter(|_| self.numbered);
        let number = number.copied().map(u32::from_be_bytes);
        Ok(Some(Cell { circuit, command, number, head: header, body }))
    }

    /// Returns the circuit ID and the body of the next cell, if it is a complete RELAY cell with a
    /// circuit ID of 4 bytes and without a sequence number.
    pub fn next_relay_cell(&mut self) -> Option<(u32, &'a mut Body)> {
        let &[a, b, c, d, command] = self.rest.first_chunk::<HEADER>()?;
        let is_plain = self.width == Width::Four && !self.numbered;
        if !is_plain || Command(command) != Command::RELAY || self.rest.len() < CELL {
            return None;
        }
        let (cell, rest) = std::mem::take(&mut self.rest).split_at_mut(CELL);
        self.rest = rest;
        self.taken += CELL;
        let body = (&mut cell[HEADER..]).try_into().ok()?;
        Some((u32::from_be_bytes([a, b, c, d]), body))
    }

    /// Returns the lengths of the next cell's header and body; `None` if too few bytes are
    /// present.
    fn measure(&self) -> Result<Option<(usize, usize)>, TooLong> {
        if self.numbered {
            return Ok(Some((HEADER + NUMBER, BODY)));
        }
        let id = self.id_bytes();
        let Some(&command) = self.rest.get(id) else { return Ok(None) };
        if !Command(command).is_variable() {
            return Ok(Some((id + 1, BODY)));
        }
        let Some(length) = self.rest.get(id + 1..id + 3) else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        if length > self.longest { Err(TooLong(length)) } else { Ok(Some((id + 3, length))) }
    }

    fn id_bytes(&self) -> usize {
        match self.width {
            Width::Two => 2,
            Width::Four => 4,
        }
    }

    fn read_header(&self, header: &[u8]) -> (u32, Command) {
        let (id, rest) = header.split_at(self.id_bytes());
        let circuit = id.iter().fold(0, |id, &byte| id << 8 | u32::from(byte));
        (circuit, Command(rest[0]))
    }
}

/// Appends to `out` a fixed-length cell whose body is `body` followed by zeros, with a circuit ID
/// of 4 bytes.
///
/// # Panics
/// If `body` is longer than [`BODY`].
pub fn put_fixed(out: &mut Vec<u8>, circuit: u32, command: Command, body: &[u8]) {
    put_fixed_as(out, Width::Four, circuit, command, body);
}

/// Appends a fixed-length cell with a circuit ID of `width`. If the width is 2 bytes, the low 16
/// bits of `circuit` are used.
///
/// # Panics
/// If `body` is longer than [`BODY`].
pub fn put_fixed_as(out: &mut Vec<u8>, width: Width, circuit: u32, command: Command, body: &[u8]) {
    assert!(body.len() <= BODY && !command.is_variable(), "a fixed-length cell");
    let id = circuit.to_be_bytes();
    out.extend_from_slice(if width == Width::Two { &id[2..] } else { &id });
    out.push(command.0);
    out.extend_from_slice(body);
    out.resize(out.len() + BODY - body.len(), 0);
}

/// Appends a cell with the sequence number `number`, whose body is `body` followed by zeros.
///
/// # Panics
/// If `body` is longer than [`BODY`].
pub fn put_numbered(out: &mut Vec<u8>, circuit: u32, command: Command, number: u32, body: &[u8]) {
    let start = out.len();
    put_fixed(out, circuit, command, body);
    set_number(out, start, number);
}

/// Inserts the sequence number `number` into the last fixed-length cell in `out`, which begins at
/// `start`.
pub(crate) fn set_number(out: &mut Vec<u8>, start: usize, number: u32) {
    let end = out.len();
    out.extend_from_slice(&[0; NUMBER]);
    out.copy_within(start + HEADER..end, start + HEADER + NUMBER);
    out[start + HEADER..start + HEADER + NUMBER].copy_from_slice(&number.to_be_bytes());
}

/// Appends a variable-length cell. Variable-length cells always have the circuit ID 0.
///
/// # Panics
/// If `body` is longer than 65,535 bytes.
pub fn put_variable(out: &mut Vec<u8>, width: Width, command: Command, body: &[u8]) {
    assert!(command.is_variable(), "a variable-length cell");
    let length = u16::try_from(body.len()).expect("the caller keeps bodies below 64 KiB");
    out.extend_from_slice(if width == Width::Two { &[0; 2] } else { &[0; 4] });
    out.push(command.0);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(body);
}

/// Appends a lossy cell (a cell for datagrams) with this `counter` and `body`, in the form that
/// two shards (threads) of one relay exchange.
pub(crate) fn put_across(out: &mut Vec<u8>, circuit: u32, counter: u32, body: &Body) {
    let start = out.len();
    let content = [&counter.to_be_bytes()[..], body].concat();
    put_variable(out, Width::Four, Command::ACROSS, &content);
    out[start..start + 4].copy_from_slice(&circuit.to_be_bytes());
}

/// Parses the body of an ACROSS cell. Returns the counter and the body of the lossy cell (a cell
/// for datagrams); `None` if the body is truncated.
pub(crate) fn read_across(content: &mut [u8]) -> Option<(u32, &mut Body)> {
    let (counter, body) = content.split_first_chunk_mut()?;
    Some((u32::from_be_bytes(*counter), body.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], width: Width) -> (Vec<(u32, u8, Vec<u8>)>, usize) {
        let mut bytes = bytes.to_vec();
        let mut cells = Cells::new(&mut bytes, width, 1000);
        let mut found = Vec::new();
        while let Some(cell) = cells.next_cell().unwrap() {
            found.push((cell.circuit, cell.command.0, cell.body.to_vec()));
        }
        (found, cells.taken())
    }

    #[test]
    fn cells_come_back_as_they_were_put() {
        let mut bytes = Vec::new();
        put_variable(&mut bytes, Width::Four, Command::CERTS, b"certificates");
        put_fixed(&mut bytes, 0x8000_0001, Command::RELAY, b"payload");
        let (found, taken) = all(&bytes, Width::Four);
        assert_eq!(taken, bytes.len());
        assert_eq!(found[0], (0, 129, b"certificates".to_vec()));
        assert_eq!((found[1].0, found[1].1, found[1].2.len()), (0x8000_0001, 3, BODY));
        assert_eq!(&found[1].2[..8], b"payload\0");
    }

    #[test]
    fn a_versions_cell_has_short_circuit_ids() {
        let mut bytes = Vec::new();
        put_variable(&mut bytes, Width::Two, Command::VERSIONS, &[0, 4, 0, 5]);
        assert_eq!(bytes, [0, 0, 7, 0, 4, 0, 4, 0, 5]);
        assert_eq!(all(&bytes, Width::Two).0, [(0, 7, vec![0, 4, 0, 5])]);
    }

    #[test]
    fn numbered_cells_have_one_size_and_come_back_with_their_numbers() {
        let mut bytes = Vec::new();
        put_numbered(&mut bytes, 0x8000_0001, Command::RELAY, 0xffff_fffe, b"payload");
        put_numbered(&mut bytes, 0, Command::PADDING, 3, b"");
        // A command that has a length field in other cells has none in a numbered cell.
        let start = bytes.len();
        put_numbered(&mut bytes, 0, Command::PADDING, 4, b"\xff\xff");
        bytes[start + 4] = Command::VPADDING.0;
        assert_eq!(bytes.len(), 3 * NUMBERED_CELL);
        bytes.push(7);
        let mut cells = Cells::new(&mut bytes, Width::Two, 1000);
        cells.expect_numbers();
        let mut found = Vec::new();
        while let Some(cell) = cells.next_cell().unwrap() {
            assert_eq!(cell.body.len(), BODY);
            found.push((cell.circuit, cell.command.0, cell.number, cell.body[..2].to_vec()));
        }
        assert_eq!(found[0], (0x8000_0001, 3, Some(0xffff_fffe), b"pa".to_vec()));
        assert_eq!(found[1], (0, 0, Some(3), vec![0; 2]));
        assert_eq!(found[2], (0, 128, Some(4), vec![0xff; 2]));
        assert_eq!((found.len(), cells.taken()), (3, 3 * NUMBERED_CELL));
    }

    #[test]
    fn relay_cells_are_taken_until_another_cell_or_half_a_cell() {
        let mut bytes = Vec::new();
        put_fixed(&mut bytes, 0x8000_0001, Command::RELAY, b"one");
        put_fixed(&mut bytes, 2, Command::RELAY, b"two");
        put_fixed(&mut bytes, 2, Command::RELAY_EARLY, b"three");
        put_fixed(&mut bytes, 2, Command::RELAY, b"four");
        let half = bytes.len() - 1;
        let mut cells = Cells::new(&mut bytes[..half], Width::Four, 1000);
        let mut next = || cells.next_relay_cell().map(|(circuit, body)| (circuit, body[1]));
        assert_eq!([next(), next(), next()], [Some((0x8000_0001, b'n')), Some((2, b'w')), None]);
        assert_eq!(cells.taken(), 2 * CELL);
        assert_eq!(cells.next_cell().unwrap().unwrap().command, Command::RELAY_EARLY);
        assert_eq!(cells.next_relay_cell(), None);
        // With short circuit IDs or with numbers, the command is at another position.
        let mut cells = Cells::new(&mut bytes, Width::Two, 1000);
        assert_eq!(cells.next_relay_cell(), None);
        cells.expect_numbers();
        assert_eq!(cells.next_relay_cell(), None);
    }

    #[test]
    fn a_cell_cut_anywhere_waits_for_the_rest() {
        let mut bytes = Vec::new();
        put_variable(&mut bytes, Width::Four, Command::VPADDING, &[0; 20]);
        let first = bytes.len();
        put_fixed(&mut bytes, 7, Command::DESTROY, &[1]);
        for cut in 0..bytes.len() {
            let (found, taken) = all(&bytes[..cut], Width::Four);
            assert_eq!((found.len(), taken), if cut < first { (0, 0) } else { (1, first) });
        }
    }

    #[test]
    fn a_cell_beyond_the_limit_is_refused_before_it_is_there() {
        let mut head = [0, 0, 0, 0, 129, 0xff, 0xff];
        let mut cells = Cells::new(&mut head, Width::Four, 1000);
        assert_eq!(cells.next_cell(), Err(TooLong(0xffff)));
    }
}
