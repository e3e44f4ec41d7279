//! Admission of incoming connections to a relay. Connections are counted by address, so that no
//! address can use up all slots.
//!
//! The number of an address's connections with an incomplete TLS handshake is always limited. If
//! the consensus sets `DoSConnectionEnabled` (param-spec, "Denial-of-service parameters"), the
//! number of an address's open connections and the rate of new ones are limited too, as in C tor.
//! An address that exceeds the rate is refused for a while. The limits of the consensus do not
//! apply to addresses of relays.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use anabranch_multipath::Time;

/// Maximum number of connections from one address with an incomplete TLS handshake. It is C tor's
/// limit for all clients of one address.
pub const HALF_OPEN: usize = 100;
/// Maximum number of addresses whose state is stored. Connections from further addresses are
/// accepted without limit.
const MOST: usize = 100_000;
/// Interval between removals of addresses whose state is no longer needed.
const SWEEP: Duration = Duration::from_secs(60);

/// The `DoSConnection…` parameters of a consensus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DosParams {
    /// True if `DoSConnectionEnabled` is set and `DoSConnectionDefenseType` is to close
    /// connections. Otherwise the other parameters do not apply.
    pub enabled: bool,
    /// `DoSConnectionMaxConcurrentCount`: maximum number of open connections from one address.
    pub concurrent: usize,
    /// `DoSConnectionConnectRate`: maximum number of new connections per second from one address.
    pub rate: u32,
    /// `DoSConnectionConnectBurst`: maximum number of new connections at once from one address,
    /// after a pause.
    pub burst: u32,
    /// `DoSConnectionConnectDefenseTimePeriod`: time for which an address is refused after it
    /// exceeded the rate.
    pub period: Duration,
}

impl DosParams {
    /// Reads the parameters of a consensus. Absent values get their defaults, and values below
    /// their minimum are raised to it.
    #[must_use]
    pub fn new(values: &BTreeMap<String, i32>) -> DosParams {
        let read = |name: &str, default: i32, least: i32| -> u32 {
            let name = format!("DoSConnection{name}");
            values.get(&name).copied().unwrap_or(default).max(least).unsigned_abs()
        };
        DosParams {
            enabled: read("Enabled", 0, 0) == 1 && read("DefenseType", 2, 1) == 2,
            concurrent: read("MaxConcurrentCount", 100, 1) as usize,
            rate: read("ConnectRate", 20, 1),
            burst: read("ConnectBurst", 40, 1),
            period: Duration::from_secs(read("ConnectDefenseTimePeriod", 24 * 3600, 10).into()),
        }
    }
}

impl Default for DosParams {
    fn default() -> DosParams {
        DosParams::new(&BTreeMap::new())
    }
}

/// Decision on an incoming connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The connection is accepted, and counted until [`Newcomers::left`] is called.
    Counted,
    /// The connection is accepted, but not counted, because the table of addresses is full.
    Uncounted,
    /// The connection must be closed at once.
    Refused,
}

/// Connection counts of one address, and the times that limit its new connections.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Number of connections with an incomplete TLS handshake.
    half: usize,
    /// Number of connections with a complete TLS handshake.
    open: usize,
    /// Time of the next connection if connections came at exactly the maximum rate. A connection
    /// is accepted up to `burst - 1` intervals of this rate earlier.
    due: Time,
    /// Time until which the address is refused.
    barred: Time,
}

/// Limits on incoming connections, and the state of each address that has or recently had
/// connections.
#[derive(Debug, Default)]
pub struct Newcomers {
    params: DosParams,
    /// Addresses of relays. Only the limit [`HALF_OPEN`] applies to them.
    relays: BTreeSet<IpAddr>,
    entries: BTreeMap<IpAddr, Entry>,
    refused: u64,
    swept: Time,
}

impl Newcomers {
    /// Sets the consensus parameters and the addresses of relays.
    pub fn set_network(&mut self, params: DosParams, relays: BTreeSet<IpAddr>) {
        (self.params, self.relays) = (params, relays);
    }

    /// Decides whether to accept a connection from the address `peer`.
    pub fn admit(&mut self, now: Time, peer: IpAddr) -> Admission {
        self.sweep(now);
        let address = counted_as(peer);
        if self.entries.len() >= MOST && !self.entries.contains_key(&address) {
            return Admission::Uncounted;
        }
        let rules = self.params.enabled && !self.relays.contains(&peer);
        let entry = self.entries.entry(address).or_default();
        if entry.half >= HALF_OPEN || rules && !entry.may_come(now, &self.params) {
            self.refused += 1;
            return Admission::Refused;
        }
        entry.half += 1;
        Admission::Counted
    }

    /// Notes that the TLS handshake of a counted connection is complete.
    pub fn opened(&mut self, peer: IpAddr) {
        if let Some(entry) = self.entries.get_mut(&counted_as(peer)) {
            entry.half = entry.half.saturating_sub(1);
            entry.open += 1;
        }
    }

    /// Notes that a counted connection is closed. `was_open` is true if its TLS handshake was
    /// complete.
    pub fn left(&mut self, peer: IpAddr, was_open: bool) {
        if let Some(entry) = self.entries.get_mut(&counted_as(peer)) {
            let count = if was_open { &mut entry.open } else { &mut entry.half };
            *count = count.saturating_sub(1);
        }
    }

