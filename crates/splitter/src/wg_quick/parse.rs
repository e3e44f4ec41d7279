//! Parser of a wg-quick configuration file.

use std::fmt;
use std::ops::Range;

use anabranch_os::target::Target;
use anabranch_os::toml_keys;

use super::choice::PeerChoice;
use super::error::ConfError;
use super::keys::{Key, Kind};
use super::peer::Peer;

/// Maximum length of a word that an error message shows as an unknown key. The longest key has 22
/// letters, and a longer word could be a secret.
const LONGEST_WORD: usize = 24;

/// A parsed wg-quick file.
#[derive(Clone, PartialEq, Eq)]
pub struct WgQuick {
    pub(super) file: String,
    pub(super) lines: Vec<Line>,
    peers: Vec<Peer>,
}

/// One line with its line break, exactly as in the file.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) item: Item,
}

/// The meaning of a line. Sections have indices from 0; `[Interface]` and `[Peer]` are counted
/// together.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Item {
    /// A blank line or a comment.
    Nothing,
    Header {
        kind: Kind,
    },
    /// A setting. `value` is the range of its value in the line, without surrounding blanks and
    /// comment.
    Setting {
        kind: Kind,
        section: usize,
        key: Key,
        value: Range<usize>,
    },
}

impl WgQuick {
    /// Parses `text`, the content of `file`. A byte order mark at the beginning is removed: editors
    /// on Windows write it, and wg refuses it.
    ///
    /// # Errors
    /// The first line that wg-quick or wg would refuse, or that the splitter cannot interpret.
    pub fn parse(text: &str, file: &str) -> Result<WgQuick, ConfError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut reader = Reader { file, section: None, sections: 0, lines: Vec::new() };
        for line in text.split_inclusive('\n') {
            let item = reader.item(line)?;
            reader.lines.push(Line { text: line.to_owned(), item });
        }
        let lines = reader.lines;
        let mut parsed = WgQuick { file: file.to_owned(), lines, peers: Vec::new() };
        parsed.check_numbers()?;
        parsed.peers = parsed.read_peers()?;
        Ok(parsed)
    }

    /// Returns all peers, in the order of the file.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// Returns the peer whose server the splitter uses: the chosen peer or, without a choice, the
    /// only peer with an endpoint.
    ///
    /// # Errors
    /// There is no such peer, or several peers have an endpoint. The message lists the peers and
    /// names the option that chooses one.
    pub fn peer(&self, choice: Option<&PeerChoice>) -> Result<&Peer, ConfError> {
        let blame = |message| ConfError::new(&self.file, None, message);
        match choice {
            Some(choice) => choice.among(&self.peers),
            None => super::choice::only(&self.peers),
        }
        .map_err(blame)
    }

    /// Returns the port that the tunnel itself is bound to; `None` if the file sets no port, or
    /// sets it to 0.
    pub fn listen_port(&self) -> Option<u16> {
        self.interface("ListenPort")?.parse().ok().filter(|port| *port > 0)
    }

    /// Returns the interface's MTU; `None` if the file has none.
    pub fn mtu(&self) -> Option<u32> {
        self.interface("MTU")?.parse().ok()
    }

    /// Returns the firewall mark of the tunnel's own packets; `None` if the file sets no mark, or
    /// sets it to "off" or 0.
    pub fn fwmark(&self) -> Option<u32> {
        mark(self.interface("FwMark")?).ok().flatten()
    }

    /// Returns whether the file is for AmneziaWG: it has at least one of the additional keys (`Jc`,
    /// `S1`, `H1` and others).
    pub fn is_obfuscated(&self) -> bool {
        self.settings().any(|(_, _, key, _)| key.obfuscates)
    }

    /// Returns the maximum bytes of padding that AmneziaWG puts before a data packet (`S4`, or the
    /// end of its range); 0 if the file has no `S4`.
    pub fn padding(&self) -> u32 {
        let padding = self.interface("S4").map(|text| text.rsplit('-').next().unwrap_or(text));
        padding.and_then(|text| text.trim().parse::<u16>().ok()).map_or(0, u32::from)
    }

    /// Returns whether wg-quick makes this tunnel the default route, with rules that exempt only
    /// marked packets. This requires an allowed network that contains all addresses (`/0`), and a
    /// `Table` that is `auto` or missing.
    pub fn is_full_tunnel(&self) -> bool {
        let table = self.interface("Table").is_none_or(|table| table.eq_ignore_ascii_case("auto"));
        let all = |network: &str| network.trim().ends_with("/0");
        table && self.values("AllowedIPs").any(|networks| networks.split(',').any(all))
    }

    /// Returns the value of the setting `name` in `[Interface]`; `None` if the file does not have
    /// this setting.
    fn interface(&self, name: &str) -> Option<&str> {
        self.values(name).next()
    }

    /// Returns all values of the setting `name`, which exists in only one kind of section.
    fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        self.settings().filter(move |(_, _, key, _)| key.name == name).map(|(_, _, _, value)| value)
    }

    /// Returns each setting as (line from 1, section, key, value).
    fn settings(&self) -> impl Iterator<Item = (usize, usize, Key, &str)> {
        self.lines.iter().enumerate().filter_map(|(index, line)| match &line.item {
            Item::Setting { section, key, value, .. } => {
                Some((index + 1, *section, *key, &line.text[value.clone()]))
            }
            _ => None,
        })
    }

    fn check_numbers(&self) -> Result<(), ConfError> {
        for (line, _, key, value) in self.settings() {
            let good = match key.name {
                "ListenPort" => value.parse::<u16>().is_ok(),
                "MTU" => value.parse::<u32>().is_ok_and(|mtu| mtu > 0),
                "FwMark" => mark(value).is_ok(),
                "S4" => value.split('-').all(|part| part.trim().parse::<u16>().is_ok()),
                _ => true,
            };
            if !good {
                let message = format!("{}: '{value}' {}", key.name, wanted(key.name));
                return Err(ConfError::new(&self.file, Some(line), message));
            }
        }
        Ok(())
    }

    fn read_peers(&self) -> Result<Vec<Peer>, ConfError> {
        let headers = self.lines.iter().enumerate().filter_map(|(index, line)| match line.item {
            Item::Header { kind } => Some((index + 1, kind)),
            _ => None,
        });
        let peers = headers.enumerate().filter(|(_, (_, kind))| *kind == Kind::Peer);
        let peers = peers
            .enumerate()
            .map(|(index, (section, (line, _)))| self.read_peer(index + 1, line, section));
        peers.collect()
    }

    fn read_peer(&self, number: usize, line: usize, section: usize) -> Result<Peer, ConfError> {
        let of =
            |name| self.settings().find(move |(_, at, key, _)| *at == section && key.name == name);
        let public_key = of("PublicKey").map(|(_, _, _, value)| value.to_owned());
        let public_key = public_key.ok_or_else(|| {
            ConfError::new(&self.file, Some(line), "this peer has no PublicKey: add it")
        })?;
        let endpoint = of("Endpoint").map(|(line, _, _, value)| {
            endpoint(value).map_err(|message| ConfError::new(&self.file, Some(line), message))
        });
        Ok(Peer { number, public_key, endpoint: endpoint.transpose()?, line, section })
    }
}

