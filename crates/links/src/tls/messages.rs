//! Messages other than data that a TLS 1.3 peer sends after the handshake: KeyUpdates, tickets and
//! alerts (RFC 8446, sections 4.6 and 6). Any other message is a violation.

use rustls::{AlertDescription, Error, InvalidMessage, PeerMisbehaved};

use crate::PeerFault;

/// Content type of ChangeCipherSpec records (RFC 8446, section 5.1).
pub(super) const CHANGE_CIPHER_SPEC: u8 = 20;
/// Content type of records with alerts (RFC 8446, section 5.1).
pub(super) const ALERT: u8 = 21;
/// Content type of records with handshake messages (RFC 8446, section 5.1).
pub(super) const HANDSHAKE: u8 = 22;
/// Content type of records with application data (RFC 8446, section 5.1).
pub(crate) const DATA: u8 = 23;
/// Level of alerts that do not end the connection (RFC 8446, section 6).
pub(super) const WARNING: u8 = 1;
/// Level of alerts that end the connection (RFC 8446, section 6).
pub(super) const FATAL: u8 = 2;
/// Alert description: the sender sends nothing more (RFC 8446, section 6.1).
pub(super) const CLOSE_NOTIFY: u8 = 0;
/// Alert description: a message of an unsuitable type (RFC 8446, section 6.2).
pub(super) const UNEXPECTED_MESSAGE: u8 = 10;
/// Alert description: a record that cannot be decrypted (RFC 8446, section 6.2).
pub(super) const BAD_RECORD_MAC: u8 = 20;
/// Alert description: a record above the maximum length (RFC 8446, section 6.2).
pub(super) const RECORD_OVERFLOW: u8 = 22;
/// Alert description: a field with an invalid value (RFC 8446, section 6.2).
pub(super) const ILLEGAL_PARAMETER: u8 = 47;
/// Alert description: a message that cannot be parsed (RFC 8446, section 6.2).
pub(super) const DECODE_ERROR: u8 = 50;
/// Alert description: the sender cancels the handshake (RFC 8446, section 6.1).
const USER_CANCELED: u8 = 90;
/// Type of the handshake message NewSessionTicket (RFC 8446, section 4).
pub(super) const NEW_SESSION_TICKET: u8 = 4;
/// Type of the handshake message KeyUpdate (RFC 8446, section 4).
pub(super) const KEY_UPDATE: u8 = 24;
/// Bytes before the body of a handshake message: its type and length.
const PREFIX: usize = 4;
/// Maximum bytes of a handshake message's body, as in `rustls`.
const LONGEST: usize = 0xffff;
/// Maximum number of KeyUpdates without data between them, as in `rustls` and in BoringSSL.
const UPDATES: u8 = 32;
/// Maximum number of user_canceled alerts from the peer that are ignored. A further one is a
/// violation of the protocol.
const WARNINGS: u8 = 4;

/// A violation of the protocol by the peer, and the alert that reports it. `alert` is `None` if
/// the violation is itself an alert of the peer.
#[derive(Debug)]
pub(super) struct TlsViolation {
    pub(super) alert: Option<u8>,
    pub(super) fault: PeerFault,
}

/// Returns a violation of the protocol, with the alert description `alert` that reports it to the
/// peer.
pub(super) fn refuse(alert: u8, error: impl Into<Error>) -> TlsViolation {
    TlsViolation { alert: Some(alert), fault: PeerFault::of(&error.into()) }
}

/// The action that a received message requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// No action.
    Nothing,
    /// The peer's next record is encrypted with new keys. `requested` is true if the peer asks us
    /// to change our keys, too.
    Update { requested: bool },
    /// The peer sent close_notify: it will send nothing more.
    Closed,
}

/// Reader of all records of the peer that do not contain application data. A handshake message may
/// span several records.
pub(super) struct Messages {
    /// True if the peer is a server. Only servers may send session tickets.
    tickets: bool,
    joined: Vec<u8>,
    updates: u8,
    warnings: u8,
}

impl Messages {
    /// Creates the reader for the messages of a server (if `server` is true) or of a client.
    pub(super) fn from_server(server: bool) -> Messages {
        Messages { tickets: server, joined: Vec::new(), updates: UPDATES, warnings: WARNINGS }
    }

    /// Processes the arrival of a record with application data. Such a record must not interrupt a
    /// handshake message that spans several records.
    ///
    /// # Errors
    /// A handshake message is incomplete.
    pub(super) fn data(&mut self) -> Result<(), TlsViolation> {
        self.updates = UPDATES;
        self.is_not_within_another()
    }

