//! Summary of the measurements of the circumvention experiment.

use super::super::Spread;
use super::{Access, FetchResult, Server};

/// Minimum share of the bytes that the direct path should carry if only the handshake goes through
/// the VPN.
pub const WANTED: f64 = 0.95;

/// Summary of all fetches from one server over one route.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Server of the summarised fetches.
    pub server: Server,
    /// Route of the summarised fetches.
    pub access: Access,
    /// Number of fetches that succeeded: all requested bytes arrived.
    pub through: usize,
    /// Number of all fetches.
    pub count: usize,
    /// Number of fetches during which the censor dropped at least one packet.
    pub cut: usize,
    /// Time to the first byte of the content in seconds, over the successful fetches; `None` if
    /// there are none.
    pub first_byte: Option<Spread>,
    /// Goodput of the content in Mbit/s, over the successful fetches; `None` if there are none.
    pub goodput: Option<Spread>,
    /// Direct path's share of all bytes, over the successful fetches; `None` if there are none.
    pub direct: Option<Spread>,
    /// Bytes of the VPN's packets in each successful fetch; `None` if there are no successful
    /// fetches.
    pub vpn: Option<Spread>,
}

/// Result of circumventing the censor with one server: whether it works, and its cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Server that was fetched from.
    pub server: Server,
    /// True if the censor blocked every direct fetch: it dropped packets in all direct fetches,
    /// and all fetches without the censor succeeded. `None` if this was not measured.
    pub blocked: Option<bool>,
    /// True if circumvention works with only the handshake through the VPN: all fetches succeed,
    /// and the direct path carries at least [`WANTED`] of the bytes each time. `None` if this was
    /// not measured.
    pub works: Option<bool>,
    /// Additional delay of the first byte in seconds if only the handshake uses the VPN, compared
    /// with a fetch without censor and splitter in the same repetition. `None` if no repetition
    /// has both.
    pub added: Option<Spread>,
    /// Additional delay of the first byte in seconds if only the handshake uses the VPN, compared
    /// with a fetch entirely through the VPN in the same repetition. `None` if no repetition has
    /// both.
    pub added_to_vpn: Option<Spread>,
}

