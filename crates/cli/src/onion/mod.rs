//! `anabranch client`, `anabranch relay`, `anabranch authority` and `anabranch up`: the onion
//! network. `anabranch pt`: a pluggable transport for it and for other programs.

mod authority;
mod bridges;
mod client;
mod crawl;
mod link;
mod log;
mod offers;
mod pt;
mod relay;
mod reread;
mod screen;
mod sets;
mod up;
mod watch;

use std::fs;
use std::path::{Path, PathBuf};

use anabranch_onion::circuitmux;
use anabranch_os::toml_keys::{self, Section};
use anabranch_router::onion::authorities::{Authority, digest};
use clap::{Args, ValueEnum};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::split::forms;
use crate::status::{PublishedStatus, run_name};

pub(crate) use authority::AuthorityArgs;
pub(crate) use client::ClientArgs;
pub(crate) use pt::PtArgs;
pub(crate) use relay::RelayArgs;
pub(crate) use up::UpArgs;

/// Choice of the circuit whose cell a link sends next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CircuitPolicy {
    /// One circuit after another, one cell each.
    RoundRobin,
    /// A random circuit that has cells to send.
    Random,
    /// The circuit that sent least in the recent past.
    #[default]
    Ewma,
    /// Like EWMA, but cells wait in the relay until the kernel has room for them.
    Kist,
}

impl CircuitPolicy {
    fn kind(self) -> circuitmux::Kind {
        match self {
            CircuitPolicy::RoundRobin => circuitmux::Kind::RoundRobin,
            CircuitPolicy::Random => circuitmux::Kind::Random,
            CircuitPolicy::Ewma => circuitmux::Kind::Ewma,
            CircuitPolicy::Kist => circuitmux::Kind::Kist,
        }
    }
}

/// Options that client and relay share.
#[derive(Args, Clone, Deserialize, Default)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct Common {
    /// Read settings from this TOML file. An option on the command line overrides the file.
    #[serde(skip)]
    file: Option<PathBuf>,
    /// Keep this program's state in folder DIR: its keys, the list of relays and, for a client,
    /// its guards (first relays of circuits) [default: ~/.local/state/anabranch/COMMAND, where
    /// COMMAND is client, relay or authority].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Trust the directory authority that LINE describes (repeatable). LINE is a DirAuthority
    /// line, as in torrc.
    ///
    /// A directory authority publishes the list of the network's relays. Clients and relays need
    /// this option or --authorities. 'anabranch authority' accepts neither, because it is the only
    /// authority of its network.
    #[arg(long, value_name = "LINE")]
    #[serde(deserialize_with = "forms::list")]
    authority: Vec<String>,
    /// Trust the directory authorities in FILE, which has one DirAuthority line (as in torrc) for
    /// each of them.
    #[arg(long, value_name = "FILE")]
    authorities: Option<PathBuf>,
    /// Show this process as NAME in 'anabranch status', in the live view, and in each line that it
    /// prints.
    #[arg(long, value_name = "NAME", value_parser = run_name)]
    #[serde(deserialize_with = "forms::name")]
    name: Option<String>,
    /// Print events as JSON, one object per line (docs/formats.md).
    #[arg(long)]
    json: bool,
    /// Print only errors and warnings.
    #[arg(long, conflicts_with = "json")]
    quiet: bool,
}

impl Common {
    /// Names of the settings that the settings file of every onion command may have.
    const KEYS: [&str; 6] = ["data", "authority", "authorities", "name", "json", "quiet"];

    /// Returns the flags. Settings without a flag are taken from `file`.
    fn or(self, file: Common) -> Common {
        Common {
            file: None,
            data: self.data.or(file.data),
            authority: either(self.authority, file.authority),
            authorities: self.authorities.or(file.authorities),
            name: self.name.or(file.name),
            json: self.json || file.json,
            quiet: self.quiet || file.quiet,
        }
    }

    /// Returns these settings, but with the values of `old` for settings whose change needs a
    /// restart.
    fn over_fixed(self, old: &Common) -> Common {
        let (data, name, json, quiet) = (old.data.clone(), old.name.clone(), old.json, old.quiet);
        Common { data, name, json, quiet, ..self }
    }

    /// Publishes the status of the running command `program`, so that `anabranch status` lists it.
    fn run_status(&self, program: &str, file: Option<&Path>) -> Option<PublishedStatus> {
        PublishedStatus::named(program, self.name.as_deref(), file)
    }

    /// Returns the folder for the state of `command`: the value of `--data`, or the default.
    fn data(&self, command: &str) -> Result<PathBuf, Failure> {
        self.data.clone().map_or_else(|| state_folder(command), Ok)
    }

    /// Checks that neither `--authority` nor `--authorities` is given to an authority, because an
    /// authority is the only one of its network.
    fn is_of_nobody_else(&self) -> Result<(), Failure> {
        if self.authority.is_empty() && self.authorities.is_none() {
            return Ok(());
        }
        let message = "remove --authority and --authorities: they name other authorities, but this \
                    authority is the only one of its network";
        Err(Failure::misuse(message))
    }

