//! `anabranch key`: key files of splitters (`anabranch split`) and of far ends (`anabranch
//! merge`).

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anabranch_os::entropy::generator;
use anabranch_splitter::far_end::keys::{KeyPair, Psk, PublicKey};
use anabranch_splitter::far_end::{KeyEnd, KeyFile, Peer, secret_text};
use rand_core::Rng;

use crate::failure::Failure;

/// Text at the end of `--help`.
const EXAMPLES: &str = "\
EXAMPLES
  Create both files. Then copy home.key to the splitter over a secure channel, and delete it here:
    anabranch key far.key home.key

  Create each file where it is used, so that no private key is copied. Both commands print a public
  key:
    far$  anabranch key far.key
    home$ anabranch key home.key
  Then add to each file the public key of the other end:
    far$  anabranch key far.key --peer home=PUBLIC-KEY-OF-HOME
    home$ anabranch key home.key --peer far=PUBLIC-KEY-OF-FAR
  A shared secret protects against an adversary who records traffic now and breaks X25519 later.
  Print one, and add it to both files, below [[peer]], as the line psk = \"...\":
    anabranch key --psk

EXIT CODES
  0 done   1 failed while running   2 bad usage or settings";

/// Create the keys of a splitter ('anabranch split') and of its far end ('anabranch merge').
///
/// If FILE does not exist, this command creates it with a new private key, readable only by its
/// owner. Then it prints the public key of FILE. If a second file, SPLITTER, is given, the command
/// creates both files: FILE for the far end, and SPLITTER for the splitter. Each of the two files
/// contains the public key of the other end and a shared secret.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "--help shows examples.")]
pub(crate) struct KeyArgs {
    /// Use the key file FILE, or create it if it does not exist. If you also give SPLITTER, both
    /// files are created, and FILE is for the far end ('anabranch merge').
    #[arg(value_name = "FILE", required_unless_present = "psk")]
    file: Option<PathBuf>,

    /// Also create the key file SPLITTER for the splitter ('anabranch split'). Each of the two new
    /// files contains the public key of the other.
    #[arg(value_name = "SPLITTER", conflicts_with = "peer")]
    other: Option<PathBuf>,

    /// Add the public key of the other end (the splitter or the far end) to FILE (repeatable).
    /// NAME is a name of your choice. PUBLIC is the public key that 'anabranch key' printed at the
    /// other end.
    #[arg(long, value_name = "NAME=PUBLIC")]
    peer: Vec<NamedKey>,

    /// Print a new random secret (psk) that the splitter and its far end can share, then exit.
    #[arg(long, exclusive = true)]
    psk: bool,
}

/// Name and public key of the other end: a splitter or a far end.
#[derive(Clone, Debug)]
struct NamedKey {
    name: String,
    public: PublicKey,
}

impl FromStr for NamedKey {
    type Err = String;

    fn from_str(text: &str) -> Result<NamedKey, String> {
        let wrong = || {
            "write NAME=PUBLIC; PUBLIC has the 44 characters that 'anabranch key' printed at the \
             other end"
                .to_owned()
        };
        let (name, public) = text.split_once('=').ok_or_else(wrong)?;
        check_name(name)?;
        let public = KeyFile::public_of(public).ok_or_else(wrong)?;
        Ok(NamedKey { name: name.to_owned(), public })
    }
}

/// Checks a name, which appears in files, logs and metrics: 1 to 32 letters, digits, `_`, `.` or
/// `-`.
fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    match (1..=32).contains(&name.len()) && name.chars().all(plain) {
        true => Ok(()),
        false => {
            Err(format!("'{name}' is not a name: use 1 to 32 letters, digits, '_', '.' and '-'"))
        }
    }
}

impl KeyArgs {
    /// Creates or changes key files. Prints the keys and the lines that the other end needs.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let text = match (&self.file, &self.other) {
            (None, _) => secret_text(&fresh()?),
            (Some(file), Some(other)) => {
                pair(file, other)?;
                let (far, other) = (file.display(), other.display());
                format!(
                    "wrote a pair of key files: {far} is for the far end, {other} for the splitter"
                )
            }
            (Some(file), None) => secret_text(&own(file, &self.peer)?.0),
        };
        writeln!(io::stdout(), "{text}").map_err(Failure::trouble)
    }
}

fn fresh() -> Result<Psk, Failure> {
    let mut secret = [0; 32];
    generator().map_err(Failure::trouble)?.fill_bytes(&mut secret);
    Ok(secret)
}

