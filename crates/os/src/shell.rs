//! Quoting of words in the syntax of a shell.

/// Quotes `word` so that a shell reads it as one word. Removes NUL characters, which no argument
/// may have.
pub fn quoted(word: &str) -> String {
    let word = word.replace('\0', "");
    shlex::try_quote(&word)
        .expect("only zero bytes cannot be quoted, and they were removed")
        .into_owned()
}

/// Quotes `words` and joins them into a line that can be copied into a shell.
pub fn line<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<_> = words.into_iter().map(quoted).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_word_is_one_word_again() {
        for word in ["plain", "two words", "it's", "$(x)", "", "a\nb"] {
            assert_eq!(shlex::split(&quoted(word)).unwrap(), [word]);
        }
        assert_eq!(quoted("a\0b"), "ab");
    }

    #[test]
    fn a_line_has_the_words_that_it_was_made_of() {
        assert_eq!(line(["--in-order", "30ms"]), "--in-order 30ms");
        assert_eq!(line([]), "");
        let words = ["a b", "--split=--every", "", "it's", "~100ms"];
        assert_eq!(shlex::split(&line(words)).unwrap(), words);
    }
}
