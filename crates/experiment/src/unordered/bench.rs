//! Execution of one measurement of the experiment with unordered links.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::super::machine::Cores;
use super::super::onions::fetch::Server;
use super::super::onions::{
    HostSlot, Node, ONION, OnionNetwork, RelaySlot, SOCKS, TOR, TestPrograms, WEB_PORT,
};
use super::super::runner::Unit as _;
use super::super::stage::Stage;
use super::super::{Missing, Probe, Programs};
use super::cells;
use super::downloads::Downloads;
use super::measured::{CellDelays, Download, Measured};
use super::place::{self, LastLines, Role, WEB};
use super::plan::{Arm, Congestion, Settings, Unit, lengths};

/// Configuration of C tor's client: one circuit per stream, and enough pending circuits allowed
/// for all downloads.
const STOCK_RULES: &str =
    "ConfluxEnabled 0\nLearnCircuitBuildTimeout 0\nMaxClientCircuitsPending 128\n";
/// Maximum number of links between two relays if each circuit has its own link
/// ([`Arm::PerCircuit`]).
const LINKS: u32 = 64;
/// Time to wait until relays have reported their latest counters.
const COUNTING: Duration = Duration::from_millis(2_500);

/// Executor of measurements. Each measurement has its own emulated network, which is removed
/// afterwards.
#[derive(Debug)]
pub struct Bench {
    programs: Programs,
    anabranch: PathBuf,
    settings: Settings,
}

/// Data of one measurement, without its settings and times.
pub(super) struct Outcome {
    pub(super) downloads: Vec<Download>,
    pub(super) cells: Option<CellDelays>,
    pub(super) early_records: u64,
    pub(super) cpu: [f64; 3],
    pub(super) error: String,
}

impl Bench {
    /// Creates an executor of measurements for `settings`. `anabranch` is the program under test,
    /// and `programs` an optional directory that may contain C tor.
    ///
    /// # Errors
    /// C tor is to be measured, but was not found.
    pub fn new(
        settings: &Settings,
        anabranch: PathBuf,
        programs: Option<&Path>,
    ) -> Result<Bench, Missing> {
        let mut found = Programs::new(programs);
        if settings.arms.contains(&Arm::Stock) {
            found.find(&[TOR])?;
        }
        Ok(Bench { programs: found, anabranch, settings: settings.clone() })
    }

    /// Returns whether the program C tor is in the directory `programs` (if given) or in the usual
    /// directories.
    #[must_use]
    pub fn has_stock(programs: Option<&Path>) -> bool {
        Programs::new(programs).find(&[TOR]).is_ok()
    }

    /// Returns the third-party programs that were found.
    #[must_use]
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Makes the measurement `unit`. If `stop` is set, the measurement ends soon, and its result
    /// is useless.
    ///
    /// # Errors
    /// The network or its clients could not be started. Failed downloads are no error.
    pub fn measure(&self, unit: &Unit, stop: &AtomicBool) -> Result<Measured, String> {
        let measured = match unit.arm {
            Arm::Cells => self.cells(unit, stop),
            _ => self.downloads(unit, stop),
        };
        measured.map_err(|error| error.to_string())
    }

    fn cells(&self, unit: &Unit, stop: &AtomicBool) -> io::Result<Measured> {
        let stage = place::build_line(unit.line, unit.seed(self.settings.seed))?;
        timed(unit, || {
            let (delays, early_records) = cells::carry(&stage, self.settings.seconds, stop)?;
            let (downloads, error) = (Vec::new(), String::new());
            Ok(Outcome { downloads, cells: Some(delays), early_records, cpu: [0.0; 3], error })
        })
    }

