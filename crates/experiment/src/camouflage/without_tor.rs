//! Our pluggable transport without Tor inside, between the client's host and the web server.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use super::super::onions::{Node, TestPrograms, WEB_PORT};
use super::bridged_client::{TransportInputs, options};
use super::plan::Arm;
use super::test_network::{PORT, TestNetwork};

/// Address on which the client of our transport accepts local connections.
const ENTRANCE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9_101);

/// A running client and server of our transport. They are stopped on drop, the client first.
pub(super) struct TransportPair<'a> {
    _client: Node<'a>,
    _server: Node<'a>,
}

impl<'a> TransportPair<'a> {
    /// Starts a client and a server of our transport over the emulated line with the round-trip
    /// time `rtt`. Their files are in directories named after `name`.
    ///
    /// # Errors
    /// The client or the server ends, or takes too long to be ready.
    pub(super) fn open(
        makers: TestPrograms<'a>,
        test_network: &'a TestNetwork,
        inputs: TransportInputs<'_>,
        (arm, rtt, name): (Arm, u32, &str),
    ) -> io::Result<TransportPair<'a>> {
        let far = test_network.far_slot(&format!("{name}server"), test_network.far_end(rtt));
        let (server, line) = makers.pt_server(&far, PORT, &words(arm, inputs))?;
        let client = makers.pt_client(&test_network.near_slot(name), ENTRANCE.into(), &line)?;
        Ok(TransportPair { _client: client, _server: server })
    }

    /// Returns the address on which the client of our transport accepts local connections.
    pub(super) fn entrance(&self) -> SocketAddrV4 {
        ENTRANCE
    }
}

/// Returns the command-line arguments of our transport's server for the profile `arm`.
fn words(arm: Arm, inputs: TransportInputs<'_>) -> Vec<String> {
    let to = format!("{}:{WEB_PORT}", Ipv4Addr::LOCALHOST);
    let options = options(arm, inputs).into_iter();
    let options = options.flat_map(|(name, value)| [format!("--{name}"), value]);
    ["--to".to_owned(), to].into_iter().chain(options).collect()
}
