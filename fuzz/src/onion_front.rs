//! What programs ask a client for: cutting their words anywhere changes nothing, and every wish can
//! be answered.

use anabranch_onion::front::{Front, Nonsense, Outcome, Reason, Wish};

/// The first byte says how long the pieces are, the rest is what a program says.
pub fn check(input: &[u8]) {
    let Some((&piece, words)) = input.split_first() else { return };
    let whole = hear(words, words.len().max(1));
    let cut = hear(words, usize::from(piece) + 1);
    assert_eq!((&whole.outcome, &whole.said), (&cut.outcome, &cut.said));
    let Ok(Some(wish)) = &whole.outcome else { return };
    is_sound(wish);
    assert_eq!(whole.front.isolation(), cut.front.isolation());
    assert_eq!(whole.front.rest(), cut.front.rest());
    assert!(words.ends_with(cut.front.rest()), "what follows is handed on as it came");
    answers(&cut.front);
}

struct Heard {
    outcome: Result<Option<Wish>, Nonsense>,
    said: Vec<u8>,
    front: Front,
}

/// Says it in pieces, until a wish is whole or the words are nonsense.
fn hear(words: &[u8], piece: usize) -> Heard {
    let (mut front, mut said, mut outcome) = (Front::default(), Vec::new(), Ok(None));
    for piece in words.chunks(piece) {
        match front.take(piece, &mut said) {
            Ok(None) => {}
            Ok(wish) => outcome = Ok(wish),
            Err(nonsense) => {
                outcome = Err(nonsense);
                break;
            }
        }
    }
    Heard { outcome, said, front }
}

/// No wish can be mistaken for something else on its way to an exit.
fn is_sound(wish: &Wish) {
    let (Wish::Connect { host, .. } | Wish::Resolve(host)) = wish else { return };
    assert!((1..=255).contains(&host.len()) && host.bytes().all(|byte| byte.is_ascii_graphic()));
    assert!(!matches!(wish, Wish::Connect { port: 0, .. }));
}

fn answers(front: &Front) {
    let outcomes = [
        Outcome::Connected,
        Outcome::Address([192, 0, 2, 1].into()),
        Outcome::Name("x".repeat(300)),
        Outcome::Failed(Reason::TimedOut),
        Outcome::Failed(Reason::NoService),
    ];
    for outcome in outcomes {
        let answer = front.answer(&outcome);
        let http = answer.starts_with(b"HTTP/1.1 ") && answer.ends_with(b"\r\n\r\n");
        let socks = answer[0] == 5 && answer.len() >= 7 || answer[0] == 0 && answer.len() == 8;
        assert!(http || socks, "{answer:?}");
    }
}
