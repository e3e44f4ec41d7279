//! One flavour of the consensus: the present consensus, and diffs to it from earlier consensuses.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::Refusal;
use crate::directory::civil::from_utc;
use crate::directory::diff::{diff, signed_digest};
use crate::directory::http::Request;
use crate::directory::reply::{Encoding, Reply};
use crate::wire::text::hex;

/// Number of earlier consensuses from which diffs are offered. They cover half a day on the public
/// network, where a client fetches about every two hours.
const MOST_BEFORE: usize = 12;
/// Maximum total bytes of the earlier consensuses.
const MOST_BYTES: usize = 32 << 20;

/// The consensuses of a flavour.
#[derive(Clone, Debug, Default)]
pub(super) struct Flavour {
    present: Option<Arc<PresentConsensus>>,
    /// Earlier consensuses, newest first.
    before: VecDeque<Arc<[u8]>>,
}

/// The present consensus.
#[derive(Debug)]
struct PresentConsensus {
    whole: EncodedText,
    signers: Vec<[u8; 20]>,
    valid_after: u64,
    /// The digest that identifies this consensus in clients' requests: SHA3-256 of its signed
    /// part. `None` if it has no signature.
    digest: Option<[u8; 32]>,
    /// Diffs from earlier consensuses to this one. The key is the digest of the earlier
    /// consensus's signed part.
    diffs: BTreeMap<[u8; 32], EncodedText>,
}

/// A text in every encoding in which it may be sent.
#[derive(Debug)]
struct EncodedText {
    text: Arc<[u8]>,
    packed: Vec<(Encoding, Arc<[u8]>)>,
}

impl Flavour {
    /// Stores a verified consensus, with the authorities that signed it, as the present consensus
    /// of this flavour.
    pub(super) fn put(&mut self, text: &str, signers: Vec<[u8; 20]>) {
        if let Some(last) = &self.present
            && *last.whole.text != *text.as_bytes()
        {
            self.before.push_front(Arc::clone(&last.whole.text));
        }
        while self.before.len() > MOST_BEFORE || self.bytes() > MOST_BYTES {
            self.before.pop_back();
        }
        let after = text.lines().find_map(|line| line.strip_prefix("valid-after "));
        self.present = Some(Arc::new(PresentConsensus {
            whole: EncodedText::of(text),
            signers,
            valid_after: after.and_then(from_utc).unwrap_or_default(),
            digest: signed_digest(text),
            diffs: self.before.iter().filter_map(|old| towards(old, text)).collect(),
        }));
    }

    /// Returns whether no consensus of this flavour is stored.
    pub(super) fn is_empty(&self) -> bool {
        self.present.is_none()
    }

    /// Answers a request for the consensus. `rest` is the part of the request's path after the
    /// flavour's name (dir-spec 4.5.2 and 6.1).
    pub(super) fn find(&self, rest: &str, request: &Request) -> Result<Reply, Refusal> {
        let present = self.present.as_ref().ok_or(super::NOT_FOUND)?;
        match rest.strip_prefix("diff/") {
            None => present.find(rest, request),
            Some(rest) => {
                let (hash, list) = rest.split_once('/').unwrap_or((rest, ""));
                present.check(list)?;
                let wanted = crate::wire::text::bytes(hash);
                let diff = wanted.and_then(|hash| present.diffs.get(&hash));
                Ok(diff.ok_or(super::NOT_FOUND)?.reply(request.encoding))
            }
        }
    }

    fn bytes(&self) -> usize {
        self.before.iter().map(|text| text.len()).sum()
    }
}

/// Returns the diff from `old` to `new`, with the digest that identifies `old`. Returns `None` if
/// the diff is not shorter than `new`.
fn towards(old: &[u8], new: &str) -> Option<([u8; 32], EncodedText)> {
    let old = std::str::from_utf8(old).ok()?;
    let text = diff(old, new).filter(|text| text.len() < new.len())?;
    Some((signed_digest(old)?, EncodedText::of(&text)))
}

impl PresentConsensus {
    /// Returns a diff from a consensus that the client has, the whole consensus, or "Not
    /// modified".
    fn find(&self, list: &str, request: &Request) -> Result<Reply, Refusal> {
        self.check(list)?;
        let has_it = self.digest.is_some_and(|digest| request.has.contains(&digest));
        if has_it || request.since.is_some_and(|since| self.valid_after <= since) {
            return Err((304, "Not modified"));
        }
        let diff = request.has.iter().find_map(|has| self.diffs.get(has));
        let reply = diff.unwrap_or(&self.whole).reply(request.encoding);
        Ok(reply.header("Vary", "X-Or-Diff-From-Consensus"))
    }