    fn downloads(&self, unit: &Unit, stop: &AtomicBool) -> io::Result<Measured> {
        let last = if unit.arm == Arm::Mptcp { LastLines::Two } else { LastLines::One };
        let stage = place::build(unit.line, unit.seed(self.settings.seed), last)?;
        let stock = unit.arm == Arm::Stock;
        let tor = if stock { self.programs.path(TOR.0) } else { PathBuf::new() };
        let makers = TestPrograms { stage: &stage, anabranch: &self.anabranch, tor: &tor };
        let words = Role::RELAYS.map(|role| words_of(unit, role));
        let words = words.each_ref().map(|words| words.iter().map(|word| &**word).collect());
        let relays: Vec<_> = Role::RELAYS
            .into_iter()
            .zip(&words)
            .map(|(role, words): (Role, &Vec<&str>)| RelaySlot {
                slot: role.slot(&stage),
                is_exit: role == Role::Exit,
                words,
            })
            .collect();
        let authority = Role::Authority.slot(&stage);
        let mut network = OnionNetwork::start(makers, &authority, &relays, stock)?;
        let server = stage.host("exit").run(|| Server::start(WEB, WEB_PORT))?;
        let proxy = SocketAddr::from((Ipv4Addr::LOCALHOST, SOCKS));
        let _client = start_client(&network, &stage, stock, proxy)?;
        if unit.arm == Arm::Quic {
            wait_for_quic(&mut network)?;
        }
        let settings = &self.settings;
        let downloads = Downloads {
            proxy,
            server: server.address,
            lengths: &lengths(settings.downloads, settings.lengths),
            cut: Duration::from_secs(settings.cut.into()),
        };
        stage.client().run(|| downloads.warm(stop))?;
        timed(unit, || {
            let before = cpu(&network);
            let (downloads, error) = stage.client().run(|| Ok(downloads.run()))?;
            let mut cpu = cpu(&network);
            cpu.iter_mut().zip(before).for_each(|(now, then)| *now -= then);
            let early_records = early_records(&network, unit.arm)?;
            check_link_kind(&network, unit.arm, settings.downloads)?;
            Ok(Outcome { downloads, cells: None, early_records, cpu, error })
        })
    }
}

/// Returns the additional command-line arguments of our relay with this role.
fn words_of(unit: &Unit, role: Role) -> Vec<String> {
    let arm = unit.arm;
    let words: &[&str] = match arm {
        Arm::Unordered => &["--link", "utls"],
        Arm::UnorderedKist => &["--link", "utls", "--circuit-policy", "kist"],
        Arm::OrderedKist => &["--circuit-policy", "kist"],
        Arm::Quic if unit.line.congestion == Congestion::Bbr => {
            &["--link", "quic", "--quic-congestion", "bbr"]
        }
        Arm::Quic => &["--link", "quic"],
        Arm::PerCircuit => &["--link", "tls-per-circuit"],
        Arm::Mptcp => &["--mptcp"],
        Arm::Ordered | Arm::Stock | Arm::Cells => &[],
    };
    let mut words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    if let Some(second) = role.second().filter(|_| arm == Arm::Mptcp) {
        // The relay accepts an MPTCP subflow at an address where it listens, like any other
        // connection.
        words.extend(["--listen".to_owned(), format!("{second}:{ONION}")]);
    }
    words
}

/// Starts a client whose circuits use the network's three relays, and waits until it is ready.
fn start_client<'a>(
    network: &OnionNetwork<'a>,
    stage: &'a Stage,
    stock: bool,
    proxy: SocketAddr,
) -> io::Result<Node<'a>> {
    let slot =
        HostSlot { name: "client".to_owned(), ip: Ipv4Addr::LOCALHOST, host: stage.client() };
    let pins = <[String; 3]>::try_from(network.fingerprints.clone());
    let pins = pins.map_err(|_| io::Error::other("the network does not have three relays"))?;
    let rules = format!("SocksPort {proxy}\n{STOCK_RULES}");
    let mut client = match stock {
        true => network.stock_client(&slot, &rules)?,
        false => network.our_client(&slot, proxy, &pins, &["--legs", "1"])?,
    };
    network.wait_ready(&mut client, &pins, &rules)?;
    Ok(client)
}

