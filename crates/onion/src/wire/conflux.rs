//! Messages that link circuits to a set (LINK, LINKED, LINKED_ACK), and the message that announces
//! a sender's change to another circuit of the set (SWITCH; proposal 329, as in C tor and Arti).
//!
//! The four messages have no stream ID: they are exchanged with the last hop. LINK and LINKED have
//! the same layout; LINKED_ACK has no data.

use std::fmt;

use rand_core::CryptoRng;
use subtle::ConstantTimeEq;

/// The only version in use of the messages LINK and LINKED.
const VERSION: u8 = 1;
/// Length in bytes of a nonce.
const NONCE: usize = 32;
/// Length in bytes of LINK and LINKED: version, nonce, sequence number of the last message sent,
/// sequence number of the last message received, desired UX.
const LINK: usize = 1 + NONCE + 8 + 8 + 1;

/// The secret that all circuits of a set share. Anybody who knows the nonce can add a circuit to
/// the set. The nonce is therefore never printed, and is compared in constant time.
#[derive(Clone, Copy)]
pub struct SetNonce([u8; NONCE]);

impl SetNonce {
    /// Draws a random nonce for a new set of circuits.
    pub fn draw(rng: &mut dyn CryptoRng) -> SetNonce {
        let mut nonce = [0; NONCE];
        rng.fill_bytes(&mut nonce);
        SetNonce(nonce)
    }

    /// Returns the bytes of the nonce as they are sent in messages.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; NONCE] {
        &self.0
    }
}

impl From<[u8; NONCE]> for SetNonce {
    fn from(bytes: [u8; NONCE]) -> SetNonce {
        SetNonce(bytes)
    }
}

impl PartialEq for SetNonce {
    fn eq(&self, other: &SetNonce) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for SetNonce {}

impl fmt::Debug for SetNonce {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SetNonce")
    }
}

/// Preference of one end for low latency or high throughput of the data that it receives (proposal
/// 329, section 2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DesiredUx {
    /// No preference.
    #[default]
    None,
    /// Lowest latency: only the fastest circuit of the set is used (C tor: MINRTT).
    MinLatency,
    /// Lowest latency with little memory (C tor: MINRTT).
    LowMemLatency,
    /// Highest throughput: all circuits of the set are used (C tor: LOWRTT).
    HighThroughput,
    /// Highest throughput with little memory (C tor: MINRTT).
    LowMemThroughput,
}

impl DesiredUx {
    const ALL: [DesiredUx; 5] = [
        DesiredUx::None,
        DesiredUx::MinLatency,
        DesiredUx::LowMemLatency,
        DesiredUx::HighThroughput,
        DesiredUx::LowMemThroughput,
    ];

    /// Returns the scheduler that C tor uses for data to an end with this preference
    /// (`conflux_pool.c`).
    #[must_use]
    pub const fn scheduler(self) -> &'static str {
        match self {
            DesiredUx::None | DesiredUx::HighThroughput => "lowrtt",
            DesiredUx::MinLatency | DesiredUx::LowMemLatency | DesiredUx::LowMemThroughput => {
                "minrtt"
            }
        }
    }
}

/// The data of a LINK or LINKED message of proposal 329, which adds a circuit to a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfluxLink {
    /// The nonce of the set of circuits.
    pub nonce: SetNonce,
    /// The sequence number of the last message that the sender of LINK or LINKED has sent in the
    /// set of circuits.
    pub sent: u64,
    /// The sequence number of the last message that the sender of LINK or LINKED has received in
    /// the set of circuits.
    pub received: u64,
    /// The sender's preference for the data that it receives.
    pub ux: DesiredUx,
}

impl ConfluxLink {
    /// Parses the data of LINK or LINKED. Returns `None` if the data is truncated, or has an
    /// unknown version or preference. C tor closes the circuit in each of these cases. Bytes after
    /// the last field are ignored.
    #[must_use]
    pub fn read(data: &[u8]) -> Option<ConfluxLink> {
        let (&[version], rest) = data.split_first_chunk()?;
        let (&nonce, rest) = rest.split_first_chunk::<NONCE>()?;
        let (&sent, rest) = rest.split_first_chunk()?;
        let (&received, rest) = rest.split_first_chunk()?;
        let ux = *DesiredUx::ALL.get(usize::from(*rest.first()?))?;
        let (sent, received) = (u64::from_be_bytes(sent), u64::from_be_bytes(received));
        (version == VERSION).then_some(ConfluxLink { nonce: nonce.into(), sent, received, ux })
    }

    /// Returns the data of LINK or LINKED.
    #[must_use]
    pub fn write(&self) -> [u8; LINK] {
        let mut data = [VERSION; LINK];
        data[1..33].copy_from_slice(self.nonce.bytes());
        data[33..41].copy_from_slice(&self.sent.to_be_bytes());
        data[41..49].copy_from_slice(&self.received.to_be_bytes());
        data[49] = self.ux as u8;
        data
    }
}

/// Parses the data of SWITCH, the amount to add to the circuit's sequence number. C tor before
/// 0.4.9.3-alpha sends 498 bytes: this amount, then zeros. Returns `None` if the data is shorter
/// than 4 bytes; C tor treats shorter data as the amount 0.
#[must_use]
pub fn read_switch(data: &[u8]) -> Option<u32> {
    data.first_chunk().map(|number| u32::from_be_bytes(*number))
}

