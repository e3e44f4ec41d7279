//! A channel: one link to a neighbour, from the first VERSIONS cell until both ends know each
//! other's identity (tor-spec, "Negotiating and initializing channels").
//!
//! The channel handles the cells of the link itself ([`Channel::take`]), and its caller handles
//! the cells of circuits. [`Channel::outbox`] has the bytes to send.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::Time;
use rand_core::CryptoRng;

use crate::order::{CellOrder, Turn, WrongNumber};
use crate::wire::cell::{self, Cell, Cells, Command, Width};
use crate::wire::crypto::random;
pub use crate::wire::keys::Credentials;
use crate::wire::link::{self, BadCerts, Identity, Info, Padding, TlsLinkToken, VerifiedCerts};
pub use negotiation::Capabilities;
use negotiation::Negotiation;
use transcript::Transcript;

mod negotiation;
mod transcript;

/// Time limit for a channel's handshake.
pub const HANDSHAKE: Duration = Duration::from_secs(60);
/// Maximum accepted length of a variable-length cell, in bytes. Present CERTS cells need only
/// about 1,500 bytes.
const LONGEST: usize = 8192;

/// Our role on a link, with the credentials that we use in this role.
#[derive(Clone)]
pub enum Role {
    /// We opened the link as a client, and stay anonymous.
    Client,
    /// We opened the link as a relay, and authenticate ourselves.
    Initiator(Arc<Credentials>),
    /// The neighbour (the program at the other end of the link) opened the link, and we are a
    /// relay.
    Responder(Arc<Credentials>),
    /// The link joins two shards (parallel workers) of one relay.
    Sibling {
        /// True at one end of the link, false at the other.
        first: bool,
    },
}

impl Role {
    /// Returns true if the role's credentials were made for the TLS certificate that we presented
    /// on a link. `certificate` is the SHA-256 of this TLS certificate. Also returns true in any
    /// role other than [`Role::Responder`], or if `certificate` is `None` (unknown).
    pub(crate) fn shows(&self, certificate: Option<[u8; 32]>) -> bool {
        match (self, certificate) {
            (Role::Responder(credentials), Some(shown)) => credentials.tls_certificate == shown,
            _ => true,
        }
    }
}

/// The circuit IDs that one end of a link may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// IDs whose highest bit is set.
    High,
    /// IDs whose highest bit is clear.
    Low,
    /// All IDs. The other end may then choose no IDs.
    Any,
    /// No IDs. The other end chooses all of them.
    None,
}

/// Facts about a link whose TLS handshake is complete.
#[derive(Clone, Debug)]
pub struct Start {
    /// Time at which the TLS handshake completed.
    pub now: Time,
    /// Time at which the TLS handshake completed, in seconds since 1970.
    pub unix: u64,
    /// The neighbour's address.
    pub peer: IpAddr,
    /// Our own addresses, which we send in NETINFO; empty for clients.
    pub own: Vec<IpAddr>,
    /// SHA-256 of the neighbour's TLS certificate; `None` if we are the responder.
    pub peer_certificate: Option<[u8; 32]>,
    /// SHA-256 of the TLS certificate that we presented as the responder, if it is known. A relay
    /// replaces its certificate from time to time, and its credentials must belong to the
    /// presented one.
    pub own_certificate: Option<[u8; 32]>,
    /// Properties of the link, and the extensions that it can use.
    pub capabilities: Capabilities,
    /// Preferences for an additional QUIC link to the same neighbour.
    pub quic_preferences: QuicPreferences,
}

impl Start {
    /// Returns the facts about a link to `peer` over a byte stream, whose cells arrive in order.
    /// The other fields have default values.
    #[must_use]
    pub fn new(now: Time, unix: u64, peer: IpAddr) -> Start {
        Start {
            now,
            unix,
            peer,
            own: Vec::new(),
            peer_certificate: None,
            own_certificate: None,
            capabilities: Capabilities::ORDERED,
            quic_preferences: QuicPreferences::default(),
        }
    }
}

/// Preferences for a QUIC link that runs alongside a TLS link to the same neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuicPreferences {
    /// UDP port at which we accept QUIC links; 0 if we accept none.
    pub port: u16,
    /// First byte of the connection ID of QUIC links that are opened alongside this link. The byte
    /// identifies the shard (one of the relay's parallel workers) that owns this link.
    pub first_byte: u8,
    /// True if no QUIC link is opened alongside an unordered link, whose cells have sequence
    /// numbers and may arrive in any order. On such a link, we then ignore the neighbour's offer
    /// of QUIC links.
    pub unless_unordered: bool,
}

