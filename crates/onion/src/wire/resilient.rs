//! Messages about this project's resilient sets of parallel circuits (legs), which survive the
//! failure of a leg (`docs/spec/resilient-legs.md`). The legs of a set join at the exit or at a
//! middle hop (`docs/spec/middle-merge.md`).
//!
//! The client and the relay at which the legs join exchange these messages. The messages concern
//! no stream, so they have no stream ID. LINK and LINKED have the same relay commands as in
//! [`ancestors`](super::ancestors). Their versions here are 2 and 3, and the layout after the
//! version byte differs from that of version 1.

use super::ancestors::DEALING;
use super::conflux::SetNonce;

/// The version of LINK and LINKED for sets whose circuits join at the exit.
pub const VERSION: u8 = 2;
/// The version of LINK and LINKED for sets whose circuits join at a middle hop.
pub const MERGED: u8 = 3;
/// Flag in LINK: a circuit was linked to this set before, so the relay must know the set.
const RESUMES: u8 = 1;
/// Value in SWITCH: from here on, the sequence numbers of messages on this circuit are consecutive
/// and are not sent.
const RUN: u8 = 0;
/// Value in SWITCH: from here on, each message on this circuit contains its sequence number.
const SINGLY: u8 = 1;
/// Value in RECEIVED: this RECEIVED message answers no PROBE message.
const UNSOLICITED: u8 = 0;
/// Value in RECEIVED: this RECEIVED message answers a PROBE message.
const ANSWERS_PROBE: u8 = 1;

/// The data of a LINK or LINKED message, which adds a circuit to a resilient set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResilientLink {
    /// True if the circuits of the set join at a middle hop. They then carry the whole cells of
    /// the circuit that continues from there.
    pub merged: bool,
    /// True if the set had a linked circuit before. In this case, a relay that does not know the
    /// set must not create it.
    pub resumes: bool,
    /// The nonce of the set of circuits.
    pub nonce: SetNonce,
    /// The serial number that identifies the leg (circuit) in its set at both ends.
    pub serial: u32,
    /// The scheduler that the sender of this message requests for the data that it receives, and
    /// the length of the scheduler's runs. A run is a sequence of consecutive messages on one leg.
    /// The text has the same format as in [`AncestorLink`](super::ancestors::AncestorLink).
    pub dealing: String,
}

impl ResilientLink {
    /// Parses the data of LINK or LINKED. Returns `None` if the data is truncated, or if its
    /// version or flag is unknown. Bytes after the known fields are ignored.
    #[must_use]
    pub fn read(data: &[u8]) -> Option<ResilientLink> {
        let (&[version, flags], rest) = data.split_first_chunk()?;
        let (&nonce, rest) = rest.split_first_chunk::<32>()?;
        let (&serial, rest) = rest.split_first_chunk()?;
        let (&[length], rest) = rest.split_first_chunk()?;
        let text = rest.get(..length.into()).filter(|text| text.len() <= DEALING)?;
        let dealing = str::from_utf8(text).ok()?.to_owned();
        let known = matches!(version, VERSION | MERGED) && flags & !RESUMES == 0;
        let merged = version == MERGED;
        let (resumes, serial) = (flags == RESUMES, u32::from_be_bytes(serial));
        known.then_some(ResilientLink { merged, resumes, nonce: nonce.into(), serial, dealing })
    }

    /// Returns the data of LINK or LINKED; `None` if the text in `dealing` is too long.
    #[must_use]
    pub fn write(&self) -> Option<Vec<u8>> {
        let length = u8::try_from(self.dealing.len()).ok();
        let length = length.filter(|length| usize::from(*length) <= DEALING)?;
        let version = if self.merged { MERGED } else { VERSION };
        let mut data = vec![version, u8::from(self.resumes)];
        data.extend(self.nonce.bytes());
        data.extend(self.serial.to_be_bytes());
        data.push(length);
        data.extend(self.dealing.as_bytes());
        Some(data)
    }
}

/// The data of SWITCH: whether the following messages on a leg (circuit of a set) contain their
/// sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegSwitch {
    /// True if each message contains its sequence number from now on. If false, sequence numbers
    /// are consecutive and are not sent.
    pub singly: bool,
    /// The low 32 bits of the next message's sequence number.
    pub number: u32,
}

impl LegSwitch {
    /// Parses the data of SWITCH. Returns `None` if the data is truncated, or its first byte has
    /// an unknown value.
    #[must_use]
    pub fn read(data: &[u8]) -> Option<LegSwitch> {
        let (&[how], rest) = data.split_first_chunk()?;
        let number = u32::from_be_bytes(*rest.first_chunk()?);
        matches!(how, RUN | SINGLY).then_some(LegSwitch { singly: how == SINGLY, number })
    }

    /// Returns the data of SWITCH.
    #[must_use]
    pub fn write(self) -> [u8; 5] {
        with_number(if self.singly { SINGLY } else { RUN }, self.number)
    }
}

/// The data of RECEIVED: the number of messages received on the leg (circuit of a set) on which
/// RECEIVED is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// True if this RECEIVED message answers a PROBE message.
    pub answers_probe: bool,
    /// The low 32 bits of the number of received messages, including duplicates.
    pub count: u32,
}

