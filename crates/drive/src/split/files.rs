//! How many files the program may have: each session has a socket for each of its tuples.

use std::io;

use anabranch_comps::Config;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that are no path sockets: streams, listener, signals, captures, and questions to the
/// kernel.
const OTHERS: u64 = 32;

/// Raises the soft limit, as a rule 1,024, to the hard one.
pub(super) fn raise_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // Where that is refused, opening sockets will say so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// How many files the program may have.
pub(super) fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// What to tell a user whose sessions may need more than `limit` files; `proxied` paths take a
/// connection each besides.
pub(super) fn shortage(config: &Config, proxied: usize, limit: u64) -> Option<String> {
    let ports: u64 = config.ports.iter().copied().map(u64::from).sum::<u64>() + proxied as u64;
    let most = (config.sessions as u64).saturating_mul(ports).saturating_add(OTHERS);
    (limit < most).then(|| {
        let sessions = config.sessions;
        format!(
            "{sessions} sessions of {ports} sockets each could need {most} files, and {limit} are \
             allowed: beyond that, sessions do without some paths (raise 'ulimit -n', or lower \
             --max-sessions)"
        )
    })
}

/// Whether a file could not be opened because the program, or the system, has too many.
pub(super) fn ran_out(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].iter().any(|no| error.raw_os_error() == Some(no.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_below_what_all_sessions_could_need_is_told_with_both_numbers() {
        let config = Config { ports: vec![1, 4], sessions: 1000, ..Config::of(2) };
        let text = shortage(&config, 0, 5031).unwrap();
        assert!(text.contains("could need 5032 files, and 5031 are"), "{text}");
        assert_eq!(shortage(&config, 0, 5032), None);
        assert!(shortage(&config, 1, 5032).unwrap().contains("could need 6032 files"));
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        raise_limit();
        assert_eq!(Some(limit()), getrlimit(Resource::Nofile).maximum.or(Some(u64::MAX)));
    }

    #[test]
    fn a_want_of_files_is_no_fault_of_the_path() {
        assert!(ran_out(&io::Error::from_raw_os_error(libc::EMFILE)));
        assert!(ran_out(&io::Error::from_raw_os_error(libc::ENFILE)));
        assert!(!ran_out(&io::Error::from_raw_os_error(libc::ENOBUFS)));
    }
}
