//! Key files. A key file has the keys of one end of a session, and the peers that this end
//! accepts. The ends are the splitter and the far end (our program in front of the server).
//!
//! ```toml
//! end = "splitter"          # or "far"; optional
//! private = "4GgU...="      # 32 bytes, base64
//! [[peer]]
//! name = "home"
//! public = "Rk2x...="
//! psk = "9hQe...="          # optional
//! ```

use std::fmt::{self, Write as _};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anabranch_tunnel::keys::{KeyPair, Psk, PublicKey};
use base64ct::{Base64, Encoding};
use serde::{Deserialize, Deserializer, de};

use anabranch_os::toml_keys::{self, Section, TomlError};

const KEYS: &[Section] = &[
    Section { path: "", keys: &["end", "private", "peer"] },
    Section { path: "peer", keys: &["name", "public", "psk"] },
];
const HEAD: &str = "# Keys for `anabranch merge` or `anabranch split`, made by `anabranch key`. \
                    Anyone who has this file can impersonate you.\n";

/// The end (far end or splitter) for which a key file was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyEnd {
    /// The far end (our program in front of the server), which reads the file with `anabranch
    /// merge --key`.
    Far,
    /// The splitter (our program on the user's machine), which reads the file with `anabranch
    /// split --key`.
    Splitter,
}

impl KeyEnd {
    /// Returns the name of this end (splitter or far end) in a key file.
    fn name(self) -> &'static str {
        match self {
            KeyEnd::Far => "far",
            KeyEnd::Splitter => "splitter",
        }
    }
}

/// Content of a key file: the keys of one end (splitter or far end), and the public keys of the
/// ends that it accepts.
#[derive(Clone)]
pub struct KeyFile {
    /// The end that should read this key file; `None` if the file names no end.
    pub end: Option<KeyEnd>,
    /// This end's own keys.
    pub own: KeyPair,
    /// The other ends that this end accepts. No public key occurs twice.
    pub peers: Vec<Peer>,
}

/// A peer in a key file: the other end of a session.
#[derive(Clone)]
pub struct Peer {
    /// Name of the peer, used only on this machine; the peer itself need not know it.
    pub name: String,
    /// The peer's public key.
    pub public: PublicKey,
    /// The secret that the two ends share; zeros if there is none.
    pub psk: Psk,
}

/// Reason why a key file cannot be used. Its message has one line, and contains no byte of a key.
#[derive(Debug)]
pub enum KeyFileError {
    /// The file cannot be read.
    Io(PathBuf, io::Error),
    /// The file cannot be written.
    Write(PathBuf, io::Error),
    /// The file's mode gives access to users other than its owner. The fields are the file and its
    /// mode. Exception: a file owned by root may be readable by its group.
    Open(PathBuf, u32),
    /// The content of the key file is invalid.
    Content(TomlError),
    /// The file is empty.
    Empty(PathBuf),
    /// The file is not a key file, but a wg-quick configuration of a WireGuard tunnel.
    WgQuick(PathBuf),
    /// A key file that was made for the other end of a session. The fields are the file's path,
    /// the end that should read it, and the name of the first peer in the file, if it has a peer.
    OtherHalf(PathBuf, KeyEnd, Option<String>),
    /// The public key of the named peer occurs twice in the file, or is our own. The fields are
    /// the file and the peer's name.
    Twice(PathBuf, String),
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyFileError::Io(path, error) if error.kind() == io::ErrorKind::NotFound => {
                let path = path.display();
                write!(f, "there is no key file '{path}': 'anabranch key {path}' makes one")
            }
            KeyFileError::Write(path, error)
                if error.kind() == io::ErrorKind::NotFound
                    && !path.parent().is_some_and(Path::is_dir) =>
            {
                let folder = path.parent().unwrap_or(path).display();
                write!(f, "there is no directory '{folder}': make it first")
            }
            KeyFileError::Io(path, error) | KeyFileError::Write(path, error) => {
                write!(f, "key file '{}': {error}", path.display())
            }
            KeyFileError::Open(path, mode) => {
                let path = path.display();
                write!(
                    f,
                    "key file '{path}' has mode {mode:04o}, so others can read it: chmod 600 {path}"
                )
            }
            KeyFileError::Content(error) => error.fmt(f),
            KeyFileError::Empty(path) => {
                let path = path.display();
                write!(
                    f,
                    "key file '{path}' is empty: remove it, then make one with 'anabranch key \
                     {path}'"
                )
            }
            KeyFileError::WgQuick(path) => write!(
                f,
                "'{}' is a wg-quick file, not a key file: 'anabranch key far.key home.key' makes \
                 two key files",
                path.display()
            ),
            KeyFileError::OtherHalf(path, end, here) => {
                let whose = match end {
                    KeyEnd::Far => "the far end ('anabranch merge')",
                    KeyEnd::Splitter => "the splitter ('anabranch split')",
                };
                let made =
                    here.as_ref().map_or_else(String::new, |name| format!(", made for '{name}'"));
                write!(
                    f,
                    "key file '{}' is for {whose}: give this program the other file of the \
                     pair{made}",
                    path.display()
                )
            }
            KeyFileError::Twice(path, name) => write!(
                f,
                "key file '{}': peer '{name}' has the same public key as another peer or as this \
                 far end: remove this peer, or correct its key",
                path.display()
            ),
        }
    }
}