/// Outcome of passing a cell to a channel, which determines what the caller must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellOutcome {
    /// The channel has handled the cell.
    Own,
    /// The channel has handled the cell, and is open now.
    Opened,
    /// The cell belongs to a circuit, or its command is unknown.
    Circuit,
    /// The neighbour accepts QUIC links at this UDP port. A QUIC link that is opened there
    /// identifies this link by the token.
    Offered(u16, TlsLinkToken),
    /// The cell pairs a QUIC link with a TLS link to the same neighbour. The caller must handle
    /// the cell.
    Pairing,
    /// The channel needs a secret of the TLS session: the exporter's output for the label
    /// [`link::EXPORT_LABEL`] and this context. The caller must pass it to [`Channel::exported`]
    /// before the next cell.
    Export([u8; 32]),
}

/// A neighbour's violation of the protocol. The link is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A cell that the protocol does not allow at this point.
    OutOfPlace(Command),
    /// A malformed cell.
    Malformed(Command),
    /// A cell with a sequence number that is already used, or too far ahead.
    WrongNumber(Command),
    /// No link protocol is supported by both ends.
    NoVersion,
    /// Invalid certificates.
    Certificates(BadCerts),
    /// An AUTHENTICATE cell that does not prove the neighbour's identity.
    NotAuthentic,
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::OutOfPlace(Command(code)) => {
                write!(out, "a cell that is not allowed at this point (command {code})")
            }
            Fault::Malformed(Command(code)) => write!(out, "a malformed cell (command {code})"),
            Fault::WrongNumber(Command(code)) => {
                write!(out, "a cell with an invalid sequence number (command {code})")
            }
            Fault::NoVersion => {
                out.write_str("no version of the link protocol that both ends of the link support")
            }
            Fault::Certificates(bad) => bad.fmt(out),
            Fault::NotAuthentic => {
                out.write_str("an AUTHENTICATE cell that does not prove the neighbour's identity")
            }
        }
    }
}

/// The state of a channel at one end of its link.
pub struct Channel {
    role: Role,
    start: Start,
    stage: Stage,
    negotiation: Negotiation,
    certified: Option<VerifiedCerts>,
    /// Body of an AUTHENTICATE cell whose check waits for the exported secret; `None` if no such
    /// cell waits.
    authenticate: Option<Vec<u8>>,
    sent: Transcript,
    received: Transcript,
    sent_netinfo: bool,
    proven: bool,
    /// State that restores the order of cells by their sequence numbers. `None` unless both ends
    /// agreed on sequence numbers, so that cells may arrive out of order.
    order: Option<Box<CellOrder>>,
    /// On a link whose cells have sequence numbers, all TLS records will have one fixed size. This
    /// is the number of bytes at the front of the outbox that may be sent before; later bytes wait
    /// for the fixed size. `None` once the records have that size, and on other links.
    unfixed: Option<usize>,
    /// True once the caller was asked to fix the size of TLS records ([`Channel::wants_fixed`] has
    /// returned true).
    size_requested: bool,
    /// True if the neighbour has offered QUIC links.
    was_offered: bool,
    /// Bytes to send before any cell of a circuit. See [`Channel::take_outbox`].
    pub outbox: Vec<u8>,
    /// Our address as the neighbour sees it; `None` until the neighbour's NETINFO names it.
    pub seen_as: Option<IpAddr>,
    /// The neighbour's clock minus ours, in seconds. `None` if the neighbour's NETINFO has no
    /// time.
    pub skew: Option<i64>,
    /// The padding that the neighbour requested.
    pub padding: Padding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// The neighbour's VERSIONS cell is expected.
    Versions,
    /// The neighbour's VERSIONS has arrived. Its CERTS and other cells up to NETINFO are expected.
    Proofs,
    Open,
}

impl Channel {
    /// Returns the channel of a link whose TLS handshake is complete.
    pub fn new(role: Role, start: Start) -> Channel {
        Channel::speaking(start.capabilities.versions(), role, start)
    }

    /// Returns a channel that offers only the link protocols `versions`.
    pub fn speaking(versions: &'static [u16], role: Role, start: Start) -> Channel {
        let mut channel = Channel::in_stage(Stage::Versions, role, start);
        channel.negotiation.speak(versions);
        if channel.is_initiator() {
            channel.send_variable(Command::VERSIONS, &link::put_versions(versions));
        }
        channel
    }

    /// Returns a channel between two shards (parallel workers) of one relay. The channel is open
    /// at once, because the shards need not authenticate each other.
    pub fn sibling(first: bool) -> Channel {
        let start = Start::new(Time::ZERO, 0, Ipv4Addr::UNSPECIFIED.into());
        Channel::in_stage(Stage::Open, Role::Sibling { first }, start)
    }

    fn in_stage(stage: Stage, role: Role, start: Start) -> Channel {
        Channel {
            role,
            negotiation: Negotiation::new(start.capabilities),
            start,
            stage,
            certified: None,
            authenticate: None,
            sent: Transcript::default(),
            received: Transcript::default(),
            sent_netinfo: false,
            proven: false,
            order: None,
            unfixed: None,
            size_requested: false,
            was_offered: false,
            outbox: Vec::new(),
            seen_as: None,
            skew: None,
            padding: Padding::Nothing,
        }
    }

