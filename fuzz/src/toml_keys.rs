//! Files of settings: refused with one plain line, or read without any unknown key.

use anabranch_os::toml_keys::{self, Section};
use serde::Deserialize;

use crate::input::check_message;

/// Tables as in `anabranch split --config`: the top level, an array of tables, and tables with
/// names that the user chooses.
const KEYS: &[Section<'_>] = &[
    Section { path: "", keys: &["listen", "every", "seed", "path", "by_name"] },
    Section { path: "path", keys: &["name", "ports"] },
    Section { path: "by_name", keys: &["*"] },
    Section { path: "by_name.*", keys: &["port"] },
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "read for its types alone")]
struct Settings {
    listen: Option<String>,
    every: Option<String>,
    seed: Option<u64>,
    #[serde(default)]
    path: Vec<Path>,
    #[serde(default)]
    by_name: std::collections::BTreeMap<String, Port>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "read for its types alone")]
struct Path {
    name: String,
    ports: Option<u16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "read for its types alone")]
struct Port {
    port: u16,
}

/// Checks that reading agrees with the check of keys, and that an error is one plain line.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let keys = toml_keys::check(text, "fuzz.toml", KEYS);
    match toml_keys::read::<Settings>(text, "fuzz.toml", KEYS) {
        Ok(_) => assert!(keys.is_ok(), "a file is read though {keys:?}"),
        Err(error) => {
            check_message(&error, text);
            let known = !error.message.starts_with("unknown field");
            assert!(
                keys.is_err() || known,
                "serde met a key that the check of keys let pass: {error}"
            );
        }
    }
    if let Err(error) = keys {
        check_message(&error, text);
    }
}