    fn authorities(&self) -> Result<Vec<Authority>, Failure> {
        authorities(&self.authority, self.authorities.as_deref())
    }
}

/// Returns `flags`, the values from the command line, or the values from `file` if there are no
/// flags.
fn either<T>(flags: Vec<T>, file: Vec<T>) -> Vec<T> {
    if flags.is_empty() { file } else { flags }
}

/// Reads the settings in the file at `path`. `keys` are the names of the command's own settings.
fn read<T: DeserializeOwned>(path: &Path, keys: &[&str]) -> Result<T, Failure> {
    let name = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::misuse(format!("cannot read '{name}': {error}")))?;
    parse(&text, &name.to_string(), keys)
}

/// Parses the settings in `text`, which is the content of the file `name`. `keys` are the names of
/// the command's own settings.
fn parse<T: DeserializeOwned>(text: &str, name: &str, keys: &[&str]) -> Result<T, Failure> {
    let keys: Vec<&str> = keys.iter().copied().chain(Common::KEYS).collect();
    let sections = [Section { path: "", keys: &keys }];
    toml_keys::read(text, name, &sections).map_err(Failure::misuse)
}

/// Reads authorities from `lines`, which are DirAuthority lines of torrc, and from such lines in
/// `file`.
fn authorities(lines: &[String], file: Option<&Path>) -> Result<Vec<Authority>, Failure> {
    let text = file.map(|path| {
        let to_error =
            |error| Failure::misuse(format!("cannot read '{}': {error}", path.display()));
        fs::read_to_string(path).map_err(to_error)
    });
    let text = text.transpose()?.unwrap_or_default();
    let named = |line: &String| Authority::parse(line).map_err(Failure::misuse);
    let listed = text.lines().map(str::trim).enumerate();
    let listed = listed.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let name = file.map(Path::display);
    let in_file = |(number, line): (usize, &str)| {
        let to_error = |error: &dyn std::fmt::Display| match &name {
            Some(name) => Failure::misuse(format!("{name}:{}: {error}", number + 1)),
            None => Failure::misuse(error),
        };
        match toml_keys::is_wg_quick(line) {
            true => Err(to_error(&"this is a wg-quick file, not a list of DirAuthority lines")),
            false => Authority::parse(line).map_err(|error| to_error(&error)),
        }
    };
    let all = lines.iter().map(named).chain(listed.map(in_file));
    let found: Vec<Authority> = all.collect::<Result<_, _>>()?;
    if found.is_empty() {
        return Err(Failure::misuse(
            "no directory authority is given: add --authorities FILE with the DirAuthority lines \
             of the network's torrc",
        ));
    }
    Ok(found)
}

/// Converts a limit of queued cells from `megabytes` to bytes. It must be at least `least`
/// megabytes.
fn memory(megabytes: usize, least: usize) -> Result<usize, Failure> {
    let bytes = megabytes.checked_mul(1 << 20).filter(|_| megabytes >= least);
    let message = || format!("--memory {megabytes}: write a number of megabytes, {least} or more");
    bytes.ok_or_else(|| Failure::misuse(message()))
}

/// Parses the fingerprints of relays in `texts`. `option` is named in the error.
fn fingerprints(option: &str, texts: &[String]) -> Result<Vec<[u8; 20]>, Failure> {
    let read = |text: &String| {
        let to_error = || {
            Failure::misuse(format!(
                "{option} {text}: this is not the fingerprint of a relay: write 40 hexadecimal \
                 digits"
            ))
        };
        digest(text).ok_or_else(to_error)
    };
    texts.iter().map(read).collect()
}

/// Returns the platform string in descriptors that this program makes.
fn platform() -> String {
    format!("Anabranch {} on Linux", env!("CARGO_PKG_VERSION"))
}

