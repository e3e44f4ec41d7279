//! `anabranch more`: a node of the anonymity network MORE, for experiments.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anabranch_onion::directory::policy::ExitPolicy;
use anabranch_os::entropy::generator;
use anabranch_router::more::files::{NetworkFile, read_key, write_key};
use anabranch_router::more::{
    self, Config, DropReason, MoreEvent, NodeCounters, PAYLOAD, Settings,
};
use anabranch_router::onion::stop_signals;
use clap::{Args, Subcommand};

use crate::failure::Failure;

/// Text at the end of `--help`.
const EXAMPLES: &str = "\
EXAMPLES
  Eight nodes on this machine. The first serves local programs; the last connects to destinations:
    anabranch more generate net --nodes 127.0.0.1:9101,127.0.0.1:9102,127.0.0.1:9103 \\
        --nodes 127.0.0.1:9104,127.0.0.1:9105,127.0.0.1:9106,127.0.0.1:9107,127.0.0.1:9108
    anabranch more run net/network.json --key net/1.key --listen 127.0.0.1:9150
    anabranch more run net/network.json --key net/2.key       (and so on up to 7.key)
    anabranch more run net/network.json --key net/8.key --exit 'accept 127.0.0.1:*' \\
        --allow-private

FILES
  FOLDER/network.json   addresses and public keys of the nodes; not signed, so get it securely
  FOLDER/N.key          the private key of node N, for the owner of the node only";

/// Run a node of MORE, an anonymity network in which each packet takes a new path over several
/// nodes. Experimental: nobody should rely on the anonymity of MORE.
///
/// MORE is the design of Landsiedel and others (2007). Its packets are Sphinx packets, and replies
/// use single-use reply blocks. Every node, including the node of a client, forwards the packets
/// of all other nodes. No cryptographer has reviewed this implementation.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct MoreArgs {
    #[command(subcommand)]
    command: MoreCommand,
}

#[derive(Subcommand)]
enum MoreCommand {
    Generate(GenerateArgs),
    Run(RunArgs),
}

/// Create the nodes' keys and the description (network.json) of a MORE network.
#[derive(Args)]
struct GenerateArgs {
    /// Create network.json and the nodes' key files in this folder.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Set the addresses of the nodes (repeatable, or separated by commas). At least one node more
    /// than --hops is needed.
    #[arg(long, value_name = "ADDRESS:PORT", value_delimiter = ',', required = true)]
    nodes: Vec<SocketAddr>,
    /// Let the last COUNT nodes of the list be exits, the nodes that connect to destinations.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    exits: usize,
    /// Put at most BYTES bytes of content into each packet. BYTES is 450 to 1000. For comparison,
    /// a cell (packet) of Tor carries 498 bytes of content.
    #[arg(long, value_name = "BYTES", default_value_t = PAYLOAD as u16,
          value_parser = clap::value_parser!(u16).range(450..=1000))]
    payload: u16,
    /// Send each packet over a path of NODES nodes, 2 to 5.
    #[arg(long, value_name = "NODES", default_value_t = 3,
          value_parser = clap::value_parser!(u8).range(2..=5))]
    hops: u8,
}

/// Run a node of a MORE network until a signal stops it.
#[derive(Args)]
struct RunArgs {
    /// Read the description of the network from FILE, the network.json of 'anabranch more
    /// generate'.
    #[arg(value_name = "FILE")]
    network: PathBuf,
    /// Read the private key of this node from this file.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Accept connections from local programs at this address, by SOCKS5 or HTTP CONNECT.
    /// Destinations must be numeric addresses.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// As an exit, connect other nodes' streams to destinations that this rule accepts, such as
    /// 'accept *:443' (repeatable). The network must list this node as an exit [default: accept
    /// none].
    #[arg(long, value_name = "RULE")]
    exit: Vec<String>,
    /// Let --exit accept private addresses, and the addresses of this machine.
    #[arg(long)]
    allow_private: bool,
}

impl MoreArgs {
    /// Runs the command.
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.command {
            MoreCommand::Generate(args) => args.run(),
            MoreCommand::Run(args) => args.run(),
        }
    }
}