    /// Returns the width of circuit IDs in cells that are sent or received from now on.
    pub fn width(&self) -> Width {
        if self.is_sibling() { Width::Four } else { self.negotiation.width() }
    }

    /// Returns the circuit IDs that we may choose (tor-spec, "Choosing circuit IDs in create
    /// cells"). From link protocol 4, the end that opened the link chooses IDs with the highest
    /// bit set. In link protocol 3, the relay with the larger RSA key chooses these IDs. On the
    /// link of an anonymous client in link protocol 3, the client may choose any ID, and the relay
    /// none.
    pub fn ids(&self) -> Ids {
        if self.width() == Width::Four {
            return if self.is_initiator() { Ids::High } else { Ids::Low };
        }
        let them = self.certified.filter(|_| self.proven).map(|certified| certified.rsa);
        match (&self.role, them) {
            (Role::Initiator(us) | Role::Responder(us), Some(them)) if us.rsa > them => Ids::High,
            (Role::Initiator(_) | Role::Responder(_), Some(_)) => Ids::Low,
            (Role::Client, _) => Ids::Any,
            _ => Ids::None,
        }
    }

    /// Returns the maximum accepted length of a variable-length cell, in bytes.
    pub fn longest(&self) -> usize {
        LONGEST
    }

    /// Returns true if we opened the link.
    pub fn is_initiator(&self) -> bool {
        !matches!(self.role, Role::Responder(_) | Role::Sibling { first: false })
    }

    /// Returns true if the link leads to another shard (parallel worker) of this relay.
    pub fn is_sibling(&self) -> bool {
        matches!(self.role, Role::Sibling { .. })
    }

    /// Returns true if circuits may be created on the link.
    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Returns the time limit of the handshake; `None` once the handshake is complete.
    pub fn deadline(&self) -> Option<Time> {
        (!self.is_open()).then_some(self.start.now + HANDSHAKE)
    }

    /// Returns the identity that the neighbour has proved. Returns `None` if the neighbour is a
    /// client.
    pub fn identity(&self) -> Option<Identity> {
        self.certified.filter(|_| self.proven).map(|certified| certified.identity)
    }

    /// Returns true if one end of the link is a client.
    pub fn is_clients(&self) -> bool {
        matches!(self.role, Role::Client) || self.identity().is_none()
    }

    /// Returns true if each circuit on the link has its own sequence of cells, such as a QUIC
    /// stream. A lost packet then delays only the circuits whose bytes it carries.
    pub fn has_stream_per_circuit(&self) -> bool {
        self.start.capabilities.stream_per_circuit
    }

    /// Returns true if both ends agreed to send the cells of lossy circuits (circuits that
    /// tolerate lost cells) in the link's datagrams.
    pub fn takes_lossy(&self) -> bool {
        self.negotiation.agreed().lossy
    }

    /// Offers QUIC links to the neighbour, if the neighbour opened this link and both ends support
    /// QUIC links. The offer contains our port for QUIC links, and a token made from the random
    /// bytes `chance`. The neighbour's QUIC links identify this link by the token. Returns the
    /// token. Returns `None` if no offer was sent, or if circuits of these QUIC links may not move
    /// to this link.
    pub(crate) fn offer(&mut self, chance: TlsLinkToken) -> Option<TlsLinkToken> {
        let port = self.offers()?;
        let mut token = chance;
        token[0] = self.start.quic_preferences.first_byte;
        let token = Some(token).filter(|_| self.takes_detours());
        self.send_control_cell(0, Command::QUIC, &link::put_quic(port, &token.unwrap_or_default()));
        token
    }

    /// Returns the port at which we accept QUIC links, if we must offer it to the neighbour, else
    /// `None`.
    pub(crate) fn offers(&self) -> Option<u16> {
        let port = Some(self.start.quic_preferences.port).filter(|port| *port > 0);
        port.filter(|_| self.negotiation.agreed().parallel_quic && !self.is_initiator())
    }

    /// Returns true if circuits may move to this TLS link from the QUIC links alongside it. They
    /// may not if this link's cells have sequence numbers, because such a cell has no room for a
    /// cell of another link.
    pub(crate) fn takes_detours(&self) -> bool {
        self.negotiation.agreed().parallel_quic && self.order.is_none()
    }

    /// Returns true if the link protocol supports padding.
    pub fn has_padding(&self) -> bool {
        self.negotiation.has_padding()
    }

    /// Asks the neighbour for the padding `wanted`, which may be no padding. Only a client may
    /// ask, and only once the channel is open.
    pub fn ask_padding(&mut self, wanted: Padding) {
        let body = link::put_padding(wanted);
        self.send_control_cell(0, Command::PADDING_NEGOTIATE, &body);
    }

