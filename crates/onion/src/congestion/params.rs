//! The consensus parameters of congestion and flow control (proposal 324, section 6.5).

/// Parameters with the defaults and limits of proposal 324. Cells, unless said otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// `cc_alg`: whether relays of this network grant congestion control.
    pub enabled: bool,
    /// `cc_sendme_inc`: cells that one SENDME stands for.
    pub sendme_inc: u8,
    /// `cc_cwnd_init`: the first window.
    pub cwnd_init: u64,
    /// `cc_cwnd_min`: the least window.
    pub cwnd_min: u64,
    /// `cc_cwnd_max`: the largest window.
    pub cwnd_max: u64,
    /// `cc_cwnd_inc`: by how much the window changes at once.
    pub cwnd_inc: u64,
    /// `cc_cwnd_inc_rate`: how often it changes in a window's time.
    pub cwnd_inc_rate: u64,
    /// `cc_cwnd_inc_pct_ss`: growth in slow start, percent.
    pub cwnd_inc_pct_ss: u64,
    /// `cc_cwnd_full_gap`: a window is full if at most so many SENDMEs' worth are missing.
    pub cwnd_full_gap: u64,
    /// `cc_cwnd_full_minpct`: below so many percent it is not.
    pub cwnd_full_minpct: u64,
    /// `cc_cwnd_full_per_cwnd`: whether fullness is judged once a window, else at each change.
    pub cwnd_full_per_cwnd: bool,
    /// `cc_ewma_cwnd_pct`: SENDMEs that the average of round-trip times spans, percent of a window's.
    pub ewma_cwnd_pct: u64,
    /// `cc_ewma_max`: at most so many.
    pub ewma_max: u64,
    /// `cc_ewma_ss`: so many in slow start.
    pub ewma_ss: u64,
    /// `cc_rtt_reset_pct`: how far the least round-trip time gives way when the window is at its least, percent.
    pub rtt_reset_pct: u64,
    /// `cc_ss_max`: slow start ends here.
    pub ss_cwnd_max: u64,
    /// `cc_sscap_exit`: slow start is limited from here on (RFC 3742).
    pub ss_cap: u64,
    /// `cc_vegas_alpha_exit`: fewer queued cells let the window grow.
    pub alpha: u64,
    /// `cc_vegas_beta_exit`: more let it shrink.
    pub beta: u64,
    /// `cc_vegas_gamma_exit`: as many end slow start.
    pub gamma: u64,
    /// `cc_vegas_delta_exit`: more cut it back at once.
    pub delta: u64,
    /// `cc_xoff_client`: cells that wait for a client's program before it says XOFF.
    pub xoff_client: u64,
    /// `cc_xoff_exit`: cells that wait for a destination before an exit says XOFF.
    pub xoff_exit: u64,
    /// `cc_xon_rate`: cells between two measurements of how fast a program takes data.
    pub xon_rate: u64,
    /// `cc_xon_change_pct`: a rate that changed by so many percent is told.
    pub xon_change_pct: u64,
    /// `cc_xon_ewma_cnt`: measurements that the average spans.
    pub xon_ewma_cnt: u64,
}

impl Default for Params {
    fn default() -> Params {
        Params {
            enabled: true,
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

impl Params {
    /// Takes one parameter of a consensus, clamped to its limits; names that are not ours are passed over.
    pub fn set(&mut self, name: &str, value: i32) {
        let clamp = |low: i32, high: i32| value.clamp(low, high) as u64;
        let max = i32::MAX;
        match name {
            "cc_alg" => self.enabled = value == 2,
            "cc_sendme_inc" => self.sendme_inc = clamp(1, 254) as u8,
            "cc_cwnd_init" => self.cwnd_init = clamp(31, 10_000),
            "cc_cwnd_min" => self.cwnd_min = clamp(31, 1000),
            "cc_cwnd_max" => self.cwnd_max = clamp(500, max),
            "cc_cwnd_inc" => self.cwnd_inc = clamp(1, 1000),
            "cc_cwnd_inc_rate" => self.cwnd_inc_rate = clamp(1, 250),
            "cc_cwnd_inc_pct_ss" => self.cwnd_inc_pct_ss = clamp(1, 500),
            "cc_cwnd_full_gap" => self.cwnd_full_gap = clamp(0, i32::from(i16::MAX)),
            "cc_cwnd_full_minpct" => self.cwnd_full_minpct = clamp(0, 100),
            "cc_cwnd_full_per_cwnd" => self.cwnd_full_per_cwnd = value != 0,
            "cc_ewma_cwnd_pct" => self.ewma_cwnd_pct = clamp(1, 255),
            "cc_ewma_max" => self.ewma_max = clamp(2, max),
            "cc_ewma_ss" => self.ewma_ss = clamp(2, max),
            "cc_rtt_reset_pct" => self.rtt_reset_pct = clamp(0, 100),
            "cc_ss_max" => self.ss_cwnd_max = clamp(500, max),
            "cc_sscap_exit" => self.ss_cap = clamp(100, max),
            "cc_vegas_alpha_exit" => self.alpha = clamp(0, 1000),
            "cc_vegas_beta_exit" => self.beta = clamp(0, 1000),
            "cc_vegas_gamma_exit" => self.gamma = clamp(0, 1000),
            "cc_vegas_delta_exit" => self.delta = clamp(0, max),
            "cc_xoff_client" => self.xoff_client = clamp(1, 10_000),
            "cc_xoff_exit" => self.xoff_exit = clamp(1, 10_000),
            "cc_xon_rate" => self.xon_rate = clamp(1, 5000),
            "cc_xon_change_pct" => self.xon_change_pct = clamp(1, 99),
            "cc_xon_ewma_cnt" => self.xon_ewma_cnt = clamp(2, 100),
            _ => {}
        }
    }
}
