//! Retransmission timers of protocols. They limit the delay that the splitter may add.

use std::fmt;
use std::time::Duration;

use anabranch_multipath::Jitter;

use crate::{Guess, Protocol};

/// A retransmission timer of a protocol: its duration, and the source of this value.
struct Timer {
    whose: &'static str,
    lasts: Duration,
    source: &'static str,
}

/// Time that WireGuard waits for the answer to a handshake.
const REKEY_TIMEOUT: Timer = Timer {
    whose: "WireGuard",
    lasts: Duration::from_secs(5),
    source: "Rekey-Timeout, WireGuard paper, section 6.1",
};

/// QUIC's first probe timeout, 333 + 4 x 166.5 ms. The initial round trip is 333 ms, and its
/// variation is half of that.
const FIRST_PTO: Timer = Timer {
    whose: "QUIC",
    lasts: Duration::from_millis(999),
    source: "the first probe timeout, RFC 9002, section 6.2.2",
};

/// Error: the random delay ([`Jitter`]) may exceed a protocol's retransmission timer, so that
/// datagrams would be retransmitted although they were only delayed.
#[derive(Debug)]
pub struct JitterTooLong {
    jitter: Jitter,
    timer: Timer,
    /// Whether both ends delay datagrams, so that each may use at most half of the timer.
    halved: bool,
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.whose)
    }
}

/// Checks that a random delay of `jitter` is shorter than the retransmission timer of the protocol
/// `carry`.
///
/// For all protocols except WireGuard, QUIC's timer applies. If `far_end` is true, our program in
/// front of the server delays datagrams, too, so each end may use half of the protocol's timer.
///
/// # Errors
/// `jitter` is longer than the protocol's timer.
pub fn check_jitter(jitter: Jitter, carry: Guess, far_end: bool) -> Result<(), JitterTooLong> {
    let timer = match carry {
        Guess::Is(Protocol::WireGuard) => REKEY_TIMEOUT,
        _ => FIRST_PTO,
    };
    let longest = if far_end { timer.lasts / 2 } else { timer.lasts };
    match jitter.most() < longest {
        true => Ok(()),
        false => Err(JitterTooLong { jitter, timer, halved: far_end }),
    }
}

impl fmt::Display for JitterTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Timer { whose, lasts, source } = &self.timer;
        let longest = if self.halved { *lasts / 2 } else { *lasts };
        let why = if self.halved { " (both ends delay packets)" } else { "" };
        write!(
            f,
            "the delays '{}' are too long, because {whose} sends an unanswered packet again after \
             {} ms ({source}), and everything would be sent twice: choose delays below {} \
             ms{why}",
            self.jitter,
            lasts.as_millis(),
            longest.as_secs_f64() * 1e3
        )
    }
}

impl std::error::Error for JitterTooLong {}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(jitter: &str, carry: Guess, far_end: bool) -> Option<String> {
        let checked = check_jitter(jitter.parse().unwrap(), carry, far_end);
        checked.err().map(|error| error.to_string())
    }

    #[test]
    fn a_jitter_that_outlasts_a_timer_is_refused_with_the_timers_name_and_source() {
        let look = Guess::Look;
        assert_eq!(refused("0-998ms", look, false), None);
        let quic = refused("0-999ms", look, false).unwrap();
        assert!(
            quic.contains("QUIC") && quic.contains("999 ms (the first probe timeout, RFC 9002")
        );
        let wireguard = Guess::Is(Protocol::WireGuard);
        assert_eq!(refused("0-4999ms", wireguard, false), None);
        let text = refused("0-5s", wireguard, false).unwrap();
        assert!(text.contains("WireGuard") && text.contains("5000 ms (Rekey-Timeout"), "{text}");
        assert_eq!(refused("0-499ms", Guess::Is(Protocol::Other), true), None);
        let half = refused("0-500ms", Guess::Is(Protocol::Other), true).unwrap();
        assert!(
            half.ends_with("choose delays below 499.5 ms (both ends delay packets)")
                && !half.contains('\n'),
            "{half}"
        );
    }
}
