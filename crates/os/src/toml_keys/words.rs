//! Rewriting of parsers' messages about a value, in words that users know: `expected a nonzero
//! usize` becomes `write a whole number of 1 or more`.

/// Phrases after "expected" at the end of a parser's message, each with the text that replaces the
/// phrase.
const WANTED: &[(&str, &str)] = &[
    ("u8", "a whole number from 0 to 255"),
    ("u16", "a whole number from 0 to 65535"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("u64", "a whole number, 0 or more"),
    ("usize", "a whole number, 0 or more"),
    ("i64", "a whole number"),
    ("i32", "a whole number"),
    ("a nonzero u16", "a whole number from 1 to 65535"),
    ("a nonzero u32", "a whole number of 1 or more"),
    ("a nonzero u64", "a whole number of 1 or more"),
    ("a nonzero usize", "a whole number of 1 or more"),
    ("f64", "a number"),
    ("f32", "a number"),
    ("floating point number", "a number"),
    ("a string", "text in quotes"),
    ("str", "text in quotes"),
    ("string", "text in quotes"),
    ("path string", "text in quotes"),
    ("a borrowed string", "text in quotes"),
    ("a boolean", "true or false"),
    ("a sequence", "a list in brackets"),
    ("a map", "a table"),
    ("string or table", "text in quotes"),
    ("IP address", "an IP address in quotes"),
    ("IPv4 address", "an IPv4 address in quotes"),
    ("IPv6 address", "an IPv6 address in quotes"),
    ("socket address", "ADDRESS:PORT in quotes, such as '127.0.0.1:9001'"),
];

/// Other phrases in parsers' messages, each with the text that replaces the phrase.
const WHOLE: &[(&str, &str)] = &[
    ("invalid digit found in string", "it is not a whole number of 0 or more"),
    ("cannot parse integer from empty string", "it is empty: write a whole number"),
    ("number too large to fit in target type", "it is too large"),
    ("number too small to fit in target type", "it is too small"),
    ("number would be zero for non-zero type", "write 1 or more"),
    ("invalid float literal", "it is not a number"),
    ("cannot parse float from empty string", "it is empty: write a number"),
    ("invalid IP address syntax", "it is not an IP address"),
    ("invalid IPv4 address syntax", "it is not an IPv4 address"),
    ("invalid IPv6 address syntax", "it is not an IPv6 address"),
    ("invalid socket address syntax", "write ADDRESS:PORT, such as 127.0.0.1:9001"),
    ("unknown variant ", "unknown value "),
    ("unknown field ", "unknown key "),
    ("EOF while parsing", "it ends inside"),
    ("trailing characters", "more text follows its end"),
    ("expected value", "it is not JSON"),
    ("expected ident", "it is not JSON"),
    ("key must be a string", "a key without quotes"),
    ("provided string was not `true` or `false`", "write true or false"),
];

/// Rewrites `message` without the names of Rust's types and of serde's formats.
///
/// ```
/// use anabranch_os::toml_keys::in_plain_words;
///
/// let message = "invalid value: integer `-5`, expected a nonzero usize";
/// assert_eq!(in_plain_words(message), "-5: write a whole number of 1 or more");
/// ```
#[must_use]
pub fn in_plain_words(message: &str) -> String {
    if let Some((message, place)) = json_place(message) {
        return format!("{}, at line {place}", in_plain_words(message));
    }
    let message = without_codes(message);
    let message = WHOLE.iter().fold(message, |text, (raw, plain)| text.replace(raw, plain));
    // The parser has its own words for an enum that is written in another form.
    if let Some(wanted) = message.strip_prefix("wanted ") {
        return plain_wanted(wanted);
    }
    let kinds = ["invalid type: ", "invalid value: ", "invalid length "];
    let Some(rest) = kinds.iter().find_map(|kind| message.strip_prefix(kind)) else {
        return without_variants(message);
    };
    match rest.rsplit_once(", expected ") {
        Some((found, wanted)) => format!("{}: {}", plain_found(found), plain_wanted(wanted)),
        None => message,
    }
}

/// Splits the message of a JSON error into its text and its position, such as "2 column 7" for
/// line 2. Returns `None` if the message has no position.
fn json_place(message: &str) -> Option<(&str, &str)> {
    let (message, place) = message.rsplit_once(" at line ")?;
    let (line, column) = place.split_once(" column ")?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(line) && is_number(column)).then_some((message, place))
}

