//! A part of a Markdown file that is generated: from one mark to the other.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anabranch_drive::capture::Draft;

/// Replaces what stands in `file` between the marks of `name` by `text`.
///
/// # Errors
/// The file is not there, or does not have both marks in their order; it has not changed then.
pub(super) fn replace(file: &Path, name: &str, text: &str) -> io::Result<()> {
    let old = fs::read_to_string(file)?;
    let new = replaced(&old, name, text).ok_or_else(|| {
        let (begin, end) = marks(name);
        io::Error::other(format!(
            "no lines `{begin}` and, below, `{end}`; write them where the results should stand"
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
    Some(format!("{before}{begin}\n\n{}\n\n{end}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
