//! The eBPF program of the socket filter.
//!
//! The program runs for each segment that its socket receives. For a SYN, it writes the sequence
//! number to the ring buffer. For data, the socket's cookie selects an entry in the table of
//! sockets, which has the sequence number of the next byte. A segment that begins at that number
//! or before it is in order, and advances the number. A segment that begins after it is copied
//! into the ring buffer in pieces. In any case the kernel then processes the segment as usual.

/// Maximum number of bytes of a TCP segment in one entry of the ring buffer. Longer segments,
/// which the kernel has merged, need several entries.
pub(super) const PIECE: usize = 2_048;
/// Length of the header of a ring buffer entry in bytes: cookie (8), sequence number (4), number
/// of bytes (4; 0 for a SYN).
pub(super) const HEAD: usize = 16;
/// Number of slots in the eBPF program's table of sockets, a power of two. The low bits of a
/// socket's cookie select its slot.
pub(super) const SOCKETS: usize = 1 << 14;
/// Length of an entry in the table of sockets in bytes: cookie (8), sequence number of the next
/// byte (4), padding (4).
pub(super) const ENTRY: usize = 16;
/// Maximum number of pieces into which a TCP segment is divided: 32 for the 64 KiB of the longest
/// segment, and one more for its header.
const PIECES: i32 = 33;

/// Number of the BPF helper function that looks up a table entry (`enum bpf_func_id`).
const MAP_LOOKUP: i32 = 1;
/// Number of the BPF helper function that copies bytes of a packet.
const LOAD_BYTES: i32 = 26;
/// Number of the BPF helper function that returns a socket's cookie.
const SOCKET_COOKIE: i32 = 46;
/// Number of the BPF helper function that reserves an entry of a ring buffer.
const RING_RESERVE: i32 = 131;
/// Number of the BPF helper function that submits an entry of a ring buffer.
const RING_SUBMIT: i32 = 132;

/// eBPF register for a function's result. Function calls preserve the registers 6 to 9.
const R0: u8 = 0;
/// eBPF register for a function's first argument.
const R1: u8 = 1;
/// eBPF register for a function's second argument.
const R2: u8 = 2;
/// eBPF register for a function's third argument.
const R3: u8 = 3;
/// eBPF register for a function's fourth argument.
const R4: u8 = 4;
/// eBPF register for a function's fifth argument.
const R5: u8 = 5;
/// Register with the address of the segment's `sk_buff`.
const SEGMENT: u8 = 6;
/// Register with the number of bytes of the segment's TCP header.
const HEADER: u8 = 7;
/// Register with the number of bytes of data after the TCP header.
const LENGTH: u8 = 8;
/// Register with the number of bytes of data that were copied so far.
const COPIED: u8 = 9;
/// eBPF register of the frame pointer.
const R10: u8 = 10;

/// Offset in bytes, from the frame pointer `R10`, of the socket's cookie on the stack.
const COOKIE: i16 = -8;
const NUMBER: i16 = -12;
const KEY: i16 = -16;
const ENTRY_AT: i16 = -24;
const NOW: i16 = -32;

/// Target of jumps in the eBPF program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Syn,
    Early,
    Next,
    Fits,
    Out,
}

/// Assembler of eBPF instructions, with labels as targets of jumps.
#[derive(Default)]
struct Assembler {
    code: Vec<u64>,
    labels: std::collections::BTreeMap<Label, usize>,
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn put(&mut self, operation: u8, to: u8, from: u8, offset: i16, value: i32) {
        let registers = u64::from(to | from << 4) << 8;
        let offset = u64::from(offset as u16) << 16;
        let value = u64::from(value as u32) << 32;
        self.code.push(u64::from(operation) | registers | offset | value);
    }

    fn label(&mut self, label: Label) {
        self.labels.insert(label, self.code.len());
    }

    fn jump(&mut self, operation: u8, left: u8, right: u8, value: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.put(operation, left, right, 0, value);
    }

    /// Emits an instruction that copies register `from` to register `to`.
    fn copy(&mut self, to: u8, from: u8) {
        self.put(0xbf, to, from, 0, 0);
    }

    fn set(&mut self, to: u8, value: i32) {
        self.put(0xb7, to, 0, 0, value);
    }

    fn add(&mut self, to: u8, value: i32) {
        self.put(0x07, to, 0, 0, value);
    }

    fn add_register(&mut self, to: u8, from: u8) {
        self.put(0x0f, to, from, 0, 0);
    }

