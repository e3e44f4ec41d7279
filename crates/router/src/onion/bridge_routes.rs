//! A client's routes to its bridges: direct, or through a pluggable transport with SOCKS5. A
//! client with bridges opens no links to other relays.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_onion::directory::bridges::BridgeIdentity;
use anabranch_pt::{Args, BridgeLine, SocksClient, SocksRefusal};

use super::is_passing;

/// Addresses at which running pluggable transports accept connections, and messages about the
/// transports. Clones share the same state.
#[derive(Clone, Debug)]
pub struct Transports(Arc<TransportTable>);

#[derive(Debug)]
struct TransportTable {
    table: Mutex<Table>,
    signal: UnixStream,
    waker: UnixStream,
}

#[derive(Debug, Default)]
struct Table {
    ready: BTreeMap<String, SocketAddr>,
    offers: Vec<Offer>,
    news: TransportNews,
}

/// Changes of pluggable transports since the last call of [`Transports::news`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TransportNews {
    /// True if a transport has started to accept connections, so that bridges should be tried
    /// again at once. The flag is false if there are only new messages.
    pub has_started: bool,
    /// Messages about transports, for the log.
    pub messages: Vec<String>,
}

/// A pluggable transport that a bridge offers: its name, its address, and the arguments that
/// clients need.
pub type Offer = (String, SocketAddr, Args);

impl Transports {
    /// Creates an empty table of pluggable transports.
    ///
    /// # Errors
    /// A system call fails.
    pub fn new() -> io::Result<Transports> {
        let (signal, waker) = UnixStream::pair()?;
        signal.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        Ok(Transports(Arc::new(TransportTable { table: Mutex::default(), signal, waker })))
    }

    /// Records that the pluggable transport `name` accepts SOCKS5 connections at the address `at`.
    pub fn ready(&self, name: &str, at: SocketAddr) {
        let mut table = self.table();
        table.ready.insert(name.to_owned(), at);
        table.news.has_started = true;
        drop(table);
        self.wake();
    }

    /// Records that the pluggable transport `name` has ended.
    pub fn gone(&self, name: &str) {
        self.table().ready.remove(name);
    }

    /// Records that a bridge's pluggable transport `name` listens at the address `at`. Clients
    /// need the arguments `args`.
    pub fn offer(&self, name: &str, at: SocketAddr, args: Args) {
        let mut table = self.table();
        table.offers.retain(|(other, ..)| other != name);
        table.offers.push((name.to_owned(), at, args));
        drop(table);
        self.wake();
    }

    /// Returns the pluggable transports that this bridge offers, in the order in which they
    /// started.
    #[must_use]
    pub fn offers(&self) -> Vec<Offer> {
        self.table().offers.clone()
    }

    /// Adds `text` to the messages for the log.
    pub fn log(&self, text: String) {
        self.table().news.messages.push(text);
        self.wake();
    }

    /// Returns the address at which the pluggable transport `name` accepts connections; `None` if
    /// it is not running.
    #[must_use]
    pub fn at(&self, name: &str) -> Option<SocketAddr> {
        self.table().ready.get(name).copied()
    }

    /// Returns a socket that becomes readable when a transport has started or there is a message.
    pub(super) fn waker(&self) -> &UnixStream {
        &self.0.waker
    }

    /// Returns the changes of transports since the last call.
    #[must_use]
    pub fn news(&self) -> TransportNews {
        let mut wake_ups = [0; 64];
        while (&self.0.waker).read(&mut wake_ups).is_ok_and(|count| count == wake_ups.len()) {}
        std::mem::take(&mut self.table().news)
    }

    fn wake(&self) {
        // If the pipe is full, a wake-up is pending already.
        let _ = (&self.0.signal).write(&[1]);
    }

