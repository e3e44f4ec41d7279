//! Negotiation of the link protocol (VERSIONS) and of the extensions of this project
//! (CAPABILITIES).
//!
//! Code points and cell formats: `docs/spec/numbers.md`.

use super::Fault;
use crate::wire::cell::{Command, Width};
use crate::wire::link::{self, Extensions};

/// Link protocols of C tor that we support. Version 4 adds wide circuit IDs, and version 5
/// padding.
const VERSIONS: [u16; 3] = [3, 4, 5];
/// The link protocols in [`VERSIONS`], and this project's own link protocol (103). They are
/// offered on links that can use this project's extensions.
const WITH_OURS: [u16; 4] = [3, 4, 5, WITH_CAPABILITIES];
/// The link protocols offered on links that have a QUIC stream per circuit and use no extensions:
/// version 5 alone. Older versions are never used over QUIC streams.
const OVER_QUIC: [u16; 1] = [WITH_PADDING];
/// The link protocols offered on links that have a QUIC stream per circuit and can use this
/// project's extensions.
const OVER_QUIC_WITH_OURS: [u16; 2] = [WITH_PADDING, WITH_CAPABILITIES];
/// This project's link protocol: version 5 with one more cell from each end. This cell,
/// CAPABILITIES, lists the extensions that its sender wants (`docs/spec/numbers.md`).
const WITH_CAPABILITIES: u16 = 103;
/// The first version of the link protocol with wide circuit IDs (four bytes).
const WITH_WIDE_IDS: u16 = 4;
/// The first version of the link protocol with padding.
const WITH_PADDING: u16 = 5;

/// Capabilities of a link: properties of its carrier (TLS or QUIC), and the extensions that this
/// end wants to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// True if each circuit has a separate QUIC stream. Cells of one stream arrive in order,
    /// independently of other streams. Otherwise all cells of the link arrive in one order.
    pub stream_per_circuit: bool,
    /// True if the carrier is reliable: bytes arrive in order, or the link closes. The order
    /// applies to each QUIC stream, or to the whole link if it has one order.
    pub reliable: bool,
    /// True if TLS records may be decrypted out of order. The neighbour must support it too.
    pub unordered: bool,
    /// True if a QUIC link may run alongside this link. The neighbour must support it too.
    pub parallel_quic: bool,
    /// True if the link can also carry cells that may be lost. This requires a QUIC stream per
    /// circuit. The neighbour must support it too.
    pub lossy: bool,
}

impl Capabilities {
    /// Capabilities of a link that runs over a byte stream and uses no extensions. All its cells
    /// arrive in one order.
    pub const ORDERED: Capabilities = Capabilities {
        stream_per_circuit: false,
        reliable: true,
        unordered: false,
        parallel_quic: false,
        lossy: false,
    };
    /// Capabilities of a link with a QUIC stream per circuit and without extensions.
    pub const STREAM_PER_CIRCUIT: Capabilities =
        Capabilities { stream_per_circuit: true, ..Capabilities::ORDERED };

    /// Returns the link protocols to list in VERSIONS.
    pub(super) fn versions(self) -> &'static [u16] {
        match (self.stream_per_circuit, self.wanted()) {
            (true, wanted) if wanted.any() => &OVER_QUIC_WITH_OURS,
            (true, _) => &OVER_QUIC,
            (false, wanted) if wanted.any() => &WITH_OURS,
            (false, _) => &VERSIONS,
        }
    }

    /// Returns the extensions to negotiate with VERSIONS and CAPABILITIES. A link with a QUIC
    /// stream per circuit can have only one extension: cells in datagrams (`lossy`). A link over a
    /// byte stream can have only the other extensions.
    fn wanted(self) -> Extensions {
        let is_stream = !self.stream_per_circuit;
        Extensions {
            unordered: self.unordered && is_stream,
            parallel_quic: self.parallel_quic && is_stream,
            lossy: self.lossy && self.stream_per_circuit,
        }
    }
}

/// State of the negotiation at one end of a link.
pub(super) struct Negotiation {
    ours: Extensions,
    /// Link protocols that we support. The next field, `version`, is the agreed protocol, or 0
    /// until both ends have agreed on one.
    versions: &'static [u16],
    version: u16,
    /// Extensions that the neighbour wants; `None` until its CAPABILITIES cell has arrived.
    theirs: Option<Extensions>,
}