impl std::error::Error for KeyFileError {}

#[derive(Deserialize)]
struct Content {
    end: Option<KeyEnd>,
    #[serde(deserialize_with = "key")]
    private: [u8; 32],
    #[serde(default)]
    peer: Vec<PeerContent>,
}

#[derive(Deserialize)]
struct PeerContent {
    name: String,
    #[serde(deserialize_with = "key")]
    public: [u8; 32],
    #[serde(default, deserialize_with = "key")]
    psk: [u8; 32],
}

fn key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 32], D::Error> {
    let text = String::deserialize(deserializer)?;
    bytes_of(&text).ok_or_else(|| de::Error::custom(NO_KEY))
}

const NO_KEY: &str = "not a key: a key has 44 characters of base64, for 32 bytes";

fn bytes_of(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let decoded = Base64::decode(text.trim(), &mut bytes).ok()?.len();
    (decoded == bytes.len()).then_some(bytes)
}

/// Returns a secret or public key in the form that files and command lines use: 44 characters of
/// base64.
#[must_use]
pub fn secret_text(bytes: &[u8; 32]) -> String {
    Base64::encode_string(bytes)
}

impl KeyFile {
    /// Returns the content of a key file with the key pair `own` and no peers.
    #[must_use]
    pub fn of(own: KeyPair) -> KeyFile {
        KeyFile { end: None, own, peers: Vec::new() }
    }

    /// Reads the key file at `path`. If the file names an end, it must be `end`.
    ///
    /// # Errors
    /// The errors of [`KeyFile::read`], or the file was made for the other end.
    pub fn read_for(end: KeyEnd, path: &Path) -> Result<KeyFile, KeyFileError> {
        let file = KeyFile::read(path)?;
        match file.end.filter(|&other| other != end) {
            Some(other) => {
                let here = file.peers.first().map(|peer| peer.name.clone());
                Err(KeyFileError::OtherHalf(path.to_owned(), other, here))
            }
            None => Ok(file),
        }
    }

    /// Reads the key file at `path`.
    ///
    /// # Errors
    /// The file does not exist, its mode gives access to others ([`KeyFileError::Open`]), or its
    /// content is invalid.
    pub fn read(path: &Path) -> Result<KeyFile, KeyFileError> {
        let io = |error| KeyFileError::Io(path.to_owned(), error);
        let about = fs::metadata(path).map_err(io)?;
        let text = fs::read_to_string(path).map_err(io)?;
        // This is checked before the file's mode, because a wg-quick file is never a key file,
        // regardless of its mode.
        if toml_keys::is_wg_quick(&text) {
            return Err(KeyFileError::WgQuick(path.to_owned()));
        }
        let mode = about.permissions().mode() & 0o7777;
        // Services may read a file of root through the file's group.
        let others = if about.uid() == 0 { 0o037 } else { 0o077 };
        if mode & others != 0 {
            return Err(KeyFileError::Open(path.to_owned(), mode));
        }
        if text.trim().is_empty() {
            return Err(KeyFileError::Empty(path.to_owned()));
        }
        let name = path.display().to_string();
        let content: Content =
            toml_keys::read(&text, &name, KEYS).map_err(KeyFileError::Content)?;
        let peers = content.peer.into_iter().map(|peer| Peer {
            name: peer.name,
            public: PublicKey(peer.public),
            psk: peer.psk,
        });
        let end = content.end;
        let file = KeyFile { end, own: KeyPair::of(content.private), peers: peers.collect() };
        match file.repeated() {
            Some(peer) => Err(KeyFileError::Twice(path.to_owned(), peer.name.clone())),
            None => Ok(file),
        }
    }