    /// Appends a fixed-length cell to the outbox, which is sent before cells of circuits.
    pub fn send_control_cell(&mut self, circuit: u32, command: Command, body: &[u8]) {
        if let Some(order) = self.order.as_mut().filter(|_| self.sent_netinfo) {
            let number = order.number(circuit);
            return cell::put_numbered(&mut self.outbox, circuit, command, number, body);
        }
        let width = self.width();
        cell::put_fixed_as(&mut self.outbox, width, circuit, command, body);
    }

    /// Appends a variable-length cell to the outbox. The link must be open, and its cells must not
    /// have sequence numbers.
    pub(crate) fn send_long(&mut self, command: Command, body: &[u8]) {
        cell::put_variable(&mut self.outbox, Width::Four, command, body);
    }

    /// Sets the format in which `cells` parses the next cells: cells with sequence numbers, or
    /// cells with the agreed width of circuit IDs.
    pub fn frame(&self, cells: &mut Cells<'_>) {
        match &self.order {
            Some(_) if self.is_open() => cells.expect_numbers(),
            _ => cells.set_width(self.width()),
        }
    }

    /// Returns the state that restores the order of cells by their sequence numbers; `None` if the
    /// cells of this link have none.
    pub(crate) fn order(&mut self) -> Option<&mut CellOrder> {
        self.order.as_deref_mut()
    }

    /// Returns, for reading, the state that restores the order of cells by their sequence numbers;
    /// `None` if the cells of this link have none.
    pub(crate) fn cell_order(&self) -> Option<&CellOrder> {
        self.order.as_deref()
    }

    /// Returns whether `cell` is the next in order, and stores it for later if it is not. If the
    /// cells of the link have no sequence numbers, every cell is the next in order.
    ///
    /// # Errors
    /// [`Fault::WrongNumber`] if a correct neighbour would not have used the cell's sequence
    /// number. The link must then be closed.
    pub(crate) fn turn(&mut self, cell: &Cell<'_>) -> Result<Turn, Fault> {
        match (&mut self.order, cell.number) {
            (Some(order), Some(number)) => {
                let wrong = |WrongNumber| Fault::WrongNumber(cell.command);
                order.take(cell, number).map_err(wrong)
            }
            _ => Ok(Turn::Now),
        }
    }

    /// Returns true if the outbox has bytes that may be sent now.
    pub fn has_output(&self) -> bool {
        self.unfixed.unwrap_or(self.outbox.len()) > 0
    }

    /// Moves the bytes that may be sent now from the outbox to the end of `out`. On a link whose
    /// cells have sequence numbers, cells after our NETINFO stay in the outbox until
    /// `Channel::fixed` is called.
    pub fn take_outbox(&mut self, out: &mut Vec<u8>) {
        match &mut self.unfixed {
            Some(before) => out.extend(self.outbox.drain(..std::mem::take(before))),
            None => out.append(&mut self.outbox),
        }
    }

    /// Returns true if cells of circuits must wait until all TLS records of the link have one
    /// fixed size.
    pub fn is_held_back(&self) -> bool {
        self.unfixed.is_some()
    }

    /// Returns true if the caller must give all TLS records of the link one fixed size from now
    /// on, in both directions. Returns true only once.
    pub(crate) fn wants_fixed(&mut self) -> bool {
        let wants = self.is_open() && self.unfixed == Some(0);
        wants && !std::mem::replace(&mut self.size_requested, true)
    }

    /// Records that all TLS records of the link now have one fixed size: the size of a cell with a
    /// sequence number.
    pub(crate) fn fixed(&mut self) {
        self.unfixed = None;
    }

    /// Returns the neighbour's address.
    pub fn peer(&self) -> IpAddr {
        self.start.peer
    }

