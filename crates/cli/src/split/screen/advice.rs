//! Sentences that every screen says: what splitting does not do for the run at hand.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anabranch_comps::{FarEndCounters, Flow, Protocol, Snapshot};
use anabranch_drive::split::{FarEndNews, Listening};

use crate::text::scaled;

/// What is wrong, or probably not meant, with the paths of a run: to be said when it begins.
pub(crate) fn warnings(about: &Listening) -> Vec<String> {
    let noted =
        about.egresses.iter().filter_map(|egress| Some((&egress.name, egress.note.as_ref()?)));
    let notes = noted.map(|(name, note)| format!("path '{name}': {note}"));
    notes.chain(single(about)).collect()
}

/// Says so where all paths are one to an observer.
fn single(about: &Listening) -> Option<String> {
    let ways = about.egresses.iter().map(|egress| (&egress.device, egress.sends_as, egress.proxy));
    if ways.collect::<BTreeSet<_>>().len() > 1 {
        return None;
    }
    let ports = about.egresses.iter().any(|egress| egress.ports > 1) || about.egresses.len() > 1;
    let why = if ports { "; source ports of one address hide nothing from him" } else { "" };
    let name = about.egresses.first().map_or("", |egress| &egress.name);
    Some(format!(
        "nothing is split: all goes by one way out ('{name}'), whose observer sees everything{why}; \
         name a second --path"
    ))
}

/// What the observer of one path learns of the others from numbers in clear, and what to do.
pub(crate) fn numbers_in_clear(protocol: Protocol) -> String {
    let (name, guide) = match protocol {
        Protocol::Mosh => ("Mosh", "mosh"),
        _ => ("WireGuard", "wireguard"),
    };
    format!(
        "{name} numbers its packets in clear: the observer of one path reads from the gaps how many \
         packets all paths carried, each way, and when (docs/guide/{guide}.md); a far end in front of \
         the server hides them ('anabranch merge', docs/guide/far-end.md)"
    )
}

/// What runs of this length cost QUIC, and what longer ones cost in privacy
/// (docs/notes/quic-servers.md, docs/results/fingerprinting.md).
pub(crate) fn quic_price(every: &str) -> String {
    format!(
        "QUIC is slow with --every {every}: at 100ms most servers keep 13 to 76 % of their speed, at \
         1s 81 to 96 %, but one path's observer then recognises 39 % of pages instead of 18 %; with \
         s2n-quic and aioquic --in-order 30ms keeps all (docs/guide/quic.md)"
    )
}

/// A server that has never answered.
pub(crate) fn unanswered(server: Option<SocketAddr>, waited: Duration) -> String {
    let server = server.map_or_else(|| "the server".to_owned(), |server| server.to_string());
    let seconds = waited.as_secs();
    format!("no answer from {server} for {seconds} s by any path: port, key, firewall?")
}

/// A server behind a far end that answers itself.
pub(crate) fn unanswered_behind(waited: Duration) -> String {
    let seconds = waited.as_secs();
    format!("the far end answers, but the server behind it has not for {seconds} s: is it running?")
}

/// What was learnt of a far end.
pub(crate) fn far_end(far: Option<SocketAddr>, news: &FarEndNews) -> String {
    let far = far.map_or_else(|| "the far end".to_owned(), |far| far.to_string());
    match news {
        FarEndNews::Up => format!("the far end at {far} answers"),
        FarEndNews::Lost => format!("the far end at {far} is not heard by any path any more"),
        FarEndNews::Left => format!(
            "the far end at {far} has ended the session: it was stopped, or has no server of the name \
             of --behind"
        ),
        FarEndNews::Unanswered { waited } => {
            let seconds = waited.as_secs();
            format!(
                "no answer from {far} for {seconds} s: key, port, firewall, or this machine's clock?"
            )
        }
    }
}