/// Removes ` (os error N)` from `text`, because the text before it already describes the error.
/// Also removes the random name of a temporary file, such as ` at path "/proc/.x.part"`, because
/// messages name the file that the user knows.
#[must_use]
pub fn without_codes(text: &str) -> String {
    let text = &without_temporary(text);
    let mut parts = text.split(" (os error ");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.trim_start_matches(|c: char| c.is_ascii_digit());
        match digits.strip_prefix(')') {
            Some(rest) if digits.len() < part.len() => plain.push_str(rest),
            _ => plain.extend([" (os error ", part]),
        }
    }
    plain
}

/// Removes each ` at path "..."` from `text`. Quotes in the path are escaped.
fn without_temporary(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some((before, quoted)) = rest.split_once(" at path \"") {
        let mut is_escaped = false;
        let end = quoted.find(|letter| {
            let is_end = letter == '"' && !is_escaped;
            is_escaped = letter == '\\' && !is_escaped;
            is_end
        });
        let Some(end) = end else { break };
        plain.push_str(before);
        rest = &quoted[end + 1..];
    }
    plain + rest
}

/// Rewrites two kinds of serde's messages. "missing field X" becomes "X is missing". A message
/// about a value that matches no variant of an untagged enum becomes "its form is not allowed
/// here". Other messages are returned unchanged.
fn without_variants(message: String) -> String {
    if let Some(key) = message.strip_prefix("missing field ") {
        return format!("{key} is missing");
    }
    match message.strip_prefix("data did not match any variant of untagged enum ") {
        Some(_) => "its form is not allowed here".to_owned(),
        None => message,
    }
}

fn plain_found(found: &str) -> String {
    // After "invalid length", the message has no type, only the number of entries.
    if found.parse::<usize>().is_ok() {
        return format!("a list of {found}");
    }
    // TOML's integers beyond 64 bits are parsed as wider ones.
    let wide = [" as i128", " as u128"].iter().find_map(|wide| found.strip_suffix(wide));
    let found = wide.unwrap_or(found);
    let kinds = ["integer `", "floating point `", "boolean `", "character `"];
    let number = kinds.iter().find_map(|kind| found.strip_prefix(kind)?.strip_suffix('`'));
    if let Some(number) = number {
        return number.to_owned();
    }
    if let Some(text) = found.strip_prefix("string \"").and_then(|rest| rest.strip_suffix('"')) {
        return format!("'{text}'");
    }
    match found {
        "map" => "a table".to_owned(),
        "sequence" => "a list".to_owned(),
        "datetime" => "a date".to_owned(),
        "null" | "unit value" => "nothing".to_owned(),
        other => other.to_owned(),
    }
}

fn plain_wanted(wanted: &str) -> String {
    let known = WANTED.iter().find(|(raw, _)| *raw == wanted).map(|(_, plain)| *plain);
    let structs =
        ["struct ", "tuple struct ", "internally tagged enum ", "adjacently tagged enum "];
    match known {
        Some(plain) => format!("write {plain}"),
        None if structs.iter().any(|kind| wanted.starts_with(kind)) => "write a table".to_owned(),
        // The message is already in this program's own words.
        None => format!("expected {wanted}"),
    }
}

#[cfg(test)]
mod tests {
    use std::num::{NonZeroU16, NonZeroU32, NonZeroU64, NonZeroUsize};

    use super::*;
    use serde::Deserialize;

    /// A struct with one key of each type that occurs in our configuration files.
    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    #[allow(dead_code, reason = "only that it cannot be read matters")]
    struct All {
        u8: u8,
        u16: u16,
        u32: u32,
        u64: u64,
        usize: usize,
        i32: i32,
        i64: i64,
        f64: f64,
        text: String,
        truth: bool,
        list: Vec<String>,
        path: std::path::PathBuf,
        ip: Option<std::net::IpAddr>,
        v4: Option<std::net::Ipv4Addr>,
        v6: Option<std::net::Ipv6Addr>,
        socket: Option<std::net::SocketAddr>,
        nz16: Option<NonZeroU16>,
        nz32: Option<NonZeroU32>,
        nz64: Option<NonZeroU64>,
        nz: Option<NonZeroUsize>,
        table: Option<Inner>,
        tuple: Option<Pair>,
        choice: Option<Choice>,
        either: Option<Either>,
        map: std::collections::BTreeMap<String, u8>,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only that it cannot be read matters")]
    struct Inner {
        name: String,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only that it cannot be read matters")]
    struct Pair(u8, u8);

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Choice {
        Left,
    }

