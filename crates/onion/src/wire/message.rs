//! Relay messages: the contents of relay cells between two ends of a circuit (tor-spec, "Relay
//! cells").

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use rand_core::CryptoRng;
use tor_bytes::Reader;
use tor_cell::relaycell::flow_ctrl::{Xoff, Xon};
use tor_cell::relaycell::msg::{self, Body as _, ResolvedVal};

pub use super::relay_command::{RelayCommand, RelayKind};

use super::cell::{BODY, Body};
use super::tag::Tag;

/// Maximum number of data bytes in a relay cell: its body, less the header of [`Format::V0`]. For
/// DATA messages of a stream see [`Format::data`].
pub const DATA: usize = BODY - HEADER_V0;
/// Maximum number of data bytes in a stream's message other than DATA, in any format. The term 2
/// is the stream ID. The term 4 is the message's sequence number, which some designs of circuit
/// sets, such as mTor, place before the data.
const CONTROL: usize = BODY - HEADER_V1 - 2 - 4;
/// Length in bytes of the header of a message with a digest: command, recognised, stream, digest,
/// length.
const HEADER_V0: usize = 11;
/// Length in bytes of the header of a message with a tag: tag, command, length. A stream ID
/// follows for commands that have one.
const HEADER_V1: usize = 19;
/// The position of the field "recognised" in the body of a cell. The field is zero if the cell is
/// addressed to the hop that has just decrypted it.
pub const RECOGNISED: Range<usize> = 1..3;
/// The position of the digest in the body of a cell, in the format [`Format::V0`].
pub const DIGEST: Range<usize> = 5..9;
/// Number of zero bytes between the data of a relay message and the random padding.
const GAP: usize = 4;

/// The layout of a message in a cell's body, which depends on the relay encryption in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Messages with a digest (tor-spec, "Relay cells").
    #[default]
    V0,
    /// Messages with a tag at the beginning, and a stream ID only for commands that have one
    /// (proposal 359).
    V1,
}

impl Format {
    /// Returns the maximum number of data bytes in a DATA message.
    #[must_use]
    pub const fn data(self) -> usize {
        BODY - self.header(RelayCommand::DATA)
    }

    /// Returns the maximum number of data bytes in a message with this command.
    #[must_use]
    pub const fn most(self, command: RelayCommand) -> usize {
        BODY - self.header(command)
    }

    const fn header(self, command: RelayCommand) -> usize {
        match self {
            Format::V0 => HEADER_V0,
            Format::V1 if command.has_stream() => HEADER_V1 + 2,
            Format::V1 => HEADER_V1,
        }
    }
}

/// The content of a relay cell, which borrows the cell's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The command.
    pub command: RelayCommand,
    /// The stream ID; 0 for the circuit itself.
    pub stream: u16,
    /// The data.
    pub data: &'a [u8],
}

/// Parses the decrypted body of a relay cell. Returns `None` if its length field is invalid.
pub fn read(format: Format, body: &Body) -> Option<Message<'_>> {
    let number = |at: usize| u16::from_be_bytes([body[at], body[at + 1]]);
    let (command, length, stream) = match format {
        Format::V0 => (RelayCommand(body[0]), number(9), number(3)),
        Format::V1 => {
            let command = RelayCommand(body[16]);
            (command, number(17), if command.has_stream() { number(HEADER_V1) } else { 0 })
        }
    };
    let data = body[format.header(command)..].get(..usize::from(length))?;
    Some(Message { command, stream, data })
}

/// Writes a relay message into the body of a cell, followed by random padding (tor-spec, "Relay
/// cells").
///
/// # Panics
/// If the data is longer than the format permits.
pub fn write(format: Format, body: &mut Body, message: Message<'_>, rng: &mut dyn CryptoRng) {
    let header = format.header(message.command);
    body[header..header + message.data.len()].copy_from_slice(message.data);
    write_header(format, body, message.command, message.stream, message.data.len(), rng);
}

