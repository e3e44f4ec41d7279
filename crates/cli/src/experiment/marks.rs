//! Replacement of the generated part of a Markdown file, which stands between two marks (comment
//! lines).

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anabranch_capture::Draft;

use crate::text::wrapped;

/// Width of a document's prose in columns.
const COLUMNS: usize = 100;

/// Writes `text` into `file`, between the two marks (comment lines) that have the name `name`.
/// Removes the old text between these marks.
///
/// # Errors
/// The file is missing, or lacks the mark of the beginning or, below it, the mark of the end. The
/// file is then unchanged.
pub(super) fn replace(file: &Path, name: &str, text: &str) -> io::Result<()> {
    let old = fs::read_to_string(file)?;
    let new = replaced(&old, name, text).ok_or_else(|| {
        let (begin, end) = marks(name);
        io::Error::other(format!(
            "the file lacks the line `{begin}` and, below it, the line `{end}`; add both where the \
             results belong"
        ))
    })?;
    let mode = fs::metadata(file)?.permissions();
    let mut draft = Draft::begin(file)?;
    draft.write_all(new.as_bytes())?;
    draft.commit()?;
    fs::set_permissions(file, mode)
}

fn marks(name: &str) -> (String, String) {
    let begin = format!("<!-- {name}: from here to the end mark, all is generated -->");
    (begin, format!("<!-- end of {name} -->"))
}

fn replaced(old: &str, name: &str, text: &str) -> Option<String> {
    let (begin, end) = marks(name);
    let (before, rest) = old.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n\n{}\n\n{end}{after}", prose_wrapped(text.trim())))
}

/// Wraps paragraphs and list items to [`COLUMNS`] columns. Each paragraph or item is one line of
/// `text`. Tables, headings, pictures and code are not changed.
fn prose_wrapped(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.chars().count() <= COLUMNS || line.starts_with(['|', '#', '!', '<', ' ']) {
            lines.push(line.to_owned());
        } else if line.starts_with("* ") {
            lines.extend(wrapped(&bound(line), COLUMNS));
        } else {
            let paragraph = wrapped(&bound(line), COLUMNS);
            lines.extend(paragraph.iter().map(|line| line.trim_start().to_owned()));
        }
    }
    lines.join("\n").replace(BOUND, " ")
}

/// Character that temporarily replaces a space at which the line must not be wrapped.
const BOUND: char = '\u{a0}';

/// Replaces each space by [`BOUND`] if the next word, such as a minus, would be Markdown markup at
/// the beginning of a line.
fn bound(line: &str) -> String {
    let is_markup = |word: &str| {
        let number = word.trim_end_matches(['.', ')']);
        let is_item = number.len() + 1 == word.len() && number.parse::<u32>().is_ok();
        is_item || word.chars().all(|sign| "-+>=".contains(sign))
    };
    let mut words = line.split(' ');
    let mut bound = words.next().unwrap_or_default().to_owned();
    for word in words {
        bound.push(if is_markup(word) { BOUND } else { ' ' });
        bound.push_str(word);
    }
    bound
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_in_lines_of_a_hundred_columns_and_tables_are_not() {
        let (words, row) = ("word ".repeat(30), format!("| {} |", "cell ".repeat(30)));
        // Without a bound space before it, the minus would begin a line.
        let text = format!("{words}\n\n* {words}\n\n{row}\n{}- 1 {}2. x", &words[..100], words);
        let wrapped = prose_wrapped(&text);
        let lines: Vec<_> = wrapped.lines().collect();
        assert!(lines.contains(&row.as_str()));
        assert!(lines.iter().all(|line| line.len() <= COLUMNS || line.starts_with('|')));
        let begins = |sign: &str| lines.iter().any(|line| line.trim_start().starts_with(sign));
        assert!(!begins("- ") && !begins("2. "), "{wrapped}");
        let words_of = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words_of(&wrapped), words_of(&text));
    }

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.md");
        let (begin, end) = marks("x");
        fs::write(&file, format!("# Mine\n\n{begin}\nold\n{end}\nmine too\n")).unwrap();
        for _ in 0..2 {
            replace(&file, "x", "new\n").unwrap();
            let expected = format!("# Mine\n\n{begin}\n\nnew\n\n{end}\nmine too\n");
            assert_eq!(fs::read_to_string(&file).unwrap(), expected);
        }
        assert!(replace(&file, "y", "new").unwrap_err().to_string().contains("end of y"));
        assert!(replace(&folder.path().join("b.md"), "x", "new").is_err());
    }
}
