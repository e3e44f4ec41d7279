//! The extensions that client and relay exchange in ntor-v3 messages (proposal 324, section 10.3).

use super::HandshakeError;
use crate::wire::extend::{self, Extension};
use crate::wire::message::Format;

/// The subprotocol `Relay=6`, which stands for Counter Galois Onion (tor-spec, "Subprotocol
/// versioning"): the identifier 2 of the protocol `Relay`, and the version 6.
const CGO: (u8, u8) = (2, 6);

/// The features that a client requests from a hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HopRequest {
    /// A circuit with fixed windows and Tor's original relay encryption (tor1).
    #[default]
    Plain,
    /// A circuit with congestion control and Tor's original relay encryption (tor1).
    CongestionControl,
    /// A circuit with congestion control and Counter Galois Onion (proposal 359). Counter Galois
    /// Onion requires congestion control, because its cells do not support the SENDMEs of streams.
    Cgo,
    /// A circuit with fixed windows and Tor's original relay encryption (tor1), and also keys for
    /// lossy cells (sent in datagrams; see `docs/spec/lossy-circuits.md`).
    Lossy,
}

/// Features of a relay that its configuration or the consensus can switch off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SupportedFeatures {
    /// The consensus parameter `sendme_inc`; `None` if congestion control is switched off.
    pub sendme_inc: Option<u8>,
    /// True if the relay accepts circuits with lossy cells (sent in datagrams).
    pub lossy: bool,
}

/// Result of the negotiation between the two ends of a circuit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgreedFeatures {
    /// Number of cells that one SENDME acknowledges, with congestion control (proposal 324).
    /// `None` if the circuit has fixed windows.
    pub sendme_inc: Option<u8>,
    /// True if the circuit's encryption is Counter Galois Onion.
    pub cgo: bool,
    /// True if both ends have keys for lossy cells (sent in datagrams).
    pub lossy: bool,
}

impl AgreedFeatures {
    /// Returns the format of relay messages in the circuit's cells.
    #[must_use]
    pub fn format(self) -> Format {
        if self.cgo { Format::V1 } else { Format::V0 }
    }
}

/// Returns a client's ntor-v3 message that requests `wish`.
pub fn request(wish: HopRequest) -> Vec<u8> {
    let mut wanted = Vec::new();
    if matches!(wish, HopRequest::CongestionControl | HopRequest::Cgo) {
        wanted.push(Extension::CongestionRequest);
    }
    if wish == HopRequest::Cgo {
        wanted.push(Extension::Subprotocols(vec![CGO]));
    }
    if wish == HopRequest::Lossy {
        wanted.push(Extension::Lossy);
    }
    extend::put_extensions(&wanted)
}

/// Answers a client's ntor-v3 message, for a relay with the features `offered`. Returns the
/// relay's message and the negotiated features.
///
/// # Errors
/// [`HandshakeError::Malformed`] if `message` cannot be parsed. [`HandshakeError::Unsupported`] if
/// the client requests a subprotocol other than Counter Galois Onion, or requests Counter Galois
/// Onion while congestion control is not requested or not offered.
pub fn answer(
    message: &[u8],
    offered: SupportedFeatures,
) -> Result<(Vec<u8>, AgreedFeatures), HandshakeError> {
    let asked = extend::read_requests(message).ok_or(HandshakeError::Malformed)?;
    let wanted = asked.contains(&Extension::CongestionRequest);
    let sendme_inc = offered.sendme_inc.filter(|_| wanted);
    let lossy = offered.lossy && asked.contains(&Extension::Lossy);
    let subprotocols = asked.iter().find_map(|extension| match extension {
        Extension::Subprotocols(wanted) => Some(&wanted[..]),
        _ => None,
    });
    let cgo = match subprotocols {
        None | Some([]) => false,
        Some([CGO]) if sendme_inc.is_some() => true,
        Some(_) => return Err(HandshakeError::Unsupported),
    };
    let control = sendme_inc.map(Extension::CongestionAnswer);
    let extensions: Vec<Extension> =
        control.into_iter().chain(lossy.then_some(Extension::Lossy)).collect();
    Ok((extend::put_extensions(&extensions), AgreedFeatures { sendme_inc, cgo, lossy }))
}