/// Returns the default folder for the state of the command `name`:
/// `$XDG_STATE_HOME/anabranch/NAME`.
fn state_folder(name: &str) -> Result<PathBuf, Failure> {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or(home);
    let to_error = || {
        Failure::misuse(
            "no folder for data is known, because neither HOME nor XDG_STATE_HOME is set: add \
             --data DIR",
        )
    };
    Ok(state.ok_or_else(to_error)?.join("anabranch").join(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ArgAction;

    /// Parses an example file twice: unchanged, and with all settings that are commented out in
    /// it. Returns both results.
    fn example(folder: &str, name: &str) -> [String; 2] {
        let root = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../..");
        let text = fs::read_to_string(root.join(folder).join(name)).unwrap();
        let is_setting = |line: &str| {
            let name = line.split_once(" = ").map_or("", |(name, _)| name);
            !name.is_empty() && !name.contains(' ')
        };
        let uncommented = |line: &str| match line.strip_prefix("# ").filter(|rest| is_setting(rest))
        {
            Some(rest) => format!("{rest}\n"),
            None => format!("{line}\n"),
        };
        let whole = text.lines().map(uncommented).collect();
        [text, whole]
    }

    fn is_read_whole<T: DeserializeOwned>(name: &str, keys: &[&str]) -> [T; 2] {
        let [text, whole] = example("examples", name);
        for key in keys.iter().chain(&Common::KEYS) {
            // An authority is the only one of its network, so its file names no other authority.
            if name == "authority.toml" && ["authority", "authorities"].contains(key) {
                continue;
            }
            let named = whole.lines().any(|line| line.starts_with(&format!("{key} = ")));
            assert!(named, "{name} does not name {key}");
        }
        [text, whole].map(|text| parse(&text, name, keys).unwrap_or_else(|error| panic!("{error}")))
    }

    #[test]
    fn the_examples_name_every_setting_and_are_what_the_programs_take() {
        let [relay, whole] = is_read_whole::<RelayArgs>("relay.toml", relay::KEYS);
        relay.live().map_err(|error| error.to_string()).unwrap();
        // With all settings enabled, --address6 needs an IPv6 listener, which the example lacks.
        let error = whole.live().map(drop).unwrap_err().to_string();
        assert!(error.starts_with("--address6 needs a --listen"), "{error}");
        for client in is_read_whole::<ClientArgs>("client.toml", client::KEYS) {
            client.restrictions().map_err(|error| error.to_string()).unwrap();
        }
        for authority in is_read_whole::<AuthorityArgs>("authority.toml", authority::KEYS) {
            authority.core().map_err(|error| error.to_string()).unwrap();
            authority.description().map_err(|error| error.to_string()).unwrap();
        }
    }

    /// Checks that each repeatable flag of `T` also accepts a single value in a file. Returns the
    /// number of these flags.
    fn repeat_alike<T: Args + DeserializeOwned>(keys: &[&str]) -> usize {
        let command = T::augment_args(clap::Command::new("x"));
        let repeat = |arg: &&clap::Arg| matches!(arg.get_action(), ArgAction::Append);
        let names = command.get_arguments().filter(repeat).filter_map(clap::Arg::get_long);
        let names: Vec<&str> = names.filter(|name| *name != "authorities").collect();
        for name in &names {
            for text in [format!("{name} = '127.0.0.1:9'"), format!("{name} = ['127.0.0.1:9']")] {
                let message =
                    parse::<T>(&text, "f.toml", keys).err().map(|error| error.to_string());
                // Some flags need another text, but none needs another form.
                let form = message.as_ref().is_some_and(|message| message.contains("list"));
                assert!(!form, "{text}: {message:?}");
            }
        }
        names.len()
    }

    #[test]
    fn a_flag_that_may_repeat_takes_one_value_or_a_list_of_them_in_files() {
        let counts = [
            repeat_alike::<RelayArgs>(relay::KEYS),
            repeat_alike::<ClientArgs>(client::KEYS),
            repeat_alike::<AuthorityArgs>(authority::KEYS),
        ];
        assert!(counts.iter().all(|count| *count > 4), "{counts:?}");
    }

    #[test]
    fn files_of_an_earlier_program_are_read() {
        const EARLIER: &str = "tests/formats/0e0b824b";
        let [_, text] = example(EARLIER, "relay.toml");
        let relay: RelayArgs =
            parse(&text, "relay.toml", relay::KEYS).unwrap_or_else(|error| panic!("{error}"));
        // With all settings enabled, --address6 needs an IPv6 listener, which the example lacks.
        let error = relay.live().map(drop).unwrap_err().to_string();
        assert!(error.starts_with("--address6 needs a --listen"), "{error}");
        let [text, _] = example(EARLIER, "relay.toml");
        let relay: RelayArgs = parse(&text, "relay.toml", relay::KEYS).unwrap();
        relay.live().map_err(|error| error.to_string()).unwrap();
        for text in example(EARLIER, "client.toml") {
            let client: ClientArgs =
                parse(&text, "client.toml", client::KEYS).unwrap_or_else(|error| panic!("{error}"));
            client.restrictions().map_err(|error| error.to_string()).unwrap();
        }
        for text in example(EARLIER, "authority.toml") {
            let authority: AuthorityArgs = parse(&text, "authority.toml", authority::KEYS)
                .unwrap_or_else(|error| panic!("{error}"));
            authority.core().map_err(|error| error.to_string()).unwrap();
        }
    }

    #[test]
    fn a_line_that_names_no_authority_is_told_with_its_file_and_number() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("net.txt");
        for (text, words) in [
            ("# a comment\n\nmoria1 v3ident=x\n", "net.txt:3: authority 'moria1 v3ident=x': "),
            ("[Interface]\nPrivateKey = x\n", "net.txt:1: this is a wg-quick file"),
        ] {
            fs::write(&file, text).unwrap();
            let message = authorities(&[], Some(&file)).unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn a_port_that_others_are_told_is_a_port() {
        for (listen, bridge) in
            [("'127.0.0.1:0'", true), ("'0.0.0.0:0'", false), ("'0.0.0.0:9001', '[::]:0'", false)]
        {
            let text = format!(
                "nickname = 'river1'\naddress = '192.0.2.1'\nlisten = [{listen}]\nbridge = {bridge}"
            );
            let relay: RelayArgs = parse(&text, "relay.toml", relay::KEYS).unwrap();
            let error = relay.live().map(drop).unwrap_err().to_string();
            assert!(error.ends_with(":0: write a port from 1 to 65535"), "{error}");
        }
    }
}
