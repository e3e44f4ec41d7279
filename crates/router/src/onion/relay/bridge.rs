//! A relay that is a bridge. A client that has the bridge line connects to the relay's own port,
//! or to a pluggable transport. The transport forwards the connection to the relay's Extended
//! ORPort.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anabranch_onion::directory::descriptor::{Description, Transport};
use anabranch_pt::{Args, BridgeLine};

use super::extended::{ExtendedHandle, ExtendedPort, TransportedConnection};
use super::shard::{Newcomer, Shard};
use super::{MainShard, Watch};
use crate::onion::bridge_routes::Transports;
use crate::onion::store::replace;

/// Poller token of the socket that becomes readable when pluggable transports have changed.
pub(super) const TRANSPORTS: u64 = 4;
/// Poller token of the socket that becomes readable when clients have arrived through the Extended
/// ORPort.
pub(super) const EXTENDED: u64 = 5;
/// Name of the file with the bridge lines, which clients need.
const FILE: &str = "bridgelines.txt";

/// Settings of a bridge, in addition to those of a relay.
pub struct BridgeSettings {
    /// The bridge's pluggable transports. Another part of the program starts and stops them.
    pub transports: Transports,
    /// Extended ORPort, the port that the transports connect to; `None` without transports.
    pub extended: Option<ExtendedPort>,
}

/// State of a running bridge, in addition to the state of its relay.
pub(super) struct BridgeSide {
    transports: Transports,
    pub(super) extended: Option<ExtendedHandle>,
    file: PathBuf,
    /// Bridge lines that were last written to the file and reported, for comparison with the
    /// present lines.
    lines: Vec<String>,
}

impl BridgeSide {
    /// Starts to watch the bridge's pluggable transports with the poller of `shard`. Bridge lines
    /// are written to a file in the folder `data`.
    ///
    /// # Errors
    /// A system call fails.
    pub(super) fn start(
        settings: BridgeSettings,
        shard: &Shard,
        data: &std::path::Path,
    ) -> io::Result<BridgeSide> {
        shard.station.watch(settings.transports.waker(), TRANSPORTS)?;
        let extended = settings.extended.map(ExtendedHandle::start).transpose()?;
        extended.iter().try_for_each(|one| shard.station.watch(one.waker(), EXTENDED))?;
        let (transports, file) = (settings.transports, data.join(FILE));
        Ok(BridgeSide { transports, extended, file, lines: Vec::new() })
    }
}

impl MainShard<'_> {
    /// Processes changes of the pluggable transports: logs their messages, and writes new bridge
    /// lines.
    pub(super) fn take_transports(&mut self, watch: &mut dyn Watch) {
        let Some(side) = &mut self.bridge else { return };
        side.transports.news().messages.iter().for_each(|text| watch.note(text));
        let description = &mut self.settings.live.description;
        let offers = side.transports.offers();
        let named = |(name, at, args): &(String, SocketAddr, Args)| Transport {
            name: name.clone(),
            address: known_as(description, *at),
            args: args.to_smethod(),
        };
        let transports: Vec<Transport> = offers.iter().map(named).collect();
        let listen = &self.settings.listen;
        let fingerprint = self.settings.keys.keys().rsa_identity();
        let lines = lines(description, listen, &offers, fingerprint);
        description.bridge = Some(transports);
        if lines != side.lines {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            if let Err(error) = replace(&side.file, text.as_bytes()) {
                watch.note(&error.to_string());
            }
            lines.iter().for_each(|line| watch.note(&format!("bridge line: {line}")));
            side.lines = lines;
        }
        self.describe();
    }

    /// Accepts the connections of clients that arrived through pluggable transports.
    pub(super) fn take_transported(&mut self, watch: &mut dyn Watch) {
        let now = self.shard.station.clock.now();
        let extended = self.bridge.as_mut().and_then(|side| side.extended.as_mut());
        for TransportedConnection { socket, peer } in
            extended.map(ExtendedHandle::take).unwrap_or_default()
        {
            let Some(place) = self.connection_limits.admit(now, peer.ip()) else { continue };
            let newcomer = Newcomer { socket, peer, place, by_transport: true };
            if let Some(newcomer) = self.workers.hand(newcomer) {
                self.shard.accept(newcomer, watch);
            }
        }
    }
}

/// Returns the address at which clients reach a listener at `at`. If `at` is a wildcard address,
/// the relay's advertised IP address is used.
fn known_as(description: &Description, at: SocketAddr) -> SocketAddr {
    let ours = match at.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => description.address.into(),
        IpAddr::V6(any) => description.v6.map_or(IpAddr::from(any), |v6| (*v6.ip()).into()),
    };
    SocketAddr::new(ours, at.port())
}

/// Returns the bridge lines for clients: a line for the relay's own port, if clients can reach it,
/// and a line for each pluggable transport.
fn lines(
    description: &Description,
    listen: &[SocketAddr],
    offers: &[(String, SocketAddr, Args)],
    fingerprint: [u8; 20],
) -> Vec<String> {
    let reached =
        |at: &SocketAddr| !at.ip().is_loopback() || at.ip() == IpAddr::from(description.address);
    let line = |transport: Option<String>, address: SocketAddr, args: Args| {
        let fingerprint = Some(fingerprint);
        BridgeLine { transport, address, fingerprint, ed25519: None, args }.to_string()
    };
    let port = SocketAddr::new(description.address.into(), description.orport);
    let plain = listen.first().filter(|at| reached(at));
    let plain = plain.map(|_| line(None, port, Args::default()));
    let offered = offers
        .iter()
        .map(|(name, at, args)| line(Some(name.clone()), known_as(description, *at), args.clone()));
    plain.into_iter().chain(offered).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: &str = "0.0.0.0:9001";

    fn lines_of(listen: &str, v6: Option<&str>) -> Vec<String> {
        let at = "192.0.2.1:9001".parse().unwrap();
        let v6 = v6.map(|v6| v6.parse().unwrap());
        let description =
            Description { v6, ..Description::new("river".to_owned(), at, "x".into()) };
        let args = Args(vec![("k".to_owned(), "v".to_owned())]);
        let offers = ["0.0.0.0:443", "198.51.100.1:80", "[::]:444"];
        let offers = offers.map(|at| ("x".to_owned(), at.parse().unwrap(), args.clone()));
        lines(&description, &[listen.parse().unwrap()], &offers, [0xab; 20])
    }

    #[test]
    fn lines_say_where_others_reach_what_listens_here() {
        let id = "AB".repeat(20);
        let own = lines_of(PORT, Some("[2001:db8::1]:9001"));
        assert_eq!(
            own,
            [
                format!("192.0.2.1:9001 {id}"),
                format!("x 192.0.2.1:443 {id} k=v"),
                format!("x 198.51.100.1:80 {id} k=v"),
                format!("x [2001:db8::1]:444 {id} k=v"),
            ]
        );
        assert_eq!(lines_of("127.0.0.1:9001", None).len(), 3, "nobody reaches the port itself");
    }
}