    /// Emits an instruction that subtracts register `from` from register `to`, with 64 bits.
    fn subtract(&mut self, to: u8, from: u8) {
        self.put(0x1f, to, from, 0, 0);
    }

    /// Emits instructions that compare two sequence numbers, which may wrap around. The 32-bit
    /// difference `left - right` is computed in `R5`. The program jumps to the label `to` if the
    /// comparison `operation` of the difference with `than` is true.
    fn compare_numbers(&mut self, [left, right]: [u8; 2], operation: u8, than: i32, to: Label) {
        self.put(0xbc, R5, left, 0, 0);
        self.put(0x1c, R5, right, 0, 0);
        self.jump(operation, R5, 0, than, to);
    }

    fn load_long(&mut self, to: u8, from: u8, offset: i16) {
        self.put(0x79, to, from, offset, 0);
    }

    fn load_word(&mut self, to: u8, from: u8, offset: i16) {
        self.put(0x61, to, from, offset, 0);
    }

    fn store_long(&mut self, to: u8, offset: i16, from: u8) {
        self.put(0x7b, to, from, offset, 0);
    }

    fn store_word(&mut self, to: u8, offset: i16, from: u8) {
        self.put(0x63, to, from, offset, 0);
    }

    /// Emits an instruction that loads the byte at offset `at` of the segment into `R0`. The TCP
    /// header is always present, because TCP has parsed it before.
    fn segment_byte(&mut self, at: i32) {
        self.put(0x30, 0, 0, 0, at);
    }

    /// Emits an instruction that loads four bytes at offset `at` of the segment into `R0`.
    fn segment_word(&mut self, at: i32) {
        self.put(0x20, 0, 0, 0, at);
    }

    fn map(&mut self, to: u8, file: i32) {
        self.put(0x18, to, 1, 0, file);
        self.put(0, 0, 0, 0, 0);
    }

    fn call(&mut self, function: i32) {
        self.put(0x85, 0, 0, 0, function);
    }

    fn finish(mut self) -> Vec<u64> {
        for (at, label) in self.jumps {
            let target = self.labels[&label];
            let distance = (target as i64 - at as i64 - 1) as i16;
            self.code[at] |= u64::from(distance as u16) << 16;
        }
        self.code
    }
}

/// eBPF opcode of a jump that is always taken.
const ALWAYS: u8 = 0x05;
/// eBPF opcode of a jump if a register equals a constant.
const EQUAL: u8 = 0x15;
/// eBPF opcode of a jump if two registers differ.
const NOT_EQUAL_REGISTER: u8 = 0x5d;
/// eBPF opcode of a jump if a register is at most a constant, unsigned.
const AT_MOST: u8 = 0xb5;
/// eBPF opcode of a jump if a register is at most another one, unsigned.
const AT_MOST_REGISTER: u8 = 0xbd;
/// eBPF opcode of a jump if a register is below a constant, unsigned.
const BELOW: u8 = 0xa5;
/// eBPF opcode of a jump if a register has one of a constant's bits.
const BIT_SET: u8 = 0x45;
/// eBPF opcode of a jump if a register is above a constant, as signed 32-bit numbers.
const SIGNED_ABOVE: u8 = 0x66;
/// eBPF opcode of a jump if a register is below a constant, as signed 32-bit numbers.
const SIGNED_BELOW: u8 = 0xc6;

/// Assembles the eBPF program. `sockets` and `ring` are the file descriptors of the table of
/// sockets and of the ring buffer.
pub(super) fn program(sockets: i32, ring: i32) -> Vec<u64> {
    let mut code = Assembler::default();
    read_header(&mut code);
    look_up(&mut code, sockets);
    follow(&mut code);
    copy_pieces(&mut code, ring);
    emit_syn(&mut code, ring);
    code.label(Label::Out);
    // The return value -1 makes the kernel keep the whole segment.
    code.put(0xb4, R0, 0, 0, -1);
    code.put(0x95, 0, 0, 0, 0);
    code.finish()
}

