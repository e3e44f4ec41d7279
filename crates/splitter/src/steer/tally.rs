//! Counters of the connections that are kept on one path. Their traffic does not pass through the
//! splitter, so nftables counts it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anabranch_comps::{Flow, Pinned};

use super::{Exit, Slot, nft};

/// Interval between readings of the counters. Each reading starts the program `nft`, on a separate
/// thread.
const PERIOD: Duration = Duration::from_secs(1);

/// Returns the rules that count the flows and packets of `exits`, as text for `nft`: named
/// counters, and the chains that use them.
pub(super) fn chains(slot: Slot, exits: &[Exit]) -> String {
    let mut text = String::new();
    for exit in exits {
        for what in ["flows", "up", "down"] {
            let _ = writeln!(text, "counter {} {{ }}", name(what, exit.index));
        }
    }
    text += "chain number {\n";
    count(&mut text, slot, exits, "", "flows");
    text += "}\nchain sent {\ntype filter hook postrouting priority filter; policy accept;\n";
    count(&mut text, slot, exits, "oifname @paths ct direction original ", "up");
    text += "}\nchain came {\ntype filter hook prerouting priority mangle + 1; policy accept;\n";
    count(&mut text, slot, exits, "iifname @paths ct direction reply ", "down");
    text + "}\n"
}

fn count(text: &mut String, slot: Slot, exits: &[Exit], which: &str, what: &str) {
    for exit in exits {
        let (mark, name) = (slot.path(exit.index), name(what, exit.index));
        let _ = writeln!(text, "{which}ct mark {mark:#x} counter name \"{name}\" return");
    }
}

fn name(what: &str, path: usize) -> String {
    format!("{what}{path}")
}

/// Counters of the traffic that is not split, which are read once a second until this value is
/// dropped.
#[derive(Debug)]
pub(super) struct Tally {
    shared: Arc<Shared>,
    /// Sender to the thread that reads the counters. The thread ends when the sender is dropped.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    nft: PathBuf,
    table: String,
    sums: Mutex<Sums>,
}

impl Tally {
    /// Starts to read the counters in the nftables table of `slot` once a second, with the program
    /// `nft`.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn begin(nft: &Path, slot: Slot, paths: usize) -> io::Result<Tally> {
        let sums = Mutex::new(Sums::new(paths));
        let shared = Arc::new(Shared { nft: nft.to_owned(), table: slot.ruleset(), sums });
        let (end, ended) = channel();
        let reader = Arc::clone(&shared);
        let thread = thread::Builder::new().name("tally".to_owned()).spawn(move || {
            while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                reader.read();
            }
        })?;
        Ok(Tally { shared, end: Some(end), thread: Some(thread) })
    }

    /// Returns the counters of the last reading, with an entry for each path.
    pub(super) fn pinned(&self) -> Vec<Pinned> {
        self.shared.sums.lock().unwrap_or_else(PoisonError::into_inner).total.clone()
    }

    /// Reads the counters now.
    pub(super) fn refresh(&self) {
        self.shared.read();
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Reads the counters. If the table does not exist at present, keeps the previous reading.
    fn read(&self) {
        if let Ok(listing) = nft::counters(&self.nft, &self.table) {
            self.sums.lock().unwrap_or_else(PoisonError::into_inner).add(&parse(&listing));
        }
    }
}

/// Counts of packets and bytes of each nftables counter, by the counter's name.
type CounterValues = BTreeMap<String, (u64, u64)>;

/// Sums of the nftables counters since the start. The sums do not restart when the nftables table
/// is set again, and its counters start from 0.
#[derive(Debug)]
struct Sums {
    last: CounterValues,
    total: Vec<Pinned>,
}

impl Sums {
    fn new(paths: usize) -> Sums {
        Sums { last: CounterValues::new(), total: vec![Pinned::default(); paths] }
    }

    fn add(&mut self, counted: &CounterValues) {
        let fresh = |name: String| {
            let (packets, bytes) = counted.get(&name).copied().unwrap_or_default();
            let (before, bytes_before) = self.last.get(&name).copied().unwrap_or_default();
            match packets >= before && bytes >= bytes_before {
                true => Flow { datagrams: packets - before, bytes: bytes - bytes_before },
                false => Flow { datagrams: packets, bytes },
            }
        };
        for (path, total) in self.total.iter_mut().enumerate() {
            let [flows, up, down] = ["flows", "up", "down"].map(|what| fresh(name(what, path)));
            total.flows += flows.datagrams;
            total.up = sum(total.up, up);
            total.down = sum(total.down, down);
        }
        self.last.clone_from(counted);
    }
}

fn sum(one: Flow, other: Flow) -> Flow {
    Flow { datagrams: one.datagrams + other.datagrams, bytes: one.bytes + other.bytes }
}

/// Parses the output of `nft list counters`.
fn parse(listing: &str) -> CounterValues {
    let (mut counted, mut name) = (CounterValues::new(), None);
    for line in listing.lines() {
        match *line.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["counter", of, "{"] => name = Some(of.trim_matches('"').to_owned()),
            ["packets", packets, "bytes", bytes] => {
                let numbers = packets.parse().ok().zip(bytes.parse().ok());
                counted.extend(name.take().zip(numbers));
            }
            _ => {}
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "table inet anabranch-0 {\n\tcounter flows0 {\n\t\tpackets 3 bytes 180\n\t}\n\
                           \tcounter up0 {\n\t\tpackets 40 bytes 5000\n\t}\n\
                           \tcounter down1 {\n\t\tpackets 7 bytes 900\n\t}\n}\n";

    #[test]
    fn counters_are_read_and_what_is_none_is_passed_over() {
        let counted = parse(LISTING);
        assert_eq!(counted["up0"], (40, 5000));
        assert_eq!(counted.len(), 3);
        assert!(parse("packets 1 bytes 2\ncounter x {\npackets a bytes b\n").is_empty());
    }

    #[test]
    fn sums_go_on_where_the_counters_begin_anew() {
        let mut sums = Sums::new(2);
        sums.add(&parse(LISTING));
        sums.add(&parse(LISTING));
        assert_eq!((sums.total[0].flows, sums.total[0].up.bytes), (3, 5000));
        sums.add(&parse(&LISTING.replace("40 bytes 5000", "2 bytes 100")));
        assert_eq!(sums.total[0].up, Flow { datagrams: 42, bytes: 5100 });
        assert_eq!(sums.total[1].down.datagrams, 7);
    }
}