/// Writes the header and the padding of a message whose data is already in the body. The
/// encryption of the cell adds the digest or the tag later.
pub fn write_header(
    format: Format,
    body: &mut Body,
    command: RelayCommand,
    stream: u16,
    length: usize,
    rng: &mut dyn CryptoRng,
) {
    let size = (length as u16).to_be_bytes();
    match format {
        Format::V0 => {
            body[0] = command.0;
            body[RECOGNISED].fill(0);
            body[3..5].copy_from_slice(&stream.to_be_bytes());
            body[DIGEST].fill(0);
            body[9..HEADER_V0].copy_from_slice(&size);
        }
        Format::V1 => {
            body[16] = command.0;
            body[17..HEADER_V1].copy_from_slice(&size);
            if command.has_stream() {
                body[HEADER_V1..HEADER_V1 + 2].copy_from_slice(&stream.to_be_bytes());
            }
        }
    }
    let padding = &mut body[format.header(command) + length..];
    let (gap, random) = padding.split_at_mut(GAP.min(padding.len()));
    gap.fill(0);
    rng.fill_bytes(random);
}

/// Returns the part of `body` that contains the data of a message with this command.
pub fn data_of(format: Format, command: RelayCommand, body: &mut Body) -> &mut [u8] {
    &mut body[format.header(command)..]
}

/// BEGIN flag: IPv6 addresses are acceptable.
pub const IPV6_OKAY: u32 = 1;
/// BEGIN flag: IPv4 addresses are not acceptable.
pub const IPV4_NOT_OKAY: u32 = 2;
/// BEGIN flag: IPv6 addresses are preferred.
pub const IPV6_PREFERRED: u32 = 4;

/// The destination that a client requests for a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The host name or the address of the destination.
    pub host: String,
    /// The port of the destination.
    pub port: u16,
    /// Flags of tor-spec, "Opening streams".
    pub flags: u32,
}

impl Begin {
    /// Parses the data of BEGIN. Returns `None` if it is malformed, or if the host name is empty
    /// or not printable ASCII.
    pub fn read(data: &[u8]) -> Option<Begin> {
        let begin = msg::Begin::decode_from_reader(&mut Reader::from_slice(data)).ok()?;
        let host = String::from_utf8(begin.addr().to_vec()).ok()?;
        let sound = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic());
        sound.then_some(Begin { host, port: begin.port(), flags: begin.flags().bits() })
    }

    /// Returns the addresses that the client accepts, preferred ones first (tor-spec, "Opening
    /// streams").
    pub fn acceptable(&self, mut addresses: Vec<IpAddr>) -> Vec<IpAddr> {
        let has = |flag| self.flags & flag != 0;
        addresses.retain(|address| match address {
            IpAddr::V4(_) => !has(IPV4_NOT_OKAY),
            IpAddr::V6(_) => has(IPV6_OKAY),
        });
        addresses.sort_by_key(|address| address.is_ipv4() == has(IPV6_PREFERRED));
        addresses
    }

    /// Returns the data of BEGIN; `None` if the host is not a valid name in Tor.
    pub fn write(&self) -> Option<Vec<u8>> {
        encode(msg::Begin::new(&self.host, self.port, self.flags).ok()?)
    }
}

/// Returns the data of CONNECTED: the address that the exit has connected to, and the TTL of its
/// name in seconds. The data is empty if `reached` is `None`, as for directory streams.
pub fn put_connected(reached: Option<(IpAddr, u32)>) -> Vec<u8> {
    let message = match reached {
        Some((address, ttl)) => msg::Connected::new_with_addr(address, ttl),
        None => msg::Connected::new_empty(),
    };
    encode(message).expect("an address fits into a relay message")
}

/// Returns whether the data of CONNECTED is well-formed.
pub fn is_connected(data: &[u8]) -> bool {
    msg::Connected::decode_from_reader(&mut Reader::from_slice(data)).is_ok()
}

/// TTL in seconds that an exit sends to clients with each address, instead of the name server's
/// TTL. The remaining TTL of a cached answer would reveal to a client when another client asked. C
/// tor raises lower TTLs to this value for the same reason.
pub const ADDRESS_TTL: u32 = 300;

