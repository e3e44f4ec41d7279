//! Consensus parameters of congestion and flow control (proposal 324, section 6.5).

use std::collections::BTreeMap;

/// Parameters with the defaults and limits of proposal 324. Quantities are in cells unless noted
/// otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// `cc_alg`: true if relays of this network accept congestion control.
    pub enabled: bool,
    /// `sendme_accept_min_version`: minimum version of SENDMEs that is accepted on circuits.
    pub sendme_accept_min: u8,
    /// `cc_sendme_inc`: number of cells that one SENDME acknowledges.
    pub sendme_inc: u8,
    /// `cc_cwnd_init`: initial congestion window.
    pub cwnd_init: u64,
    /// `cc_cwnd_min`: minimum congestion window.
    pub cwnd_min: u64,
    /// `cc_cwnd_max`: maximum congestion window.
    pub cwnd_max: u64,
    /// `cc_cwnd_inc`: size of each change of the window.
    pub cwnd_inc: u64,
    /// `cc_cwnd_inc_rate`: number of window changes while one window of cells is acknowledged.
    pub cwnd_inc_rate: u64,
    /// `cc_cwnd_inc_pct_ss`: growth of the window in slow start, in percent of the acknowledged
    /// cells.
    pub cwnd_inc_pct_ss: u64,
    /// `cc_cwnd_full_gap`: maximum unused part that a full window may have, in multiples of
    /// `cc_sendme_inc` cells.
    pub cwnd_full_gap: u64,
    /// `cc_cwnd_full_minpct`: minimum used part of a window, in percent. If less is used, the
    /// window no longer counts as full.
    pub cwnd_full_minpct: u64,
    /// `cc_cwnd_full_per_cwnd`: interval after which a window that was full no longer counts as
    /// full. True: once a window of cells is acknowledged. False: at each change of the window.
    pub cwnd_full_per_cwnd: bool,
    /// `cc_ewma_cwnd_pct`: number of SENDMEs over which round-trip times are averaged, in percent
    /// of the SENDMEs of one window.
    pub ewma_cwnd_pct: u64,
    /// `cc_ewma_max`: maximum number of SENDMEs over which round-trip times are averaged.
    pub ewma_max: u64,
    /// `cc_ewma_ss`: number of SENDMEs over which round-trip times are averaged in slow start.
    pub ewma_ss: u64,
    /// `cc_rtt_reset_pct`: increase of the minimum round-trip time while the window has its
    /// minimum size. The unit is percent of the difference between the average and the minimum
    /// round-trip time.
    pub rtt_reset_pct: u64,
    /// `cc_ss_max`: window size at which slow start ends.
    pub ss_cwnd_max: u64,
    /// `cc_sscap_exit`: window size from which growth in slow start is limited (RFC 3742).
    pub ss_cap: u64,
    /// `cc_vegas_alpha_exit`: number of queued cells below which the window grows.
    pub alpha: u64,
    /// `cc_vegas_beta_exit`: number of queued cells above which the window shrinks.
    pub beta: u64,
    /// `cc_vegas_gamma_exit`: number of queued cells at which slow start ends.
    pub gamma: u64,
    /// `cc_vegas_delta_exit`: number of queued cells above which the window is reduced at once.
    pub delta: u64,
    /// `cc_xoff_client`: number of cells waiting for a client's program above which the client
    /// sends XOFF.
    pub xoff_client: u64,
    /// `cc_xoff_exit`: number of cells waiting for a destination above which the exit sends XOFF.
    pub xoff_exit: u64,
    /// `cc_xon_rate`: number of cells between two measurements of the rate at which a program
    /// reads data.
    pub xon_rate: u64,
    /// `cc_xon_change_pct`: minimum change of a program's reading rate that is reported by XON, in
    /// percent.
    pub xon_change_pct: u64,
    /// `cc_xon_ewma_cnt`: number of measurements over which the rate at which a program reads is
    /// averaged.
    pub xon_ewma_cnt: u64,
}

impl Default for Params {
    fn default() -> Params {
        Params {
            enabled: true,
            sendme_accept_min: 0,
            sendme_inc: 31,
            cwnd_init: 124,
            cwnd_min: 124,
            cwnd_max: i32::MAX as u64,
            cwnd_inc: 31,
            cwnd_inc_rate: 1,
            cwnd_inc_pct_ss: 100,
            cwnd_full_gap: 4,
            cwnd_full_minpct: 25,
            cwnd_full_per_cwnd: true,
            ewma_cwnd_pct: 50,
            ewma_max: 10,
            ewma_ss: 2,
            rtt_reset_pct: 100,
            ss_cwnd_max: 5000,
            ss_cap: 600,
            alpha: 186,
            beta: 248,
            gamma: 186,
            delta: 310,
            xoff_client: 500,
            xoff_exit: 500,
            xon_rate: 500,
            xon_change_pct: 25,
            xon_ewma_cnt: 2,
        }
    }
}