/// Returns the data of SWITCH, which adds `by` to the circuit's sequence number.
#[must_use]
pub const fn put_switch(by: u32) -> [u8; 4] {
    by.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use tor_bytes::Reader;
    use tor_cell::relaycell::conflux as arti;
    use tor_cell::relaycell::msg::Body as _;

    use super::*;
    use crate::wire::cell::BODY;
    use crate::wire::message::{self, Format, Message, RelayCommand};
    use anabranch_multipath::seed;

    fn link() -> ConfluxLink {
        let nonce = std::array::from_fn(|n| n as u8).into();
        ConfluxLink { nonce, sent: 0x0102_0304_0506_0708, received: 9, ux: DesiredUx::MinLatency }
    }

    /// Returns LINK as defined by proposal 329, section 2.2, written out by hand.
    fn bytes() -> Vec<u8> {
        let mut bytes = vec![1];
        bytes.extend(0..32);
        bytes.extend([1, 2, 3, 4, 5, 6, 7, 8]);
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 9]);
        bytes.push(1);
        bytes
    }

    #[test]
    fn a_link_lies_in_50_bytes_and_what_follows_is_passed_over() {
        assert_eq!(link().write()[..], bytes());
        assert_eq!(bytes().len(), 50);
        for more in [0, 1, 448] {
            let data = [bytes(), vec![7; more]].concat();
            assert_eq!(ConfluxLink::read(&data), Some(link()));
        }
    }

    #[test]
    fn a_link_that_is_short_of_another_version_or_wants_the_unknown_is_unreadable() {
        for length in 0..50 {
            assert_eq!(ConfluxLink::read(&bytes()[..length]), None, "{length} bytes");
        }
        for (at, value) in [(0, 0), (0, 2), (49, 5), (49, 255)] {
            let mut odd = bytes();
            odd[at] = value;
            assert_eq!(ConfluxLink::read(&odd), None, "{value} at {at}");
        }
    }

    #[test]
    fn a_switch_is_the_first_four_bytes_however_many_follow() {
        assert_eq!(put_switch(0x0102_0304), [1, 2, 3, 4]);
        let old = [&[0, 0, 0, 124][..], &[0; 494]].concat();
        assert_eq!((old.len(), read_switch(&old)), (498, Some(124)));
        assert_eq!(read_switch(&[255; 4]), Some(u32::MAX));
        for length in 0..4 {
            assert_eq!(read_switch(&[9; 4][..length]), None);
        }
    }

    #[test]
    fn every_byte_of_a_nonce_counts_and_none_is_shown() {
        for at in 0..32 {
            let mut other = *link().nonce.bytes();
            other[at] ^= 0x80;
            assert_ne!(link().nonce, SetNonce::from(other), "byte {at}");
        }
        assert!(!format!("{:?}", link()).contains("31"));
        let draw = |seed| SetNonce::draw(&mut seed::stream(seed, 0, "nonce"));
        assert!(draw(1) == draw(1) && draw(1) != draw(2));
    }

    #[test]
    fn the_library_of_arti_reads_what_we_write_and_writes_what_we_read() {
        let ours = link().write();
        let theirs = arti::ConfluxLink::decode_from_reader(&mut Reader::from_slice(&ours)).unwrap();
        assert_eq!(theirs.payload().last_seqno_sent(), &link().sent);
        assert_eq!(theirs.payload().last_seqno_recv(), &link().received);
        assert_eq!(u8::from(*theirs.payload().desired_ux()), 1);
        let mut written = Vec::new();
        theirs.encode_onto(&mut written).unwrap();
        assert_eq!(ConfluxLink::read(&written), Some(link()));

        let mut linked = Vec::new();
        let payload = arti::V1LinkPayload::new(
            arti::V1Nonce::new(&mut seed::stream(1, 0, "nonce")),
            arti::V1DesiredUx::HIGH_THROUGHPUT,
        );
        arti::ConfluxLinked::new(payload).encode_onto(&mut linked).unwrap();
        let read = ConfluxLink::read(&linked).unwrap();
        assert_eq!((read.sent, read.received, read.ux), (0, 0, DesiredUx::HighThroughput));

        let mut switch = Vec::new();
        arti::ConfluxSwitch::new(77).encode_onto(&mut switch).unwrap();
        assert_eq!(switch, put_switch(77));
    }

    #[test]
    fn in_a_cell_none_of_the_four_has_a_stream() {
        use tor_cell::relaycell::{RelayCellDecoder, RelayCellFormat};
        let commands = [
            RelayCommand::CONFLUX_LINK,
            RelayCommand::CONFLUX_LINKED,
            RelayCommand::CONFLUX_LINKED_ACK,
            RelayCommand::CONFLUX_SWITCH,
        ];
        assert_eq!(commands.map(|command| command.0), [19, 20, 21, 22]);
        let (link, switch) = (link().write(), put_switch(3));
        let datas = [&link[..], &link, &[], &switch];
        let mut rng = seed::stream(1, 0, "message");
        for (command, data) in commands.into_iter().zip(datas) {
            let message = Message { command, stream: 0, data };
            let formats = [(Format::V0, RelayCellFormat::V0), (Format::V1, RelayCellFormat::V1)];
            for (format, theirs) in formats {
                let mut body = [0; BODY];
                message::write(format, &mut body, message, &mut rng);
                assert_eq!(message::read(format, &body), Some(message));
                let parsed = RelayCellDecoder::new(theirs).decode(Box::new(body)).unwrap();
                assert_eq!(parsed.cmds().map(u8::from).collect::<Vec<_>>(), [command.0]);
            }
            let mut body = [0; BODY];
            message::write(Format::V1, &mut body, message, &mut rng);
            assert_eq!(body[16..19], [command.0, 0, data.len() as u8], "no stream behind these");
            assert_eq!(&body[19..19 + data.len()], data);
        }
    }
}