impl fmt::Display for WgQuick {
    /// Writes the file as it was read, including its keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| f.write_str(&line.text))
    }
}

impl fmt::Debug for WgQuick {
    /// Writes the debug form without the file's text, which contains secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WgQuick").field("file", &self.file).field("peers", &self.peers).finish()
    }
}

/// A reader that parses a file line by line.
struct Reader<'a> {
    file: &'a str,
    /// The kind and the number of the section that contains the present line; `None` before the
    /// first section.
    section: Option<(Kind, usize)>,
    sections: usize,
    lines: Vec<Line>,
}

impl Reader<'_> {
    fn item(&mut self, line: &str) -> Result<Item, ConfError> {
        let meant = line.split_once('#').map_or(line, |(before, _)| before);
        let word = meant.trim();
        if word.is_empty() {
            return Ok(Item::Nothing);
        }
        if word.starts_with('[') {
            return self.header(word);
        }
        let Some((key, value)) = meant.split_once('=') else {
            return Err(self
                .error("this line is neither a [Section] nor KEY = VALUE: correct or remove it"));
        };
        let (kind, section) = self.section.ok_or_else(|| {
            self.error(
                "this setting is above the first [Section]: move it below [Interface] or [Peer]",
            )
        })?;
        let key = self.key(kind, key.trim())?;
        let value = self.value(key, value.trim(), meant)?;
        self.check_once(key, section)?;
        Ok(Item::Setting { kind, section, key, value })
    }

    fn header(&mut self, word: &str) -> Result<Item, ConfError> {
        let kind = Kind::of_header(word)
            .ok_or_else(|| self.error("unknown section: expected [Interface] or [Peer]"))?;
        let again = |line: &Line| line.item == Item::Header { kind: Kind::Interface };
        if kind == Kind::Interface && self.lines.iter().any(again) {
            return Err(self.error("a second [Interface]: a file has only one, so remove one"));
        }
        self.section = Some((kind, self.sections));
        self.sections += 1;
        Ok(Item::Header { kind })
    }

    fn key(&self, kind: Kind, word: &str) -> Result<Key, ConfError> {
        if let Some(key) = kind.key(word) {
            return Ok(key);
        }
        let telling = word.len() <= LONGEST_WORD && word.chars().all(|c| c.is_ascii_alphanumeric());
        if word.is_empty() || !telling {
            return Err(self
                .error("this line is neither a [Section] nor KEY = VALUE: correct or remove it"));
        }
        if kind.other().key(word).is_some() {
            let (right, wrong) = (kind.other().header(), kind.header());
            return Err(
                self.error(format!("`{word}` belongs to {right}, not to {wrong}: move it there"))
            );
        }
        let near = toml_keys::hint(word, kind.names());
        let known = || format!("; known: {}", kind.names().collect::<Vec<_>>().join(", "));
        let rest = if near.is_empty() { known() } else { near };
        Err(self.error(format!("unknown key `{word}` in {}{rest}", kind.header())))
    }

    /// Returns the range of `value` within `line`.
    fn value(&self, key: Key, value: &str, line: &str) -> Result<Range<usize>, ConfError> {
        // wg accepts an empty list of networks, and an empty hook runs nothing.
        if value.is_empty() && !key.repeats {
            return Err(
                self.error(format!("{} has no value: write one, or remove the line", key.name))
            );
        }
        let start = value.as_ptr() as usize - line.as_ptr() as usize;
        Ok(start..start + value.len())
    }

    /// Returns an error if a key that must be unique occurs twice in a section. wg would silently
    /// use the last value, but the user may have intended the earlier value.
    fn check_once(&self, key: Key, at: usize) -> Result<(), ConfError> {
        let same = |line: &Line| matches!(&line.item, Item::Setting { section, key: k, .. } if *section == at && *k == key);
        let first = if key.repeats { None } else { self.lines.iter().position(same) };
        match first {
            Some(index) => {
                let name = key.name;
                Err(self.error(format!(
                    "{name} is given twice: remove one; the first is in line {}",
                    index + 1
                )))
            }
            None => Ok(()),
        }
    }

    fn error(&self, message: impl Into<String>) -> ConfError {
        ConfError::new(self.file, Some(self.lines.len() + 1), message)
    }
}

/// Parses a firewall mark in wg's notation. Returns `None` for "off" and 0.
fn mark(text: &str) -> Result<Option<u32>, ()> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(None);
    }
    let number = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.map(|mark| Some(mark).filter(|mark| *mark > 0)).map_err(drop)
}

fn wanted(key: &str) -> &'static str {
    match key {
        "ListenPort" => "is not a port: write 0 to 65535",
        "S4" => "is neither a number of bytes nor a range of two numbers",
        "FwMark" => "is not a firewall mark: write a number, 0x and a hexadecimal one, or off",
        _ => "is not a whole number above 0",
    }
}

fn endpoint(text: &str) -> Result<Target, String> {
    let port = text.rsplit_once(':').map(|(_, port)| port);
    if let Some(port) = port.filter(|port| !port.parse::<u16>().is_ok_and(|port| port > 0)) {
        return Err(format!("Endpoint: '{port}' is not a port: write 1 to 65535"));
    }
    text.parse().map_err(|error| format!("Endpoint: {error}"))
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
