//! The commands in README and the guides.

#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};

/// Languages of fenced blocks: commands, their output, and files.
const LANGUAGES: [&str; 5] = ["sh", "text", "toml", "ini", "python"];

/// One simple command of a shell block, without `sudo`, assignments and redirections.
#[derive(Debug)]
pub struct Typed {
    /// File and line of the command, such as `README.md:12`.
    pub place: String,
    pub words: Vec<String>,
}

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap())
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// Returns every command of README and the guides.
pub fn commands() -> Vec<Typed> {
    let guides = fs::read_dir(root().join("docs/guide")).unwrap();
    let mut files: Vec<_> = guides.map(|entry| entry.unwrap().path()).collect();
    files.push(root().join("README.md"));
    files.sort();
    files.iter().flat_map(|file| of_file(file)).collect()
}

fn of_file(file: &Path) -> Vec<Typed> {
    let name = file.strip_prefix(root()).unwrap().display().to_string();
    let text = fs::read_to_string(file).unwrap();
    let of_line = |(number, line): (usize, String)| {
        let place = format!("{name}:{number}");
        simple(&place, &line).into_iter().map(move |words| Typed { place: place.clone(), words })
    };
    lines(&name, &text).into_iter().flat_map(of_line).collect()
}

/// Returns the command lines of a document, each with its number: those of README's recipes, and of
/// `sh` blocks, with continued lines joined and without here-documents.
fn lines(name: &str, text: &str) -> Vec<(usize, String)> {
    let (mut found, mut language, mut until) = (Vec::new(), None, None::<String>);
    let mut open = String::new();
    for (at, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", at + 1);
        match (line.strip_prefix("```"), language) {
            (Some(of), None) => {
                assert!(
                    LANGUAGES.contains(&of),
                    "{place}: a block of {of:?}, not of {LANGUAGES:?}"
                );
                language = Some(of);
            }
            (Some(_), Some(_)) => language = None,
            (None, Some("sh")) if until.is_some() => {
                until = until.filter(|end| line != *end);
            }
            (None, Some("sh")) => {
                open.push_str(line.trim_end_matches('\\'));
                if !line.ends_with('\\') {
                    until = here_document(&open);
                    found.push((at + 1, std::mem::take(&mut open)));
                }
            }
            (None, None) => found.extend(recipe(line).map(|command| (at + 1, command))),
            (None, Some(_)) => {}
        }
    }
    assert!(language.is_none() && open.is_empty(), "{name}: a block does not end");
    found
}

/// Returns the delimiter of the here-document that a line opens.
fn here_document(line: &str) -> Option<String> {
    line.split_once("<<").map(|(_, end)| end.trim_matches(|c| c == '\'' || c == ' ').to_owned())
}

/// Returns the command of a recipe, a line such as `* [name](guide): `command``.
fn recipe(line: &str) -> Option<String> {
    let (_, command) = line.strip_prefix("* [")?.split_once("): `")?;
    Some(command.strip_suffix('`')?.to_owned())
}

/// Returns the simple commands of a line.
fn simple(place: &str, line: &str) -> Vec<Vec<String>> {
    let words = shlex::split(line).unwrap_or_else(|| panic!("{place}: no shell reads {line}"));
    let parts = words.split(|word| ["|", "&&", ";"].contains(&word.as_str()));
    parts.map(bare).filter(|words| !words.is_empty()).collect()
}

/// Returns a command without assignments, `sudo` and redirections.
fn bare(words: &[String]) -> Vec<String> {
    let mut words = words.iter().map(String::as_str).peekable();
    let assigns = |word: &&str| word.split_once('=').is_some_and(|(name, _)| is_variable(name));
    while words.next_if(|word| *word == "sudo" || assigns(word)).is_some() {}
    let command = words.take_while(|word| !word.starts_with(['>', '<']));
    command.map(str::to_owned).collect()
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}
