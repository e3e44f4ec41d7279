//! Functions that start the programs of a test network: authority, relays, clients and pluggable
//! transports.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

use super::super::stage::Stage;
use super::{Node, ONION};
use anabranch_emulator::Namespace;

/// Interval between consensuses in seconds. It is short, because C tor's clients wait for a
/// consensus that lists all relays.
const INTERVAL: &str = "20";
/// TCP port on which the directory authority serves documents.
pub(super) const DIRECTORY: u16 = 9_030;

/// Place of a program that will be started: its name, its address, and its emulated host.
pub(in super::super) struct HostSlot<'a> {
    /// Name of the program; its relay nickname and its files have the same name.
    pub(in super::super) name: String,
    /// Address at which the program is reached.
    pub(in super::super) ip: Ipv4Addr,
    /// Host in which the program runs.
    pub(in super::super) host: &'a Namespace,
}

/// The programs under test, and the emulated network on which they run.
#[derive(Clone, Copy)]
pub(in super::super) struct TestPrograms<'a> {
    pub(in super::super) stage: &'a Stage,
    pub(in super::super) anabranch: &'a Path,
    /// Path of C tor, if it is needed.
    pub(in super::super) tor: &'a Path,
}

impl<'a> TestPrograms<'a> {
    /// Starts `command` on the host of `slot`. Its output is collected.
    pub(super) fn start(&self, slot: &HostSlot<'_>, command: &mut Command) -> io::Result<Node<'a>> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let process = self.stage.processes.start(slot.host, command)?;
        Ok(Node::new(slot.name.clone(), process))
    }

    /// Creates the directory of the program `name`. Returns the directory's path in the in-memory
    /// `/run` that only the started programs see.
    pub(super) fn folder(&self, name: &str) -> io::Result<String> {
        self.stage.processes.among_files(|files| {
            let folder = files.join(name);
            fs::create_dir_all(&folder)?;
            Ok(folder.display().to_string())
        })
    }

    fn ours(&self, command: &str, slot: &HostSlot<'_>) -> io::Result<Command> {
        let mut ours = Command::new(self.anabranch);
        ours.args([command, "--json", "--data", &format!("{}/state", self.folder(&slot.name)?)]);
        Ok(ours)
    }

    /// Starts a directory authority that waits for `relays` relays before it makes a consensus.
    pub(super) fn authority(&self, slot: &HostSlot<'_>, relays: usize) -> io::Result<Node<'a>> {
        let ip = slot.ip;
        let mut command = self.ours("authority", slot)?;
        command.args(["--nickname", &slot.name, "--address", &ip.to_string()]);
        command.args(["--listen", &format!("{ip}:{ONION}")]);
        command.args(["--listen-dir", &format!("{ip}:{DIRECTORY}")]);
        command.args(["--contact", "authority@example.invalid", "--interval", INTERVAL]);
        command.args(["--young", "--allow-private", "--expect", &relays.to_string()]);
        self.start(slot, &mut command)
    }

    /// Starts one of our relays with the additional arguments `words`. `line` is the configuration
    /// line that identifies the authority (`DirAuthority`).
    pub(super) fn relay(
        &self,
        slot: &HostSlot<'_>,
        line: &str,
        is_exit: bool,
        words: &[&str],
    ) -> io::Result<Node<'a>> {
        let ip = slot.ip;
        let file = self.stage.processes.write(&format!("{}.lines", slot.name), line.as_bytes())?;
        let mut command = self.ours("relay", slot)?;
        command.args(["--nickname", &slot.name, "--address", &ip.to_string()]);
        command.args(["--listen", &format!("{ip}:{ONION}"), "--threads", "1"]);
        command.args(["--allow-private", "--grace", "0", "--authorities"]).arg(file);
        // C tor's relays have no rate limit here, so our relays must not have one either.
        command.args(["--rate", "1000000000"]);
        if is_exit {
            command.args(["--exit", "accept *:*"]);
        }
        self.start(slot, command.args(words))
    }

