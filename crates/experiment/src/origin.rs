//! The origin of an experiment's results: the program under test, the third-party programs and the
//! machine.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::Command;

use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Programs;

/// Programs that are started through a script. They are identified by the output of `--version`,
/// because the hash of the script would not change with the program.
const SCRIPTS: [&str; 2] = ["chromium", "aioquic-server"];
/// Length in bytes of the shortened hashes: enough to distinguish builds, short enough to compare
/// by eye.
const KEPT: usize = 8;

/// Identification of the programs and the machine, which all results in a journal (the file of an
/// experiment's results) must share. Two builds of one version have different origins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Origin {
    program: String,
    machine: String,
    programs: BTreeMap<String, String>,
}

impl Origin {
    /// Identifies the program at `own`, called `name`, and the third-party programs `peers`.
    ///
    /// # Errors
    /// A program cannot be read, or does not report its version.
    pub fn of(name: &str, own: &Path, peers: &Programs) -> io::Result<Origin> {
        let print = |(name, file): (&'static str, &Path)| {
            let identity = if SCRIPTS.contains(&name) { version(file) } else { hash(file) };
            Ok((name.to_owned(), identity?))
        };
        Ok(Origin {
            program: format!("{name}, SHA-256 {}", hash(own)?),
            machine: machine(),
            programs: peers.found().map(print).collect::<io::Result<_>>()?,
        })
    }

    /// Returns the first line of a journal (the file of an experiment's results): the settings,
    /// with the origin added.
    pub fn join(&self, mut settings: Value) -> Value {
        for (key, value) in json!(self).as_object().into_iter().flatten() {
            settings[key] = value.clone();
        }
        settings
    }
}

/// Returns the first digits of the SHA-256 of a file.
fn hash(file: &Path) -> io::Result<String> {
    let to_error = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", file.display()));
    let mut hash = Sha256::new();
    io::copy(&mut File::open(file).map_err(to_error)?, &mut hash).map_err(to_error)?;
    Ok(hex(&hash.finalize()))
}

/// Returns the first digits of the SHA-256 of `bytes`.
pub(crate) fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(hash: &[u8]) -> String {
    let mut text = String::new();
    for byte in &hash[..KEPT] {
        write!(text, "{byte:02x}").expect("writing to a string does not fail");
    }
    text
}

/// Returns the output of a program's `--version`.
fn version(program: &Path) -> io::Result<String> {
    let output = Command::new(program).arg("--version").output()?;
    let stdout = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let why = || {
        io::Error::other(format!(
            "{} printed nothing for --version; install it with `tests/interop/setup --area \
             experiments`",
            program.display()
        ))
    };
    if stdout.is_empty() { Err(why()) } else { Ok(stdout) }
}

/// Describes the processors and the kernel.
fn machine() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let models = text.lines().filter_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let models: Vec<_> = models.map(|(_, model)| model.trim()).collect();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let model = models.first().unwrap_or(&"an unknown processor");
    format!("{cores} × {model}, Linux {}", kernel.trim())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::Stdio;

    use super::*;

    #[test]
    fn builds_and_peers_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own");
        let mut peers = Programs::new(Some(folder.path()));
        peers.find(&[("sh", "dash")]).unwrap();
        let of = |content: &str| {
            fs::write(&own, content).unwrap();
            Origin::of("anabranch 1.2.3", &own, &peers).unwrap()
        };
        let (one, other) = (of("one"), of("other"));
        assert_eq!(of("one"), one);
        assert_ne!(one, other);
        // The SHA-256 of `one`, as sha256sum computes it.
        let header = one.join(json!({"seed": 1}));
        assert_eq!(header["program"], "anabranch 1.2.3, SHA-256 7692c3ad3540bb80");
        assert_eq!(header["programs"]["sh"].as_str().unwrap().len(), 2 * KEPT);
        assert!(header["machine"].as_str().unwrap().contains("Linux"), "{header}");
        assert_eq!(header["seed"], 1);
        assert!(Origin::of("x", &folder.path().join("none"), &peers).is_err());
    }

    /// Writes a program with a shell. If this process wrote it, a child forked by another test
    /// could hold the file open for writing, and its execution would fail ("Text file busy").
    fn write_program(file: &Path, text: &str) {
        let mut shell = Command::new("sh");
        shell.args(["-c", "cat >\"$0\"; chmod 755 \"$0\""]).arg(file).stdin(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
    }

    #[test]
    fn a_program_behind_a_script_is_asked() {
        for name in SCRIPTS {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join(name);
            let origin = |script: &str| {
                write_program(&file, &format!("#!/bin/sh\n{script}\n"));
                let mut peers = Programs::new(Some(folder.path()));
                peers.find(&[(name, "its package")]).unwrap();
                Origin::of("x", &file, &peers)
            };
            let header = origin("echo It 1.2").unwrap().join(json!({}));
            assert_eq!(header["programs"][name], "It 1.2");
            let silent = origin("").unwrap_err().to_string();
            assert!(silent.contains("version") && silent.contains("setup --area"), "{silent}");
        }
    }
}