    /// Processes a record of the type `kind` other than data.
    ///
    /// # Errors
    /// The peer must not send this record.
    pub(super) fn record(&mut self, kind: u8, content: &[u8]) -> Result<Note, TlsViolation> {
        let error = match kind {
            HANDSHAKE => return self.handshake(content),
            ALERT => return self.alert(content),
            CHANGE_CIPHER_SPEC => PeerMisbehaved::IllegalMiddleboxChangeCipherSpec.into(),
            _ => Error::from(InvalidMessage::InvalidContentType),
        };
        Err(refuse(UNEXPECTED_MESSAGE, error))
    }

    fn alert(&mut self, content: &[u8]) -> Result<Note, TlsViolation> {
        self.is_not_within_another()?;
        // The level is ignored (RFC 8446, section 6), because it follows from the description.
        let &[_, description] = content else {
            return Err(refuse(DECODE_ERROR, InvalidMessage::MessageTooShort));
        };
        match description {
            CLOSE_NOTIFY => Ok(Note::Closed),
            USER_CANCELED if self.warnings > 0 => {
                self.warnings -= 1;
                Ok(Note::Nothing)
            }
            USER_CANCELED => {
                Err(refuse(UNEXPECTED_MESSAGE, PeerMisbehaved::TooManyWarningAlertsReceived))
            }
            fatal => {
                let error = Error::AlertReceived(AlertDescription::from(fatal));
                Err(TlsViolation { alert: None, fault: PeerFault::of(&error) })
            }
        }
    }

    fn handshake(&mut self, content: &[u8]) -> Result<Note, TlsViolation> {
        if content.is_empty() {
            return Err(refuse(UNEXPECTED_MESSAGE, InvalidMessage::InvalidEmptyPayload));
        }
        self.joined.extend_from_slice(content);
        while let Some(length) = self.whole()? {
            let body: Vec<u8> = self.joined.drain(..PREFIX + length).collect();
            let note = self.message(body[0], &body[PREFIX..])?;
            if note != Note::Nothing {
                // The keys change after this message, so no other message may follow in the same
                // record.
                let whole = self.joined.is_empty();
                return if whole { Ok(note) } else { Err(interleaved_keys()) };
            }
        }
        Ok(Note::Nothing)
    }

    /// Returns the length of the body of the first received message; `None` if the message is
    /// incomplete.
    fn whole(&self) -> Result<Option<usize>, TlsViolation> {
        let Some(&[kind, high, middle, low]) = self.joined.first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        self.is_expected(kind)?;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        if length > LONGEST {
            return Err(refuse(DECODE_ERROR, InvalidMessage::HandshakePayloadTooLarge));
        }
        Ok((self.joined.len() >= PREFIX + length).then_some(length))
    }

    fn is_expected(&self, kind: u8) -> Result<(), TlsViolation> {
        match kind {
            KEY_UPDATE => Ok(()),
            NEW_SESSION_TICKET if self.tickets => Ok(()),
            _ => {
                let what = "a message that is not allowed after the handshake (only key updates \
                            and session tickets are)";
                Err(refuse(UNEXPECTED_MESSAGE, InvalidMessage::UnexpectedMessage(what)))
            }
        }
    }

    fn message(&mut self, kind: u8, body: &[u8]) -> Result<Note, TlsViolation> {
        if kind == NEW_SESSION_TICKET {
            // Tickets are not used: each link makes a full handshake.
            return Ok(Note::Nothing);
        }
        let requested = match body {
            [0] => false,
            [1] => true,
            [_] => return Err(refuse(ILLEGAL_PARAMETER, InvalidMessage::InvalidKeyUpdate)),
            _ => return Err(refuse(DECODE_ERROR, InvalidMessage::InvalidKeyUpdate)),
        };
        if self.updates == 0 {
            return Err(refuse(UNEXPECTED_MESSAGE, PeerMisbehaved::TooManyKeyUpdateRequests));
        }
        self.updates -= 1;
        Ok(Note::Update { requested })
    }

    /// Checks that no handshake message is incomplete, because no other record may interrupt it.
    fn is_not_within_another(&self) -> Result<(), TlsViolation> {
        if self.joined.is_empty() {
            return Ok(());
        }
        Err(refuse(UNEXPECTED_MESSAGE, PeerMisbehaved::MessageInterleavedWithHandshakeMessage))
    }
}