/// Returns a summary for each server and route, sorted by server, then by route.
pub fn cells(records: &[FetchResult]) -> Vec<Cell> {
    let mut keys: Vec<_> = records.iter().map(|r| (r.server, r.access)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter().map(|key| cell(key, records)).collect()
}

/// Returns the result of the circumvention for each measured server.
pub fn verdicts(records: &[FetchResult]) -> Vec<Verdict> {
    let cells = cells(records);
    let mut servers: Vec<_> = cells.iter().map(|cell| cell.server).collect();
    servers.dedup();
    servers.into_iter().map(|server| verdict(server, &cells, records)).collect()
}

/// Returns the summary of `server` over the route `access`; `None` if it was not measured.
pub fn find(cells: &[Cell], server: Server, access: Access) -> Option<&Cell> {
    cells.iter().find(|cell| (cell.server, cell.access) == (server, access))
}

fn cell((server, access): (Server, Access), records: &[FetchResult]) -> Cell {
    let all: Vec<_> = records.iter().filter(|r| (r.server, r.access) == (server, access)).collect();
    let good: Vec<_> = all.iter().filter(|r| r.through).collect();
    let of = |value: fn(&FetchResult) -> f64| Spread::of(good.iter().map(|r| value(r)));
    Cell {
        server,
        access,
        through: good.len(),
        count: all.len(),
        cut: all.iter().filter(|r| r.censored > 0).count(),
        first_byte: of(|r| r.first_byte),
        goodput: of(FetchResult::goodput),
        direct: of(FetchResult::direct_share),
        vpn: of(|r| r.vpn.iter().sum::<u64>() as f64),
    }
}

fn verdict(server: Server, cells: &[Cell], records: &[FetchResult]) -> Verdict {
    let of = |access| find(cells, server, access);
    let blocked = of(Access::Open).zip(of(Access::Direct)).map(|(open, direct)| {
        open.through == open.count && direct.through == 0 && direct.cut == direct.count
    });
    let works = of(Access::Handshake).map(|cell| {
        let enough = cell.direct.is_some_and(|share| share.least >= WANTED);
        cell.through == cell.count && enough
    });
    let added = |to| added(server, to, records);
    Verdict { server, blocked, works, added: added(Access::Open), added_to_vpn: added(Access::Vpn) }
}

/// Returns the additional delay of the first byte in seconds if only the handshake uses the VPN,
/// compared with the route `to` in the same repetition. `None` if no repetition has both.
fn added(server: Server, to: Access, records: &[FetchResult]) -> Option<Spread> {
    let by = |access, repetition| {
        records.iter().find(|r| {
            (r.server, r.access, r.repetition, r.through) == (server, access, repetition, true)
        })
    };
    let good = records.iter().filter(|r| r.through && r.server == server);
    let pairs = good.filter(|r| r.access == Access::Handshake).filter_map(|ours| {
        let other = by(to, ours.repetition)?;
        Some(ours.first_byte - other.first_byte)
    });
    Spread::of(pairs)
}

#[cfg(test)]
mod tests {
    use super::super::reached::tests::reached;
    use super::*;

    fn records() -> Vec<FetchResult> {
        let mut all = Vec::new();
        for n in 0..3 {
            let more = f64::from(n) * 0.01;
            all.push(reached(Access::Open, n, 0.06 + more));
            all.push(reached(Access::Direct, n, 0.0));
            all.push(reached(Access::Vpn, n, 0.21));
            all.push(reached(Access::Handshake, n, 0.2 + 2.0 * more));
        }
        all
    }

    #[test]
    fn a_censor_that_is_got_around_is_told_with_its_cost() {
        let records = records();
        let [verdict] = &verdicts(&records)[..] else { panic!("one server") };
        assert_eq!((verdict.blocked, verdict.works), (Some(true), Some(true)));
        let added = verdict.added.unwrap();
        assert!((added.median - 0.15).abs() < 1e-9 && added.count == 3, "{added:?}");
        assert!((verdict.added_to_vpn.unwrap().least + 0.01).abs() < 1e-9);
        let cells = cells(&records);
        let direct = find(&cells, Server::QuicGo, Access::Direct).unwrap();
        assert_eq!((direct.through, direct.count, direct.cut), (0, 3, 3));
        assert_eq!(direct.first_byte, None);
        assert_eq!(find(&cells, Server::Tls, Access::Open), None);
    }

    #[test]
    fn neither_a_leak_nor_a_slow_path_is_taken_for_success() {
        let judge = |change: &dyn Fn(&mut FetchResult)| {
            let mut all = records();
            all.iter_mut().filter(|r| r.repetition == 1).for_each(change);
            let verdict = verdicts(&all).remove(0);
            (verdict.blocked.unwrap(), verdict.works.unwrap())
        };
        assert_eq!(judge(&|_| {}), (true, true));
        let leak = |r: &mut FetchResult| r.through |= r.access == Access::Direct;
        assert_eq!(judge(&leak), (false, true), "one got straight through");
        let dead = |r: &mut FetchResult| r.through &= r.access != Access::Open;
        assert_eq!(judge(&dead), (false, true), "the server did not answer anybody");
        let idle = |r: &mut FetchResult| r.censored = 0;
        assert_eq!(judge(&idle), (false, true), "it was not the censor");
        let heavy = |r: &mut FetchResult| r.vpn = [0, 600_000];
        assert_eq!(judge(&heavy), (true, false), "too much by the VPN");
        let lost = |r: &mut FetchResult| r.through &= r.access != Access::Handshake;
        assert_eq!(judge(&lost), (true, false));
    }
}
