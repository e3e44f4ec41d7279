//! A running onion network, and clients whose circuits use only given relays.

use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::makers::DIRECTORY;
use super::{HostSlot, Node, TestPrograms};

/// A relay to start.
pub(in super::super) struct RelaySlot<'a> {
    pub(in super::super) slot: HostSlot<'a>,
    pub(in super::super) is_exit: bool,
    /// Additional command-line arguments, if the relay is ours.
    pub(in super::super) words: &'a [&'a str],
}

/// A running directory authority and relays.
pub(in super::super) struct OnionNetwork<'a> {
    makers: TestPrograms<'a>,
    // The authority runs until this field is dropped.
    _authority: Node<'a>,
    pub(in super::super) relays: Vec<Node<'a>>,
    /// Fingerprints of the relays, in the order of `relays`.
    pub(in super::super) fingerprints: Vec<String>,
    /// The configuration line that identifies the authority (`DirAuthority`), for relays and
    /// clients.
    line: String,
    stock: bool,
}

impl<'a> OnionNetwork<'a> {
    /// Starts the authority and the relays. Waits until the consensus lists all relays. If `stock`
    /// is true, the relays are C tor's.
    ///
    /// # Errors
    /// A program ends, or takes too long.
    pub(in super::super) fn start(
        makers: TestPrograms<'a>,
        authority: &HostSlot<'_>,
        slots: &[RelaySlot<'_>],
        stock: bool,
    ) -> io::Result<OnionNetwork<'a>> {
        let mut first = makers.authority(authority, slots.len())?;
        let line = first.wait("DirAuthority line", |node| {
            Ok(node.event("authority").and_then(|event| Some(event["what"].as_str()?.to_owned())))
        })?;
        let relay = |relay: &RelaySlot<'_>| match stock {
            true => makers.stock_relay(&relay.slot, &line, relay.is_exit),
            false => makers.relay(&relay.slot, &line, relay.is_exit, relay.words),
        };
        let mut relays = slots.iter().map(relay).collect::<io::Result<Vec<_>>>()?;
        let fingerprints = relays.iter_mut().map(|relay| makers.fingerprint(relay, stock));
        let fingerprints = fingerprints.collect::<io::Result<_>>()?;
        wait_for_all(&mut first, authority, slots.len())?;
        Ok(OnionNetwork { makers, _authority: first, relays, fingerprints, line, stock })
    }

    /// Starts a client of ours whose circuits use only the relays in `pins`: one list of relay
    /// identities for each position in a circuit. The client may not be ready when this function
    /// returns; [`OnionNetwork::wait_ready`] waits for it.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(in super::super) fn our_client(
        &self,
        slot: &HostSlot<'_>,
        proxy: SocketAddr,
        pins: &[String; 3],
        words: &[&str],
    ) -> io::Result<Node<'a>> {
        let mut all: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        for (option, pins) in ["--entry", "--middle", "--exit"].into_iter().zip(pins) {
            all.extend(pins.split(',').flat_map(|pin| [option.to_owned(), pin.to_owned()]));
        }
        self.makers.client(slot, &self.line, proxy, &all)
    }

    /// Starts a client of C tor with the additional configuration `rules`. The client may not be
    /// ready when this function returns; [`OnionNetwork::wait_ready`] waits for it.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(in super::super) fn stock_client(
        &self,
        slot: &HostSlot<'_>,
        rules: &str,
    ) -> io::Result<Node<'a>> {
        self.makers.stock(slot, &self.line, rules)
    }

    /// Starts a bridge of C tor with the additional configuration `rules`. The bridge does not
    /// publish its descriptor, so clients must know its address. The bridge may not be ready when
    /// this function returns; [`OnionNetwork::wait_bootstrapped`] waits for it.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(in super::super) fn stock_bridge(
        &self,
        slot: &HostSlot<'_>,
        rules: &str,
    ) -> io::Result<Node<'a>> {
        self.makers.stock_bridge(slot, &self.line, rules)
    }

    /// Returns the identity of a bridge or relay of C tor.
    ///
    /// # Errors
    /// The program ends before it has reported its identity.
    pub(in super::super) fn stock_fingerprint(&self, node: &mut Node<'a>) -> io::Result<String> {
        self.makers.fingerprint(node, true)
    }

    /// Waits until C tor, running as `node`, has bootstrapped.
    ///
    /// # Errors
    /// The node ends, or takes too long.
    pub(in super::super) fn wait_bootstrapped(&self, node: &mut Node<'a>) -> io::Result<()> {
        node.wait("complete bootstrap", |node| {
            Ok(node.lines().iter().any(|line| line.contains("Bootstrapped 100%")).then_some(()))
        })
    }

    /// Waits until a node has written `file` below its directory. Returns the file's content.
    ///
    /// # Errors
    /// The node ends, or takes too long.
    pub(in super::super) fn wait_file(
        &self,
        node: &mut Node<'a>,
        file: &str,
    ) -> io::Result<String> {
        self.makers.wait_file(node, file)
    }

    /// Deletes the state of the node `name`, which has ended.
    ///
    /// # Errors
    /// The state cannot be deleted.
    pub(in super::super) fn forget(&self, name: &str) -> io::Result<()> {
        self.makers.forget(name)
    }

    /// Waits until a client can fetch through circuits that use only the relays in `pins`. `rules`
    /// is the configuration with which a client of C tor was started.
    ///
    /// # Errors
    /// The client ends, or takes too long.
    pub(in super::super) fn wait_ready(
        &self,
        node: &mut Node<'a>,
        pins: &[String; 3],
        rules: &str,
    ) -> io::Result<()> {
        if !self.stock {
            return node.wait("first circuit", |node| Ok(node.event("circuit_built").map(drop)));
        }
        self.wait_bootstrapped(node)?;
        // If C tor may use only these relays from the start, it often finds no relay from which to
        // fetch the directory.
        let mut rules = rules.to_owned();
        for (word, pins) in ["EntryNodes", "MiddleNodes", "ExitNodes"].into_iter().zip(pins) {
            writeln!(rules, "{word} {pins}").expect("writing to a string does not fail");
        }
        self.makers.torrc(node.name(), &self.line, &rules)?;
        node.reload()
    }
}

fn wait_for_all(authority: &mut Node<'_>, slot: &HostSlot<'_>, relays: usize) -> io::Result<()> {
    let at = SocketAddr::from((slot.ip, DIRECTORY));
    authority.wait("consensus with all relays", |_| {
        let text = slot.host.run(|| Ok(consensus(at).unwrap_or_default()))?;
        // In addition to the relays, the consensus lists the authority, which is on no circuit.
        let is_one = |line: &&str| line.contains(" Running") && !line.contains(" Authority");
        let running = text.lines().filter(|line| line.starts_with("s ")).filter(is_one);
        Ok((running.count() == relays).then_some(()))
    })
}

/// Returns the consensus that the authority at `at` currently serves.
fn consensus(at: SocketAddr) -> io::Result<String> {
    use std::io::{Read, Write};
    let mut link = TcpStream::connect_timeout(&at, Duration::from_secs(2))?;
    link.set_read_timeout(Some(Duration::from_secs(2)))?;
    link.write_all(b"GET /tor/status-vote/current/consensus HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    link.read_to_string(&mut answer)?;
    Ok(answer)
}