/// Returns the data of END for an address that the exit policy refuses: the address, and the TTL
/// of its name in seconds. From the reason `EXITPOLICY` without an address, clients would conclude
/// that the exit permits no streams at all.
pub fn put_refusal(address: IpAddr, ttl: u32) -> Vec<u8> {
    encode(msg::End::new_exitpolicy(address, ttl)).expect("an address fits into a relay message")
}

/// Parses the data of END. Returns the reason, and the refused address; `None` if the data
/// contains no address, or if the reason is not `EXITPOLICY`. Empty data has the reason `MISC`.
/// Ignores further bytes, because future reasons may have more data (tor-spec, "Closing streams").
pub fn read_end(data: &[u8]) -> (EndReason, Option<IpAddr>) {
    let [reason, more @ ..] = data else { return (EndReason::MISC, None) };
    let reason = EndReason(*reason);
    // A TTL may follow the address.
    let address = match more.len() {
        4 | 8 => more.first_chunk().map(|v4: &[u8; 4]| Ipv4Addr::from(*v4).into()),
        16 | 20 => more.first_chunk().map(|v6: &[u8; 16]| Ipv6Addr::from(*v6).into()),
        _ => None,
    };
    (reason, address.filter(|_| reason == EndReason::EXIT_POLICY))
}

/// One result in the answer to RESOLVE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An address.
    Address(IpAddr),
    /// A name, as the result of a reverse lookup.
    Name(String),
    /// A temporary error: a later request may succeed.
    Later,
    /// A permanent error: a later request would fail too.
    Never,
}

/// Parses the data of RESOLVE: a name, which may be in `in-addr.arpa`. Returns `None` if the data
/// is malformed, or if the name is empty or not printable ASCII.
pub fn read_resolve(data: &[u8]) -> Option<String> {
    let question = msg::Resolve::decode_from_reader(&mut Reader::from_slice(data)).ok()?;
    let name = String::from_utf8(question.query().to_vec()).ok()?;
    (!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic())).then_some(name)
}

/// Returns the data of RESOLVE; `None` if the name is too long.
pub fn put_resolve(name: &str) -> Option<Vec<u8>> {
    encode(msg::Resolve::new(name)).filter(|data| data.len() <= CONTROL)
}

/// Parses the data of RESOLVED: results, each with its TTL in seconds. Skips results of unknown
/// types. Returns `None` if the data is malformed.
pub fn read_resolved(data: &[u8]) -> Option<Vec<(Answer, u32)>> {
    let message = msg::Resolved::decode_from_reader(&mut Reader::from_slice(data)).ok()?;
    let answers = message.into_answers().into_iter();
    Some(answers.filter_map(|(value, ttl)| Some((known(value)?, ttl))).collect())
}

fn known(value: ResolvedVal) -> Option<Answer> {
    match value {
        ResolvedVal::Ip(address) => Some(Answer::Address(address)),
        ResolvedVal::Hostname(name) => String::from_utf8(name).ok().map(Answer::Name),
        ResolvedVal::TransientError => Some(Answer::Later),
        ResolvedVal::NontransientError => Some(Answer::Never),
        _ => None,
    }
}

/// Returns the data of RESOLVED, with as many results as fit.
pub fn put_resolved(answers: &[(Answer, u32)]) -> Vec<u8> {
    let mut data = Vec::new();
    for (answer, ttl) in answers {
        let value = match answer {
            Answer::Address(address) => ResolvedVal::Ip(*address),
            Answer::Name(name) => ResolvedVal::Hostname(name.clone().into_bytes()),
            Answer::Later => ResolvedVal::TransientError,
            Answer::Never => ResolvedVal::NontransientError,
        };
        let mut one = msg::Resolved::new_empty();
        one.add_answer(value, *ttl);
        let fits = |more: &Vec<u8>| data.len() + more.len() <= CONTROL;
        data.extend(encode(one).filter(fits).unwrap_or_default());
    }
    data
}

/// The contents of a circuit's SENDME (tor-spec, "SENDME message format").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sendme {
    /// Version 0: empty.
    Bare,
    /// Version 1: the tag of the acknowledged cell.
    Tagged(Tag),
}