    #[derive(Debug, Deserialize)]
    #[serde(untagged)]
    #[allow(dead_code, reason = "only that it cannot be read matters")]
    enum Either {
        Number(u8),
        Truth(bool),
    }

    /// A number that does not fit into 64 bits.
    const HUGE: &str = "99999999999999999999";

    const KEYS: &[&str] = &[
        "u8", "u16", "u32", "u64", "usize", "i32", "i64", "f64", "text", "truth", "list", "path",
        "ip", "v4", "v6", "socket", "nz16", "nz32", "nz64", "nz", "table", "tuple", "choice",
        "either", "map",
    ];

    #[test]
    fn no_value_of_any_type_is_refused_in_rusts_words() {
        let words = [
            "struct", "usize", "nonzero", "u8", "u16", "u32", "u64", "i64", "f64", "enum", "unit ",
            "sequence", "invalid", "boolean", "map", "Inner", "Pair", "Choice", "Either", "target",
            "integer", "128", "wanted", "string",
        ];
        let values =
            ["-5", "'x'", "1.5", "true", "[]", "{}", "[[1]]", "0", "1e400", "70000000000", HUGE];
        let mut refused = 0;
        for key in KEYS {
            for value in values {
                let section = [super::super::Section { path: "", keys: KEYS }];
                let text = format!("{key} = {value}\n");
                let Err(error) = super::super::read::<All>(&text, "f.toml", &section) else {
                    continue;
                };
                let message = error.message.replace(&format!("`{key}`"), "");
                let found = words.iter().find(|word| message.contains(**word));
                assert_eq!(found, None, "{key} = {value}: {error}");
                refused += 1;
            }
        }
        assert!(refused > 150, "{refused}");
    }

    #[test]
    fn a_place_in_json_stays_behind_plain_words() {
        let error_of = |text: &str| {
            let error = serde_json::from_str::<Inner>(text).unwrap_err();
            in_plain_words(&error.to_string())
        };
        assert_eq!(error_of("[]"), "a list of 0: write a table, at line 1 column 2");
        assert_eq!(error_of("7"), "7: write a table, at line 1 column 1");
        assert_eq!(error_of("{}"), "`name` is missing, at line 1 column 2");
        assert_eq!(error_of("{\"name\": 7}"), "7: write text in quotes, at line 1 column 10");
        assert_eq!(error_of("{"), "it ends inside an object, at line 1 column 1");
        assert_eq!(error_of("?"), "it is not JSON, at line 1 column 1");
        let own = "it came at line 7 column x";
        assert_eq!(in_plain_words(own), own);
    }

    #[test]
    fn words_of_our_own_are_kept() {
        let own = "'100' is no interval: write packets (50p)";
        assert_eq!(in_plain_words(own), own);
        let table = "invalid type: string \"a\", expected struct PathFields";
        assert_eq!(in_plain_words(table), "'a': write a table");
    }

    #[test]
    fn names_of_temporary_files_are_left_out() {
        let text = r#"a: gone at path "/x/.a \"b\" \\" (os error 2); b: full at path "/y/.part""#;
        assert_eq!(without_codes(text), "a: gone; b: full");
        for kept in ["at path \"x\"", "cut at path \"x", "at path x"] {
            assert_eq!(without_codes(kept), kept);
        }
    }

    #[test]
    fn the_kernels_numbers_are_left_out_and_nothing_else() {
        let text = "'a': Permission denied (os error 13); b: gone (os error 2)";
        assert_eq!(without_codes(text), "'a': Permission denied; b: gone");
        for kept in ["(os error x)", "a (os error 1", "a (os error )", ""] {
            assert_eq!(without_codes(kept), kept);
        }
    }
}
