//! Words of a command, as text.

/// The words as a shell reads them: a line that can be copied. Without characters that no word may have.
pub fn line<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let word = |word: &str| word.replace('\0', "");
    let words: Vec<_> = words.into_iter().map(word).collect();
    shlex::try_join(words.iter().map(String::as_str)).expect("only a zero byte cannot be quoted")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_words_that_it_was_made_of() {
        assert_eq!(line(["--in-order", "30ms"]), "--in-order 30ms");
        assert_eq!(line([]), "");
        let words = ["a b", "--split=--every", "", "it's", "~100ms"];
        assert_eq!(shlex::split(&line(words)).unwrap(), words);
        assert_eq!(line(["a\0b"]), "ab");
    }
}