    /// Locks the table of pluggable transports. Poisoning is ignored, because each change is
    /// complete before anything can panic.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client's bridges, and the route to each bridge's addresses.
#[derive(Clone, Debug)]
pub struct BridgeRoutes {
    bridges: Vec<BridgeIdentity>,
    /// Route to each bridge address: the pluggable transport with its arguments, or `None` for a
    /// direct link.
    routes: BTreeMap<SocketAddr, Option<(String, Args)>>,
    transports: Transports,
}

/// Contradiction between two bridge lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BridgeRouteError {
    /// Two bridge lines have the same address.
    Address(SocketAddr),
    /// Two bridge lines have the same RSA identity, but different ed25519 identities. The field is
    /// the text of the second line.
    Identities(String),
}

impl fmt::Display for BridgeRouteError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BridgeRouteError::Address(at) => {
                write!(out, "two bridges have the address {at}: remove one")
            }
            BridgeRouteError::Identities(line) => {
                write!(
                    out,
                    "the bridge line '{line}' and an earlier one have the same fingerprint, but \
                     different ed25519 keys: correct one of them"
                )
            }
        }
    }
}

impl std::error::Error for BridgeRouteError {}

impl BridgeRoutes {
    /// Creates routes to the bridges in `lines`. Lines with the same fingerprint belong to one
    /// bridge; its addresses are tried one after the other.
    ///
    /// # Errors
    /// Two lines contradict each other.
    pub fn new(
        lines: &[BridgeLine],
        transports: Transports,
    ) -> Result<BridgeRoutes, BridgeRouteError> {
        let (mut bridges, mut routes) = (Vec::<BridgeIdentity>::new(), BTreeMap::new());
        for line in lines {
            let through = line.transport.clone().map(|name| (name, line.args.clone()));
            if routes.insert(line.address, through).is_some() {
                return Err(BridgeRouteError::Address(line.address));
            }
            let is_same = |bridge: &&mut BridgeIdentity| {
                line.fingerprint.is_some() && bridge.rsa == line.fingerprint
            };
            match bridges.iter_mut().find(is_same) {
                None => bridges.push(BridgeIdentity {
                    addresses: vec![line.address],
                    rsa: line.fingerprint,
                    ed25519: line.ed25519,
                }),
                Some(bridge) => {
                    let both = bridge.ed25519.zip(line.ed25519);
                    if both.is_some_and(|(one, other)| one != other) {
                        return Err(BridgeRouteError::Identities(line.to_string()));
                    }
                    bridge.ed25519 = bridge.ed25519.or(line.ed25519);
                    bridge.addresses.push(line.address);
                }
            }
        }
        Ok(BridgeRoutes { bridges, routes, transports })
    }

    /// Returns the bridges in the order of their first lines.
    #[must_use]
    pub fn bridges(&self) -> &[BridgeIdentity] {
        &self.bridges
    }

    /// Returns the pluggable transports through which bridges can be reached.
    #[must_use]
    pub fn transports(&self) -> &Transports {
        &self.transports
    }

    /// Returns the address to connect to for a link to the bridge at `address`. For a bridge with
    /// a pluggable transport, this is the address of the transport, and the SOCKS dialogue with
    /// the transport is also returned. For other bridges, the dialogue is `None`.
    ///
    /// # Errors
    /// `address` is not an address of a bridge, or the pluggable transport for it is not running.
    pub(super) fn to(&self, address: SocketAddr) -> io::Result<(SocketAddr, Option<Greeting>)> {
        let stranger = || io::Error::other(format!("{address} is not the address of a bridge"));
        let Some((name, args)) = self.routes.get(&address).ok_or_else(stranger)? else {
            return Ok((address, None));
        };
        let at = self.transports.at(name).ok_or(ErrorKind::NotConnected)?;
        let mut out = Vec::new();
        let dialogue = SocksClient::new(address, args, &mut out).map_err(io::Error::other)?;
        Ok((at, Some(Greeting { dialogue, out })))
    }
}

