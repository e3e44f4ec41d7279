//! `--path auto`: one path for each Internet connection (uplink) of this machine.

use std::fmt;
use std::str::FromStr;

use anabranch_splitter::paths::{self, PathSpec, SpecError};

use crate::failure::Failure;

/// Value of `--path`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a command line has only a few paths")]
pub(crate) enum PathChoice {
    /// All uplinks of this machine that no other path uses.
    Uplinks,
    /// A path that the user has named.
    One(PathSpec),
}

impl FromStr for PathChoice {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<PathChoice, SpecError> {
        match text {
            "auto" => Ok(PathChoice::Uplinks),
            _ => text.parse().map(PathChoice::One),
        }
    }
}

impl fmt::Display for PathChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathChoice::Uplinks => f.write_str("auto"),
            PathChoice::One(path) => path.fmt(f),
        }
    }
}

/// Returns the chosen paths in their order. `auto` is replaced by the uplinks that no other path
/// uses.
///
/// # Errors
/// There is no path, or `auto` is given and this machine has no uplink.
pub(super) fn expand(choices: &[PathChoice]) -> Result<Vec<PathSpec>, Failure> {
    expand_by(choices, &|| paths::uplinks().unwrap_or_default())
}

fn expand_by(
    choices: &[PathChoice],
    uplinks: &dyn Fn() -> Vec<PathSpec>,
) -> Result<Vec<PathSpec>, Failure> {
    if choices.is_empty() {
        return Err(Failure::misuse(none(&uplinks())));
    }
    let named = |device: &Option<String>| {
        choices
            .iter()
            .any(|choice| matches!(choice, PathChoice::One(path) if path.device == *device))
    };
    let mut expanded = Vec::new();
    for choice in choices {
        match choice {
            PathChoice::One(path) => expanded.push(path.clone()),
            PathChoice::Uplinks => {
                expanded.extend(uplinks().into_iter().filter(|uplink| !named(&uplink.device)));
            }
        }
    }
    if expanded.is_empty() {
        return Err(Failure::misuse(format!("--path auto: {NONE}")));
    }
    Ok(expanded)
}

const NONE: &str = "this machine has no uplink, that is, no interface with a route to other \
                    networks: connect one";

/// Returns the error message for a missing `--path`, which proposes paths over the Internet
/// connections `uplinks`.
fn none(uplinks: &[PathSpec]) -> String {
    if uplinks.is_empty() {
        return format!("--path: no path is given, and {NONE}");
    }
    let flags: Vec<_> = uplinks.iter().map(|uplink| format!("--path {uplink}")).collect();
    format!(
        "--path: no path is given: name at least one; to use all uplinks of this machine, write {} \
         (or --path auto)",
        flags.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(choices: &[&str], uplinks: &[&str]) -> Result<String, String> {
        let choices: Vec<PathChoice> = choices.iter().map(|text| text.parse().unwrap()).collect();
        let uplinks = || uplinks.iter().map(|text| text.parse().unwrap()).collect();
        let paths = expand_by(&choices, &uplinks).map_err(|failure| failure.to_string())?;
        Ok(paths.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn auto_is_every_uplink_that_no_other_path_names() {
        let uplinks = ["eth0=if:eth0", "wlan0=if:wlan0"];
        assert_eq!(expanded(&["auto"], &uplinks).unwrap(), "eth0=if:eth0 wlan0=if:wlan0");
        let home = expanded(&["home=if:eth0,ports:4", "auto"], &uplinks).unwrap();
        assert_eq!(home, "home=if:eth0,ports:4 wlan0=if:wlan0");
    }

    #[test]
    fn where_no_path_is_given_the_uplinks_are_written_to_be_pasted() {
        let message = expanded(&[], &["eth0=if:eth0", "wlan0=if:wlan0"]).unwrap_err();
        let paste = "--path eth0=if:eth0 --path wlan0=if:wlan0 (or --path auto)";
        assert!(message.ends_with(paste), "{message}");
        assert!(expanded(&[], &[]).unwrap_err().contains("no uplink"));
        assert!(expanded(&["auto"], &[]).unwrap_err().starts_with("--path auto: "));
    }
}
