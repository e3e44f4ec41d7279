//! Man pages of section 5, one for each kind of TOML file. Their text comes from the definition of
//! the command line, because a file's keys are names of flags, and from the example files of this
//! project.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Arg, ArgAction, Command};
use roff::{Roff, bold, roman};

/// Kinds of TOML files. For each kind: the command that reads it, and example files.
const KINDS: [(&str, &[&str]); 6] = [
    (
        "split",
        &[
            include_str!("../../../../examples/tunnel.toml"),
            include_str!("../../../../examples/interface.toml"),
        ],
    ),
    ("merge", &[include_str!("../../../../examples/merge.toml")]),
    ("client", &[include_str!("../../../../examples/client.toml")]),
    ("relay", &[include_str!("../../../../examples/relay.toml")]),
    ("authority", &[include_str!("../../../../examples/authority.toml")]),
    ("emulate", &[include_str!("../../../../examples/emulated.toml")]),
];

/// Flags and arguments of the command line that cannot be keys of a settings file.
const NO_KEYS: [&str; 6] = ["help", "version", "config", "check", "restore", "file"];

/// Keys of a `[[path]]` table in the settings file of `anabranch split`, with their descriptions.
const PATH_KEYS: [(&str, &str); 9] = [
    ("name", "Name of the path."),
    ("interface", "Network interface, as in --path NAME=if:DEVICE."),
    ("wg", "File of a WireGuard tunnel that wg-quick has started, as in --path NAME=wg:FILE."),
    ("address", "Source address, as in --path NAME=addr:ADDRESS."),
    (
        "ports",
        "Number of source ports, which the path uses one after another, as in --path \
         NAME=ports:N.",
    ),
    ("socks5", "HOST:PORT of a SOCKS5 proxy that relays UDP."),
    ("user", "User name at this proxy."),
    ("password", "Password of this user."),
    ("password-file", "File whose first line is the password."),
];

/// Returns the name of the man page about the settings file of `command`; `None` if the command
/// has no settings file.
pub(super) fn page_of(command: &str) -> Option<String> {
    let known = KINDS.iter().any(|(kind, _)| *kind == command);
    known.then(|| format!("anabranch-{command}.toml"))
}

/// Writes `anabranch-split.toml.5` and the other pages to `directory`.
///
/// # Errors
/// A page cannot be written. Pages that were written before it remain.
pub(super) fn write(directory: &Path, program: &Command, version: &str) -> io::Result<()> {
    KINDS.iter().try_for_each(|(kind, examples)| {
        let command =
            program.find_subcommand(kind).expect("each kind of file has the name of a sub-command");
        let mut text = Vec::new();
        page(kind, command, examples, version).to_writer(&mut text)?;
        fs::write(directory.join(format!("anabranch-{kind}.toml.5")), text)
    })
}

fn page(kind: &str, command: &Command, examples: &[&str], version: &str) -> Roff {
    let name = format!("anabranch-{kind}.toml");
    let mut roff = Roff::new();
    roff.control("TH", [name.as_str(), "5", "", version, "Anabranch"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("{name} - settings of anabranch {kind}"))]);
    roff.control("SH", ["DESCRIPTION"]);
    if kind == "emulate" {
        roff.text([roman(
            "The description of an emulated network in TOML, with the tables [[host]], [[link]], \
             [[event]] and [[program]]. \
             /usr/share/doc/anabranch/docs/emulator.md explains each key.",
        )]);
    } else {
        roff.text([roman(format!(
            "A file in TOML that `anabranch {kind} FILE` reads. Its keys are the names of the \
             command line's options. An option on the command line overrides the file. An unknown \
             key is an error.",
        ))]);
        keys(&mut roff, command);
    }
    if kind == "split" {
        roff.control("SH", ["[[PATH]] TABLES"]);
        roff.text([roman(
            "One table for each path. Or write path = \"auto\" to add a path for each Internet \
             connection of this machine.",
        )]);
        PATH_KEYS.iter().for_each(|(key, about)| key_of(&mut roff, key, "", about));
    }
    for example in examples {
        roff.control("SH", ["EXAMPLE"]).control("nf", []);
        for line in example.lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([bold(format!("anabranch-{kind}")), roman("(1)")]);
    roff
}

fn keys(roff: &mut Roff, command: &Command) {
    roff.control("SH", ["KEYS"]);
    for arg in command.get_arguments() {
        let Some(name) = arg.get_long().filter(|name| !NO_KEYS.contains(name)) else { continue };
        let about = arg.get_help().map(ToString::to_string).unwrap_or_default();
        key_of(roff, name, &form(arg), &about);
    }
}

fn key_of(roff: &mut Roff, key: &str, form: &str, about: &str) {
    roff.control("TP", []);
    roff.text([bold(key), roman(form)]);
    roff.text([roman(about)]);
}

/// Returns the text that shows the type of value after a key, such as ` = [FILE, ...]`. The key
/// sets the option `arg`.
fn form(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let value = names.first().map_or("TEXT", |name| name.as_str());
    match arg.get_action() {
        ArgAction::SetTrue => " = true".to_owned(),
        ArgAction::Append => format!(" = [{value}, ...]"),
        _ => format!(" = {value}"),
    }
}
