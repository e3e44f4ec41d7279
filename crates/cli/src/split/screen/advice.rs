//! Sentences that all screens (outputs for the user) share. Most of them explain which traffic is
//! not split, or what splitting does not hide.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anabranch_comps::protocol::Family;
use anabranch_comps::{FarEndCounters, Flow, Protocol, Silent, Snapshot, StayReason};
use anabranch_multipath::Time;
use anabranch_pages::figures::scaled;
use anabranch_splitter::split::{ActiveSettings, FarEndNews};

/// Returns the warnings to show at the start of the splitter: problems of single paths, and paths
/// that one observer can watch together.
pub(crate) fn warnings(about: &ActiveSettings) -> Vec<String> {
    let noted =
        about.egresses.iter().filter_map(|egress| Some((&egress.name, egress.note.as_ref()?)));
    let notes = noted.map(|(name, note)| format!("path '{name}': {note}"));
    notes.chain(single(about)).collect()
}

/// Returns a warning if a single observer sees all paths; `None` otherwise.
fn single(about: &ActiveSettings) -> Option<String> {
    // After the interface, traffic through proxies and circuits passes other observers, so a
    // common interface is no reason for a warning.
    let ways = about.egresses.iter().map(|egress| {
        (&egress.device, egress.sends_as, egress.proxy, egress.stream.iter().flatten().next())
    });
    if ways.collect::<BTreeSet<_>>().len() > 1 {
        return None;
    }
    let ports = about.egresses.iter().any(|egress| egress.ports > 1) || about.egresses.len() > 1;
    let why = if ports {
        "; several source ports of one address do not hide anything from this observer"
    } else {
        ""
    };
    let name = about.egresses.first().map_or("", |egress| &egress.name);
    Some(format!(
        "nothing is split: all traffic leaves by path '{name}', so an observer there sees \
         everything{why}. Add a second --path"
    ))
}

/// Returns a line with the largest UDP payload that fits all paths, and with the resulting MTU of
/// a WireGuard tunnel. Returns `None` if they are unknown.
pub(crate) fn mtu(about: &ActiveSettings) -> Option<String> {
    let (payload, tunnel) = (about.udp_payload?, about.tunnel_mtu?);
    Some(format!(
        "the largest UDP payload that fits all paths has {payload} bytes; set the MTU of a \
         WireGuard tunnel to {tunnel}"
    ))
}

/// Explains how unencrypted packet numbers reveal to the observer of one path the traffic on other
/// paths, and how to avoid that.
pub(crate) fn numbers_in_clear(protocol: Protocol) -> String {
    let Family { title, guide, .. } = protocol.family();
    format!(
        "{title} sends packet numbers unencrypted: from gaps in the numbers, the observer of one \
         path learns how many packets all paths carried in each direction, and when \
         (docs/guide/{guide}.md); to hide the numbers, run a far end in front of the server \
         ('anabranch merge', docs/guide/far-end.md)"
    )
}

/// Explains why sessions of `protocol` stay on one path, and how to split them. `None` if sessions
/// of the protocol are split.
pub(crate) fn one_path(protocol: Protocol) -> Option<String> {
    let Family { one_path, guide, .. } = protocol.family();
    one_path.map(|why| {
        format!(
            " and stays on one path (to split it nevertheless, add --protocol any): {why} \
             (docs/guide/{guide}.md)"
        )
    })
}

/// Explains the cost of `--every` with the value `every`, which sets how many consecutive
/// datagrams use one path. Short values slow QUIC down, and longer values cost privacy
/// (docs/notes/quic-servers.md, docs/results/fingerprinting.md).
pub(crate) fn slow_quic(every: &str) -> String {
    format!(
        "QUIC is slow with --every {every}: most servers keep 13 to 76 % of their speed with \
         100ms, and 81 to 96 % with 1s. But with 1s the observer of one path recognises 39 % of \
         web pages, instead of 18 % with 100ms. With s2n-quic and aioquic servers, --in-order \
         30ms keeps the whole speed (docs/guide/quic.md)"
    )
}

/// Returns the warning that `server` has not answered for the duration `waited`. `last` is the
/// time of its last answer.
pub(crate) fn unanswered(
    server: Option<SocketAddr>,
    waited: Duration,
    last: Option<Time>,
) -> String {
    let server = server.map_or_else(|| "the server".to_owned(), |server| server.to_string());
    let seconds = waited.as_secs();
    let why = match last {
        Some(last) => {
            format!(
                "; the last answer arrived {} after the splitter's start. Check that the server \
                 runs and that its address has not changed",
                clock(last)
            )
        }
        None => ": check port, key and firewall".to_owned(),
    };
    format!("no answer from {server} for {seconds} s on any path{why}")
}

/// Returns the message that `server` answers again, after no answer for the duration `waited`.
pub(crate) fn answered(server: Option<SocketAddr>, waited: Duration) -> String {
    let server = server.map_or_else(|| "the server".to_owned(), |server| server.to_string());
    format!("{server} answers again, after {} s", waited.as_secs())
}

