//! TOML files whose mistakes are reported with file, line and the nearest valid key.
//!
//! The caller lists the keys of each section. [`read`] rejects every other key, and then passes
//! the text to serde. Values that serde rejects are reported with their line, too.
//!
//! ```
//! use anabranch_os::toml_keys::{Section, read};
//!
//! #[derive(Debug, serde::Deserialize)]
//! struct Config { path: Vec<Path> }
//! #[derive(Debug, serde::Deserialize)]
//! struct Path { name: String }
//!
//! const KEYS: &[Section] =
//!     &[Section { path: "", keys: &["path"] }, Section { path: "path", keys: &["name"] }];
//! let error = read::<Config>("[[path]]\nnmae = 'a'\n", "split.toml", KEYS).unwrap_err();
//! assert_eq!(error.to_string(), "split.toml:2: unknown key `nmae` in [path]; did you mean `name`?");
//! ```

mod words;

use std::fmt;
use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

pub use words::{in_plain_words, without_codes};

/// The keys that are valid in one table of a TOML file.
#[derive(Clone, Copy, Debug)]
pub struct Section<'s> {
    /// Path of the table: keys joined by dots, or `""` for the top. For an array of tables, this
    /// is the path of each of its tables. `*` in place of a key stands for any key.
    pub path: &'s str,
    /// The keys that the table may have. A single `*` allows all keys.
    pub keys: &'s [&'s str],
}

/// A mistake in a file, displayed as `FILE:LINE: MESSAGE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TomlError {
    /// The file, as the user named it.
    pub file: String,
    /// Number of the line, counted from 1.
    pub line: usize,
    /// Description of the mistake, in one line.
    pub message: String,
}

impl TomlError {
    /// Creates the error for a mistake at the bytes `span` of `text`.
    pub fn at(text: &str, file: &str, span: Range<usize>, message: impl Into<String>) -> TomlError {
        let before = &text.as_bytes()[..span.start.min(text.len())];
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        TomlError { file: file.to_owned(), line, message: plain(&message.into()) }
    }

    fn from_toml(text: &str, file: &str, error: &toml::de::Error) -> TomlError {
        let message = error.message().trim().replace('\n', "; ");
        TomlError::at(text, file, error.span().unwrap_or_default(), message)
    }
}

impl fmt::Display for TomlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

impl std::error::Error for TomlError {}

/// Checks `text`, the content of `file`, with [`check`], and parses it into a `T`.
pub fn read<T: DeserializeOwned>(
    text: &str,
    file: &str,
    sections: &[Section<'_>],
) -> Result<T, TomlError> {
    check(text, file, sections)?;
    toml::from_str(text).map_err(|error| {
        let converted = TomlError::from_toml(text, file, &error);
        let message = match converted.message.strip_prefix("missing field ") {
            Some(key) => format!("{key} is missing{}", table_of(text, &error)),
            None => with_key(text, &error, converted.message),
        };
        TomlError { message, ..converted }
    })
}

/// Returns whether `text` is a file of wg-quick: it has a section `[Interface]`, which no TOML
/// file of this program has.
#[must_use]
pub fn is_wg_quick(text: &str) -> bool {
    let text = text.trim_start_matches('\u{feff}');
    text.lines().any(|line| line.trim().eq_ignore_ascii_case("[interface]"))
}

/// Checks that `text` is TOML, and that each table in `sections` has only listed keys. Returns an
/// error for the first mistake.
///
/// Tables that `sections` does not contain are not checked.
pub fn check(text: &str, file: &str, sections: &[Section<'_>]) -> Result<(), TomlError> {
    let document =
        DeTable::parse(text).map_err(|error| TomlError::from_toml(text, file, &error))?;
    let walk = Walk { text, file, sections };
    walk.table(&mut Vec::new(), document.get_ref())
}

/// Returns the candidate that `word` is most likely a misspelling of; `None` if it resembles none.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let scored = candidates.into_iter().map(|c| (strsim::jaro_winkler(word, c), c));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|&(likeness, _)| likeness > 0.7).map(|(_, candidate)| candidate)
}

/// Returns "; did you mean `X`?", with the most similar candidate `X`, or an empty text if no
/// candidate resembles `word`.
pub fn hint<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> String {
    nearest(word, candidates).map_or_else(String::new, |c| format!("; did you mean `{c}`?"))
}

struct Walk<'w> {
    text: &'w str,
    file: &'w str,
    sections: &'w [Section<'w>],
}