    /// Starts one of our clients with the SOCKS port `proxy` and the additional arguments `words`.
    /// `line` is the configuration line that identifies the authority (`DirAuthority`).
    pub(super) fn client(
        &self,
        slot: &HostSlot<'_>,
        line: &str,
        proxy: SocketAddr,
        words: &[String],
    ) -> io::Result<Node<'a>> {
        let file = self.stage.processes.write("clients.lines", line.as_bytes())?;
        let mut command = self.ours("client", slot)?;
        command.args(["--listen", &proxy.to_string(), "--authorities"]).arg(file);
        self.start(slot, command.args(words))
    }

    /// Starts C tor with the additional configuration `own`. `line` is the configuration line that
    /// identifies the authority (`DirAuthority`).
    pub(super) fn stock(&self, slot: &HostSlot<'_>, line: &str, own: &str) -> io::Result<Node<'a>> {
        let mut command = Command::new(self.tor);
        command.arg("-f").arg(self.torrc(&slot.name, line, own)?);
        self.start(slot, &mut command)
    }

    /// Writes C tor's configuration file for the program `name`, and returns the file's path.
    pub(super) fn torrc(
        &self,
        name: &str,
        line: &str,
        own: &str,
    ) -> io::Result<std::path::PathBuf> {
        let rules = format!(
            "TestingTorNetwork 1\nDataDirectory {}/state\nShutdownWaitLength 0\nLog notice stdout\n\
             {line}\n{own}",
            self.folder(name)?
        );
        self.stage.processes.write(&format!("{name}.torrc"), rules.as_bytes())
    }

    /// Starts a relay of C tor. `line` is the configuration line that identifies the authority
    /// (`DirAuthority`).
    pub(super) fn stock_relay(
        &self,
        slot: &HostSlot<'_>,
        line: &str,
        is_exit: bool,
    ) -> io::Result<Node<'a>> {
        let HostSlot { name, ip, .. } = slot;
        let exit = if is_exit { "ExitRelay 1\nExitPolicy accept *:*" } else { "ExitRelay 0" };
        let own = format!(
            "Nickname {name}\nAddress {ip}\nORPort {ip}:{ONION}\nSocksPort 0\nAssumeReachable 1\n\
             ContactInfo {name}@example.invalid\n{exit}\n"
        );
        self.stock(slot, line, &own)
    }

    /// Starts a bridge of C tor with the additional configuration `rules`. `line` is the
    /// configuration line that identifies the authority (`DirAuthority`).
    pub(super) fn stock_bridge(
        &self,
        slot: &HostSlot<'_>,
        line: &str,
        rules: &str,
    ) -> io::Result<Node<'a>> {
        let HostSlot { name, ip, .. } = slot;
        let own = format!(
            "BridgeRelay 1\nPublishServerDescriptor 0\nExtORPort 127.0.0.1:auto\nNickname {name}\n\
             Address {ip}\nORPort {ip}:{ONION}\nSocksPort 0\nAssumeReachable 1\n\
             ContactInfo {name}@example.invalid\n{rules}"
        );
        self.stock(slot, line, &own)
    }

    /// Starts the server of our pluggable transport at `port`, with the additional arguments
    /// `words`. Also returns the server's bridge line for clients.
    pub(in super::super) fn pt_server(
        &self,
        slot: &HostSlot<'_>,
        port: u16,
        words: &[String],
    ) -> io::Result<(Node<'a>, String)> {
        let mut command = Command::new(self.anabranch);
        command.args(["pt", "server", "--json", "--listen", &format!("{}:{port}", slot.ip)]);
        command.args(["--key", &format!("{}/key", self.folder(&slot.name)?)]).args(words);
        let mut node = self.start(slot, &mut command)?;
        let line = node.wait("bridge line", |node| {
            Ok(node.event("listening").and_then(|event| Some(event["bridge"].as_str()?.to_owned())))
        })?;
        Ok((node, line))
    }

    /// Starts the client of our pluggable transport, and waits until it listens. The client
    /// accepts connections at `listen`, and forwards them to the bridge that the bridge line
    /// `line` names.
    pub(in super::super) fn pt_client(
        &self,
        slot: &HostSlot<'_>,
        listen: SocketAddr,
        line: &str,
    ) -> io::Result<Node<'a>> {
        let mut command = Command::new(self.anabranch);
        command.args(["pt", "client", "--json", "--listen", &listen.to_string(), "--bridge", line]);
        let mut node = self.start(slot, &mut command)?;
        node.wait("port", |node| Ok(node.event("listening").map(drop)))?;
        Ok(node)
    }

    /// Waits until a node has written `file` in its directory. Returns the file's content.
    pub(super) fn wait_file(&self, node: &mut Node<'a>, file: &str) -> io::Result<String> {
        let file = format!("{}/{file}", self.folder(node.name())?);
        node.wait(&file, |_| {
            let read = self.stage.processes.among_files(|_| Ok(fs::read_to_string(&file).ok()))?;
            Ok(read.filter(|text| text.ends_with('\n')))
        })
    }

    /// Removes the directory of the node `name`.
    pub(super) fn forget(&self, name: &str) -> io::Result<()> {
        self.stage.processes.among_files(|files| fs::remove_dir_all(files.join(name)))
    }

    /// Waits until a relay has reported its identity, and returns the identity. `stock` is true
    /// for a relay of C tor.
    pub(super) fn fingerprint(&self, node: &mut Node<'a>, stock: bool) -> io::Result<String> {
        let file = format!("{}/state/fingerprint", self.folder(node.name())?);
        node.wait("fingerprint", |node| {
            if stock {
                let read =
                    self.stage.processes.among_files(|_| Ok(fs::read_to_string(&file).ok()))?;
                let last = read.as_deref().and_then(|text| text.split_whitespace().nth(1));
                return Ok(last.map(str::to_owned));
            }
            Ok(node.event("fingerprint").and_then(|event| Some(event["what"].as_str()?.to_owned())))
        })
    }
}