/// Parses the data of a circuit's SENDME. Returns `None` if the data is malformed or has an
/// unknown version.
pub fn read_sendme(data: &[u8]) -> Option<Sendme> {
    let message = msg::Sendme::decode_from_reader(&mut Reader::from_slice(data)).ok()?;
    match message.into_sendme_tag() {
        Some(tag) => Tag::from_bytes(tag.as_ref()).map(Sendme::Tagged),
        None => Some(Sendme::Bare),
    }
}

/// Returns the data of a circuit's SENDME (version 1).
pub fn put_sendme(tag: &Tag) -> Vec<u8> {
    let length = tag.bytes().len() as u16;
    [&[1], &length.to_be_bytes()[..], tag.bytes()].concat()
}

/// Parses the data of XON: the rate in kilobytes per second that the peer's application accepts (0
/// means no limit). Returns `None` if the data is malformed.
pub fn read_xon(data: &[u8]) -> Option<u32> {
    Xon::decode_from_reader(&mut Reader::from_slice(data)).ok()?;
    Some(u32::from_be_bytes(*data.get(1..5)?.first_chunk()?))
}

/// Returns whether the data of XOFF is well-formed.
pub fn is_xoff(data: &[u8]) -> bool {
    Xoff::decode_from_reader(&mut Reader::from_slice(data)).is_ok()
}

/// Returns the data of XON.
pub fn put_xon(kilobytes: u32) -> [u8; 5] {
    let [a, b, c, d] = kilobytes.to_be_bytes();
    [0, a, b, c, d]
}

/// The reason why a stream ended (tor-spec, "Closing streams").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndReason(pub u8);

/// The reasons of tor-spec, "Closing streams".
impl EndReason {
    /// No listed reason applies.
    pub const MISC: EndReason = EndReason(1);
    /// The host name could not be resolved.
    pub const RESOLVE_FAILED: EndReason = EndReason(2);
    /// The destination refused the connection.
    pub const REFUSED: EndReason = EndReason(3);
    /// The exit policy forbids the destination.
    pub const EXIT_POLICY: EndReason = EndReason(4);
    /// The circuit is being closed.
    pub const DESTROY: EndReason = EndReason(5);
    /// The connection was closed normally.
    pub const DONE: EndReason = EndReason(6);
    /// The connection timed out.
    pub const TIMEOUT: EndReason = EndReason(7);
    /// The destination is unreachable.
    pub const NO_ROUTE: EndReason = EndReason(8);
    /// The relay is hibernating.
    pub const HIBERNATING: EndReason = EndReason(9);
    /// An internal error of the relay.
    pub const INTERNAL: EndReason = EndReason(10);
    /// The relay has no resources for the stream.
    pub const RESOURCES: EndReason = EndReason(11);
    /// The destination reset the connection.
    pub const RESET: EndReason = EndReason(12);
    /// The sender received a cell that violates the protocol.
    pub const PROTOCOL: EndReason = EndReason(13);
    /// The relay is no directory, but the stream is a directory request.
    pub const NOT_DIRECTORY: EndReason = EndReason(14);
}

/// The reason why a circuit was torn down (tor-spec, "Tearing down circuits").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DestroyReason(pub u8);

/// The reasons of tor-spec, "Tearing down circuits".
impl DestroyReason {
    /// No reason is given.
    pub const NONE: DestroyReason = DestroyReason(0);
    /// A violation of the Tor protocol.
    pub const PROTOCOL: DestroyReason = DestroyReason(1);
    /// An internal error.
    pub const INTERNAL: DestroyReason = DestroyReason(2);
    /// A TRUNCATE message requested it.
    pub const REQUESTED: DestroyReason = DestroyReason(3);
    /// The relay is hibernating.
    pub const HIBERNATING: DestroyReason = DestroyReason(4);
    /// The relay has no memory, sockets or circuit IDs left.
    pub const RESOURCES: DestroyReason = DestroyReason(5);
    /// The next relay is unreachable.
    pub const CONNECT_FAILED: DestroyReason = DestroyReason(6);
    /// The next relay has another identity than requested.
    pub const WRONG_IDENTITY: DestroyReason = DestroyReason(7);
    /// The link of the circuit was closed.
    pub const LINK_CLOSED: DestroyReason = DestroyReason(8);
    /// The circuit has expired.
    pub const FINISHED: DestroyReason = DestroyReason(9);
    /// The circuit was not built in time.
    pub const TIMEOUT: DestroyReason = DestroyReason(10);
    /// The circuit was destroyed.
    pub const DESTROYED: DestroyReason = DestroyReason(11);
}