/// What is counted of a tunnel, in words.
pub(crate) fn far_end_counters(far: &FarEndCounters) -> String {
    let decoys = decoys(far.decoys).map(|decoys| format!("; {decoys}"));
    format!(
        "far end: {} packets waited for in vain, at most {:.1} ms each{}",
        far.lost,
        far.patience.as_secs_f64() * 1000.0,
        decoys.unwrap_or_default()
    )
}

/// Decoys that were sent and those that came, in words, if there are any.
pub(crate) fn decoys([sent, came]: [Flow; 2]) -> Option<String> {
    let bytes = |flow: Flow| scaled(flow.bytes as f64, "B");
    (sent.datagrams + came.datagrams > 0)
        .then(|| format!("decoys {} sent, {} came and were dropped", bytes(sent), bytes(came)))
}

/// What flows that are pinned to paths have carried, if any are.
pub(crate) fn pinned(names: &[String], snapshot: &Snapshot) -> Option<String> {
    let told = names.iter().zip(&snapshot.pinned).map(|(name, pinned)| {
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
    let told = told.collect::<Vec<_>>().join("; ");
    (!told.is_empty()).then(|| format!("pinned: {told}"))
}

/// Which sessions one path alone carried, if any.
pub(crate) fn never_split(snapshot: &Snapshot) -> Option<String> {
    let unsplit = &snapshot.unsplit;
    if unsplit.sessions == 0 {
        return None;
    }
    let mut names: Vec<_> = unsplit.first.iter().map(|id| id.0.to_string()).collect();
    if unsplit.sessions > unsplit.first.len() as u64 {
        names.push("...".to_owned());
    }
    Some(format!(
        "{} of {} sessions never split (shorter than a run, or kept to one path): {}",
        unsplit.sessions,
        snapshot.opened,
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use anabranch_comps::{Pinned, SessionId, Unsplit};

    use super::*;

    #[test]
    fn sessions_that_were_never_split_are_named_as_far_as_they_are_known() {
        let told = |sessions, first: &[u64]| {
            let first = first.iter().map(|id| SessionId(*id)).collect();
            let unsplit = Unsplit { sessions, first };
            never_split(&Snapshot { opened: 20, unsplit, ..Snapshot::default() })
        };
        assert_eq!(told(0, &[]), None);
        let two = "2 of 20 sessions never split (shorter than a run, or kept to one path): 3, 5";
        assert_eq!(told(2, &[3, 5]).as_deref(), Some(two));
        assert!(told(12, &[3, 5]).is_some_and(|text| text.ends_with(": 3, 5, ...")));
    }

    #[test]
    fn pinned_flows_are_told_by_path_where_there_are_any() {
        let names = ["a".to_owned(), "b".to_owned()];
        assert_eq!(pinned(&names, &Snapshot::default()), None);
        let one = Pinned { flows: 3, ..Pinned::default() };
        let snapshot = Snapshot { pinned: vec![one, Pinned::default()], ..Snapshot::default() };
        let text = pinned(&names, &snapshot).unwrap();
        assert!(text.starts_with("pinned: a 3 flows, 0 packets "), "{text}");
        assert!(text.contains("; b 0 flows, "), "{text}");
    }

    #[test]
    fn each_sentence_says_what_to_do() {
        let server = "192.0.2.1:51820".parse().ok();
        let text = unanswered(server, Duration::from_millis(10_400));
        let wanted = "no answer from 192.0.2.1:51820 for 10 s by any path: port, key, firewall?";
        assert_eq!(text, wanted);
        let text = quic_price("50p");
        assert!(text.contains("--every 50p: ") && text.contains("docs/guide/quic.md"), "{text}");
        let news = FarEndNews::Unanswered { waited: Duration::from_millis(10_400) };
        let wanted = "no answer from 192.0.2.1:51820 for 10 s: key, port, firewall, ";
        assert!(far_end(server, &news).starts_with(wanted));
        let text = numbers_in_clear(Protocol::Mosh);
        assert!(text.starts_with("Mosh ") && text.contains("docs/guide/mosh.md"), "{text}");
    }
}
