//! How a client reaches its bridges: straight, or through a transport of somebody's, which it asks
//! by SOCKS5. Who has bridges opens links to nobody else.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_onion::directory::bridges::BridgeIdentity;
use anabranch_pt::{Args, BridgeLine, SocksClient, SocksRefusal};

use super::is_passing;

/// Where transports take connections at the moment, and what there is to say of them. All copies
/// are one.
#[derive(Clone, Debug)]
pub struct Transports(Arc<TransportDesk>);

#[derive(Debug)]
struct TransportDesk {
    table: Mutex<Table>,
    bell: UnixStream,
    waker: UnixStream,
}

#[derive(Debug, Default)]
struct Table {
    ready: BTreeMap<String, SocketAddr>,
    offers: Vec<Offer>,
    news: TransportNews,
}

/// What happened since somebody last asked.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TransportNews {
    /// A transport takes connections now. A line in a log says nothing of the sort: whoever waits
    /// before he tries again goes on waiting.
    pub has_come_up: bool,
    /// Lines for the log.
    pub said: Vec<String>,
}

/// A transport of a bridge: its name, where it listens, and what clients are to be told.
pub type Offer = (String, SocketAddr, Args);

impl Transports {
    /// None yet.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Transports> {
        let (bell, waker) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        Ok(Transports(Arc::new(TransportDesk { table: Mutex::default(), bell, waker })))
    }

    /// A transport takes connections there, by SOCKS5.
    pub fn ready(&self, name: &str, at: SocketAddr) {
        let mut table = self.table();
        table.ready.insert(name.to_owned(), at);
        table.news.has_come_up = true;
        drop(table);
        self.ring();
    }

    /// It does so no more.
    pub fn gone(&self, name: &str) {
        self.table().ready.remove(name);
    }

    /// A transport of a bridge listens there, and clients are to be told this.
    pub fn offer(&self, name: &str, at: SocketAddr, args: Args) {
        let mut table = self.table();
        table.offers.retain(|(other, ..)| other != name);
        table.offers.push((name.to_owned(), at, args));
        drop(table);
        self.ring();
    }

    /// The transports of a bridge, in the order of their coming up.
    #[must_use]
    pub fn offers(&self) -> Vec<Offer> {
        self.table().offers.clone()
    }

    /// A line for the log.
    pub fn say(&self, text: String) {
        self.table().news.said.push(text);
        self.ring();
    }

    /// Where a transport takes connections.
    #[must_use]
    pub fn at(&self, name: &str) -> Option<SocketAddr> {
        self.table().ready.get(name).copied()
    }

    /// Readable when a transport has come up, or there is something to say.
    pub(super) fn waker(&self) -> &UnixStream {
        &self.0.waker
    }

    /// What happened since the last call.
    #[must_use]
    pub fn news(&self) -> TransportNews {
        let mut rung = [0; 64];
        while (&self.0.waker).read(&mut rung).is_ok_and(|count| count == rung.len()) {}
        std::mem::take(&mut self.table().news)
    }

    fn ring(&self) {
        // A full pipe has been rung already.
        let _ = (&self.0.bell).write(&[1]);
    }

    /// Each change is whole before anything can panic.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client's bridges, and the way to each.
#[derive(Clone, Debug)]
pub struct BridgeWays {
    bridges: Vec<BridgeIdentity>,
    /// The transport before an address, with its arguments; `None` for a plain link.
    ways: BTreeMap<SocketAddr, Option<(String, Args)>>,
    transports: Transports,
}

/// Why bridge lines do not go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaysError {
    /// Two have one address.
    Address(SocketAddr),
    /// Two of one RSA identity have different ed25519 identities; the line.
    Identities(String),
}

impl fmt::Display for WaysError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaysError::Address(at) => write!(out, "two bridges have the address {at}: remove one"),
            WaysError::Identities(line) => {
                write!(
                    out,
                    "'{line}' has another ed25519 key than the other line with this fingerprint: \
                     correct one of them"
                )
            }
        }
    }
}

impl std::error::Error for WaysError {}