    /// Returns the number of connections refused since this relay started.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Removes addresses that have no connections and whose limits have expired. Acts once per
    /// [`SWEEP`], or earlier if the table is full.
    fn sweep(&mut self, now: Time) {
        if now.since(self.swept) < SWEEP && self.entries.len() < MOST {
            return;
        }
        if now == self.swept {
            return;
        }
        self.swept = now;
        let is_needed =
            |entry: &Entry| entry.half + entry.open > 0 || entry.due > now || entry.barred > now;
        self.entries.retain(|_, entry| is_needed(entry));
    }
}

impl Entry {
    fn may_come(&mut self, now: Time, params: &DosParams) -> bool {
        if now < self.barred || self.half + self.open >= params.concurrent {
            return false;
        }
        let pause = Duration::from_secs(1) / params.rate;
        let due = self.due.max(now);
        if due > now + pause * (params.burst - 1) {
            self.barred = now + params.period;
            return false;
        }
        self.due = due + pause;
        true
    }
}

/// Returns the address that stands for `peer` in the counts. For IPv6 it is the /64 prefix,
/// because a host can choose the rest of its address freely.
fn counted_as(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Returns the state with these `DoSConnection…` parameters.
    fn newcomers(values: &[(&str, i32)]) -> Newcomers {
        let named = values.iter().map(|(name, value)| (format!("DoSConnection{name}"), *value));
        let mut newcomers = Newcomers::default();
        newcomers.set_network(DosParams::new(&named.collect()), [ip("192.0.2.9")].into());
        newcomers
    }

    /// Returns the number of accepted connections, out of `count` connections from `peer` at the
    /// time `seconds`.
    fn admit(newcomers: &mut Newcomers, seconds: u64, peer: &str, count: usize) -> usize {
        let now = Time::from_secs(seconds);
        let taken = |_: &usize| newcomers.admit(now, ip(peer)) != Admission::Refused;
        (0..count).filter(taken).count()
    }

    #[test]
    fn handshakes_of_one_address_are_held_to_a_number_beside_those_of_others() {
        let mut all = newcomers(&[]);
        assert_eq!(admit(&mut all, 1, "192.0.2.1", 1000), HALF_OPEN);
        assert_eq!(admit(&mut all, 1, "192.0.2.2", 5), 5);
        assert_eq!(all.refused(), 900);
        (0..10).for_each(|_| all.opened(ip("192.0.2.1")));
        all.left(ip("192.0.2.1"), false);
        assert_eq!(admit(&mut all, 2, "192.0.2.1", 1000), 11, "places that are free are given");
        assert_eq!(admit(&mut all, 2, "2001:db8::1", 60), 60);
        assert_eq!(admit(&mut all, 2, "2001:db8::2:1", 60), 40, "a /64 counts as one");
        assert_eq!(admit(&mut all, 2, "::ffff:192.0.2.2", 200), 95, "and so does IPv4 as IPv6");
    }

    #[test]
    fn the_consensus_may_hold_an_address_to_connections_and_to_a_rate() {
        let rules = [("Enabled", 1), ("MaxConcurrentCount", 10), ("ConnectRate", 1000)];
        let mut all = newcomers(&rules);
        assert_eq!(admit(&mut all, 1, "192.0.2.1", 50), 10);
        (0..10).for_each(|_| all.opened(ip("192.0.2.1")));
        assert_eq!(admit(&mut all, 2, "192.0.2.1", 50), 0, "open ones count");
        all.left(ip("192.0.2.1"), true);
        assert_eq!(admit(&mut all, 3, "192.0.2.1", 50), 1);
        assert_eq!(admit(&mut all, 3, "192.0.2.9", 50), 50, "a relay's address is left out");
        let slow = [("ConnectRate", 2), ("ConnectBurst", 4), ("ConnectDefenseTimePeriod", 60)];
        let mut all = newcomers(&[&[("Enabled", 1)][..], &slow].concat());
        assert_eq!(admit(&mut all, 1, "192.0.2.1", 4), 4, "a burst");
        assert_eq!(admit(&mut all, 2, "192.0.2.1", 2), 2, "then the rate");
        assert_eq!(admit(&mut all, 2, "192.0.2.1", 1), 0, "and who goes beyond is barred");
        assert_eq!(admit(&mut all, 61, "192.0.2.1", 1), 0);
        assert_eq!(admit(&mut all, 62, "192.0.2.1", 1), 1);
        let mut all = newcomers(&[("Enabled", 1), ("DefenseType", 1), ("ConnectRate", 1)]);
        assert_eq!(admit(&mut all, 1, "192.0.2.1", 100), 100, "a defence that does nothing");
    }

    #[test]
    fn addresses_that_have_gone_are_forgotten_and_their_number_is_bounded() {
        let mut all = newcomers(&[]);
        let at = |number: u32| IpAddr::from((0x0a00_0000 + number).to_be_bytes());
        for number in 0..MOST as u32 {
            assert_eq!(all.admit(Time::from_secs(1), at(number)), Admission::Counted);
        }
        assert_eq!(all.admit(Time::from_secs(1), ip("192.0.2.1")), Admission::Uncounted);
        assert_eq!(all.admit(Time::from_secs(1), at(7)), Admission::Counted, "who is known counts");
        (0..MOST as u32).for_each(|number| all.left(at(number), false));
        all.admit(Time::from_secs(70), ip("192.0.2.1"));
        assert_eq!(all.entries.len(), 2);
    }
}