impl Walk<'_> {
    fn table(&self, place: &mut Vec<String>, table: &DeTable<'_>) -> Result<(), TomlError> {
        let Some(section) = self.sections.iter().find(|s| matches(s.path, place)) else {
            return Ok(());
        };
        // The entries are checked in the order of the file, so that the first mistake is reported.
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in entries {
            let name = key.get_ref().as_ref();
            if section.keys != ["*"] && !section.keys.contains(&name) {
                let message = unknown(name, place, section.keys);
                return Err(TomlError::at(self.text, self.file, key.span(), message));
            }
            place.push(name.to_owned());
            self.value(place, value.get_ref())?;
            place.pop();
        }
        Ok(())
    }

    fn value(&self, place: &mut Vec<String>, value: &DeValue<'_>) -> Result<(), TomlError> {
        match value {
            DeValue::Table(table) => self.table(place, table),
            DeValue::Array(items) => {
                items.iter().try_for_each(|item| self.value(place, item.get_ref()))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the description of a mistake in a value. The description names the key, even if
/// `message` does not. If a list is expected, the description also shows the syntax of a list.
fn with_key(text: &str, error: &toml::de::Error, message: String) -> String {
    let plain = in_plain_words(&message);
    let Some(at) = error.span() else { return plain };
    let Ok(document) = DeTable::parse(text) else { return plain };
    match key_at(document.get_ref(), at.start) {
        Some((key, DeValue::String(value))) if message.ends_with("expected a sequence") => {
            format!("`{key}` is a list: write {key} = ['{value}']")
        }
        Some((key, DeValue::Table(_))) if message.ends_with("expected a sequence") => {
            format!(
                "`{key}` is a list of tables: write [[{key}]], in double brackets, before each \
                     table"
            )
        }
        Some((key, _)) if !plain.contains(&format!("`{key}`")) => format!("`{key}`: {plain}"),
        _ => plain,
    }
}

/// Returns " in [TABLE]" for the table that `error` refers to, or an empty text if `error` refers
/// to the whole file.
fn table_of(text: &str, error: &toml::de::Error) -> String {
    let document = DeTable::parse(text).ok();
    let key = document.as_ref().zip(error.span()).and_then(|(document, at)| {
        key_at(document.get_ref(), at.start).map(|(key, _)| format!(" in [{key}]"))
    });
    key.unwrap_or_default()
}

/// Returns the innermost key whose value contains the byte at position `at` of the file, and the
/// value of this key. Returns `None` if there is none.
fn key_at<'t>(table: &'t DeTable<'_>, at: usize) -> Option<(&'t str, &'t DeValue<'t>)> {
    let holds = |span: Range<usize>| span.contains(&at);
    let inner = |value: &'t DeValue<'t>| match value {
        DeValue::Table(table) => key_at(table, at),
        DeValue::Array(items) => items.iter().find_map(|item| match item.get_ref() {
            DeValue::Table(table) => key_at(table, at),
            _ => None,
        }),
        _ => None,
    };
    table.iter().find_map(|(key, value)| {
        let own = || holds(value.span()).then(|| (key.get_ref().as_ref(), value.get_ref()));
        inner(value.get_ref()).or_else(own)
    })
}

/// Converts `text` to one line without control characters, because a quoted key may contain any
/// character.
fn plain(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    text.chars().map(shown).collect()
}

fn matches(path: &str, place: &[String]) -> bool {
    let wanted: Vec<&str> = path.split('.').filter(|key| !key.is_empty()).collect();
    let same = |(want, have): (&&str, &String)| *want == "*" || *want == have.as_str();
    wanted.len() == place.len() && wanted.iter().zip(place).all(same)
}

/// Returns the message that `name`, a key of the table at the path `place`, is not one of `keys`.
/// The message contains the most similar key, or all keys if none is similar.
#[must_use]
pub fn unknown(name: &str, place: &[String], keys: &[&str]) -> String {
    let table = if place.is_empty() { String::new() } else { format!(" in [{}]", place.join(".")) };
    let near = hint(name, keys.iter().copied());
    let rest = if near.is_empty() { format!("; known: {}", keys.join(", ")) } else { near };
    format!("unknown key `{name}`{table}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct Config {
        #[serde(default)]
        path: Vec<Path>,
    }

    #[derive(Debug, serde::Deserialize)]
    struct Path {
        name: String,
        weight: Option<f64>,
    }

    const KEYS: &[Section] = &[
        Section { path: "", keys: &["path", "free", "by_name"] },
        Section { path: "path", keys: &["name", "weight"] },
        Section { path: "by_name.*", keys: &["port"] },
        Section { path: "by_name", keys: &["*"] },
    ];

    fn mistake(text: &str) -> String {
        read::<Config>(text, "f.toml", KEYS).unwrap_err().to_string()
    }

    #[test]
    fn a_good_file_is_read() {
        let text = "[[path]]\nname = 'a'\nweight = 1\n[free]\nanything = 1\n[by_name.x]\nport = 1";
        let config: Config = read(text, "f.toml", KEYS).unwrap();
        assert_eq!((config.path[0].name.as_str(), config.path[0].weight), ("a", Some(1.0)));
    }

    #[test]
    fn an_unknown_key_is_told_with_line_and_the_nearest_key() {
        let near = "f.toml:3: unknown key `wieght` in [path]; did you mean `weight`?";
        assert_eq!(mistake("[[path]]\nname = 'a'\nwieght = 1\n"), near);
        assert_eq!(
            mistake("\npaths = []\n"),
            "f.toml:2: unknown key `paths`; did you mean `path`?"
        );
        assert!(mistake("[by_name.x]\npotr = 1").starts_with("f.toml:2: unknown key `potr`"));
        assert!(mistake("zzz = 1").ends_with("known: path, free, by_name"));
    }

    #[test]
    fn a_value_of_the_wrong_type_is_told_with_its_line() {
        let message = mistake("[[path]]\nname = 'a'\nweight = 'x'\n");
        assert!(message.starts_with("f.toml:3: `weight`: 'x': write a number"), "{message}");
        assert!(!message.contains('\n'));
    }

    #[test]
    fn a_list_is_shown_where_one_value_stands() {
        #[derive(Debug, serde::Deserialize)]
        struct Lists {
            #[serde(rename = "exit", default)]
            _exit: Vec<String>,
            #[serde(rename = "path", default)]
            _path: Vec<Path>,
        }
        const LISTS: &[Section] = &[
            Section { path: "", keys: &["exit", "path"] },
            Section { path: "path", keys: &["name", "weight"] },
        ];
        let mistake = |text| read::<Lists>(text, "f.toml", LISTS).unwrap_err().to_string();
        let exit = "f.toml:2: `exit` is a list: write exit = ['accept *:443']";
        assert_eq!(mistake("\nexit = 'accept *:443'\n"), exit);
        let path = "f.toml:1: `path` is a list of tables: write [[path]], in double brackets, \
                    before each table";
        assert_eq!(mistake("[path]\nname = 'a'\n"), path);
    }

    #[test]
    fn the_first_mistake_of_a_file_is_told() {
        assert!(mistake("zebra = 1\nant = 2\n").starts_with("f.toml:1: unknown key `zebra`"));
    }

    #[test]
    fn what_is_not_toml_is_told_with_its_line() {
        let message = mistake("[[path]]\nname = \n");
        assert!(message.starts_with("f.toml:2: "), "{message}");
    }

    #[test]
    fn what_a_quoted_key_hides_is_shown_escaped() {
        let message = mistake("\"a\\n\\u001b[2J\" = 1");
        assert!(message.contains("`a\\n\\u{1b}[2J`"), "{message:?}");
    }

    #[test]
    fn a_missing_key_is_told_with_the_line_of_its_table() {
        let message = mistake("\n[[path]]\nweight = 1\n");
        assert!(message.starts_with("f.toml:2: `name` is missing"), "{message}");
    }
}
