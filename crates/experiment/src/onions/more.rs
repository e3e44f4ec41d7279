//! A running network of MORE (onion routing in which each packet takes a separate path). Its nodes
//! relay for each other, and some of them are clients.

use std::io;
use std::net::SocketAddr;
use std::process::Command;

use super::{HostSlot, Node, TestPrograms};

/// A MORE node to start.
pub(in super::super) struct MoreSlot<'a> {
    pub(in super::super) slot: HostSlot<'a>,
    /// Address of the node's UDP socket.
    pub(in super::super) address: SocketAddr,
    /// Address of the node's SOCKS port; `None` if the node is only a relay.
    pub(in super::super) proxy: Option<SocketAddr>,
}

/// A running network of nodes of MORE, in which each packet takes a separate path.
pub(in super::super) struct MoreNetwork<'a> {
    /// The running nodes, in the order of the list with which the network was started.
    pub(in super::super) nodes: Vec<Node<'a>>,
}

impl<'a> MoreNetwork<'a> {
    /// Writes the description of the MORE network, starts all nodes, and waits until they run. The
    /// last node is the exit.
    ///
    /// # Errors
    /// The description cannot be written, or a node ends or takes too long.
    pub(in super::super) fn start(
        makers: TestPrograms<'a>,
        slots: &[MoreSlot<'_>],
    ) -> io::Result<MoreNetwork<'a>> {
        let folder = makers.folder("more")?;
        let addresses: Vec<String> = slots.iter().map(|slot| slot.address.to_string()).collect();
        let mut generate = Command::new(makers.anabranch);
        generate.args(["more", "generate", &folder, "--nodes", &addresses.join(",")]);
        let made = makers.stage.processes.among_files(|_| generate.output())?;
        if !made.status.success() {
            let text = String::from_utf8_lossy(&made.stderr).into_owned();
            return Err(io::Error::other(format!("anabranch more generate: {}", text.trim())));
        }
        let node = |(number, slot): (usize, &MoreSlot<'_>)| {
            let mut run = Command::new(makers.anabranch);
            run.args(["more", "run", &format!("{folder}/network.json")]);
            run.args(["--key", &format!("{folder}/{number}.key")]);
            if let Some(proxy) = slot.proxy {
                run.args(["--listen", &proxy.to_string()]);
            }
            if number == slots.len() {
                run.args(["--exit", "accept *:*", "--allow-private"]);
            }
            makers.start(&slot.slot, &mut run)
        };
        let nodes = (1..).zip(slots).map(node).collect::<io::Result<Vec<_>>>()?;
        let mut network = MoreNetwork { nodes };
        for node in &mut network.nodes {
            node.wait("address", |node| Ok((!node.lines().is_empty()).then_some(())))?;
        }
        Ok(network)
    }
}