    /// Handles `cell`. The caller must pass cells in the order of their arrival.
    ///
    /// # Errors
    /// Returns a [`Fault`] if the neighbour violated the protocol. The link must then be closed.
    pub fn take(&mut self, rng: &mut dyn CryptoRng, cell: &Cell<'_>) -> Result<CellOutcome, Fault> {
        if cell.command == Command::AUTHENTICATE {
            // AUTHENTICATE signs everything that the initiator has sent before it.
            return self.take_authenticate(cell.body);
        }
        if self.stage != Stage::Open {
            self.received.add(cell.head, cell.body);
        }
        match (self.stage, cell.command) {
            (Stage::Versions, Command::VERSIONS) => self.take_versions(rng, cell.body),
            (Stage::Versions, command) => Err(Fault::OutOfPlace(command)),
            (_, Command::PADDING | Command::VPADDING | Command::AUTHORIZE) => Ok(CellOutcome::Own),
            (Stage::Proofs, Command::CERTS) => self.take_certs(cell.body),
            (Stage::Proofs, Command::AUTH_CHALLENGE) => self.take_challenge(cell.body),
            (Stage::Proofs, Command::CAPABILITIES) if self.negotiation.has_capabilities() => {
                self.take_capabilities(cell.body)
            }
            (Stage::Proofs, Command::NETINFO) => self.take_netinfo(cell.body),
            (Stage::Proofs, command) if command.is_variable() => Ok(CellOutcome::Own),
            (Stage::Proofs, command) => Err(Fault::OutOfPlace(command)),
            (Stage::Open, Command::PADDING_NEGOTIATE) => self.take_padding(cell.body),
            (Stage::Open, Command::QUIC) if self.negotiation.agreed().parallel_quic => {
                self.take_offer(cell.body)
            }
            (Stage::Open, Command::CAPABILITIES) if self.negotiation.has_capabilities() => {
                Err(Fault::OutOfPlace(cell.command))
            }
            (Stage::Open, Command::BESIDE | Command::ARRIVED)
                if self.has_stream_per_circuit() && cell.circuit == 0 =>
            {
                Ok(CellOutcome::Pairing)
            }
            (Stage::Open, Command::MOVE | Command::DETOUR | Command::MOVE_OVER)
                if self.takes_detours() =>
            {
                Ok(CellOutcome::Pairing)
            }
            (Stage::Open, Command::NETINFO | Command::CERTS | Command::AUTH_CHALLENGE) => {
                Err(Fault::OutOfPlace(cell.command))
            }
            (Stage::Open, _) => Ok(CellOutcome::Circuit),
        }
    }

    /// Handles the exported secret that [`CellOutcome::Export`] requested.
    ///
    /// # Errors
    /// [`Fault::NotAuthentic`] if the neighbour's proof of identity is not valid for this link.
    pub fn exported(&mut self, rng: &mut dyn CryptoRng, secret: [u8; 32]) -> Result<(), Fault> {
        let Some(binding) = self.binding(secret) else { return Err(Fault::NotAuthentic) };
        match (&self.role, self.authenticate.take()) {
            (Role::Initiator(credentials), None) => {
                let body = binding.sign(&credentials.auth_key, random(rng));
                self.send_variable(Command::AUTHENTICATE, &body);
                self.send_netinfo();
                Ok(())
            }
            (Role::Responder(_), Some(body)) => {
                let key = self.certified.and_then(|certified| certified.auth_key);
                let key = key.ok_or(Fault::NotAuthentic)?;
                self.proven = binding.proves(&body, &key);
                if self.proven { Ok(()) } else { Err(Fault::NotAuthentic) }
            }
            _ => Err(Fault::NotAuthentic),
        }
    }

    fn take_versions(
        &mut self,
        rng: &mut dyn CryptoRng,
        body: &[u8],
    ) -> Result<CellOutcome, Fault> {
        self.negotiation.take_versions(body)?;
        self.stage = Stage::Proofs;
        if let Role::Responder(credentials) = &self.role {
            let certs = link::put_certs(&credentials.as_responder);
            let versions = link::put_versions(self.negotiation.versions());
            self.send_variable_as(Width::Two, Command::VERSIONS, &versions);
            self.send_variable(Command::CERTS, &certs);
            self.send_variable(Command::AUTH_CHALLENGE, &link::put_challenge(&random(rng)));
            self.sent.close();
            self.send_netinfo();
        }
        Ok(CellOutcome::Own)
    }

    fn take_certs(&mut self, body: &[u8]) -> Result<CellOutcome, Fault> {
        if self.certified.is_some() {
            return Err(Fault::OutOfPlace(Command::CERTS));
        }
        let certified = link::read_certs(body, self.start.unix).map_err(Fault::Certificates)?;
        if self.is_initiator() {
            // This comparison binds the neighbour's identity to the TLS session. Without it, a man
            // in the middle would go unnoticed.
            let same = certified.tls_certificate == self.start.peer_certificate;
            if certified.tls_certificate.is_none() || !same {
                return Err(Fault::Certificates(BadCerts::Bad(5)));
            }
            self.proven = true;
        }
        self.certified = Some(certified);
        Ok(CellOutcome::Own)
    }

    fn take_challenge(&mut self, body: &[u8]) -> Result<CellOutcome, Fault> {
        let malformed = Fault::Malformed(Command::AUTH_CHALLENGE);
        let may_authenticate = link::read_challenge(body).ok_or(malformed)?;
        if !self.is_initiator() || !self.proven || self.sent_netinfo {
            return Err(Fault::OutOfPlace(Command::AUTH_CHALLENGE));
        }
        self.received.close();
        let Role::Initiator(credentials) = &self.role else {
            self.send_netinfo();
            return Ok(CellOutcome::Own);
        };
        if !may_authenticate {
            return Err(malformed);
        }
        let (context, certs) = (credentials.rsa_sha256, link::put_certs(&credentials.as_initiator));
        self.send_variable(Command::CERTS, &certs);
        self.sent.close();
        Ok(CellOutcome::Export(context))
    }

