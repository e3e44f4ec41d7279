//! The number of file descriptors that the sessions need: each session has a socket for each of
//! its tuples (paths with one of their source ports).

use anabranch_comps::Config;

/// Estimated number of file descriptors other than path sockets: streams, listener, signals,
/// captures, and kernel queries.
const OTHERS: u64 = 32;

/// Returns a warning if the sessions may need more than `limit` file descriptors, else `None`.
/// Each of the `proxied` paths needs an additional connection.
pub(super) fn shortage(config: &Config, proxied: usize, limit: u64) -> Option<String> {
    let ports: u64 = config.ports.iter().copied().map(u64::from).sum::<u64>() + proxied as u64;
    // With a far end, all sessions share the same sockets.
    let sharing = if config.far_end { 1 } else { config.sessions as u64 };
    let most = sharing.saturating_mul(ports).saturating_add(OTHERS);
    (limit < most).then(|| {
        let sessions = config.sessions;
        format!(
            "{sessions} sessions of {ports} sockets each could need {most} open files, but this \
             process may have {limit}. Once this limit is reached, new sessions cannot use some \
             paths: raise the limit (ulimit -n), or lower --max-sessions"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_below_what_all_sessions_could_need_is_told_with_both_numbers() {
        let config = Config { ports: vec![1, 4], sessions: 1000, ..Config::of(2) };
        let text = shortage(&config, 0, 5031).unwrap();
        assert!(
            text.contains("could need 5032 open files, but this process may have 5031"),
            "{text}"
        );
        assert_eq!(shortage(&config, 0, 5032), None);
        assert!(shortage(&config, 1, 5032).unwrap().contains("could need 6032 open files"));
    }
}