impl fmt::Display for DestroyReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match *self {
            DestroyReason::NONE => "no reason given",
            DestroyReason::PROTOCOL => "a relay or a client broke the protocol",
            DestroyReason::INTERNAL => "an internal error of the relay",
            DestroyReason::REQUESTED => "the relay was asked to close the circuit",
            DestroyReason::HIBERNATING => "the relay hibernates",
            DestroyReason::RESOURCES => "the relay is short of memory or sockets",
            DestroyReason::CONNECT_FAILED => "the next relay could not be reached",
            DestroyReason::WRONG_IDENTITY => {
                "the identity of the next relay is not the expected one"
            }
            DestroyReason::LINK_CLOSED => "the link to the next relay broke",
            DestroyReason::FINISHED => "the circuit is finished",
            DestroyReason::TIMEOUT => "the next relay took too long",
            DestroyReason::DESTROYED => "the next relay closed the circuit",
            DestroyReason(code) => return write!(out, "reason {code}"),
        })
    }
}

fn encode<M: msg::Body>(message: M) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    message.encode_onto(&mut data).ok()?;
    Some(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_multipath::seed;

    #[test]
    fn a_message_comes_back_as_it_was_written_with_padding_behind_it() {
        let mut rng = seed::stream(1, 0, "message");
        for format in [Format::V0, Format::V1] {
            for length in [0, 5, format.data() - 3, format.data()] {
                let data = vec![7; length];
                let message = Message { command: RelayCommand::DATA, stream: 300, data: &data };
                let mut body = [0xff; BODY];
                write(format, &mut body, message, &mut rng);
                assert_eq!(read(format, &body), Some(message));
            }
        }
        assert_eq!((Format::V0.data(), Format::V1.data()), (498, 488));
    }

    #[test]
    fn what_has_no_stream_has_room_for_two_bytes_more_with_tags() {
        let data = [9; 490];
        let message = Message { command: RelayCommand::EXTEND2, stream: 0, data: &data };
        let mut body = [0; BODY];
        write(Format::V1, &mut body, message, &mut seed::stream(1, 0, "message"));
        assert_eq!(read(Format::V1, &body), Some(message));
    }

    #[test]
    fn the_library_of_arti_reads_what_we_write() {
        use tor_cell::relaycell::{RelayCellDecoder, RelayCellFormat};
        let mut rng = seed::stream(1, 0, "message");
        let cases = [(RelayCommand::DATA, 7), (RelayCommand::SENDME, 0), (RelayCommand::END, 9)];
        let formats = [(Format::V0, RelayCellFormat::V0), (Format::V1, RelayCellFormat::V1)];
        for (format, theirs) in formats {
            for (command, stream) in cases {
                let mut body = [0; BODY];
                write(format, &mut body, Message { command, stream, data: &[6] }, &mut rng);
                let parsed = RelayCellDecoder::new(theirs).decode(Box::new(body)).unwrap();
                assert_eq!(parsed.cmds().map(u8::from).collect::<Vec<_>>(), [command.0]);
            }
        }
    }

    #[test]
    fn a_length_beyond_the_body_is_malformed() {
        let mut body = [0; BODY];
        body[9..11].copy_from_slice(&(DATA as u16 + 1).to_be_bytes());
        assert_eq!(read(Format::V0, &body), None);
        body[16] = RelayCommand::DATA.0;
        body[17..19].copy_from_slice(&489u16.to_be_bytes());
        assert_eq!(read(Format::V1, &body), None);
    }

    #[test]
    fn begin_names_hosts_and_addresses() {
        for host in ["example.com", "192.0.2.1", "2001:db8::1"] {
            let begin = Begin { host: host.into(), port: 443, flags: 1 };
            assert_eq!(Begin::read(&begin.write().unwrap()), Some(begin));
        }
        assert_eq!(Begin::read(b"a b:80\0"), None);
        assert_eq!(Begin::read(b":80\0"), None);
    }

    #[test]
    fn the_client_says_which_addresses_will_do() {
        let [v6, v4]: [IpAddr; 2] = ["2001:db8::1", "192.0.2.1"].map(|text| text.parse().unwrap());
        let cases = [
            (0, vec![v4]),
            (IPV6_OKAY, vec![v4, v6]),
            (IPV6_OKAY | IPV6_PREFERRED, vec![v6, v4]),
            (IPV6_OKAY | IPV4_NOT_OKAY, vec![v6]),
            (IPV4_NOT_OKAY, vec![]),
        ];
        for (flags, expected) in cases {
            let begin = Begin { host: "example.com".into(), port: 443, flags };
            assert_eq!(begin.acceptable(vec![v6, v4]), expected, "{flags}");
        }
    }

    #[test]
    fn a_refusal_tells_the_address_and_for_how_long_its_name_holds() {
        let [v4, v6]: [IpAddr; 2] = ["192.0.2.1", "2001:db8::1"].map(|text| text.parse().unwrap());
        assert_eq!(put_refusal(v4, 300), [4, 192, 0, 2, 1, 0, 0, 1, 44]);
        let refusal = put_refusal(v6, 300);
        assert_eq!(
            (refusal.len(), &refusal[..3], &refusal[15..]),
            (21, &[4, 0x20, 1][..], &[0, 1, 0, 0, 1, 44][..])
        );
        for address in [v4, v6] {
            let refusal = put_refusal(address, 300);
            let without_ttl = &refusal[..refusal.len() - 4];
            for data in [&refusal[..], without_ttl] {
                assert_eq!(read_end(data), (EndReason::EXIT_POLICY, Some(address)));
            }
        }
    }

    #[test]
    fn an_end_is_read_whatever_lies_behind_its_reason() {
        assert_eq!(read_end(&[]), (EndReason::MISC, None));
        assert_eq!(read_end(&[4]), (EndReason::EXIT_POLICY, None));
        for length in (0..30).filter(|length| ![4, 8, 16, 20].contains(length)) {
            let data = [&[4][..], &vec![7; length]].concat();
            assert_eq!(read_end(&data), (EndReason::EXIT_POLICY, None), "{length}");
        }
        assert_eq!(read_end(&[6, 1, 2, 3, 4]), (EndReason::DONE, None), "no refusal");
    }

    #[test]
    fn answers_come_back_as_they_were_put() {
        let answers = vec![
            (Answer::Address("192.0.2.1".parse().unwrap()), 60),
            (Answer::Address("2001:db8::1".parse().unwrap()), 61),
            (Answer::Name("example.com".into()), 62),
            (Answer::Later, 1),
            (Answer::Never, 2),
        ];
        assert_eq!(read_resolved(&put_resolved(&answers)), Some(answers));
    }

    #[test]
    fn answers_are_as_many_as_fit_in_any_format() {
        let address = Answer::Address(Ipv4Addr::LOCALHOST.into());
        let answers = put_resolved(&vec![(address, 60); 100]);
        assert_eq!(answers.len(), 480, "48 of 10 bytes each");
        let least = Format::V1.most(RelayCommand::RESOLVED) - 4;
        assert!(least < 490 && answers.len() <= least);
    }

    #[test]
    fn sendme_and_xon_come_back_as_they_were_put() {
        let tag = Tag::from_bytes(&[9; 20]).unwrap();
        assert_eq!(read_sendme(&put_sendme(&tag)), Some(Sendme::Tagged(tag)));
        for bare in [&[][..], &[0], &[0, 0, 20]] {
            assert_eq!(read_sendme(bare), Some(Sendme::Bare));
        }
        for bad in [&[2][..], &[1], &[1, 0, 20, 7], &[1, 0, 3, 7, 7, 7]] {
            assert_eq!(read_sendme(bad), None, "{bad:?}");
        }
        assert_eq!(read_xon(&put_xon(70_000)), Some(70_000));
        assert!(is_xoff(&[0]) && !is_xoff(&[1]) && read_xon(&[1, 0, 0, 0, 0]).is_none());
    }
}