    fn take_authenticate(&mut self, body: &[u8]) -> Result<CellOutcome, Fault> {
        let certified = self.certified.filter(|_| self.stage == Stage::Proofs);
        let in_place = !self.is_initiator() && !self.proven && self.authenticate.is_none();
        let certified = certified.filter(|_| in_place);
        let certified = certified.ok_or(Fault::OutOfPlace(Command::AUTHENTICATE))?;
        self.received.close();
        self.authenticate = Some(body.to_vec());
        Ok(CellOutcome::Export(certified.rsa_sha256))
    }

    fn take_capabilities(&mut self, body: &[u8]) -> Result<CellOutcome, Fault> {
        if self.is_initiator() && !self.proven {
            return Err(Fault::OutOfPlace(Command::CAPABILITIES));
        }
        self.negotiation.take_capabilities(body)?;
        if self.negotiation.agreed().unordered {
            self.order = Some(Box::default());
            // Cells up to NETINFO that are already in the outbox are not numbered.
            self.unfixed = self.sent_netinfo.then_some(self.outbox.len());
        }
        Ok(CellOutcome::Own)
    }

    fn take_netinfo(&mut self, body: &[u8]) -> Result<CellOutcome, Fault> {
        let info = link::read_netinfo(body).ok_or(Fault::Malformed(Command::NETINFO))?;
        if !self.negotiation.is_done() || self.is_initiator() && !self.proven {
            return Err(Fault::OutOfPlace(Command::NETINFO));
        }
        self.seen_as = info.seen;
        self.skew = info.unix.map(|theirs| theirs as i64 - self.start.unix as i64);
        if !self.sent_netinfo {
            self.send_netinfo();
        }
        self.stage = Stage::Open;
        Ok(CellOutcome::Opened)
    }

    fn take_padding(&mut self, body: &[u8]) -> Result<CellOutcome, Fault> {
        let command = Command::PADDING_NEGOTIATE;
        if self.is_initiator() || !self.has_padding() {
            return Err(Fault::OutOfPlace(command));
        }
        self.padding = link::read_padding(body).ok_or(Fault::Malformed(command))?;
        Ok(CellOutcome::Own)
    }

    fn take_offer(&mut self, body: &[u8]) -> Result<CellOutcome, Fault> {
        if !self.is_initiator() || std::mem::replace(&mut self.was_offered, true) {
            return Err(Fault::OutOfPlace(Command::QUIC));
        }
        let (port, token) = link::read_quic(body).ok_or(Fault::Malformed(Command::QUIC))?;
        Ok(match self.start.quic_preferences.unless_unordered && self.order.is_some() {
            true => CellOutcome::Own,
            false => CellOutcome::Offered(port, token),
        })
    }

    fn binding(&self, secret: [u8; 32]) -> Option<link::Binding> {
        let them = self.certified?;
        let (us, initiator) = match &self.role {
            Role::Client | Role::Sibling { .. } => return None,
            Role::Initiator(credentials) => (credentials, true),
            Role::Responder(credentials) => (credentials, false),
        };
        let order = |us, them| if initiator { [us, them] } else { [them, us] };
        let (ours, theirs) = (self.sent.digest(), self.received.digest());
        Some(link::Binding {
            rsa: order(us.rsa_sha256, them.rsa_sha256),
            ed25519: order(us.identity.ed25519, them.identity.ed25519),
            responder_log: if initiator { theirs } else { ours },
            initiator_log: if initiator { ours } else { theirs },
            tls_certificate: self.start.peer_certificate.unwrap_or(us.tls_certificate),
            secret,
        })
    }

    fn send_netinfo(&mut self) {
        let is_relay = !matches!(self.role, Role::Client);
        let info = Info {
            unix: is_relay.then_some(self.start.unix),
            seen: Some(self.start.peer),
            own: self.start.own.clone(),
        };
        if let Some(capabilities) = self.negotiation.capabilities() {
            self.send_control_cell(0, Command::CAPABILITIES, &capabilities);
        }
        self.send_control_cell(0, Command::NETINFO, &link::put_netinfo(&info));
        // If both ends want it, cells are numbered from here on.
        self.sent_netinfo = true;
        self.unfixed = self.order.is_some().then_some(self.outbox.len());
    }

    fn send_variable(&mut self, command: Command, body: &[u8]) {
        let width = self.width();
        self.send_variable_as(width, command, body);
    }

    fn send_variable_as(&mut self, width: Width, command: Command, body: &[u8]) {
        let before = self.outbox.len();
        cell::put_variable(&mut self.outbox, width, command, body);
        self.sent.add(&self.outbox[before..], &[]);
    }
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed::stream;

    use super::*;
    use crate::test_keys::relay_keys;
    use crate::wire::cell::Cells;

    const UNIX: u64 = 1_800_000_000;
    const TLS: &[u8] = b"the TLS certificate";
    const TOKEN: TlsLinkToken = [7; 16];