/// Creates two key files that belong together, each with the public key of the other one's owner:
/// `file` for the far end, `other` for the splitter.
fn pair(file: &Path, other: &Path) -> Result<(), Failure> {
    if let Some(there) = [file, other].into_iter().find(|path| path.exists()) {
        return Err(Failure::misuse(format!(
            "'{}' already exists, but a pair of keys needs two new files: choose another name (to \
             print the public key of an existing file, run 'anabranch key FILE')",
            there.display()
        )));
    }
    let mut rng = generator().map_err(Failure::trouble)?;
    let [ours, theirs] = [(); 2].map(|()| KeyPair::generate(&mut rng));
    let psk = fresh()?;
    let known = |path: &Path, own: &KeyPair| Peer { name: name_of(path), public: own.public, psk };
    for (end, path, own, peer) in [
        (KeyEnd::Far, file, &ours, known(other, &theirs)),
        (KeyEnd::Splitter, other, &theirs, known(file, &ours)),
    ] {
        let mut made = KeyFile { end: Some(end), ..KeyFile::of(own.clone()) };
        made.peers.push(peer);
        made.create(path).map_err(Failure::trouble)?;
    }
    Ok(())
}

/// Returns the name of the splitter or far end that uses the key file `path`: the file's name
/// without the extension, or `other` if this is not a valid name.
fn name_of(path: &Path) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    stem.filter(|name| check_name(name).is_ok()).unwrap_or_else(|| "other".to_owned())
}

/// Reads the key file of this end (splitter or far end), or creates it if it is missing. Returns
/// the public key of this end.
fn own(path: &Path, peers: &[NamedKey]) -> Result<PublicKey, Failure> {
    let new = !path.exists();
    let mut file = match new {
        true => KeyFile::of(KeyPair::generate(&mut generator().map_err(Failure::trouble)?)),
        false => KeyFile::read(path).map_err(Failure::misuse)?,
    };
    for NamedKey { name, public } in peers {
        let known = file.peers.iter().any(|peer| peer.name == *name || peer.public == *public);
        if known || *public == file.own.public {
            return Err(Failure::misuse(format!(
                "--peer {name}: the file {} already has this name or this public key: choose \
                 another name, or leave the file as it is",
                path.display()
            )));
        }
        file.peers.push(Peer { name: name.clone(), public: *public, psk: [0; 32] });
    }
    let written = match (new, peers.is_empty()) {
        (true, _) => file.create(path),
        (false, false) => file.replace(path),
        (false, true) => Ok(()),
    };
    written.map_err(Failure::trouble)?;
    Ok(file.own.public)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_files_made_as_a_pair_know_each_other() {
        let folder = tempfile::TempDir::new().unwrap();
        let [far, home] = ["far.key", "home.key"].map(|name| folder.path().join(name));
        pair(&far, &home).unwrap();
        let [far_file, home_file] = [&far, &home].map(|path| KeyFile::read(path).unwrap());
        assert_eq!(far_file.peers[0].public, home_file.own.public);
        assert_eq!(home_file.peers[0].public, far_file.own.public);
        assert_eq!((&*far_file.peers[0].name, &*home_file.peers[0].name), ("home", "far"));
        assert_eq!(far_file.peers[0].psk, home_file.peers[0].psk);
        assert_ne!(far_file.peers[0].psk, [0; 32]);
        let wrong = KeyFile::read_for(KeyEnd::Splitter, &far).err().unwrap().to_string();
        assert!(wrong.contains("the other file of the pair, made for 'home'"), "{wrong}");
        assert!(KeyFile::read_for(KeyEnd::Far, &home).is_err());
        assert!(pair(&far, &folder.path().join("x")).is_err(), "nothing is replaced");
    }

    #[test]
    fn a_file_keeps_its_key_and_gains_peers() {
        let folder = tempfile::TempDir::new().unwrap();
        let (one, two) = (folder.path().join("a.key"), folder.path().join("b.key"));
        let public = own(&one, &[]).unwrap();
        let named = NamedKey { name: "b".into(), public: own(&two, &[]).unwrap() };
        assert_eq!(own(&one, std::slice::from_ref(&named)).unwrap(), public);
        assert_eq!(KeyFile::read(&one).unwrap().peers[0].public, named.public);
        assert!(own(&one, &[named]).unwrap_err().to_string().contains("already"));
        assert_eq!(own(&one, &[]).unwrap(), public);
    }

    #[test]
    fn a_peer_is_a_name_and_a_whole_key() {
        let key = secret_text(&[5; 32]);
        assert_eq!(format!("home={key}").parse::<NamedKey>().unwrap().public, PublicKey([5; 32]));
        for text in
            ["home", &*format!("={key}"), &*format!("a b={key}"), &*format!("a={}", &key[1..])]
        {
            assert!(text.parse::<NamedKey>().is_err(), "{text}");
        }
    }
}
