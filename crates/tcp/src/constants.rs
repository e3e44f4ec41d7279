//! Constants of TCP, each with its source.
//!
//! Where Linux differs from an RFC, the constant has Linux's value, because relays run Linux. The
//! measurements that judge this crate (`make bench AREA=tcp`) compare it with Linux.

use std::time::Duration;

/// Initial window, in segments (RFC 6928, section 2).
pub const INIT_CWND: u32 = 10;
/// Minimum slow-start threshold, in segments (RFC 5681, section 3.1, equation 4).
pub const MIN_SSTHRESH: u32 = 2;
/// Number of duplicate acknowledgements that signal a loss (RFC 5681, section 3.2; RFC 6675,
/// section 2).
pub const DUP_THRESH: u32 = 3;
/// Maximum of the measured degree of reordering, in segments (Linux, `tcp_max_reordering`). The
/// degree is the distance over which segments overtake each other.
pub const MAX_REORDERING: u32 = 300;

/// Retransmission timeout before the first round-trip time is known (RFC 6298, section 2.1).
pub const INITIAL_RTO: Duration = Duration::from_secs(1);
/// Minimum of the term `K * RTTVAR` in the retransmission timeout. RFC 6298, section 2.4, asks for
/// a timeout of at least 1 s; this is Linux's `TCP_RTO_MIN`.
pub const RTO_MIN: Duration = Duration::from_millis(200);
/// Maximum retransmission timeout (RFC 6298, section 2.5: 60 s or more; Linux, `TCP_RTO_MAX`).
pub const RTO_MAX: Duration = Duration::from_secs(120);
/// Number of retransmissions of a SYN before the connection fails (RFC 9293, section 3.8.3; Linux,
/// `tcp_syn_retries`).
pub const SYN_RETRIES: u32 = 6;
/// Divisor of the expected round-trip time. The quotient is the interval between a segment and its
/// copy (this crate's choice), which is longer than most bursts of losses.
pub const COPY_DIVISOR: u32 = 8;
/// Time between a segment with data and its copy if no round-trip time is expected (this crate's
/// choice).
pub const COPY_DELAY: Duration = Duration::from_millis(10);
/// Maximum number of segments that are kept if they have overtaken a SYN-ACK (this crate's choice:
/// above the initial windows in use).
pub const MAX_AHEAD: usize = 32;
/// Number of consecutive timeouts before the connection fails, `R2` (RFC 9293, section 3.8.3;
/// Linux, `tcp_retries2`).
pub const DATA_RETRIES: u32 = 15;
/// Period over which the minimum round-trip time is taken (Linux, `tcp_min_rtt_wlen`).
pub const MIN_RTT_WINDOW: Duration = Duration::from_secs(300);

/// Inverse of the weight of a new sample in two moving averages: the mean and the mean deviation
/// of the delay with which overtaken segments arrive (this crate's choice).
pub const LATENESS_WEIGHT: u32 = 32;
/// Divisor of the minimum round-trip time; the quotient is the reordering window (RFC 8985,
/// section 6.2).
pub const RACK_REO_WND_DIVISOR: u32 = 4;
/// Number of recoveries for which a widened reordering window lasts (RFC 8985, section 6.2; Linux,
/// `TCP_RACK_RECOVERY_THRESH`).
pub const RACK_REO_WND_PERSIST: u32 = 16;
/// Maximum factor for the widening of the reordering window (Linux: `reo_wnd_steps` has 8 bits).
pub const RACK_MAX_REO_WND_MULT: u32 = 255;
/// Timeout of a tail loss probe, as a multiple of `SRTT` (RFC 8985, section 7.2).
pub const TLP_SRTT_FACTOR: u32 = 2;
/// Allowance for a delayed acknowledgement when one segment is in flight (RFC 8985, section 7.2,
/// `TLP.max_ack_delay`).
pub const TLP_MAX_ACK_DELAY: Duration = Duration::from_millis(200);
/// Additional time in the timeout of a tail loss probe with several segments in flight, and in the
/// timer of the reordering window. It keeps these timers from expiring just before an
/// acknowledgement arrives (Linux, `TCP_TIMEOUT_MIN`: two ticks of 4 ms).
pub const TIMEOUT_MIN: Duration = Duration::from_millis(8);

/// CUBIC's scaling constant `C`, in segments per second cubed (RFC 9438, section 5).
pub const CUBIC_C: f64 = 0.4;
/// CUBIC's multiplicative decrease: the factor of the window after a loss (RFC 9438, section 4.6).
pub const CUBIC_BETA: f64 = 0.7;
/// Growth per round trip of the window that Reno would have, `3 * (1 - beta) / (1 + beta)`, in
/// segments (RFC 9438, section 4.3).
pub const CUBIC_ALPHA: f64 = 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA);
/// Maximum growth of the window in a round trip, as a fraction of the window (RFC 9438, section
/// 4.2: the target is at most 1.5 windows).
pub const CUBIC_MAX_GROWTH: f64 = 0.5;
/// Minimum growth of CUBIC's window in a round trip before the first loss, as a fraction of the
/// window (Linux: `cnt` of 20).
pub const CUBIC_FIRST_GROWTH: f64 = 0.05;
/// Reno's multiplicative decrease: the factor of the window after a loss (RFC 5681, section 3.1,
/// equation 4).
pub const RENO_BETA: f64 = 0.5;