/// Describes the sessions whose servers do not answer.
pub(crate) fn silent(silent: &Silent) -> String {
    let last = silent.last.map_or_else(
        || "and no answer arrived before".to_owned(),
        |at| format!("last answer at {}", clock(at)),
    );
    format!("no answer from a server for {} s on any path, {last}", silent.waited.as_secs())
}

/// Formats a time since the start of the program as hours, minutes and seconds.
fn clock(at: Time) -> String {
    let seconds = at.secs_f64() as u64;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Describes `why` a session stays on one path instead of being split.
pub(crate) fn kept(why: StayReason) -> String {
    match why {
        StayReason::Short => {
            "the session ended before its path changed for the first time".to_owned()
        }
        StayReason::Handshake => "the QUIC handshake of the session is not confirmed".to_owned(),
        StayReason::HandshakePath => {
            "the session has only handshakes and DNS queries, for the --handshake path".to_owned()
        }
        StayReason::Protocol(protocol) => {
            format!(
                "sessions of {} stay on one path; to split them, add --protocol any",
                protocol.name()
            )
        }
        StayReason::OtherPaths => "no other path works for the session".to_owned(),
        StayReason::Schedule => "the schedule chose no other path".to_owned(),
    }
}

/// Returns the message that the server after the far end has not answered for `waited`, although
/// the far end itself answers.
pub(crate) fn server_unanswered(waited: Duration) -> String {
    let seconds = waited.as_secs();
    format!(
        "the far end answers, but its server has not answered for {seconds} s: check that this \
         server runs"
    )
}

/// Describes an event of the far end `far`.
pub(crate) fn far_end(far: Option<SocketAddr>, news: &FarEndNews) -> String {
    let far = far.map_or_else(|| "the far end".to_owned(), |far| far.to_string());
    match news {
        FarEndNews::Up => format!("the far end at {far} answers"),
        FarEndNews::Lost => format!("the far end at {far} no longer answers on any path"),
        FarEndNews::Left => format!(
            "the far end at {far} closed the session: it was stopped, or has no server with the \
             name in --behind"
        ),
        FarEndNews::Unanswered { waited } => {
            let seconds = waited.as_secs();
            format!(
                "no answer from {far} for {seconds} s: check key, port, firewall and this \
                 machine's clock"
            )
        }
    }
}

/// Describes the counters of the encrypted session with a far end.
pub(crate) fn far_end_counters(far: &FarEndCounters) -> String {
    let decoys = decoys(far.decoys).map(|decoys| format!("; {decoys}"));
    format!(
        "far end: {} of the packets that it sent never arrived here; the splitter waited at most \
         {:.1} ms for each of them before it delivered later packets{}",
        far.lost,
        far.patience.as_secs_f64() * 1000.0,
        decoys.unwrap_or_default()
    )
}

/// Describes the decoys sent and received; `None` if there are none.
pub(crate) fn decoys([sent, received]: [Flow; 2]) -> Option<String> {
    let bytes = |flow: Flow| scaled(flow.bytes as f64, "B");
    (sent.datagrams + received.datagrams > 0).then(|| {
        format!(
            "decoys (dummy packets): {} sent, {} received and dropped",
            bytes(sent),
            bytes(received)
        )
    })
}

/// Describes the traffic of flows that stay on one path instead of being split; `None` if there is
/// none.
pub(crate) fn pinned(names: &[String], snapshot: &Snapshot) -> Option<String> {
    let texts = names.iter().zip(&snapshot.pinned).map(|(name, pinned)| {
        let (up, down) = (pinned.up, pinned.down);
        format!(
            "{name} {} flows, {} packets ({}) up, {} ({}) down",
            pinned.flows,
            up.datagrams,
            scaled(up.bytes as f64, "B"),
            down.datagrams,
            scaled(down.bytes as f64, "B")
        )
    });
    let text = texts.collect::<Vec<_>>().join("; ");
    (!text.is_empty()).then(|| format!("not split: {text}"))
}

/// Describes the sessions that have used only one path, and the reasons; `None` if there are none.
pub(crate) fn never_split(snapshot: &Snapshot) -> Option<String> {
    let unsplit = &snapshot.unsplit;
    if unsplit.sessions == 0 {
        return None;
    }
    let mut reasons: Vec<(StayReason, Vec<String>)> = Vec::new();
    for (id, why) in &unsplit.first {
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, sessions)) => sessions.push(id.0.to_string()),
            None => reasons.push((*why, vec![id.0.to_string()])),
        }
    }
    let sessions = |(why, sessions): &(StayReason, Vec<String>)| {
        format!("{} ({})", sessions.join(", "), kept(*why))
    };
    let mut parts: Vec<String> = reasons.iter().map(sessions).collect();
    if unsplit.sessions > unsplit.first.len() as u64 {
        parts.push("...".to_owned());
    }
    let (count, all) = (unsplit.sessions, snapshot.opened);
    Some(format!(
        "{count} of {all} sessions were never split (session numbers and reasons follow): {}",
        parts.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use anabranch_comps::{Pinned, SessionId, Unsplit};

    use super::super::model::tests::about;
    use super::*;

    #[test]
    fn sessions_that_were_never_split_are_named_as_far_as_they_are_known() {
        let never_split_text = |sessions, first: &[u64]| {
            let why = |id| if id == 5 { StayReason::Handshake } else { StayReason::Short };
            let first = first.iter().map(|id| (SessionId(*id), why(*id))).collect();
            let unsplit = Unsplit { sessions, first };
            never_split(&Snapshot { opened: 20, unsplit, ..Snapshot::default() })
        };
        assert_eq!(never_split_text(0, &[]), None);
        let three = "3 of 20 sessions were never split (session numbers and reasons follow): 3, 7 \
                     (the session ended before its path changed for the first time); 5 (the QUIC \
                     handshake of the session is not confirmed)";
        assert_eq!(never_split_text(3, &[3, 5, 7]).as_deref(), Some(three));
        assert!(never_split_text(12, &[3, 5]).is_some_and(|text| text.ends_with("; ...")));
    }

    #[test]
    fn each_reason_for_one_path_has_a_sentence_of_its_own() {
        let reasons = [
            StayReason::Short,
            StayReason::Handshake,
            StayReason::HandshakePath,
            StayReason::Protocol(Protocol::Dtls),
            StayReason::OtherPaths,
            StayReason::Schedule,
        ];
        for why in reasons {
            let others = reasons.iter().filter(|other| **other != why);
            assert!(others.clone().all(|other| kept(*other) != kept(why)), "{why:?}");
            let unsplit = Unsplit { sessions: 1, first: vec![(SessionId(4), why)] };
            let text = never_split(&Snapshot { opened: 1, unsplit, ..Snapshot::default() });
            let wanted = format!(
                "1 of 1 sessions were never split (session numbers and reasons follow): 4 ({})",
                kept(why)
            );
            assert_eq!(text, Some(wanted));
        }
        assert!(kept(StayReason::Protocol(Protocol::Dtls)).contains("--protocol any"));
        assert!(kept(StayReason::HandshakePath).contains("--handshake"));
    }

    #[test]
    fn circuits_of_one_client_are_paths_of_their_own() {
        let mut about = about(&["o-1", "o-2"]);
        about.egresses.iter_mut().for_each(|egress| {
            (egress.device, egress.sends_as) = (None, None);
            egress.stream = Some(None);
        });
        let is_one = |about: &ActiveSettings| single(about).is_some();
        assert!(is_one(&about));
        for (place, egress) in about.egresses.iter_mut().enumerate() {
            egress.stream = Some(Some(format!("onion:{place}@127.0.0.1:9050")));
        }
        assert!(!is_one(&about));
    }

    #[test]
    fn pinned_flows_are_told_by_path_where_there_are_any() {
        let names = ["a".to_owned(), "b".to_owned()];
        assert_eq!(pinned(&names, &Snapshot::default()), None);
        let one = Pinned { flows: 3, ..Pinned::default() };
        let snapshot = Snapshot { pinned: vec![one, Pinned::default()], ..Snapshot::default() };
        let text = pinned(&names, &snapshot).unwrap();
        assert!(text.starts_with("not split: a 3 flows, 0 packets "), "{text}");
        assert!(text.contains("; b 0 flows, "), "{text}");
    }

    #[test]
    fn each_sentence_says_what_to_do() {
        let server = "192.0.2.1:51820".parse().ok();
        let waited = Duration::from_millis(10_400);
        let text = unanswered(server, waited, None);
        let wanted =
            "no answer from 192.0.2.1:51820 for 10 s on any path: check port, key and firewall";
        assert_eq!(text, wanted);
        let last = Some(Time::from_secs(3753));
        let text = unanswered(server, waited, last);
        assert!(
            text.ends_with(
                "on any path; the last answer arrived 01:02:33 after the splitter's start. Check \
                 that the server runs and that its address has not changed"
            ),
            "{text}"
        );
        let text = silent(&Silent { sessions: 1, waited, last });
        assert_eq!(text, "no answer from a server for 10 s on any path, last answer at 01:02:33");
        let text = slow_quic("50p");
        assert!(text.contains("--every 50p: ") && text.contains("docs/guide/quic.md"), "{text}");
        let news = FarEndNews::Unanswered { waited: Duration::from_millis(10_400) };
        let wanted = "no answer from 192.0.2.1:51820 for 10 s: check key, port, firewall ";
        assert!(far_end(server, &news).starts_with(wanted));
        let text = numbers_in_clear(Protocol::Mosh);
        assert!(text.starts_with("Mosh ") && text.contains("docs/guide/mosh.md"), "{text}");
    }
}