/// Parses a relay's answer to the request `wish`. `sendme_inc` is the consensus parameter. The
/// relay's value must be between half and twice the parameter (proposal 324, section 10.3). By
/// accepting the handshake, the relay grants all requested subprotocols. It grants lossy cells
/// (sent in datagrams) only by an extension in its answer.
///
/// # Errors
/// [`HandshakeError::Malformed`] if the answer cannot be parsed, grants a feature that was not
/// requested, or does not grant congestion control although the request needs it.
pub fn read_answer(
    message: &[u8],
    wish: HopRequest,
    sendme_inc: u8,
) -> Result<AgreedFeatures, HandshakeError> {
    let reply = extend::read_answers(message).ok_or(HandshakeError::Malformed)?;
    let granted = reply.iter().find_map(|extension| match extension {
        Extension::CongestionAnswer(sendme_inc) => Some(*sendme_inc),
        _ => None,
    });
    let (cgo, lossy) = (wish == HopRequest::Cgo, reply.contains(&Extension::Lossy));
    if lossy && wish != HopRequest::Lossy {
        return Err(HandshakeError::Malformed);
    }
    let Some(granted) = granted else {
        let agreed = AgreedFeatures { lossy, ..AgreedFeatures::default() };
        return if cgo { Err(HandshakeError::Malformed) } else { Ok(agreed) };
    };
    let (low, high) = (sendme_inc.div_ceil(2).max(1), sendme_inc.saturating_mul(2));
    if !matches!(wish, HopRequest::CongestionControl | HopRequest::Cgo)
        || !(low..=high).contains(&granted)
    {
        return Err(HandshakeError::Malformed);
    }
    Ok(AgreedFeatures { sendme_inc: Some(granted), cgo, lossy })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(sendme_inc: Option<u8>) -> SupportedFeatures {
        SupportedFeatures { sendme_inc, lossy: true }
    }

    #[test]
    fn what_both_want_is_used() {
        for wish in
            [HopRequest::Plain, HopRequest::CongestionControl, HopRequest::Cgo, HopRequest::Lossy]
        {
            let (message, agreed) = answer(&request(wish), offered(Some(31))).unwrap();
            let controlled = matches!(wish, HopRequest::CongestionControl | HopRequest::Cgo);
            assert_eq!(agreed.sendme_inc.is_some(), controlled);
            assert_eq!(
                (agreed.cgo, agreed.lossy),
                (wish == HopRequest::Cgo, wish == HopRequest::Lossy)
            );
            assert_eq!(read_answer(&message, wish, 31), Ok(agreed));
        }
        let (message, agreed) =
            answer(&request(HopRequest::CongestionControl), offered(None)).unwrap();
        assert_eq!(agreed, AgreedFeatures::default());
        assert_eq!(read_answer(&message, HopRequest::CongestionControl, 31), Ok(agreed));
    }

    #[test]
    fn lossy_cells_need_the_word_of_both() {
        assert_eq!(request(HopRequest::Lossy), [1, 208, 0]);
        let (message, agreed) =
            answer(&request(HopRequest::Lossy), SupportedFeatures::default()).unwrap();
        assert_eq!(
            (&message[..], agreed),
            (&[0][..], AgreedFeatures::default()),
            "as a stock relay answers"
        );
        assert_eq!(read_answer(&message, HopRequest::Lossy, 31), Ok(AgreedFeatures::default()));
        let (message, _) = answer(&request(HopRequest::Lossy), offered(Some(31))).unwrap();
        for wish in [HopRequest::Plain, HopRequest::CongestionControl, HopRequest::Cgo] {
            assert_eq!(read_answer(&message, wish, 31), Err(HandshakeError::Malformed), "{wish:?}");
        }
        let (control, _) =
            answer(&request(HopRequest::CongestionControl), offered(Some(31))).unwrap();
        assert_eq!(read_answer(&control, HopRequest::Lossy, 31), Err(HandshakeError::Malformed));
        // The extension of a later version may have a body.
        let more = [1, 208, 2, 7, 7];
        assert!(answer(&more, offered(None)).unwrap().1.lossy);
    }

    #[test]
    fn an_answer_that_was_not_asked_for_or_is_far_off_is_refused() {
        let wish = HopRequest::CongestionControl;
        let (message, _) = answer(&request(wish), offered(Some(31))).unwrap();
        assert_eq!(read_answer(&message, HopRequest::Plain, 31), Err(HandshakeError::Malformed));
        let (message, _) = answer(&request(wish), offered(Some(63))).unwrap();
        assert_eq!(read_answer(&message, wish, 31), Err(HandshakeError::Malformed));
        let (message, _) = answer(&request(wish), offered(Some(15))).unwrap();
        assert_eq!(read_answer(&message, wish, 31), Err(HandshakeError::Malformed));
    }

    #[test]
    fn cgo_is_never_without_congestion_control_nor_with_what_we_do_not_know() {
        assert_eq!(
            answer(&request(HopRequest::Cgo), offered(None)).err(),
            Some(HandshakeError::Unsupported)
        );
        let alone = [1, 3, 2, 2, 6];
        assert_eq!(answer(&alone, offered(Some(31))).err(), Some(HandshakeError::Unsupported));
        let unknown = [2, 1, 0, 3, 4, 2, 6, 2, 9];
        assert_eq!(answer(&unknown, offered(Some(31))).err(), Some(HandshakeError::Unsupported));
        let (silent, _) = answer(&request(HopRequest::Plain), offered(Some(31))).unwrap();
        assert_eq!(read_answer(&silent, HopRequest::Cgo, 31), Err(HandshakeError::Malformed));
    }
}
