//! How many files the process may have open: each socket is one.

use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit, as a rule 1,024, to the hard one.
pub fn raise_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // Where that is refused, opening sockets will say so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// How many files the program may have.
#[must_use]
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Whether a file could not be opened because the program, or the system, has too many.
#[must_use]
pub fn ran_out(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].iter().any(|no| error.raw_os_error() == Some(no.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