    pub(super) fn credentials(seed: u64) -> Arc<Credentials> {
        let (keys, mut rng) = (relay_keys(seed, "relay"), stream(seed, 0, "certificates"));
        Arc::new(keys.credentials(&mut rng, TLS, UNIX).unwrap())
    }

    pub(super) fn start(peer_certificate: Option<[u8; 32]>) -> Start {
        let start = Start::new(Time::ZERO, UNIX, Ipv4Addr::LOCALHOST.into());
        Start { peer_certificate, ..start }
    }

    /// Passes the cells in the outbox of `from` to `to`. If `to` requests the exported secret of
    /// the TLS session, passes a fixed secret to it.
    fn carry(from: &mut Channel, to: &mut Channel) {
        let mut rng = stream(9, 0, "link");
        let mut bytes = std::mem::take(&mut from.outbox);
        let mut cells = Cells::new(&mut bytes, to.width(), to.longest());
        while let Some(cell) = cells.next_cell().unwrap() {
            if let CellOutcome::Export(_) = to.take(&mut rng, &cell).unwrap() {
                to.exported(&mut rng, [5; 32]).unwrap();
            }
            cells.set_width(to.width());
        }
    }

    /// Returns two ends of a link whose initiator supports the link protocols `versions`.
    fn pair(versions: &'static [u16], role: Role, them: &Arc<Credentials>) -> [Channel; 2] {
        let mut one = Channel::speaking(versions, role, start(Some(them.tls_certificate)));
        let mut two = Channel::new(Role::Responder(Arc::clone(them)), start(None));
        for _ in 0..3 {
            carry(&mut one, &mut two);
            carry(&mut two, &mut one);
        }
        assert!(one.is_open() && two.is_open());
        [one, two]
    }

    #[test]
    fn in_link_protocol_3_the_larger_key_chooses_the_high_circuit_ids() {
        let (small, large) = (credentials(1), credentials(2));
        let [small, large] = if small.rsa < large.rsa { [small, large] } else { [large, small] };
        for (one, two, ids) in
            [(&small, &large, [Ids::Low, Ids::High]), (&large, &small, [Ids::High, Ids::Low])]
        {
            let ends = pair(&[3], Role::Initiator(Arc::clone(one)), two);
            assert_eq!(ends.each_ref().map(Channel::ids), ids);
            assert!(ends.iter().all(|end| end.width() == Width::Two && !end.has_padding()));
            assert_eq!(ends[1].identity(), Some(one.identity), "it has proved who it is");
        }
        let ends = pair(&[3, 4, 5], Role::Initiator(Arc::clone(&small)), &large);
        assert_eq!(ends.each_ref().map(Channel::ids), [Ids::High, Ids::Low]);
        assert!(ends.iter().all(|end| end.width() == Width::Four && end.has_padding()));
        let ends = pair(&[3], Role::Client, &large);
        assert_eq!(ends.each_ref().map(Channel::ids), [Ids::Any, Ids::None]);
    }

    /// Returns two ends of a link after their handshake; the second end has the credentials
    /// `them`.
    fn after_handshake(them: Arc<Credentials>, [one, two]: [Start; 2]) -> [Channel; 2] {
        let role = Role::Initiator(credentials(1));
        let mut ends = [Channel::new(role, one), Channel::new(Role::Responder(them), two)];
        for _ in 0..3 {
            let [one, two] = &mut ends;
            carry(one, two);
            carry(two, one);
        }
        ends
    }

    /// Returns two ends of a link after their handshake. The first value of each argument is the
    /// port at which the end accepts QUIC links (0 for none); with `None`, the end supports no
    /// QUIC links. Port 1 also sets `unless_unordered`. The second value is true if the end wants
    /// numbered cells.
    pub(super) fn wanting(one: (Option<u16>, bool), two: (Option<u16>, bool)) -> [Channel; 2] {
        let them = credentials(2);
        let of = |(port, unordered): (Option<u16>, bool), certificate| {
            let unless_unordered = port == Some(1);
            let first_byte = TOKEN[0];
            let quic_preferences =
                QuicPreferences { port: port.unwrap_or_default(), first_byte, unless_unordered };
            let ordered = Capabilities::ORDERED;
            let capabilities = Capabilities { unordered, parallel_quic: port.is_some(), ..ordered };
            Start { quic_preferences, capabilities, ..start(certificate) }
        };
        let starts = [of(one, Some(them.tls_certificate)), of(two, None)];
        after_handshake(them, starts)
    }

    /// Returns two ends of a link with these capabilities, after their handshake.
    pub(super) fn agreeing([one, two]: [Capabilities; 2]) -> [Channel; 2] {
        let them = credentials(2);
        let of = |capabilities, certificate| Start { capabilities, ..start(certificate) };
        let starts = [of(one, Some(them.tls_certificate)), of(two, None)];
        after_handshake(them, starts)
    }