impl GenerateArgs {
    fn run(self) -> Result<(), Failure> {
        let config =
            Config { payload: self.payload.into(), hops: self.hops.into(), ..Config::default() };
        let relays = config.hops + 1;
        if self.nodes.len() < relays || self.exits == 0 || self.exits > self.nodes.len() {
            return Err(Failure::misuse(format!(
                "for paths of {} nodes, give at least {relays} addresses in --nodes, and set \
                 --exits from 1 to the number of addresses",
                config.hops
            )));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(Failure::trouble)?;
        let mut rng = generator().map_err(Failure::trouble)?;
        let (network, keys) =
            NetworkFile::draw(now.as_secs(), &config, &self.nodes, self.exits, &mut rng);
        network.network().map_err(Failure::misuse)?;
        fs::create_dir_all(&self.folder).map_err(|error| {
            Failure::trouble(format!("cannot create {}: {error}", self.folder.display()))
        })?;
        for (number, key) in (1..).zip(&keys) {
            let path = self.folder.join(format!("{number}.key"));
            write_key(&path, key).map_err(Failure::trouble)?;
        }
        network.write(&self.folder.join("network.json")).map_err(Failure::trouble)
    }
}

impl RunArgs {
    fn run(self) -> Result<(), Failure> {
        let stop = stop_signals().map_err(Failure::trouble)?;
        let rng = generator().map_err(Failure::trouble)?;
        let settings = self.settings()?;
        more::run(settings, rng, &stop, &mut |event| print(&event)).map_err(Failure::trouble)
    }

    fn settings(&self) -> Result<Settings, Failure> {
        let file = NetworkFile::read(&self.network).map_err(Failure::misuse)?;
        let network = file.network().map_err(|error| named(&self.network, &error))?;
        let key = read_key(&self.key).map_err(Failure::misuse)?;
        let policy = match self.exit.is_empty() {
            true => ExitPolicy::reject_all(),
            false => ExitPolicy::parse(&self.exit).map_err(Failure::misuse)?,
        };
        let own: Vec<_> = network.peers().iter().map(|peer| peer.address.ip()).collect();
        let policy = if self.allow_private { policy } else { policy.refusing_private(&own) };
        Ok(Settings {
            network: Arc::new(network),
            begins: file.begins,
            config: Config { payload: file.payload, hops: file.hops, ..Config::default() },
            key,
            listen: self.listen,
            policy,
        })
    }
}

fn named(path: &Path, error: &str) -> Failure {
    Failure::misuse(format!("{}: {error}", path.display()))
}

/// Prints an event. Errors are ignored, because the reader may have closed the pipe.
fn print(event: &MoreEvent) {
    let line = match event {
        MoreEvent::Listening(udp, None) => {
            format!("this node receives packets at UDP address {udp}")
        }
        MoreEvent::Listening(udp, Some(socks)) => {
            format!(
                "this node receives packets at UDP address {udp}; programs connect to it at \
                 {socks}"
            )
        }
        MoreEvent::Ended(counters) => numbers(counters),
    };
    let _ = writeln!(io::stdout(), "{line}");
}

fn numbers(counters: &NodeCounters) -> String {
    let NodeCounters { received, relayed, delivered, sent, reply_blocks, .. } = counters;
    let dropped = DropReason::ALL.map(|reason| (reason.name(), counters.dropped(reason)));
    let dropped = dropped.iter().filter(|(_, count)| *count > 0);
    let dropped: Vec<String> = dropped.map(|(name, count)| format!("{name} {count}")).collect();
    let dropped = if dropped.is_empty() { "none".to_owned() } else { dropped.join(", ") };
    format!(
        "packets: {received} received, {relayed} passed on, {delivered} delivered here, {sent} \
         sent for this node's own streams; reply blocks (prepared routes back to this node) made: \
         {reply_blocks}; packets dropped: {dropped}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_network_can_be_run() {
        let folder = tempfile::tempdir().unwrap();
        let nodes = (1..=5).map(|port| SocketAddr::from(([127, 0, 0, 1], 9_100 + port))).collect();
        let made = folder.path().join("net");
        let generate =
            GenerateArgs { folder: made.clone(), nodes, exits: 2, payload: 498, hops: 3 };
        generate.run().unwrap();
        let run = RunArgs {
            network: made.join("network.json"),
            key: made.join("5.key"),
            listen: None,
            exit: vec!["accept *:80".to_owned()],
            allow_private: false,
        };
        let settings = run.settings().unwrap();
        assert_eq!((settings.config.payload, settings.network.peers().len()), (498, 5));
        let allows = |address: &str| settings.policy.allows(address.parse().unwrap(), 80);
        assert!(allows("198.51.100.1") && !allows("127.0.0.1"));
    }

    #[test]
    fn too_few_nodes_are_refused_with_the_number_that_is_needed() {
        let nodes = vec!["127.0.0.1:9101".parse().unwrap()];
        let args =
            GenerateArgs { folder: "nowhere".into(), nodes, exits: 1, payload: 795, hops: 3 };
        let text = args.run().unwrap_err().to_string();
        assert!(text.contains("at least 4 addresses in --nodes"), "{text}");
    }

    #[test]
    fn a_node_names_what_it_dropped() {
        let none = numbers(&NodeCounters::default());
        assert!(none.ends_with("made: 0; packets dropped: none"), "{none}");
    }
}