/// Minimum window, in segments, at which HyStart looks for the end of slow start (Ha and Rhee,
/// 2011).
pub const HYSTART_LOW_WINDOW: u32 = 16;
/// Number of samples in a round trip after which HyStart uses their minimum delay (RFC 9406,
/// section 4.3, `N_RTT_SAMPLE`).
pub const HYSTART_MIN_SAMPLES: u32 = 8;
/// Lower bound of the delay growth that makes HyStart end slow start (RFC 9406, section 4.3,
/// `MIN_RTT_THRESH`).
pub const HYSTART_DELAY_MIN: Duration = Duration::from_millis(4);
/// Upper bound of the delay growth that makes HyStart end slow start (RFC 9406, section 4.3,
/// `MAX_RTT_THRESH`).
pub const HYSTART_DELAY_MAX: Duration = Duration::from_millis(16);
/// Divisor of the minimum delay; the quotient is the growth of the delay at which HyStart ends
/// slow start (RFC 9406, section 4.3, `MIN_RTT_DIVISOR`).
pub const HYSTART_DELAY_DIVISOR: u32 = 8;
/// Maximum interval between two acknowledgements that HyStart counts as answers to one burst of
/// segments (Ha and Rhee, 2011).
pub const HYSTART_ACK_DELTA: Duration = Duration::from_millis(2);
/// Time that HyStart adds to the minimum round-trip time, because receivers delay acknowledgements
/// (Linux, 1 ms).
pub const HYSTART_ACK_DELAY: Duration = Duration::from_millis(1);

/// Maximum delay of an acknowledgement (RFC 9293, section 3.8.6.3: below 500 ms; Linux,
/// `TCP_ATO_MIN`).
pub const DELAYED_ACK: Duration = Duration::from_millis(40);
/// Number of full segments that one acknowledgement may cover (RFC 9293, section 3.8.6.3).
pub const ACK_EVERY: usize = 2;
/// Number of sparse acknowledgements in a round-trip time: `beta` of TACK (Li et al., "TACK:
/// Improving Wireless Transport Performance by Taming Acknowledgments", SIGCOMM 2020).
pub const SPARSE_ACKS: u32 = 4;
/// Maximum number of full segments that a sparse acknowledgement covers (this crate's choice). It
/// limits the burst that an acknowledgement releases.
pub const SPARSE_ACK_EVERY: usize = 32;
/// Maximum number of SACK blocks of a sparse acknowledgement (this crate's choice).
pub const SPARSE_BLOCKS: usize = 48;
/// Number of acknowledgements that are sent without delay when a connection starts, and again
/// after a pause (Linux, `TCP_MAX_QUICKACKS`).
pub const MAX_QUICKACKS: u32 = 16;
/// Minimum interval between two challenge acknowledgements (RFC 5961, section 7; Linux, 500 ms).
pub const CHALLENGE_ACK_INTERVAL: Duration = Duration::from_millis(500);

/// Duration of TIME-WAIT, twice the maximum segment lifetime (RFC 9293, section 3.4.2: 4 min;
/// Linux, `TCP_TIMEWAIT_LEN`).
pub const TIME_WAIT: Duration = Duration::from_secs(60);
/// Age from which a timestamp of the peer counts as outdated: 24 days (RFC 7323, section 5.5).
pub const PAWS_IDLE: Duration = Duration::from_secs(24 * 24 * 3600);
/// Maximum shift of a window in bits (RFC 7323, section 2.3).
pub const MAX_WINDOW_SCALE: u8 = 14;
/// Maximum segment size of a peer that announces none, in bytes (RFC 9293, section 3.7.1, IPv4).
pub const DEFAULT_MSS: u16 = 536;
/// Lower bound in bytes for the maximum segment size that a peer announces: smaller values are
/// raised to it (Linux, `tcp_min_snd_mss`).
pub const MIN_MSS: u16 = 48;

/// Assumed round-trip time of a path (leg) before the first measurement (`kInitialRtt`, RFC 9002,
/// section 6.2.2).
pub const LEG_RTT: Duration = Duration::from_millis(333);

/// Pacing rate in slow start, in per cent of `cwnd / SRTT` (Linux, `tcp_pacing_ss_ratio`).
pub const PACING_SLOW_START: u64 = 200;
/// Pacing rate after slow start, in per cent of `cwnd / SRTT` (Linux, `tcp_pacing_ca_ratio`).
pub const PACING_AVOIDANCE: u64 = 120;