/// SOCKS dialogue with a pluggable transport. After the dialogue, the connection leads to a
/// bridge.
#[derive(Debug)]
pub(super) struct Greeting {
    dialogue: SocksClient,
    out: Vec<u8>,
}

impl Greeting {
    /// Processes `bytes` of the transport's SOCKS reply. Returns `None` until the reply is
    /// complete. Then returns the bytes after the reply, which are from the bridge.
    ///
    /// # Errors
    /// The transport refuses the connection.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, SocksRefusal> {
        let is_open = self.dialogue.take(bytes, &mut self.out)?;
        Ok(is_open.then(|| self.dialogue.rest()))
    }

    /// Writes the SOCKS greeting to `socket`. Returns whether the whole greeting is sent.
    ///
    /// # Errors
    /// The socket reports an error.
    pub(super) fn flush(&mut self, mut socket: &TcpStream) -> io::Result<bool> {
        while !self.out.is_empty() {
            match socket.write(&self.out) {
                Ok(count) => drop(self.out.drain(..count)),
                Err(error) if is_passing(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(lines: &[&str]) -> Result<BridgeRoutes, BridgeRouteError> {
        let lines: Vec<_> = lines.iter().map(|line| BridgeLine::parse(line).unwrap()).collect();
        BridgeRoutes::new(&lines, Transports::new().unwrap())
    }

    #[test]
    fn lines_of_one_fingerprint_are_one_bridge_and_others_in_their_order() {
        let (a, b) = ("A".repeat(40), "B".repeat(40));
        let key = format!("ed25519:{}", "A".repeat(42) + "E");
        let routes = routes(&[
            &format!("192.0.2.1:443 {a}"),
            "192.0.2.2:443",
            &format!("x 192.0.2.3:443 {b} {key}"),
            &format!("x [2001:db8::1]:443 {a} {key} k=v"),
        ])
        .unwrap();
        let addresses: Vec<usize> =
            routes.bridges().iter().map(|one| one.addresses.len()).collect();
        assert_eq!(addresses, [2, 1, 1]);
        assert_eq!(routes.bridges()[1].rsa, None);
    }

    #[test]
    fn lines_that_contradict_each_other_are_told() {
        let a = "A".repeat(40);
        let [one, other] = ["E", "I"].map(|end| format!("{a} ed25519:{}{end}", "A".repeat(42)));
        let twice = routes(&["192.0.2.1:443", "x 192.0.2.1:443 k=v"]).map(drop);
        assert_eq!(twice, Err(BridgeRouteError::Address("192.0.2.1:443".parse().unwrap())));
        let lines = [format!("192.0.2.1:443 {one}"), format!("192.0.2.2:443 {other}")];
        let both = routes(&lines.each_ref().map(|line| &**line)).map(drop);
        assert!(matches!(both, Err(BridgeRouteError::Identities(_))));
    }

    #[test]
    fn nobody_else_is_dialled_and_a_transport_only_when_it_is_there() {
        let routes = routes(&["192.0.2.1:443", "x 192.0.2.2:443 k=v"]).unwrap();
        let [plain, through, other] =
            ["192.0.2.1:443", "192.0.2.2:443", "192.0.2.3:443"].map(|at| at.parse().unwrap());
        assert!(matches!(routes.to(plain), Ok((at, None)) if at == plain));
        assert!(routes.to(other).is_err());
        assert_eq!(routes.to(through).unwrap_err().kind(), ErrorKind::NotConnected);
        let socks = "127.0.0.1:9".parse().unwrap();
        routes.transports().ready("x", socks);
        assert!(matches!(routes.to(through), Ok((at, Some(_))) if at == socks));
        assert_eq!(
            routes.transports().news(),
            TransportNews { has_started: true, messages: vec![] }
        );
        routes.transports().log("slow".to_owned());
        let messages = vec!["slow".to_owned()];
        assert_eq!(routes.transports().news(), TransportNews { has_started: false, messages });
        routes.transports().gone("x");
        assert!(routes.to(through).is_err());
    }
}
