//! Messages about wrong clocks. A message has a verdict of [`anabranch_onion::clocks`], which
//! compares this machine's clock with relays' clocks. It also has the name of the relay concerned.

use std::fmt;

use anabranch_onion::clocks::{ClockEvidence, Verdict, in_words};

/// A verdict on whether a clock is wrong, with the name of the relay concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skew {
    /// The verdict: the clock that is wrong, and by how much.
    pub verdict: Verdict,
    /// The relay's nickname, or its fingerprint if the nickname is unknown. Empty if the verdict
    /// is not about a relay.
    pub name: String,
}

impl Skew {
    /// Adds the relay's name to `verdict`. `name_of` returns the name for an RSA identity.
    pub(super) fn new(verdict: Verdict, name_of: impl Fn(&[u8; 20]) -> String) -> Skew {
        let name = match &verdict {
            Verdict::Ours(_, ClockEvidence::Authority(relay)) | Verdict::Theirs(relay, _) => {
                name_of(relay)
            }
            Verdict::Ours(..) | Verdict::Right => String::new(),
        };
        Skew { verdict, name }
    }

    /// Returns true if the verdict is that a clock is wrong, and false if it is that the clock is
    /// right again.
    #[must_use]
    pub fn is_trouble(&self) -> bool {
        self.verdict != Verdict::Right
    }
}

impl fmt::Display for Skew {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match self.verdict {
            Verdict::Ours(ahead, ClockEvidence::Authority(_)) => {
                let by = in_words(ahead);
                write!(
                    out,
                    "this machine's clock is {by} the clock of authority {name}: correct this \
                     machine's clock"
                )
            }
            Verdict::Ours(ahead, ClockEvidence::Relays(count)) => {
                let by = in_words(ahead);
                write!(
                    out,
                    "this machine's clock is {by} the clocks of {count} relays, which agree: \
                     correct this machine's clock"
                )
            }
            Verdict::Right => out.write_str("this machine's clock is right again"),
            Verdict::Theirs(_, ahead) => {
                let by = in_words(ahead);
                write!(out, "the clock of relay {name} is wrong: it is {by} this machine's")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_clock_is_wrong_is_said_in_words() {
        let text_of = |verdict| Skew::new(verdict, |_| "dam".to_owned()).to_string();
        let authority = ClockEvidence::Authority([1; 20]);
        let words = text_of(Verdict::Ours(-780, authority));
        assert_eq!(
            words,
            "this machine's clock is 13 min behind the clock of authority dam: correct this \
             machine's clock"
        );
        let words = text_of(Verdict::Ours(86_400 * 3, ClockEvidence::Relays(4)));
        assert!(words.contains("3 days ahead of the clocks of 4 relays, which agree"), "{words}");
        let words = text_of(Verdict::Theirs([1; 20], 7200));
        assert_eq!(words, "the clock of relay dam is wrong: it is 2 h ahead of this machine's");
    }
}
