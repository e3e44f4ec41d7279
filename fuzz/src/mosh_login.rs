//! Output of an ssh login from any machine, and commands in shell syntax.

use anabranch_splitter::mosh::{Answer, AnswerLine, Key, Words};

/// Checks that an answer is parsed only from its own lines, that the first of each kind counts,
/// and that no key is shown.
pub fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut answer = Answer::default();
    for line in text.split_inclusive('\n') {
        let before = answer.clone();
        match answer.take(line) {
            AnswerLine::Part => assert!(line.starts_with("MOSH "), "{line:?} is an answer"),
            AnswerLine::Other | AnswerLine::Malformed => {
                assert_eq!(answer, before, "{line:?} changes nothing")
            }
        }
        kept(&before, &answer);
    }
    if let Some((port, key)) = &answer.connect {
        assert!(*port > 0);
        assert!(!format!("{answer:?}").contains(key.expose()), "a key is shown");
        assert_eq!(key.expose().parse::<Key>().as_ref(), Ok(key));
    }
    command(&text);
}

fn kept(before: &Answer, after: &Answer) {
    assert!(before.connect.is_none() || before.connect == after.connect);
    assert!(before.reached.is_none() || before.reached == after.reached);
    assert!(before.remote.is_none() || before.remote == after.remote);
}

/// Checks that a command has a program, and only words that can be arguments.
fn command(text: &str) {
    let Ok(words) = text.parse::<Words>() else { return };
    let all = [&[words.program().to_owned()], words.arguments()].concat();
    assert!(all.iter().all(|word| !word.contains('\0')), "{all:?}");
}
