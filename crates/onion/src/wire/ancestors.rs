//! Messages that link circuits to sets, in the designs before proposal 329: Conflux of 2013, and
//! mTor. This project defined the formats, because the papers on these designs only describe a
//! cell with a nonce.
//!
//! LINK, LINKED and LINKED_ACK have no stream ID: they are exchanged with the last hop. LINK and
//! LINKED have the same layout; LINKED_ACK has no data. `docs/spec/ancestors.md` defines the
//! exchange.

use super::conflux::SetNonce;

/// The only version of the messages LINK and LINKED.
const VERSION: u8 = 1;
/// Length in bytes of the fixed part of LINK and LINKED before the text: version, design, nonce,
/// and length of the text.
const FIXED: usize = 1 + 1 + 32 + 1;
/// Maximum length in bytes of the text [`AncestorLink::dealing`].
pub const DEALING: usize = 200;

/// A design of circuit sets that is older than proposal 329, with its code in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Ancestor {
    /// Conflux as published (AlSabah et al., PETS 2013).
    Conflux2013 = 1,
    /// mTor (Yang and Li, CNS 2015).
    MTor = 2,
}

/// The data of a LINK or LINKED message, in designs of circuit sets older than proposal 329.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AncestorLink {
    /// The published design that the set of circuits uses.
    pub design: Ancestor,
    /// The nonce of the set of circuits.
    pub nonce: SetNonce,
    /// The scheduler that the sender of this message requests for the data that it receives, and
    /// the length of its runs, such as `round-robin 1p`. A run is a sequence of consecutive cells
    /// on one leg (parallel circuit). An empty text selects the design's own scheduler. At most
    /// [`DEALING`] bytes.
    pub dealing: String,
}

impl AncestorLink {
    /// Parses the data of LINK or LINKED. Returns `None` if the data is truncated, if its version
    /// or design is unknown, or if its text is too long or not UTF-8. Bytes after the text are
    /// ignored.
    #[must_use]
    pub fn read(data: &[u8]) -> Option<AncestorLink> {
        let (&[version, design], rest) = data.split_first_chunk()?;
        let (&nonce, rest) = rest.split_first_chunk::<32>()?;
        let (&[length], rest) = rest.split_first_chunk()?;
        let text = rest.get(..length.into()).filter(|text| text.len() <= DEALING)?;
        let dealing = str::from_utf8(text).ok()?.to_owned();
        let known = [Ancestor::Conflux2013, Ancestor::MTor];
        let design = known.into_iter().find(|known| *known as u8 == design)?;
        (version == VERSION).then_some(AncestorLink { design, nonce: nonce.into(), dealing })
    }

    /// Returns the data of LINK or LINKED; `None` if the text in `dealing` is too long.
    #[must_use]
    pub fn write(&self) -> Option<Vec<u8>> {
        let length = u8::try_from(self.dealing.len()).ok();
        let length = length.filter(|length| usize::from(*length) <= DEALING)?;
        let mut data = Vec::with_capacity(FIXED + self.dealing.len());
        data.extend([VERSION, self.design as u8]);
        data.extend(self.nonce.bytes());
        data.push(length);
        data.extend(self.dealing.as_bytes());
        Some(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::cell::BODY;
    use crate::wire::message::{self, Format, Message, RelayCommand};
    use anabranch_multipath::seed;

    fn link() -> AncestorLink {
        let nonce = std::array::from_fn(|n| n as u8).into();
        AncestorLink { design: Ancestor::MTor, nonce, dealing: "pull 1p".to_owned() }
    }

    /// Returns LINK as defined by `docs/spec/ancestors.md`, written out by hand.
    fn bytes() -> Vec<u8> {
        [&[1, 2][..], &(0..32).collect::<Vec<u8>>(), &[7], b"pull 1p"].concat()
    }

    #[test]
    fn a_link_lies_as_the_document_says_and_what_follows_is_passed_over() {
        assert_eq!(link().write(), Some(bytes()));
        for more in [0, 1, 400] {
            let data = [bytes(), vec![7; more]].concat();
            assert_eq!(AncestorLink::read(&data), Some(link()));
        }
        let silent =
            AncestorLink { design: Ancestor::Conflux2013, dealing: String::new(), ..link() };
        let written = silent.write().unwrap();
        assert_eq!((written.len(), written[1]), (35, 1));
        assert_eq!(AncestorLink::read(&written), Some(silent));
    }

    #[test]
    fn a_link_that_is_short_of_another_version_or_design_or_no_text_is_unreadable() {
        for length in 0..bytes().len() {
            assert_eq!(AncestorLink::read(&bytes()[..length]), None, "{length} bytes");
        }
        for (at, value) in [(0, 0), (0, 2), (1, 0), (1, 3), (34, 201), (35, 0xff)] {
            let mut odd = [bytes(), vec![b'a'; 300]].concat();
            odd[at] = value;
            assert_eq!(AncestorLink::read(&odd), None, "{value} at {at}");
        }
    }

    #[test]
    fn a_text_is_as_long_as_it_may_be_and_no_longer() {
        let [most, more] = [DEALING, DEALING + 1]
            .map(|length| AncestorLink { dealing: "a".repeat(length), ..link() });
        assert_eq!(AncestorLink::read(&most.write().unwrap()), Some(most));
        assert_eq!(more.write(), None);
    }

    #[test]
    fn in_a_cell_none_of_the_three_has_a_stream() {
        let commands = [
            RelayCommand::ANCESTOR_LINK,
            RelayCommand::ANCESTOR_LINKED,
            RelayCommand::ANCESTOR_LINKED_ACK,
        ];
        assert_eq!(commands.map(|command| command.0), [160, 161, 162]);
        let mut rng = seed::stream(1, 0, "message");
        for command in commands {
            let message = Message { command, stream: 0, data: &bytes() };
            let mut body = [0; BODY];
            message::write(Format::V1, &mut body, message, &mut rng);
            assert_eq!(body[16..19], [command.0, 0, bytes().len() as u8]);
            assert_eq!(&body[19..19 + bytes().len()], bytes());
            assert_eq!(message::read(Format::V1, &body), Some(message));
        }
    }
}