    /// Returns a peer whose public key equals our own or another peer's; `None` if there is none.
    fn repeated(&self) -> Option<&Peer> {
        let before = |place: usize| self.peers[..place].iter().map(|peer| peer.public);
        let twice = |(place, peer): &(usize, &Peer)| {
            before(*place).chain([self.own.public]).any(|key| key == peer.public)
        };
        self.peers.iter().enumerate().find(twice).map(|(_, peer)| peer)
    }

    /// Parses a public key in the form that `anabranch key` prints; `None` if `text` is not a key.
    #[must_use]
    pub fn public_of(text: &str) -> Option<PublicKey> {
        bytes_of(text).map(PublicKey)
    }

    /// Returns the text of the key file (TOML), including the secret keys.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        let private = secret_text(self.own.secret());
        let public = secret_text(&self.own.public.0);
        let end = self.end.map(|end| format!("end = \"{}\"\n", end.name())).unwrap_or_default();
        let _ = write!(text, "{end}# public: {public}\nprivate = \"{private}\"\n");
        for Peer { name, public, psk } in &self.peers {
            let public = secret_text(&public.0);
            let _ = write!(text, "\n[[peer]]\nname = \"{name}\"\npublic = \"{public}\"\n");
            if *psk != [0; 32] {
                let _ = writeln!(text, "psk = \"{}\"", secret_text(psk));
            }
        }
        text
    }

    /// Writes a new file that only its owner may read.
    ///
    /// # Errors
    /// The file exists already, or cannot be written.
    pub fn create(&self, path: &Path) -> Result<(), KeyFileError> {
        self.write(path).map_err(|error| KeyFileError::Write(path.to_owned(), error))
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        private_file(path)?.write_all(self.text().as_bytes())
    }

    /// Replaces the file at `path` atomically.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn replace(&self, path: &Path) -> Result<(), KeyFileError> {
        let temporary = path.with_extension(format!("{}.new", std::process::id()));
        // The user does not know the temporary file.
        self.write(&temporary)
            .and_then(|()| fs::rename(&temporary, path))
            .map_err(|error| KeyFileError::Write(path.to_owned(), error))
    }
}