fn interleaved_keys() -> TlsViolation {
    refuse(UNEXPECTED_MESSAGE, PeerMisbehaved::KeyEpochWithPendingFragment)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UPDATE: [u8; 5] = [KEY_UPDATE, 0, 0, 1, 1];

    fn alert_of(answer: Result<Note, TlsViolation>) -> Option<u8> {
        answer.unwrap_err().alert
    }

    #[test]
    fn messages_of_any_cut_are_read_once_they_are_whole() {
        let ticket = [&[NEW_SESSION_TICKET, 0, 1, 0][..], &[9; 256]].concat();
        let all = [&ticket[..], &ticket, &UPDATE].concat();
        for cut in 1..all.len() {
            let mut messages = Messages::from_server(true);
            let mut notes: Vec<_> =
                all.chunks(cut).map(|piece| messages.record(HANDSHAKE, piece).unwrap()).collect();
            assert_eq!(notes.pop(), Some(Note::Update { requested: true }), "{cut}");
            assert!(notes.iter().all(|note| *note == Note::Nothing), "{cut}");
            messages.data().unwrap();
        }
    }

    #[test]
    fn a_client_sends_no_tickets_and_nobody_a_hello() {
        let mut client = Messages::from_server(false);
        let answer = client.record(HANDSHAKE, &[NEW_SESSION_TICKET, 0, 0, 0]);
        assert_eq!(alert_of(answer), Some(UNEXPECTED_MESSAGE));
        for kind in (0..=255).filter(|kind| ![NEW_SESSION_TICKET, KEY_UPDATE].contains(kind)) {
            let mut server = Messages::from_server(true);
            // The message is refused because of its type, whatever length its header claims.
            let answer = server.record(HANDSHAKE, &[kind, 255, 255, 255]);
            assert_eq!(alert_of(answer), Some(UNEXPECTED_MESSAGE), "{kind}");
        }
    }

    #[test]
    fn nothing_comes_between_the_parts_of_a_message() {
        for other in [DATA, ALERT] {
            let mut messages = Messages::from_server(true);
            messages.record(HANDSHAKE, &UPDATE[..3]).unwrap();
            let alert = match other {
                DATA => messages.data().unwrap_err().alert,
                _ => alert_of(messages.record(ALERT, &[FATAL, 40])),
            };
            assert_eq!(alert, Some(UNEXPECTED_MESSAGE));
        }
    }

    #[test]
    fn nothing_follows_a_key_update_in_its_record() {
        let mut messages = Messages::from_server(true);
        let answer = messages.record(HANDSHAKE, &[&UPDATE[..], &UPDATE].concat());
        assert_eq!(alert_of(answer), Some(UNEXPECTED_MESSAGE));
    }

    #[test]
    fn key_updates_of_other_forms_are_refused() {
        for (body, alert) in
            [(&[2][..], ILLEGAL_PARAMETER), (&[], DECODE_ERROR), (&[0, 0], DECODE_ERROR)]
        {
            let message = [&[KEY_UPDATE, 0, 0, body.len() as u8][..], body].concat();
            let answer = Messages::from_server(true).record(HANDSHAKE, &message);
            assert_eq!(alert_of(answer), Some(alert));
        }
    }

    #[test]
    fn a_storm_of_key_updates_is_refused_and_data_ends_it() {
        let mut messages = Messages::from_server(false);
        for _ in 0..3 {
            for _ in 0..UPDATES {
                messages.record(HANDSHAKE, &UPDATE).unwrap();
            }
            messages.data().unwrap();
        }
        for _ in 0..UPDATES {
            messages.record(HANDSHAKE, &UPDATE).unwrap();
        }
        assert_eq!(alert_of(messages.record(HANDSHAKE, &UPDATE)), Some(UNEXPECTED_MESSAGE));
    }

    #[test]
    fn a_long_message_is_refused_before_it_has_come() {
        let mut messages = Messages::from_server(true);
        let answer = messages.record(HANDSHAKE, &[NEW_SESSION_TICKET, 1, 0, 0]);
        assert_eq!(alert_of(answer), Some(DECODE_ERROR));
    }

    #[test]
    fn an_alert_closes_says_nothing_or_is_a_fault_that_none_answers() {
        let mut messages = Messages::from_server(true);
        assert_eq!(messages.record(ALERT, &[WARNING, CLOSE_NOTIFY]).unwrap(), Note::Closed);
        for _ in 0..WARNINGS {
            assert_eq!(messages.record(ALERT, &[1, USER_CANCELED]).unwrap(), Note::Nothing);
        }
        assert_eq!(alert_of(messages.record(ALERT, &[1, USER_CANCELED])), Some(UNEXPECTED_MESSAGE));
        assert_eq!(alert_of(messages.record(ALERT, &[FATAL, 40])), None);
        for content in [&[][..], &[1], &[2, 40, 0]] {
            assert_eq!(alert_of(messages.record(ALERT, content)), Some(DECODE_ERROR));
        }
    }

    #[test]
    fn other_types_of_content_are_refused() {
        for kind in (0..=255).filter(|kind| !(ALERT..=DATA).contains(kind)) {
            let answer = Messages::from_server(true).record(kind, &[1]);
            assert_eq!(alert_of(answer), Some(UNEXPECTED_MESSAGE), "{kind}");
        }
    }
}