    /// Checks that more than half of the authorities that the client names signed the consensus.
    fn check(&self, list: &str) -> Result<(), Refusal> {
        let asked: Vec<&str> = list.split('+').filter(|asked| !asked.is_empty()).collect();
        let signed = asked.iter().filter(|prefix| {
            // Clients may truncate fingerprints to three bytes.
            let prefix = prefix.to_uppercase();
            prefix.len() >= 6 && self.signers.iter().any(|id| hex(id).starts_with(&prefix))
        });
        match list.is_empty() || signed.count() * 2 > asked.len() {
            true => Ok(()),
            false => {
                Err((404, "Consensus not signed by sufficient number of requested authorities"))
            }
        }
    }
}

impl EncodedText {
    fn of(text: &str) -> EncodedText {
        let pack = |encoding: Encoding| Some((encoding, encoding.pack(text.as_bytes())?.into()));
        let packed = Encoding::PACKED.into_iter().filter_map(pack).collect();
        EncodedText { text: text.as_bytes().into(), packed }
    }

    fn reply(&self, encoding: Encoding) -> Reply {
        match self.packed.iter().find(|(one, _)| *one == encoding) {
            Some((_, packed)) => Reply::packed(Arc::clone(packed), encoding),
            None => Reply::packed(Arc::clone(&self.text), Encoding::Identity),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(hour: u64) -> String {
        let relays: String =
            (10..30).map(|id| format!("r one AA{id} 2038-01-01\ns Fast\n")).collect();
        format!(
            "network-status-version 3\nvalid-after 2027-01-15 {hour:02}:00:00\n{relays}\
             directory-footer\ndirectory-signature x\n{hour}\n"
        )
    }

    fn of_hours(hours: std::ops::Range<u64>) -> Flavour {
        let mut flavour = Flavour::default();
        hours.for_each(|hour| flavour.put(&text(hour), vec![[0xab; 20]]));
        flavour
    }

    fn ask(flavour: &Flavour, rest: &str, has: &[u64]) -> Result<String, u16> {
        let has = has.iter().map(|hour| signed_digest(&text(*hour)).unwrap()).collect();
        let (encoding, body) = (Encoding::Identity, Vec::new());
        let request = Request { get: true, path: String::new(), encoding, since: None, has, body };
        let bytes = flavour.find(rest, &request).map_err(|(status, _)| status)?.bytes();
        let reply = String::from_utf8(bytes).unwrap();
        Ok(reply.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    #[test]
    fn who_has_one_of_the_last_consensuses_is_told_what_is_new() {
        let flavour = of_hours(0..20);
        let new = text(19);
        assert_eq!(ask(&flavour, "", &[]), Ok(new.clone()));
        assert_eq!(ask(&flavour, "", &[19]), Err(304), "it has it already");
        assert_eq!(ask(&flavour, "", &[6]), Ok(new.clone()), "too long ago");
        for hour in [7, 18] {
            let expected = diff(&text(hour), &new).unwrap();
            assert_eq!(ask(&flavour, "", &[3, hour]), Ok(expected.clone()));
            let hash = hex(&signed_digest(&text(hour)).unwrap());
            assert_eq!(ask(&flavour, &format!("diff/{hash}"), &[]), Ok(expected.clone()));
            let both = format!("diff/{hash}/{}", "AB".repeat(20));
            assert_eq!(ask(&flavour, &both, &[]), Ok(expected));
        }
        assert_eq!(ask(&flavour, &format!("diff/{}", "AB".repeat(32)), &[]), Err(404));
        assert_eq!(ask(&flavour, "CDCDCD", &[18]), Err(404), "others are trusted");
    }

    #[test]
    fn a_consensus_that_comes_again_is_none_of_before() {
        let mut flavour = of_hours(0..2);
        flavour.put(&text(1), vec![]);
        assert_eq!(flavour.before.len(), 1);
        let long = format!("{}{}", text(2), "x\n".repeat(MOST_BYTES / 2));
        flavour.put(&long, vec![]);
        flavour.put(&text(3), vec![]);
        assert_eq!(flavour.before.len(), 0, "too many bytes");
    }
}