/// Emits instructions that read the segment's header length and sequence number, and the socket's
/// cookie (the kernel's identifier).
fn read_header(code: &mut Assembler) {
    code.copy(SEGMENT, R1);
    code.segment_byte(12);
    code.put(0x77, R0, 0, 0, 2);
    code.put(0x57, R0, 0, 0, 0x3c);
    code.copy(HEADER, R0);
    code.segment_byte(13);
    code.copy(COPIED, R0);
    code.segment_word(4);
    code.store_word(R10, NUMBER, R0);
    code.copy(R1, SEGMENT);
    code.call(SOCKET_COOKIE);
    code.store_long(R10, COOKIE, R0);
    code.load_word(LENGTH, SEGMENT, 0);
    code.jump(BIT_SET, COPIED, 0, 2, Label::Syn);
    code.jump(AT_MOST_REGISTER, LENGTH, HEADER, 0, Label::Out);
    code.subtract(LENGTH, HEADER);
}

/// Emits instructions that load the address of the socket's table entry into `R0`. The eBPF
/// program ends there if the socket has no entry.
fn look_up(code: &mut Assembler, sockets: i32) {
    code.load_long(R1, R10, COOKIE);
    code.put(0x57, R1, 0, 0, SOCKETS as i32 - 1);
    code.store_word(R10, KEY, R1);
    code.map(R1, sockets);
    code.copy(R2, R10);
    code.add(R2, KEY.into());
    code.call(MAP_LOOKUP);
    code.jump(EQUAL, R0, 0, 0, Label::Out);
    code.load_long(R1, R0, 0);
    code.load_long(R2, R10, COOKIE);
    code.jump(NOT_EQUAL_REGISTER, R1, R2, 0, Label::Out);
}

/// Emits instructions that advance the sequence number in the table entry past a segment that is
/// in order.
fn follow(code: &mut Assembler) {
    code.load_word(R3, R0, 8);
    code.load_word(R4, R10, NUMBER);
    code.compare_numbers([R4, R3], SIGNED_ABOVE, 0, Label::Early);
    // The number advances to the segment's end, unless it has already reached or passed that end.
    code.put(0x0c, R4, LENGTH, 0, 0);
    code.compare_numbers([R4, R3], SIGNED_BELOW, 1, Label::Out);
    code.store_word(R0, 8, R4);
    code.jump(ALWAYS, 0, 0, 0, Label::Out);
}

fn copy_pieces(code: &mut Assembler, ring: i32) {
    code.label(Label::Early);
    code.set(COPIED, 0);
    code.label(Label::Next);
    code.jump(AT_MOST_REGISTER, LENGTH, COPIED, 0, Label::Out);
    code.copy(R4, LENGTH);
    code.subtract(R4, COPIED);
    code.jump(AT_MOST, R4, 0, PIECE as i32, Label::Fits);
    code.set(R4, PIECE as i32);
    code.label(Label::Fits);
    code.jump(EQUAL, R4, 0, 0, Label::Out);
    code.store_long(R10, NOW, R4);
    reserve(code, ring);
    code.load_word(R1, R10, NUMBER);
    code.add_register(R1, COPIED);
    code.store_word(R0, 8, R1);
    code.load_long(R4, R10, NOW);
    code.store_word(R0, 12, R4);
    code.copy(R1, SEGMENT);
    code.copy(R2, HEADER);
    code.add_register(R2, COPIED);
    code.copy(R3, R0);
    code.add(R3, HEAD as i32);
    code.call(LOAD_BYTES);
    submit(code);
    code.add(COPIED, PIECE as i32);
    code.jump(BELOW, COPIED, 0, PIECES * PIECE as i32, Label::Next);
    code.jump(ALWAYS, 0, 0, 0, Label::Out);
}

fn emit_syn(code: &mut Assembler, ring: i32) {
    code.label(Label::Syn);
    reserve(code, ring);
    code.load_word(R1, R10, NUMBER);
    code.store_word(R0, 8, R1);
    code.put(0x62, R0, 0, 12, 0);
    submit(code);
}

/// Emits instructions that reserve a ring buffer entry, leave its address in `R0`, and store the
/// cookie in it. The eBPF program ends there if the ring buffer is full.
fn reserve(code: &mut Assembler, ring: i32) {
    code.map(R1, ring);
    code.set(R2, (HEAD + PIECE) as i32);
    code.set(R3, 0);
    code.call(RING_RESERVE);
    code.jump(EQUAL, R0, 0, 0, Label::Out);
    code.store_long(R10, ENTRY_AT, R0);
    code.load_long(R1, R10, COOKIE);
    code.store_long(R0, 0, R1);
}

fn submit(code: &mut Assembler) {
    code.load_long(R1, R10, ENTRY_AT);
    code.set(R2, 0);
    code.call(RING_SUBMIT);
}