/// A parameter's name, its minimum, its maximum, and a function that returns its field.
type Limits = (&'static str, i32, i32, fn(&mut Params) -> &mut u64);

const LIMITS: &[Limits] = &[
    ("cc_cwnd_init", 31, 10_000, |params| &mut params.cwnd_init),
    ("cc_cwnd_min", 31, 1000, |params| &mut params.cwnd_min),
    ("cc_cwnd_max", 500, i32::MAX, |params| &mut params.cwnd_max),
    ("cc_cwnd_inc", 1, 1000, |params| &mut params.cwnd_inc),
    ("cc_cwnd_inc_rate", 1, 250, |params| &mut params.cwnd_inc_rate),
    ("cc_cwnd_inc_pct_ss", 1, 500, |params| &mut params.cwnd_inc_pct_ss),
    ("cc_cwnd_full_gap", 0, i16::MAX as i32, |params| &mut params.cwnd_full_gap),
    ("cc_cwnd_full_minpct", 0, 100, |params| &mut params.cwnd_full_minpct),
    ("cc_ewma_cwnd_pct", 1, 255, |params| &mut params.ewma_cwnd_pct),
    ("cc_ewma_max", 2, i32::MAX, |params| &mut params.ewma_max),
    ("cc_ewma_ss", 2, i32::MAX, |params| &mut params.ewma_ss),
    ("cc_rtt_reset_pct", 0, 100, |params| &mut params.rtt_reset_pct),
    ("cc_ss_max", 500, i32::MAX, |params| &mut params.ss_cwnd_max),
    ("cc_sscap_exit", 100, i32::MAX, |params| &mut params.ss_cap),
    ("cc_vegas_alpha_exit", 0, 1000, |params| &mut params.alpha),
    ("cc_vegas_beta_exit", 0, 1000, |params| &mut params.beta),
    ("cc_vegas_gamma_exit", 0, 1000, |params| &mut params.gamma),
    ("cc_vegas_delta_exit", 0, i32::MAX, |params| &mut params.delta),
    ("cc_xoff_client", 1, 10_000, |params| &mut params.xoff_client),
    ("cc_xoff_exit", 1, 10_000, |params| &mut params.xoff_exit),
    ("cc_xon_rate", 1, 5000, |params| &mut params.xon_rate),
    ("cc_xon_change_pct", 1, 99, |params| &mut params.xon_change_pct),
    ("cc_xon_ewma_cnt", 2, 100, |params| &mut params.xon_ewma_cnt),
];

impl Params {
    /// Reads the parameters of a consensus. Absent parameters get their defaults.
    #[must_use]
    pub fn of(params: &BTreeMap<String, i32>) -> Params {
        let mut read = Params::default();
        params.iter().for_each(|(name, value)| read.set(name, *value));
        read
    }

    /// Sets one parameter of a consensus, clamped to its limits. Unknown names are ignored.
    pub fn set(&mut self, name: &str, value: i32) {
        match name {
            "cc_alg" => self.enabled = value == 2,
            "cc_sendme_inc" => self.sendme_inc = value.clamp(1, 254) as u8,
            "sendme_accept_min_version" => self.sendme_accept_min = value.clamp(0, 255) as u8,
            "cc_cwnd_full_per_cwnd" => self.cwnd_full_per_cwnd = value != 0,
            _ => {
                let known = LIMITS.iter().find(|(known, ..)| *known == name);
                if let Some((_, least, largest, place)) = known {
                    *place(self) = value.clamp(*least, *largest) as u64;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_taken_within_their_limits() {
        let mut params = Params::default();
        for (name, least, largest, place) in LIMITS {
            assert!(least < largest && *least >= 0, "{name}");
            params.set(name, i32::MIN);
            assert_eq!(*place(&mut params), *least as u64, "{name}");
            params.set(name, i32::MAX);
            assert_eq!(*place(&mut params), *largest as u64, "{name}");
        }
        for (message, taken) in [(-1, 0), (1, 1), (300, 255)] {
            params.set("sendme_accept_min_version", message);
            assert_eq!(params.sendme_accept_min, taken);
        }
        let before = params.clone();
        params.set("circwindow", 7);
        assert_eq!(params, before);
    }
}