impl BridgeWays {
    /// To the bridges of these lines. Lines of one fingerprint are one bridge, which is tried at
    /// one address after the other.
    ///
    /// # Errors
    /// [`WaysError`]
    pub fn new(lines: &[BridgeLine], transports: Transports) -> Result<BridgeWays, WaysError> {
        let (mut bridges, mut ways) = (Vec::<BridgeIdentity>::new(), BTreeMap::new());
        for line in lines {
            let through = line.transport.clone().map(|name| (name, line.args.clone()));
            if ways.insert(line.address, through).is_some() {
                return Err(WaysError::Address(line.address));
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
                        return Err(WaysError::Identities(line.to_string()));
                    }
                    bridge.ed25519 = bridge.ed25519.or(line.ed25519);
                    bridge.addresses.push(line.address);
                }
            }
        }
        Ok(BridgeWays { bridges, ways, transports })
    }

    /// The bridges, in the order of their lines.
    #[must_use]
    pub fn bridges(&self) -> &[BridgeIdentity] {
        &self.bridges
    }

    /// The transports that lead to them.
    #[must_use]
    pub fn transports(&self) -> &Transports {
        &self.transports
    }

    /// Where to connect for this address, and what is to be said there first.
    ///
    /// # Errors
    /// It is no bridge's, or its transport is not there.
    pub(super) fn to(&self, address: SocketAddr) -> io::Result<(SocketAddr, Option<Greeting>)> {
        let stranger = || io::Error::other(format!("{address} is not a bridge's"));
        let Some((name, args)) = self.ways.get(&address).ok_or_else(stranger)? else {
            return Ok((address, None));
        };
        let at = self.transports.at(name).ok_or(ErrorKind::NotConnected)?;
        let mut out = Vec::new();
        let dialogue = SocksClient::new(address, args, &mut out).map_err(io::Error::other)?;
        Ok((at, Some(Greeting { dialogue, out })))
    }
}

/// What is said to a transport before a connection is a bridge's.
#[derive(Debug)]
pub(super) struct Greeting {
    dialogue: SocksClient,
    out: Vec<u8>,
}

impl Greeting {
    /// Takes what the transport says; what came behind it, once the connection is the bridge's.
    ///
    /// # Errors
    /// It does not lead there.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, SocksRefusal> {
        let is_open = self.dialogue.take(bytes, &mut self.out)?;
        Ok(is_open.then(|| self.dialogue.rest()))
    }

    /// Writes what is to be said; whether all of it has gone.
    ///
    /// # Errors
    /// The socket's.
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

    fn ways(lines: &[&str]) -> Result<BridgeWays, WaysError> {
        let lines: Vec<_> = lines.iter().map(|line| BridgeLine::parse(line).unwrap()).collect();
        BridgeWays::new(&lines, Transports::new().unwrap())
    }

    #[test]
    fn lines_of_one_fingerprint_are_one_bridge_and_others_in_their_order() {
        let (a, b) = ("A".repeat(40), "B".repeat(40));
        let key = format!("ed25519:{}", "A".repeat(42) + "E");
        let ways = ways(&[
            &format!("192.0.2.1:443 {a}"),
            "192.0.2.2:443",
            &format!("x 192.0.2.3:443 {b} {key}"),
            &format!("x [2001:db8::1]:443 {a} {key} k=v"),
        ])
        .unwrap();
        let addresses: Vec<usize> = ways.bridges().iter().map(|one| one.addresses.len()).collect();
        assert_eq!(addresses, [2, 1, 1]);
        assert_eq!(ways.bridges()[1].rsa, None);
    }

    #[test]
    fn lines_that_contradict_each_other_are_told() {
        let a = "A".repeat(40);
        let [one, other] = ["E", "I"].map(|end| format!("{a} ed25519:{}{end}", "A".repeat(42)));
        let twice = ways(&["192.0.2.1:443", "x 192.0.2.1:443 k=v"]).map(drop);
        assert_eq!(twice, Err(WaysError::Address("192.0.2.1:443".parse().unwrap())));
        let lines = [format!("192.0.2.1:443 {one}"), format!("192.0.2.2:443 {other}")];
        let both = ways(&lines.each_ref().map(|line| &**line)).map(drop);
        assert!(matches!(both, Err(WaysError::Identities(_))));
    }

    #[test]
    fn nobody_else_is_dialled_and_a_transport_only_when_it_is_there() {
        let ways = ways(&["192.0.2.1:443", "x 192.0.2.2:443 k=v"]).unwrap();
        let [plain, through, other] =
            ["192.0.2.1:443", "192.0.2.2:443", "192.0.2.3:443"].map(|at| at.parse().unwrap());
        assert!(matches!(ways.to(plain), Ok((at, None)) if at == plain));
        assert!(ways.to(other).is_err());
        assert_eq!(ways.to(through).unwrap_err().kind(), ErrorKind::NotConnected);
        let socks = "127.0.0.1:9".parse().unwrap();
        ways.transports().ready("x", socks);
        assert!(matches!(ways.to(through), Ok((at, Some(_))) if at == socks));
        assert_eq!(ways.transports().news(), TransportNews { has_come_up: true, said: vec![] });
        ways.transports().say("slow".to_owned());
        let said = vec!["slow".to_owned()];
        assert_eq!(ways.transports().news(), TransportNews { has_come_up: false, said });
        ways.transports().gone("x");
        assert!(ways.to(through).is_err());
    }
}