impl Received {
    /// Parses the data of RECEIVED. Returns `None` if the data is truncated, or its first byte has
    /// an unknown value.
    #[must_use]
    pub fn read(data: &[u8]) -> Option<Received> {
        let (&[why], rest) = data.split_first_chunk()?;
        let count = u32::from_be_bytes(*rest.first_chunk()?);
        matches!(why, UNSOLICITED | ANSWERS_PROBE)
            .then_some(Received { answers_probe: why == ANSWERS_PROBE, count })
    }

    /// Returns the data of RECEIVED.
    #[must_use]
    pub fn write(self) -> [u8; 5] {
        with_number(if self.answers_probe { ANSWERS_PROBE } else { UNSOLICITED }, self.count)
    }
}

/// Parses the data of GONE, and returns the serial number of the closed leg (circuit of a set).
/// Returns `None` if the data is truncated.
#[must_use]
pub fn read_gone(data: &[u8]) -> Option<u32> {
    data.first_chunk().map(|serial| u32::from_be_bytes(*serial))
}

/// Returns the data of GONE, which reports that the leg (circuit of a set) with the serial number
/// `serial` is closed.
#[must_use]
pub const fn put_gone(serial: u32) -> [u8; 4] {
    serial.to_be_bytes()
}

/// Returns the byte `first`, followed by `number` in 4 bytes (big-endian).
fn with_number(first: u8, number: u32) -> [u8; 5] {
    let [a, b, c, d] = number.to_be_bytes();
    [first, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::cell::BODY;
    use crate::wire::message::{self, Format, Message, RelayCommand};
    use anabranch_multipath::seed;

    fn link() -> ResilientLink {
        let nonce = std::array::from_fn(|n| n as u8).into();
        let (serial, dealing) = (0x0102_0304, "pull 1p".to_owned());
        ResilientLink { merged: false, resumes: true, nonce, serial, dealing }
    }

    /// Returns LINK as defined by `docs/spec/resilient-legs.md#messages`, written out by hand.
    fn bytes() -> Vec<u8> {
        let nonce: Vec<u8> = (0..32).collect();
        [&[2, 1][..], &nonce, &[1, 2, 3, 4], &[7], b"pull 1p"].concat()
    }

    #[test]
    fn a_link_lies_as_the_document_says_and_what_follows_is_passed_over() {
        assert_eq!(link().write(), Some(bytes()));
        for more in [0, 1, 400] {
            let data = [bytes(), vec![7; more]].concat();
            assert_eq!(ResilientLink::read(&data), Some(link()));
        }
        let merged = ResilientLink { merged: true, ..link() };
        let written = merged.write().unwrap();
        assert_eq!((written[0], &written[1..]), (3, &bytes()[1..]));
        assert_eq!(ResilientLink::read(&written), Some(merged));
        let first = ResilientLink { resumes: false, dealing: String::new(), ..link() };
        let written = first.write().unwrap();
        assert_eq!((written.len(), written[1]), (39, 0));
        assert_eq!(ResilientLink::read(&written), Some(first));
        let long = ResilientLink { dealing: "a".repeat(DEALING + 1), ..link() };
        assert_eq!(long.write(), None);
    }

    #[test]
    fn what_is_short_of_another_version_or_unknown_is_unreadable() {
        for length in 0..bytes().len() {
            assert_eq!(ResilientLink::read(&bytes()[..length]), None, "{length} bytes");
        }
        for (at, value) in [(0, 1), (0, 4), (1, 2), (1, 255), (38, 201), (39, 0xff)] {
            let mut odd = [bytes(), vec![b'a'; 300]].concat();
            odd[at] = value;
            assert_eq!(ResilientLink::read(&odd), None, "{value} at {at}");
        }
        for data in [&[0, 0, 0, 1][..], &[2, 0, 0, 0, 1], &[]] {
            assert_eq!((LegSwitch::read(data), Received::read(data)), (None, None), "{data:?}");
        }
        assert_eq!(read_gone(&[0, 0, 1]), None);
    }

    #[test]
    fn numbers_and_counts_read_back() {
        for yes in [false, true] {
            let (switch, received) = (
                LegSwitch { singly: yes, number: u32::MAX - 5 },
                Received { answers_probe: yes, count: 1 << 31 },
            );
            assert_eq!(switch.write(), [u8::from(yes), 255, 255, 255, 250]);
            assert_eq!(LegSwitch::read(&switch.write()), Some(switch));
            assert_eq!(received.write(), [u8::from(yes), 128, 0, 0, 0]);
            assert_eq!(Received::read(&received.write()), Some(received));
        }
        assert_eq!(read_gone(&put_gone(7)), Some(7));
    }

    #[test]
    fn in_a_cell_none_of_them_has_a_stream() {
        let commands = [
            RelayCommand::RESILIENT_SWITCH,
            RelayCommand::RESILIENT_RECEIVED,
            RelayCommand::RESILIENT_GONE,
            RelayCommand::RESILIENT_PROBE,
        ];
        assert_eq!(commands.map(|command| command.0), [163, 164, 165, 166]);
        let mut rng = seed::stream(1, 0, "message");
        for command in commands {
            let message = Message { command, stream: 0, data: &[1, 2, 3, 4, 5] };
            let mut body = [0; BODY];
            message::write(Format::V1, &mut body, message, &mut rng);
            assert_eq!(body[16..24], [command.0, 0, 5, 1, 2, 3, 4, 5]);
            assert_eq!(message::read(Format::V1, &body), Some(message));
        }
    }
}
