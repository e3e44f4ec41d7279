//! A directory cache: it answers any request with complete documents that it has, and with no
//! others. Whatever an authority answers, nothing unproven is kept.

use anabranch_onion::directory::cache::Cache;
use anabranch_onion::directory::extra::ExtraDigests;
use anabranch_onion::directory::http::{RequestReader, ResponseReader};
use anabranch_onion::directory::mirror::Mirror;
use anabranch_onion::wire::netdoc::{check_server, divided, prove_server_list};

use crate::documents::NOW;

const LIMIT: usize = 100_000;
const CONSENSUSES: [&str; 2] = [
    "network-status-version 3\nvalid-after 2027-01-15 08:00:00\ndirectory-signature x\n",
    "network-status-version 3 microdesc\nvalid-after 2027-01-15 08:00:00\ndirectory-signature x\n",
];
/// Documents that begin with the same word, so that answers can be split.
const DOCUMENTS: [&str; 5] =
    ["whole server 1\n", "whole server 2\n", "whole extra 1\n", "whole extra 2\n", "whole micro\n"];

/// Checks an input. The first byte selects its form: a request, documents, a consensus, or names
/// of an extra-info document.
pub fn check(bytes: &[u8]) {
    let Some((&kind, rest)) = bytes.split_first() else { return };
    match (kind % 4, std::str::from_utf8(rest)) {
        (0, _) => request(rest),
        (1, Ok(text)) => documents(text),
        (2, Ok(text)) => consensus(text),
        (3, Ok(text)) => drop(ExtraDigests::named(text)),
        (_, Err(_)) | (4.., _) => {}
    }
}

fn filled() -> Cache {
    let mut cache = Cache::default();
    for text in CONSENSUSES {
        cache.consensus(text, vec![[0xaa; 20]]);
    }
    let [one, two, extra, other, micro] = DOCUMENTS;
    cache.we_are([1; 20]);
    cache.relay([1; 20], (one, [0x11; 20]), Some((extra, [0x33; 20])));
    cache.server([2; 20], (two, [0x22; 20]));
    cache.extra([2; 20], (other, [0x44; 20]));
    cache.microdesc_text([0; 32], micro);
    cache
}

fn request(bytes: &[u8]) {
    let Ok(Some(request)) = RequestReader::new(LIMIT).push(bytes) else { return };
    let cache = filled();
    let mut reader = ResponseReader::new(LIMIT);
    reader.push(&cache.answer(&request)).expect("a short answer");
    let answer = reader.finish().expect("an answer of ours");
    if answer.status != 200 {
        assert!([304, 400, 404].contains(&answer.status) && answer.body.is_empty());
        return;
    }
    let text = String::from_utf8(answer.body).expect("documents are text");
    let mut rest = &text[..];
    while let Some(document) =
        DOCUMENTS.iter().chain(&CONSENSUSES).find(|document| rest.starts_with(**document))
    {
        rest = &rest[document.len()..];
        assert!(!rest.contains(document), "{document:?} is given twice");
    }
    assert!(rest.is_empty() && !text.is_empty(), "no document of ours: {rest:?}");
}

fn documents(text: &str) {
    for keyword in ["router", "extra-info"] {
        let mut end = 0;
        for document in divided(text, keyword) {
            let at = document.as_ptr().addr() - text.as_ptr().addr();
            assert!(at >= end && document.starts_with(keyword), "they follow one another");
            end = at + document.len();
            assert_eq!(divided(document, keyword).next(), Some(document), "it is whole");
            if let Ok(server) = check_server(document) {
                assert_eq!(check_server(document), Ok(server));
            }
        }
    }
    let mut mirror = Mirror::new(vec![[0xaa; 20]]);
    assert!(mirror.restore([text, text, text], &[], NOW).0.is_empty(), "nothing of it is proven");
}

/// Checks that no consensus is proven, because no authority's keys are known here.
fn consensus(text: &str) {
    for authorities in [&[][..], &[[0xaa; 20]]] {
        assert!(prove_server_list(text, authorities, &[], NOW).is_err(), "without a certificate");
    }
}