    /// Passes a QUIC cell with the given body to a channel, and returns the channel's result.
    fn takes(channel: &mut Channel, body: &[u8]) -> Result<CellOutcome, Fault> {
        let mut bytes = Vec::new();
        cell::put_fixed(&mut bytes, 0, Command::QUIC, body);
        let mut cells = Cells::new(&mut bytes, Width::Four, 0);
        channel.take(&mut stream(1, 0, "offer"), &cells.next_cell().unwrap().unwrap())
    }

    #[test]
    fn where_quic_comes_in_is_said_once_and_to_who_asked_alone() {
        let [mut one, mut two] = wanting((Some(0), false), (Some(9), false));
        assert_eq!(one.offer(TOKEN), None);
        assert!(one.outbox.is_empty(), "nothing comes in at who opened the link");
        let mut chance = TOKEN;
        chance[0] = 1;
        assert_eq!(two.offer(chance), Some(TOKEN), "it begins as the driver wants it");
        assert_eq!(two.outbox[..7], [0, 0, 0, 0, 72, 0, 9]);
        let offer = link::put_quic(9, &TOKEN);
        assert_eq!(two.outbox[5..5 + offer.len()], offer);
        assert_eq!(takes(&mut one, &offer), Ok(CellOutcome::Offered(9, TOKEN)));
        let again = Err(Fault::OutOfPlace(Command::QUIC));
        assert_eq!(takes(&mut one, &offer), again);
        assert_eq!(takes(&mut two, &offer), again, "who was reached is told nothing");
        let [mut one, _] = wanting((Some(0), false), (Some(9), false));
        let none = link::put_quic(0, &TOKEN);
        assert_eq!(takes(&mut one, &none), Err(Fault::Malformed(Command::QUIC)));
        // With the preference `unless_unordered` (port 1), an offer is ignored if the link is
        // unordered.
        for unordered in [false, true] {
            let [mut one, _] = wanting((Some(1), unordered), (Some(9), unordered));
            let offered = CellOutcome::Offered(9, TOKEN);
            let outcome = [offered, CellOutcome::Own][usize::from(unordered)];
            assert_eq!(takes(&mut one, &offer), Ok(outcome));
        }
        let [mut one, mut two] = wanting((None, false), (Some(9), false));
        assert_eq!(two.offer(TOKEN), None);
        assert!(two.outbox.is_empty());
        // The neighbour handles QUIC like a cell with an unknown command.
        assert_eq!(takes(&mut one, &offer), Ok(CellOutcome::Circuit));
        // Numbered cells have no room for cells of another link, so the token consists of zeros.
        let [_, mut two] = wanting((Some(0), true), (Some(9), true));
        let before = two.outbox.len();
        assert_eq!(two.offer(TOKEN), None);
        assert_eq!(two.outbox[before + 9..before + 27], link::put_quic(9, &[0; 16]));
    }

    #[test]
    fn a_proof_for_one_connection_proves_nothing_on_another() {
        let them = credentials(2);
        let capabilities = Capabilities::STREAM_PER_CIRCUIT;
        let quic = |certificate| Start { capabilities, ..start(certificate) };
        let shown = Some(them.tls_certificate);
        let mut one = Channel::new(Role::Initiator(credentials(1)), quic(shown));
        let mut two = Channel::new(Role::Responder(Arc::clone(&them)), quic(None));
        assert_eq!(one.outbox[5..], [0, 5], "no older protocol");
        let mut rng = stream(9, 0, "link");
        let mut outcome = Ok(());
        for turn in 0..4 {
            let [from, to] =
                if turn % 2 == 0 { [&mut one, &mut two] } else { [&mut two, &mut one] };
            let mut bytes = std::mem::take(&mut from.outbox);
            let mut cells = Cells::new(&mut bytes, to.width(), to.longest());
            while let Some(cell) = cells.next_cell().unwrap() {
                // Each end gets the exported secret of a different connection.
                if let CellOutcome::Export(_) = to.take(&mut rng, &cell).unwrap() {
                    outcome = to.exported(&mut rng, [turn; 32]);
                    if outcome.is_err() {
                        break;
                    }
                }
                cells.set_width(to.width());
            }
        }
        assert_eq!(outcome, Err(Fault::NotAuthentic));
        // A certificate that the connection did not present proves nothing about its neighbour.
        let mut one = Channel::new(Role::Initiator(credentials(1)), quic(Some([7; 32])));
        let mut two = Channel::new(Role::Responder(them), quic(None));
        carry(&mut one, &mut two);
        let mut cells = Cells::new(&mut two.outbox, Width::Two, 9_000);
        let versions = cells.next_cell().unwrap().unwrap();
        one.take(&mut rng, &versions).unwrap();
        cells.set_width(Width::Four);
        let certs = cells.next_cell().unwrap().unwrap();
        assert_eq!(one.take(&mut rng, &certs), Err(Fault::Certificates(BadCerts::Bad(5))));
    }
}
