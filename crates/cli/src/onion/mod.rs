//! `anabranch client` and `anabranch relay`: the onion network.

mod client;
mod events;
mod relay;

use std::fs;
use std::path::{Path, PathBuf};

use anabranch_drive::onion::authorities::{Authority, digest};
use anabranch_drive::toml_keys::{self, Section};
use serde::de::DeserializeOwned;

use crate::failure::Failure;

pub(crate) use client::ClientArgs;
pub(crate) use relay::RelayArgs;

/// Reads the settings in the file at `path`.
fn read<T: DeserializeOwned>(path: &Path, keys: &[&str]) -> Result<T, Failure> {
    let name = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::misuse(format!("cannot read '{name}': {error}")))?;
    let sections = [Section { path: "", keys }];
    toml_keys::read(&text, &name.to_string(), &sections).map_err(Failure::misuse)
}

/// The authorities of lines and of a file of such lines, as torrc has them.
fn authorities(lines: &[String], file: Option<&Path>) -> Result<Vec<Authority>, Failure> {
    let text = file.map(|path| {
        let told = |error| Failure::misuse(format!("cannot read '{}': {error}", path.display()));
        fs::read_to_string(path).map_err(told)
    });
    let text = text.transpose()?.unwrap_or_default();
    let listed = text.lines().map(str::trim);
    let listed = listed.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let all = lines.iter().map(String::as_str).chain(listed);
    let found: Vec<Authority> =
        all.map(Authority::parse).collect::<Result<_, _>>().map_err(Failure::misuse)?;
    if found.is_empty() {
        return Err(Failure::misuse(
            "no authority is named: --authorities FILE holds the DirAuthority lines of the network's torrc",
        ));
    }
    Ok(found)
}

/// Relays by fingerprint.
fn fingerprints(option: &str, texts: &[String]) -> Result<Vec<[u8; 20]>, Failure> {
    let read = |text: &String| {
        let told = || Failure::misuse(format!("{option} {text}: 40 hexadecimal digits are wanted"));
        digest(text).ok_or_else(told)
    };
    texts.iter().map(read).collect()
}

/// Where a command keeps its state if nobody says: `$XDG_STATE_HOME/anabranch/NAME`.
fn state_folder(name: &str) -> Result<PathBuf, Failure> {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or(home);
    let told = || Failure::misuse("neither HOME nor XDG_STATE_HOME is set; give --data DIR");
    Ok(state.ok_or_else(told)?.join("anabranch").join(name))
}
