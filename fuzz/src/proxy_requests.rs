//! Requests of programs to a proxy: splitting them anywhere changes nothing, and every request can
//! be answered.

use anabranch_proxy::{Dialogue, Outcome, ProxyEnd, ProxyRequest, Reason, Service};

/// Checks an input. The first byte is the length of the pieces; the rest is a program's requests.
pub fn check(input: &[u8]) {
    let Some((&piece, words)) = input.split_first() else { return };
    let whole = hear(words, words.len().max(1));
    let cut = hear(words, usize::from(piece) + 1);
    assert_eq!((&whole.outcome, &whole.output), (&cut.outcome, &cut.output));
    let Ok(Some(request)) = &whole.outcome else { return };
    is_sound(request);
    assert_eq!(whole.dialogue.isolation(), cut.dialogue.isolation());
    assert_eq!(whole.dialogue.rest(), cut.dialogue.rest());
    assert!(words.ends_with(cut.dialogue.rest()), "what follows is handed on as it came");
    answers(&cut.dialogue);
}

struct ProxyDialogue {
    outcome: Result<Option<ProxyRequest>, ProxyEnd>,
    output: Vec<u8>,
    dialogue: Dialogue,
}

fn dialogue() -> Dialogue {
    Dialogue::new(Service::Tor { extended: false })
}

/// Passes the bytes in pieces, until a request is complete or none can follow.
fn hear(words: &[u8], piece: usize) -> ProxyDialogue {
    let (mut dialogue, mut output, mut outcome) = (dialogue(), Vec::new(), Ok(None));
    for piece in words.chunks(piece) {
        match dialogue.take(piece, &mut output) {
            Ok(None) => {}
            Ok(request) => outcome = Ok(request),
            Err(hangup) => {
                outcome = Err(hangup);
                break;
            }
        }
    }
    ProxyDialogue { outcome, output, dialogue }
}

/// Checks that a request cannot be mistaken for something else on its way to an exit.
fn is_sound(request: &ProxyRequest) {
    let (ProxyRequest::Connect { host, .. } | ProxyRequest::Resolve(host)) = request else {
        return;
    };
    assert!((1..=255).contains(&host.len()) && host.bytes().all(|byte| byte.is_ascii_graphic()));
    assert!(!matches!(request, ProxyRequest::Connect { port: 0, .. }));
}

fn answers(dialogue: &Dialogue) {
    let outcomes = [
        Outcome::Connected,
        Outcome::Address([192, 0, 2, 1].into()),
        Outcome::Name("x".repeat(300)),
        Outcome::Failed(Reason::TimedOut),
        Outcome::Failed(Reason::NoService),
    ];
    for outcome in outcomes {
        let answer = dialogue.answer(&outcome);
        let http = answer.starts_with(b"HTTP/1.1 ") && answer.ends_with(b"\r\n\r\n");
        let socks = answer[0] == 5 && answer.len() >= 7 || answer[0] == 0 && answer.len() == 8;
        assert!(http || socks, "{answer:?}");
    }
}