/// Waits until the relays have QUIC links with each other. Circuits that are built afterwards use
/// these links.
fn wait_for_quic(network: &mut OnionNetwork<'_>) -> io::Result<()> {
    for (relay, least) in network.relays.iter_mut().zip([1, 2, 1]) {
        relay.wait("QUIC links", |relay| {
            let numbers = relay.event("numbers").unwrap_or_default();
            Ok((numbers["quic"]["links"].as_u64() >= Some(least)).then_some(()))
        })?;
    }
    Ok(())
}

fn cpu(network: &OnionNetwork<'_>) -> [f64; 3] {
    let mut cpu = [0.0; 3];
    cpu.iter_mut().zip(&network.relays).for_each(|(cpu, node)| *cpu = node.cpu());
    cpu
}

/// Returns the number of TLS records that relays decrypted before earlier records of the same
/// connection had arrived; 0 for measurements without unordered links.
///
/// # Errors
/// A relay with unordered links cannot read out-of-order data, which needs a capability of root.
/// For [`Arm::Quic`], it is also an error if no circuit uses a QUIC link.
fn early_records(network: &OnionNetwork<'_>, arm: Arm) -> io::Result<u64> {
    if !matches!(arm, Arm::Unordered | Arm::UnorderedKist | Arm::Quic) {
        return Ok(0);
    }
    std::thread::sleep(COUNTING);
    if arm == Arm::Quic {
        let numbers = network.relays.iter().map(|relay| relay.event("numbers").unwrap_or_default());
        return match numbers.map(|counters| counters["quic"]["circuits"].as_u64()).min() {
            Some(Some(1..)) => Ok(0),
            _ => Err(io::Error::other("no circuit uses a QUIC link")),
        };
    }
    let mut all = 0;
    for relay in &network.relays {
        let numbers = relay.event("numbers").unwrap_or_default();
        if numbers["tap"].as_str().is_none_or(|tap| tap == "none") {
            return Err(io::Error::other(format!(
                "{} cannot read TLS records out of order, which needs a capability of root; run \
                 the command as root",
                relay.name()
            )));
        }
        all += numbers["early_records"].as_u64().unwrap_or_default();
    }
    Ok(all)
}

/// Checks that circuits used the kind of links that `arm` requires.
///
/// # Errors
/// For [`Arm::PerCircuit`]: the middle relay has fewer links than `downloads`, and also fewer than
/// [`LINKS`]. For [`Arm::Mptcp`]: the middle relay has no link with two subflows.
fn check_link_kind(network: &OnionNetwork<'_>, arm: Arm, downloads: u32) -> io::Result<()> {
    if !matches!(arm, Arm::PerCircuit | Arm::Mptcp) {
        return Ok(());
    }
    std::thread::sleep(COUNTING);
    let numbers = network.relays[1].event("numbers").unwrap_or_default();
    let number = |of: &str, name: &str| numbers[of][name].as_u64().unwrap_or_default();
    let is_so = match arm {
        Arm::PerCircuit => number("per_circuit", "links") >= u64::from(downloads.min(LINKS)),
        _ => number("mptcp", "subflows") > number("mptcp", "links"),
    };
    let message = || {
        format!(
            "the middle relay did not open the links that this variant measures; its counters: \
             {numbers}"
        )
    };
    if is_so { Ok(()) } else { Err(io::Error::other(message())) }
}

/// Calls `work` for `unit`, and records its duration and the machine's load by other work.
pub(super) fn timed(
    unit: &Unit,
    work: impl FnOnce() -> io::Result<Outcome>,
) -> io::Result<Measured> {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (cores, probe, began) = (Cores::now(), Probe::start(), Instant::now());
    let Outcome { downloads, cells, early_records, cpu, error } = work()?;
    let (seconds, machine) = (began.elapsed().as_secs_f64(), probe.finish());
    Ok(Measured {
        unit: unit.id(),
        arm: unit.arm,
        line: unit.line,
        round: unit.round,
        started: started.as_secs_f64(),
        downloads,
        cells,
        early_records,
        seconds,
        cpu,
        busy: cores.busy_since(),
        error,
        machine,
    })
}