impl Negotiation {
    /// Begins the negotiation of a link with these capabilities.
    pub(super) fn new(capabilities: Capabilities) -> Negotiation {
        Negotiation { ours: capabilities.wanted(), versions: &VERSIONS, version: 0, theirs: None }
    }

    /// Restricts the link protocols that we support to `versions`.
    pub(super) fn speak(&mut self, versions: &'static [u16]) {
        self.versions = versions;
    }

    /// Returns the link protocols that we support.
    pub(super) fn versions(&self) -> &'static [u16] {
        self.versions
    }

    /// Returns the width of circuit IDs in the agreed protocol. Before the agreement it is two
    /// bytes, as in VERSIONS.
    pub(super) fn width(&self) -> Width {
        if self.version < WITH_WIDE_IDS { Width::Two } else { Width::Four }
    }

    /// Returns true if the agreed protocol has padding.
    pub(super) fn has_padding(&self) -> bool {
        self.version >= WITH_PADDING
    }

    /// Returns true if both ends must send CAPABILITIES in the agreed protocol.
    pub(super) fn has_capabilities(&self) -> bool {
        self.version == WITH_CAPABILITIES
    }

    /// Returns the body of our CAPABILITIES cell, if the agreed protocol has such a cell.
    pub(super) fn capabilities(&self) -> Option<[u8; 2]> {
        self.has_capabilities().then(|| link::put_capabilities(self.ours))
    }

    /// Returns the extensions that both ends want. Before the neighbour's CAPABILITIES cell has
    /// arrived, there are none.
    pub(super) fn agreed(&self) -> Extensions {
        self.theirs.map_or(Extensions::default(), |theirs| self.ours.and(theirs))
    }

    /// Returns true once the neighbour has sent all cells of the negotiation, so that NETINFO may
    /// follow.
    pub(super) fn is_done(&self) -> bool {
        !self.has_capabilities() || self.theirs.is_some()
    }

    /// Selects the highest protocol that both ends support, given the `body` of VERSIONS.
    ///
    /// # Errors
    /// [`Fault::NoVersion`] if there is no such protocol.
    pub(super) fn take_versions(&mut self, body: &[u8]) -> Result<(), Fault> {
        self.version = link::read_versions(body, self.versions).ok_or(Fault::NoVersion)?;
        Ok(())
    }

    /// Handles the body of the neighbour's CAPABILITIES cell.
    ///
    /// # Errors
    /// [`Fault::OutOfPlace`] for a second CAPABILITIES cell, [`Fault::Malformed`] for a body of
    /// the wrong length.
    pub(super) fn take_capabilities(&mut self, body: &[u8]) -> Result<(), Fault> {
        let command = Command::CAPABILITIES;
        if self.theirs.is_some() {
            return Err(Fault::OutOfPlace(command));
        }
        self.theirs = Some(link::read_capabilities(body).ok_or(Fault::Malformed(command))?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed::stream;

    use super::super::tests::{agreeing, credentials, start, wanting};
    use super::super::{CellOutcome, Channel, LONGEST, Role, Stage, Start};
    use super::*;
    use crate::wire::cell::{self, Cells};
    use crate::wire::link::Info;

    /// Returns the commands of the cells in the channel's outbox, in the format of link protocol 4
    /// and later.
    fn commands_sent(channel: &mut Channel) -> Vec<Command> {
        let mut bytes = std::mem::take(&mut channel.outbox);
        let first = if channel.stage == Stage::Versions { Width::Two } else { channel.width() };
        let mut cells = Cells::new(&mut bytes, first, LONGEST);
        let mut commands = Vec::new();
        while let Some(cell) = cells.next_cell().unwrap() {
            commands.push(cell.command);
        }
        commands
    }

    /// Returns a responder that wants all extensions, after it received VERSIONS with `versions`.
    fn asked(versions: &[u16]) -> Channel {
        let mut responder = wanting_all(Role::Responder(credentials(2)));
        let body = link::put_versions(versions);
        let mut cell = Vec::new();
        cell::put_variable(&mut cell, Width::Two, Command::VERSIONS, &body);
        let mut cells = Cells::new(&mut cell, Width::Two, LONGEST);
        let cell = cells.next_cell().unwrap().unwrap();
        responder.take(&mut stream(3, 0, "link"), &cell).unwrap();
        responder
    }

    fn wanting_all(role: Role) -> Channel {
        let ordered = Capabilities::ORDERED;
        let capabilities = Capabilities { unordered: true, parallel_quic: true, ..ordered };
        Channel::new(role, Start { capabilities, ..start(None) })
    }

    /// Passes a fixed-length cell to a channel.
    fn hears(channel: &mut Channel, command: Command, body: &[u8]) -> Result<CellOutcome, Fault> {
        let mut bytes = Vec::new();
        cell::put_fixed(&mut bytes, 0, command, body);
        let mut cells = Cells::new(&mut bytes, Width::Four, 0);
        channel.take(&mut stream(4, 0, "link"), &cells.next_cell().unwrap().unwrap())
    }

    #[test]
    fn what_both_ends_want_is_agreed() {
        let agreed =
            |unordered, parallel_quic| Extensions { unordered, parallel_quic, lossy: false };
        for (one, two, version, both) in [
            ((None, false), (Some(9), false), 5, agreed(false, false)),
            ((None, false), (None, false), 5, agreed(false, false)),
            ((Some(0), false), (None, true), 103, agreed(false, false)),
            ((None, true), (Some(9), true), 103, agreed(true, false)),
            ((Some(0), true), (Some(9), false), 103, agreed(false, true)),
            ((Some(0), true), (Some(9), true), 103, agreed(true, true)),
        ] {
            let ends = wanting(one, two);
            for end in &ends {
                assert!(end.is_open() && end.negotiation.version == version, "{one:?} {two:?}");
                assert_eq!(end.negotiation.agreed(), both, "{one:?} {two:?}");
                assert_eq!(end.order.is_some(), both.unordered);
                assert_eq!(end.is_held_back(), both.unordered, "until records have one size");
                assert_eq!(end.takes_detours(), both.parallel_quic && !both.unordered);
            }
        }
    }

    #[test]
    fn versions_names_one_number_of_ours_and_none_where_nothing_is_wanted() {
        let named = |channel: &Channel| channel.outbox[5..].to_vec();
        let all = wanting_all(Role::Client);
        assert_eq!(named(&all), [0, 3, 0, 4, 0, 5, 0, 103]);
        assert_eq!(named(&Channel::new(Role::Client, start(None))), [0, 3, 0, 4, 0, 5]);
        let with = |capabilities| Start { capabilities, ..start(None) };
        let quic = Capabilities {
            unordered: true,
            parallel_quic: true,
            ..Capabilities::STREAM_PER_CIRCUIT
        };
        assert_eq!(named(&Channel::new(Role::Client, with(quic))), [0, 5]);
        let lossy = Capabilities { lossy: true, ..Capabilities::STREAM_PER_CIRCUIT };
        assert_eq!(named(&Channel::new(Role::Client, with(lossy))), [0, 5, 0, 103]);
        let stream = Capabilities { lossy: true, ..Capabilities::ORDERED };
        assert_eq!(named(&Channel::new(Role::Client, with(stream))), [0, 3, 0, 4, 0, 5]);
    }

    #[test]
    fn lossy_cells_are_agreed_on_links_with_quic_streams_whose_ends_both_want_them() {
        for (one, two) in [(true, true), (true, false), (false, true), (false, false)] {
            let of = |lossy| Capabilities { lossy, ..Capabilities::STREAM_PER_CIRCUIT };
            let ends = agreeing([of(one), of(two)]);
            for end in &ends {
                assert!(end.is_open(), "{one} {two}");
                assert_eq!(end.takes_lossy(), one && two);
                assert_eq!(end.negotiation.version, if one && two { 103 } else { 5 });
            }
        }
    }

    #[test]
    fn capabilities_are_said_before_netinfo_and_to_who_named_103_alone() {
        let stock = &[3, 4, 5][..];
        let former = &[3, 4, 5, 100, 101, 102][..];
        for (versions, speaks) in [(stock, 5), (former, 5), (&[4, 5, 103], 103)] {
            let mut responder = asked(versions);
            assert_eq!(responder.negotiation.version, speaks, "{versions:?}");
            let mut bytes = std::mem::take(&mut responder.outbox);
            let mut cells = Cells::new(&mut bytes, Width::Two, LONGEST);
            assert_eq!(cells.next_cell().unwrap().unwrap().command, Command::VERSIONS);
            let taken = cells.taken();
            responder.outbox = bytes.split_off(taken);
            let (certs, challenge) = (Command::CERTS, Command::AUTH_CHALLENGE);
            let all = [certs, challenge, Command::CAPABILITIES, Command::NETINFO];
            let expected: Vec<Command> = match speaks {
                103 => all.to_vec(),
                _ => vec![certs, challenge, Command::NETINFO],
            };
            assert_eq!(commands_sent(&mut responder), expected, "{versions:?}");
        }
    }

    #[test]
    fn capabilities_out_of_place_end_the_link() {
        let command = Command::CAPABILITIES;
        let out_of_place = Err(Fault::OutOfPlace(command));
        let all = link::put_capabilities(Extensions {
            unordered: true,
            parallel_quic: true,
            lossy: true,
        });
        let netinfo = link::put_netinfo(&Info { unix: None, seen: None, own: Vec::new() });
        // The cell arrives before VERSIONS, at either end.
        for role in [Role::Client, Role::Responder(credentials(2))] {
            assert_eq!(hears(&mut wanting_all(role), command, &all), out_of_place);
        }
        // The neighbour did not list protocol 103. Before NETINFO the cell is a violation; after
        // it, the cell has an unknown command.
        let mut stock = asked(&[4, 5]);
        assert_eq!(hears(&mut stock, command, &all), out_of_place);
        let mut stock = asked(&[4, 5]);
        assert_eq!(hears(&mut stock, Command::NETINFO, &netinfo), Ok(CellOutcome::Opened));
        assert_eq!(hears(&mut stock, command, &all), Ok(CellOutcome::Circuit));
        assert_eq!(stock.negotiation.agreed(), Extensions::default());
        // The cell arrives twice, or after NETINFO.
        let mut twice = asked(&[5, 103]);
        assert_eq!(hears(&mut twice, command, &all), Ok(CellOutcome::Own));
        assert_eq!(hears(&mut twice, command, &all), out_of_place);
        let mut late = asked(&[5, 103]);
        assert_eq!(hears(&mut late, command, &all), Ok(CellOutcome::Own));
        assert_eq!(hears(&mut late, Command::NETINFO, &netinfo), Ok(CellOutcome::Opened));
        assert_eq!(hears(&mut late, command, &all), out_of_place);
        // The cell does not arrive at all.
        let missing = hears(&mut asked(&[5, 103]), Command::NETINFO, &netinfo);
        assert_eq!(missing, Err(Fault::OutOfPlace(Command::NETINFO)));
        // The cell arrives at the end that opened the link, before the neighbour's CERTS.
        let mut one = wanting_all(Role::Client);
        let mut versions = Vec::new();
        cell::put_variable(&mut versions, Width::Two, Command::VERSIONS, &[0, 5, 0, 103]);
        let mut cells = Cells::new(&mut versions, Width::Two, LONGEST);
        one.take(&mut stream(1, 0, "link"), &cells.next_cell().unwrap().unwrap()).unwrap();
        assert_eq!(hears(&mut one, command, &all), out_of_place);
    }

    #[test]
    fn capabilities_of_a_wrong_length_end_the_link_and_unknown_ones_are_ignored() {
        let command = Command::CAPABILITIES;
        for body in [&[0][..], &[0, 3]] {
            let result = hears(&mut asked(&[5, 103]), command, body);
            assert_eq!(result, Err(Fault::Malformed(command)), "{body:?}");
        }
        for (body, unordered, parallel_quic) in [
            (&[1, 0][..], false, false),
            (&[1, 1], true, false),
            (&[1, 2], false, true),
            (&[1, 0xff], true, true),
            (&[1, 0xfc], false, false),
            (&[3, 3, 0xff, 0xff], true, true),
            (&[1, 1, 2, 3], true, false),
        ] {
            let mut responder = asked(&[5, 103]);
            assert_eq!(hears(&mut responder, command, body), Ok(CellOutcome::Own), "{body:?}");
            let agreed = Extensions { unordered, parallel_quic, lossy: false };
            assert_eq!(responder.negotiation.agreed(), agreed, "{body:?}");
        }
    }
}
