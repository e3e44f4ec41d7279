//! The commands of relay messages. They are defined by tor-spec, "Relay cells"; rend-spec-v3;
//! proposals 324 and 329; and this project (`docs/spec/numbers.md`).

/// The command of a relay message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayCommand(pub u8);

/// The part of the protocol (Tor's, with this project's extensions) that a relay command belongs
/// to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayKind {
    /// A stream. In cells with a tag (proposal 359), messages for a stream have a stream ID.
    Stream,
    /// The circuit itself.
    Circuit,
    /// A set of circuits that carry the same streams (proposal 329, and this project's designs).
    Conflux,
    /// An onion service, its introduction points and its rendezvous points.
    Service,
    /// A set of lossy circuits, whose cells travel in datagrams (`docs/spec/lossy-circuits.md`).
    Lossy,
    /// The command is unknown, and no part handles it. A relay ignores it, because a later version
    /// of the protocol may define it.
    Unknown,
}

/// Defines the commands for each part of the protocol: their constants, their kinds
/// ([`RelayKind`]), and the list of all commands.
macro_rules! relay_commands {
    ($($kind:ident { $($(#[$doc:meta])* $name:ident = $number:literal,)* })*) => {
        #[allow(missing_docs)]
        impl RelayCommand {
            $($($(#[$doc])* pub const $name: RelayCommand = RelayCommand($number);)*)*

            /// All known commands, with their names.
            pub const ALL: &[(RelayCommand, &str)] =
                &[$($((RelayCommand::$name, stringify!($name)),)*)*];

            /// Returns the part of the protocol that this command belongs to.
            #[must_use]
            pub const fn kind(self) -> RelayKind {
                match self {
                    $($(RelayCommand::$name)|* => RelayKind::$kind,)*
                    _ => RelayKind::Unknown,
                }
            }
        }
    };
}

relay_commands! {
    Stream {
        BEGIN = 1,
        DATA = 2,
        END = 3,
        CONNECTED = 4,
        RESOLVE = 11,
        RESOLVED = 12,
        BEGIN_DIR = 13,
        XOFF = 43,
        XON = 44,
    }
    Circuit {
        SENDME = 5,
        EXTEND = 6,
        EXTENDED = 7,
        TRUNCATE = 8,
        TRUNCATED = 9,
        DROP = 10,
        EXTEND2 = 14,
        EXTENDED2 = 15,
    }
    Conflux {
        CONFLUX_LINK = 19,
        CONFLUX_LINKED = 20,
        CONFLUX_LINKED_ACK = 21,
        CONFLUX_SWITCH = 22,
        ANCESTOR_LINK = 160,
        ANCESTOR_LINKED = 161,
        ANCESTOR_LINKED_ACK = 162,
        /// In this project's resilient sets of circuits: states whether the following messages on
        /// a circuit contain their sequence numbers. `docs/spec/resilient-legs.md` defines the
        /// commands from 163 to 166.
        RESILIENT_SWITCH = 163,
        /// Acknowledges messages in resilient sets of circuits. Contains the number of messages
        /// received on a circuit.
        RESILIENT_RECEIVED = 164,
        /// Reports that the sender has closed a circuit of a resilient set.
        RESILIENT_GONE = 165,
        /// Requests an immediate `RESILIENT_RECEIVED` message, in resilient sets of circuits.
        RESILIENT_PROBE = 166,
    }
    Service {
        ESTABLISH_INTRO = 32,
        ESTABLISH_RENDEZVOUS = 33,
        INTRODUCE1 = 34,
        INTRODUCE2 = 35,
        RENDEZVOUS1 = 36,
        RENDEZVOUS2 = 37,
        INTRO_ESTABLISHED = 38,
        RENDEZVOUS_ESTABLISHED = 39,
        INTRODUCE_ACK = 40,
    }
    Lossy {
        /// Adds a lossy circuit, whose cells travel in datagrams, to a set
        /// (`docs/spec/lossy-circuits.md`).
        LOSSY_LINK = 167,
        /// Answers `LOSSY_LINK`: the relay has added the circuit to the set.
        LOSSY_LINKED = 168,
    }
}

/// Commands of proposal 339 (UDP datagrams). They have a stream ID. This software does not support
/// them.
const UDP: std::ops::RangeInclusive<u8> = 16..=18;

impl RelayCommand {
    /// Returns true if messages with this command have a stream ID in tagged cells
    /// ([`Format::V1`](super::message::Format::V1)). In that format, SENDME messages never belong
    /// to a stream.
    pub(crate) const fn has_stream(self) -> bool {
        let is_udp = *UDP.start() <= self.0 && self.0 <= *UDP.end();
        matches!(self.kind(), RelayKind::Stream) || is_udp
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers of all commands for which `holds` is true.
    fn numbers(holds: impl Fn(RelayCommand) -> bool) -> Vec<u8> {
        (0..=255).filter(|number| holds(RelayCommand(*number))).collect()
    }

    #[test]
    fn each_number_has_the_kind_and_the_format_that_the_specifications_give_it() {
        let of = |kind| numbers(|command| command.kind() == kind);
        assert_eq!(of(RelayKind::Stream), [1, 2, 3, 4, 11, 12, 13, 43, 44]);
        assert_eq!(of(RelayKind::Circuit), [5, 6, 7, 8, 9, 10, 14, 15]);
        assert_eq!(of(RelayKind::Conflux), [19, 20, 21, 22, 160, 161, 162, 163, 164, 165, 166]);
        assert_eq!(of(RelayKind::Service), Vec::from_iter(32..=40));
        assert_eq!(of(RelayKind::Lossy), [167, 168]);
        let streams = numbers(RelayCommand::has_stream);
        assert_eq!(streams, [1, 2, 3, 4, 11, 12, 13, 16, 17, 18, 43, 44]);
    }

    #[test]
    fn the_specification_names_our_own_numbers() {
        let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/spec/numbers.md");
        let document = std::fs::read_to_string(document).unwrap();
        let rows = document.lines().filter(|row| row.contains("relay commands |"));
        let written: Vec<(u8, &str)> = rows
            .flat_map(|row| row.split(" | ").nth(1).unwrap().split(", "))
            .map(|command| command.split_once(' ').unwrap())
            .map(|(number, name)| (number.parse().unwrap(), name))
            .collect();
        let own = RelayCommand::ALL.iter().filter(|(command, _)| command.0 >= 128);
        let own: Vec<(u8, &str)> = own.map(|(command, name)| (command.0, *name)).collect();
        assert_eq!(written.len(), own.len(), "{written:?}, {own:?}");
        for ((number, short), (defined, name)) in written.iter().zip(&own) {
            assert!(number == defined && name.ends_with(short), "{number} {short}: {name}");
        }
    }
}