/// Creates and opens a file that only its owner may read.
fn private_file(path: &Path) -> io::Result<fs::File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed::stream;

    use super::*;

    fn pair(entity: u64) -> KeyPair {
        KeyPair::generate(&mut stream(1, entity, "keys"))
    }

    fn written(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("far.key");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    fn refused(text: &str, mode: u32) -> String {
        let (_folder, path) = written(text, mode);
        KeyFile::read(&path).err().unwrap().to_string()
    }

    #[test]
    fn a_file_of_an_earlier_program_is_read_for_either_end() {
        let text = include_str!("../../../../tests/formats/0e0b824b/far.key");
        let (_folder, path) = written(text, 0o600);
        for end in [KeyEnd::Far, KeyEnd::Splitter] {
            let file = KeyFile::read_for(end, &path).unwrap();
            assert!(text.contains(&format!("# public: {}\n", secret_text(&file.own.public.0))));
            let names: Vec<&str> = file.peers.iter().map(|peer| &peer.name[..]).collect();
            assert_eq!((file.end, names), (None, vec!["home", "laptop"]));
            assert_eq!([file.peers[0].psk, file.peers[1].psk], [[0; 32], [7; 32]]);
        }
    }

    #[test]
    fn a_missing_folder_is_not_called_a_missing_key_file() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("gone").join("a.key");
        let message = KeyFile::of(pair(1)).create(&path).unwrap_err().to_string();
        let gone = folder.path().join("gone");
        assert_eq!(message, format!("there is no directory '{}': make it first", gone.display()));
        assert_eq!(KeyFile::of(pair(1)).replace(&path).unwrap_err().to_string(), message);
        // A file cannot replace a folder. The error must not name the temporary file.
        let taken = KeyFile::of(pair(1)).replace(folder.path()).unwrap_err().to_string();
        assert!(taken.starts_with(&format!("key file '{}': ", folder.path().display())), "{taken}");
        let read = KeyFile::read(&path).err().unwrap().to_string();
        assert!(read.starts_with("there is no key file"), "{read}");
        let absent = io::Error::from(io::ErrorKind::NotFound);
        let message = KeyFileError::Write("/proc/far.key".into(), absent).to_string();
        assert!(
            message.starts_with("key file '/proc/far.key': "),
            "the directory exists: {message}"
        );
    }

    #[test]
    fn what_is_written_is_read_and_only_by_its_owner() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("a.key");
        let mut file = KeyFile::of(pair(1));
        file.create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(file.create(&path), Err(KeyFileError::Write(..))), "it is there");
        for (name, psk) in [("home", [0; 32]), ("laptop", [7; 32])] {
            file.peers.push(Peer { name: name.into(), public: pair(psk[0].into()).public, psk });
        }
        file.replace(&path).unwrap();
        let read = KeyFile::read(&path).unwrap();
        assert_eq!(read.own.public, file.own.public);
        let both = read.peers.iter().zip(&file.peers);
        assert!(both.clone().count() == 2);
        for (one, other) in both {
            assert_eq!((&one.name, one.public), (&other.name, other.public));
            assert_eq!(one.psk, other.psk);
        }
    }

    #[test]
    fn a_file_that_is_not_as_it_must_be_is_refused_in_a_line_without_its_secrets() {
        let good = KeyFile::of(pair(1)).text();
        assert!(refused(&good, 0o644).contains("has mode 0644"));
        let secret = secret_text(pair(1).secret());
        for (text, words) in [
            (good.replace(&secret, &secret[..40]), "44 characters of base64"),
            (good.replace("private", "privat"), "did you mean `private`?"),
            (format!("{good}[[peer]]\nname = \"a\"\n"), "`public` is missing in [peer]"),
            ("x".to_owned(), ":1: "),
        ] {
            let message = refused(&text, 0o600);
            assert!(message.contains(words) && !message.contains('\n'), "{message}");
            assert!(!message.contains(&secret[..30]), "{message}");
        }
        let own = secret_text(&pair(1).public.0);
        let twice = format!("{good}[[peer]]\nname = \"me\"\npublic = \"{own}\"\n");
        assert!(refused(&twice, 0o600).contains("peer 'me' has the same public key as"));
        assert!(
            refused("\n", 0o600)
                .contains("is empty: remove it, then make one with 'anabranch key ")
        );
        let tunnel = refused("[Interface]\nPrivateKey = x\n", 0o600);
        assert!(tunnel.contains("is a wg-quick file, not a key file"), "{tunnel}");
        let open = refused("[Interface]\nPrivateKey = x\n", 0o644);
        assert_eq!(open.split("' is ").last(), tunnel.split("' is ").last(), "whatever its mode");
        let missing = KeyFile::read(Path::new("/nonexistent/x.key")).err().unwrap().to_string();
        assert!(missing.contains("'anabranch key /nonexistent/x.key' makes one"), "{missing}");
    }

    #[test]
    fn the_other_ends_half_of_a_pair_is_refused_by_name() {
        let mut file = KeyFile { end: Some(KeyEnd::Far), ..KeyFile::of(pair(1)) };
        file.peers.push(Peer { name: "home".into(), public: pair(2).public, psk: [0; 32] });
        let (_folder, path) = written(&file.text(), 0o600);
        assert!(KeyFile::read_for(KeyEnd::Far, &path).is_ok());
        let message = KeyFile::read_for(KeyEnd::Splitter, &path).err().unwrap().to_string();
        let wanted = "is for the far end ('anabranch merge'): give this program the other file of \
                      the pair, made for 'home'";
        assert!(message.ends_with(wanted), "{message}");
        let (_folder, path) = written(&KeyFile::of(pair(1)).text(), 0o600);
        assert!(KeyFile::read_for(KeyEnd::Splitter, &path).is_ok(), "a file that names no end");
    }
}
