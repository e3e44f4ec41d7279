//! Reasons why a program's request failed, with the codes that report them in SOCKS5 and HTTP.

/// The reason why a request failed. A name in capitals, such as MISC, is a reason that an exit
/// gives (tor-spec, "Closing streams"). Reasons without such a name are found by the client
/// itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// MISC: any other reason.
    General,
    /// RESOLVEFAILED: the name has no address.
    ResolveFailed,
    /// CONNECTREFUSED: the host refused the connection.
    Refused,
    /// EXITPOLICY: none of the exits that were tried allows this address.
    ExitPolicy,
    /// DESTROY: the circuit was torn down.
    Destroyed,
    /// DONE: the exit closed the stream before the stream was open.
    Done,
    /// TIMEOUT: the host did not answer in time.
    TimedOut,
    /// NOROUTE: the exit has no route to the host.
    NoRoute,
    /// HIBERNATING: the exit is about to hibernate.
    Hibernating,
    /// INTERNAL: an internal error of the exit.
    Internal,
    /// RESOURCELIMIT: the exit has no resources left.
    ResourceLimit,
    /// CONNRESET: the connection was reset.
    Reset,
    /// TORPROTOCOL: a violation of the Tor protocol.
    Protocol,
    /// NOTDIRECTORY: the relay is not a directory cache.
    NotDirectory,
    /// The client does not know an exit that allows the port.
    NoExit,
    /// The client does not know three relays that form a path.
    NoPath,
    /// The client could not build a circuit within its time limit.
    NoCircuit,
    /// The host is an onion service, and this client does not support them.
    NoService,
}

/// Codes with which a proxy reports a reason in SOCKS5 and HTTP.
pub(crate) struct Codes {
    /// The reply code of SOCKS5 (RFC 1928, section 6).
    pub(crate) socks: u8,
    /// The status code and phrase of HTTP. As in C tor, the status line continues with the
    /// reason's name.
    pub(crate) status: &'static str,
    /// The value of `Tor-Request-Failed`: `end/` with the name of an exit's reason, as C tor sends
    /// it, or `anabranch/` with a reason that C tor does not have.
    pub(crate) token: &'static str,
}

const FORBIDDEN: &str = "403 Forbidden";
const INTERNAL: &str = "500 Internal Server Error";
const NOT_IMPLEMENTED: &str = "501 Not Implemented";
const BAD_GATEWAY: &str = "502 Bad Gateway";
const UNAVAILABLE: &str = "503 Service Unavailable";
const TIMEOUT: &str = "504 Gateway Timeout";

impl Reason {
    /// Returns the codes of the reason. The statuses are those of Tor's HTTP CONNECT specification
    /// ("Error codes"), and the SOCKS5 codes are those of C tor.
    pub(crate) fn codes(self) -> Codes {
        let (socks, status, token) = match self {
            Reason::General => (1, INTERNAL, "end/MISC"),
            Reason::ResolveFailed => (4, UNAVAILABLE, "end/RESOLVEFAILED"),
            Reason::Refused => (5, FORBIDDEN, "end/CONNECTREFUSED"),
            Reason::ExitPolicy => (2, UNAVAILABLE, "end/EXITPOLICY"),
            Reason::Destroyed => (1, BAD_GATEWAY, "end/DESTROY"),
            Reason::Done => (1, BAD_GATEWAY, "end/DONE"),
            Reason::TimedOut => (6, TIMEOUT, "end/TIMEOUT"),
            Reason::NoRoute => (4, UNAVAILABLE, "end/NOROUTE"),
            Reason::Hibernating => (1, BAD_GATEWAY, "end/HIBERNATING"),
            Reason::Internal => (1, BAD_GATEWAY, "end/INTERNAL"),
            Reason::ResourceLimit => (1, BAD_GATEWAY, "end/RESOURCELIMIT"),
            Reason::Reset => (5, UNAVAILABLE, "end/CONNRESET"),
            Reason::Protocol => (1, BAD_GATEWAY, "end/TORPROTOCOL"),
            Reason::NotDirectory => (1, INTERNAL, "end/NOTDIRECTORY"),
            Reason::NoExit => (2, UNAVAILABLE, "anabranch/NO_EXIT"),
            Reason::NoPath => (1, UNAVAILABLE, "anabranch/NO_PATH"),
            Reason::NoCircuit => (6, TIMEOUT, "anabranch/NO_CIRCUIT"),
            Reason::NoService => (1, NOT_IMPLEMENTED, "anabranch/NO_ONION_SERVICES"),
        };
        Codes { socks, status, token }
    }
}
