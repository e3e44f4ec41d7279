//! The TOML file.

use std::fmt::{self, Display};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anabranch_drive::paths::{PathSpec, SpecError};
use anabranch_drive::socks::{Login, Password, Proxy, ProxyError};
use anabranch_drive::steer::PortRange;
use anabranch_drive::target::Target;
use anabranch_drive::toml_keys::{self, Section};
use serde::de::{Error, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use super::options::Options;
use super::uplinks::PathChoice;
use super::values::{self, Mark};
use crate::failure::Failure;

/// The keys of the file: the flags' names, and those of a path.
const KEYS: &[Section] = &[
    Section {
        path: "",
        keys: &[
            "listen",
            "to",
            "tun",
            "route",
            "netns",
            "udp",
            "dns",
            "protocol",
            "idle",
            "max-sessions",
            "path",
            "same-egress",
            "fwmark",
            "schedule",
            "every",
            "handshake",
            "scheduled",
            "quic-tuples",
            "in-order",
            "seed",
            "key",
            "behind",
            "pad",
            "wg",
            "write",
            "overwrite",
            "peer",
            "json",
            "quiet",
            "verbose",
            "metrics",
            "trace",
            "pcap",
            "replace",
        ],
    },
    Section {
        path: "path",
        keys: &[
            "name",
            "interface",
            "wg",
            "address",
            "ports",
            "socks5",
            "user",
            "password",
            "password-file",
        ],
    },
];

/// Reads the settings in the file at `path`.
///
/// # Errors
/// It cannot be read, is no TOML, or has an unknown key or a value that does not suit:
/// with file and line.
pub(crate) fn read(path: &Path) -> Result<Options, Failure> {
    let name = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::misuse(format!("cannot read '{name}': {error}")))?;
    toml_keys::read(&text, &name.to_string(), KEYS).map_err(|error| {
        if is_wg_quick(&text) {
            Failure::misuse(format!("'{name}' looks like a wg-quick file: write --wg {name}"))
        } else {
            Failure::misuse(error)
        }
    })
}

/// wg-quick's sections begin so; TOML files of ours have none of that name.
fn is_wg_quick(text: &str) -> bool {
    text.lines().any(|line| line.trim().eq_ignore_ascii_case("[interface]"))
}

/// A value whose text has the form that its flag has.
pub(crate) fn text<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let text = Scalar::deserialize(deserializer)?.text();
    text.parse().map(Some).map_err(D::Error::custom)
}

/// An address with a port.
pub(crate) fn address<'de, D>(deserializer: D) -> Result<Option<SocketAddr>, D::Error>
where
    D: Deserializer<'de>,
{
    let text = Scalar::deserialize(deserializer)?.text();
    values::address(&text).map(Some).map_err(D::Error::custom)
}

/// What stands where a text is wanted: numbers are taken for their text, whose own reader then
/// shows the right form (`every = 100`: milliseconds or packets?).
#[derive(Deserialize)]
#[serde(untagged, expecting = "no text: put the value in quotes, as the flag has it")]
enum Scalar {
    Text(String),
    Whole(i64),
    Real(f64),
}

impl Scalar {
    fn text(self) -> String {
        match self {
            Scalar::Text(text) => text,
            Scalar::Whole(number) => number.to_string(),
            Scalar::Real(number) => number.to_string(),
        }
    }
}

/// A text, or a list of texts.
#[derive(Deserialize)]
#[serde(untagged, expecting = "no text: put the value in quotes, or write a list of such")]
pub(crate) enum OneOrMany {
    /// One.
    One(String),
    /// Any number.
    Many(Vec<String>),
}

impl OneOrMany {
    /// All of them.
    pub(crate) fn texts(self) -> Vec<String> {
        match self {
            OneOrMany::One(text) => vec![text],
            OneOrMany::Many(texts) => texts,
        }
    }
}

/// Ports and ranges of ports: numbers, or texts such as `5000-5010`.
pub(super) fn ranges<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<PortRange>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "no port: write a number such as 5000 or a range such as '5000-5010'"
    )]
    enum Either {
        Number(u16),
        Text(String),
    }
    let texts = Vec::<Either>::deserialize(deserializer)?.into_iter().map(|either| match either {
        Either::Number(number) => number.to_string(),
        Either::Text(text) => text,
    });
    texts.map(|text| text.parse().map_err(D::Error::custom)).collect()
}

/// A mark: a number (TOML knows 0x... itself), or the text of one.
pub(super) fn mark<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Mark>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "no mark: write a number such as 51820 or 0xca6c")]
    enum Either {
        Number(u32),
        Text(String),
    }
    let text = match Either::deserialize(deserializer)? {
        Either::Number(number) => number.to_string(),
        Either::Text(text) => text,
    };
    text.parse().map(Some).map_err(D::Error::custom)
}

/// The `[[path]]` tables, or "auto".
pub(super) fn paths<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<PathChoice>, D::Error> {
    deserializer.deserialize_any(Paths)
}

struct Paths;

impl<'de> Visitor<'de> for Paths {
    type Value = Vec<PathChoice>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[[path]], in double brackets, before each path, or path = 'auto'")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<PathChoice>, E> {
        match text {
            "auto" => Ok(vec![PathChoice::Uplinks]),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut tables: A) -> Result<Vec<PathChoice>, A::Error> {
        let mut paths = Vec::new();
        while let Some(PathTable(path)) = tables.next_element()? {
            paths.push(PathChoice::One(path));
        }
        Ok(paths)
    }
}

/// One `[[path]]` table. It is checked inside a newtype because the reader puts the line of the
/// table to errors from there; to those from further out it puts the line of the first table.
#[derive(Deserialize)]
struct PathTable(#[serde(deserialize_with = "path")] PathSpec);

fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathSpec, D::Error> {
    let fields = PathFields::deserialize(deserializer)?;
    let proxy = fields.proxy().map_err(D::Error::custom)?;
    let way = fields.way(proxy.is_some()).map_err(D::Error::custom)?;
    Ok(match proxy {
        Some(proxy) => way.by(proxy),
        None => way,
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PathFields {
    name: String,
    interface: Option<String>,
    wg: Option<String>,
    address: Option<IpAddr>,
    ports: Option<u16>,
    socks5: Option<String>,
    user: Option<String>,
    password: Option<Hidden>,
    password_file: Option<PathBuf>,
}

impl PathFields {
    /// The way to the server, or to the proxy if the path is `proxied`.
    fn way(&self, proxied: bool) -> Result<PathSpec, SpecError> {
        let PathFields { name, interface, wg, address, ports, .. } = self;
        let ports = match ports {
            Some(_) if proxied => return Err(SpecError::ProxyPorts),
            None if proxied => Some(1),
            ports => *ports,
        };
        match wg {
            Some(_) if interface.is_some() => Err(SpecError::Both(name.clone())),
            Some(file) => PathSpec::through(name, file, *address, ports),
            None => PathSpec::new(name, interface.as_deref(), *address, ports),
        }
    }

    /// The proxy that the path leads through, if any.
    fn proxy(&self) -> Result<Option<Proxy>, String> {
        let password = match (&self.password, &self.password_file) {
            (Some(_), Some(_)) => {
                return Err("'password' and 'password-file' exclude each other".into());
            }
            (Some(Hidden::Text(text)), None) => Some(Password::Text(text.clone())),
            (None, Some(file)) => Some(Password::File(file.clone())),
            (None, None) => None,
        };
        let Some(at) = &self.socks5 else {
            let stray = self.user.is_some() || password.is_some();
            return match stray {
                true => Err("'user' and 'password' belong to a path with 'socks5'".into()),
                false => Ok(None),
            };
        };
        let login = match (&self.user, password) {
            (None, Some(_)) => return Err("there is a password, but no 'user'".into()),
            (None, None) => None,
            (Some(user), password) => {
                let password = password.unwrap_or(Password::Environment);
                Some(Login::new(user, password).map_err(|error| error.to_string())?)
            }
        };
        // Here a user name would be a second way to say the same, and has its own key.
        let at: Target = at.parse().map_err(|_| ProxyError::Form.to_string())?;
        Ok(Some(Proxy { at, login }))
    }
}

/// A text that no message repeats.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a password is a text: put it in quotes")]
enum Hidden {
    Text(String),
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;

    fn parse(text: &str) -> Result<Options, String> {
        toml_keys::read(text, "f.toml", KEYS).map_err(|error| error.to_string())
    }

    #[test]
    fn every_flag_of_the_options_is_a_key_and_no_other() {
        let command = Options::augment_args(clap::Command::new("split"));
        let flags = command.get_arguments().filter_map(clap::Arg::get_long);
        let mut flags: Vec<_> = flags.collect();
        let mut keys = KEYS[0].keys.to_vec();
        flags.sort_unstable();
        keys.sort_unstable();
        assert_eq!(flags, keys);
    }

    #[test]
    fn a_file_says_what_flags_say() {
        let options = parse(
            "listen = '127.0.0.1:51820'\nto = 'vpn.example.net:51820'\nevery = '~50p'\nidle = '3m'\n\
             fwmark = 0xca6c\nmax-sessions = 10\nscheduled = ['b']\n[[path]]\nname = 'a'\n\
             interface = 'wlan0'\n[[path]]\nname = 'b'\naddress = '192.0.2.7'\nports = 8\n\
             [[path]]\nname = 'c'\nwg = 'vpn.conf'\n",
        )
        .unwrap();
        let paths: Vec<_> = options.paths.iter().map(ToString::to_string).collect();
        assert_eq!(paths, ["a=if:wlan0", "b=addr:192.0.2.7,ports:8", "c=wg:vpn.conf"]);
        assert_eq!(options.fwmark, Some(Mark(51820)));
        assert_eq!(options.every, Some("~50p".parse().unwrap()));
        assert_eq!(options.scheduled, Some(vec!["b".to_owned()]));
    }

    #[test]
    fn a_path_through_a_proxy_has_its_password_in_the_file_or_in_another() {
        let proxied = |more: &str| {
            let text = format!("[[path]]\nname = 'p'\nsocks5 = '192.0.2.1:1080'\n{more}");
            match parse(&text)?.paths.remove(0) {
                PathChoice::One(path) => Ok(path),
                PathChoice::Uplinks => panic!("a path of its own"),
            }
        };
        let spec: PathSpec = proxied("user = 'anna'\npassword = 'a,b@c'\n").unwrap();
        assert_eq!(spec.to_string(), "p=socks5:anna:...@192.0.2.1:1080");
        let credentials = spec.proxy.unwrap().credentials().unwrap().unwrap();
        assert_eq!(credentials.password, "a,b@c");
        let shown = |more| proxied(more).map(|spec| spec.to_string());
        let file = shown("interface = 'wwan0'\nuser = 'anna'\npassword-file = 'p.txt'\n");
        assert_eq!(file.unwrap(), "p=if:wwan0,socks5:anna:@p.txt@192.0.2.1:1080");
        assert_eq!(shown("user = 'anna'").unwrap(), "p=socks5:anna@192.0.2.1:1080");
        for (more, words) in [
            ("password = 'secret'", "no 'user'"),
            ("user = 'a'\npassword = 987654", "put it in quotes"),
            ("user = 'a'\npassword = 'secret'\npassword-file = 'f'", "exclude each other"),
            ("ports = 4", "'ports' does not go with a proxy"),
            ("user = ''", "1 to 255 bytes"),
        ] {
            let message: String = shown(more).unwrap_err();
            assert!(message.starts_with("f.toml:") && message.contains(words), "{message}");
            assert!(!message.contains("secret") && !message.contains("987654"), "{message}");
        }
        let stray = parse("[[path]]\nname = 'p'\nports = 1\nuser = 'anna'\n").unwrap_err();
        assert!(stray.contains("belong to a path with 'socks5'"), "{stray}");
    }

    #[test]
    fn flags_override_the_file_and_leave_the_rest_of_it() {
        let flags = Options::augment_args(clap::Command::new("split"));
        let flags = flags.get_matches_from(["split", "--every", "1s", "--path", "x=ports:2"]);
        let flags = Options::from_arg_matches(&flags).unwrap();
        let file = parse("every = '5p'\nseed = 7\njson = true\n[[path]]\nname = 'a'\nports = 1\n");
        let both = flags.over(file.unwrap());
        assert_eq!((both.every, both.seed), (Some("1s".parse().unwrap()), Some(7)));
        assert_eq!(both.paths, ["x=ports:2".parse().unwrap()]);
        assert!(both.json);
    }

    #[test]
    fn a_tunnel_and_all_uplinks_can_stand_in_a_file() {
        let text =
            "wg = 'home.conf'\nwrite = 'split.conf'\noverwrite = true\npeer = 2\npath = 'auto'\n";
        let options = parse(text).unwrap();
        assert_eq!(options.paths, [PathChoice::Uplinks]);
        assert_eq!(options.wg.as_deref(), Some(Path::new("home.conf")));
        assert!(options.overwrite && options.peer == Some("2".parse().unwrap()));
    }

    #[test]
    fn a_form_that_is_not_the_flags_is_shown_the_right_one() {
        let mistake = |text: &str| parse(text).unwrap_err();
        for (text, wanted) in [
            ("every = 100\n", "f.toml:1: '100' "),
            ("listen = 51820\n", "write ADDRESS:PORT, as 127.0.0.1:51820"),
            ("[path]\nname = 'a'\n", "[[path]], in double brackets"),
            ("path = 'all'\n", "path = 'auto'"),
            ("to = true\n", "`to`: no text: put the value in quotes"),
            ("scheduled = 'a'\n", "`scheduled` is a list: write scheduled = ['a']"),
        ] {
            let message = mistake(text);
            assert!(message.contains(wanted), "{message}");
        }
    }

    #[test]
    fn a_file_may_ask_for_an_interface() {
        let options = parse(
            "tun = 'any0'\nroute = true\nnetns = 'browse'\nudp = [5000, '6000-6010']\n\
             dns = ['192.0.2.53']\n",
        )
        .unwrap();
        let udp: Vec<_> = options.udp.iter().map(ToString::to_string).collect();
        assert_eq!((options.tun.as_deref(), options.route), (Some("any0"), true));
        assert_eq!((udp.join(" "), options.dns.len()), ("5000 6000-6010".into(), 1));
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        let mistake = |text: &str| parse(text).unwrap_err();
        let near = "f.toml:2: unknown key `evry`; did you mean `every`?";
        assert_eq!(mistake("to = 'a:1'\nevry = '1p'\n"), near);
        for (text, line) in [
            ("\nevery = '0p'\n", "f.toml:2: "),
            ("\nevery = 5\n", "f.toml:2: "),
            ("fwmark = -1\n", "f.toml:1: "),
            ("max-sessions = 0\n", "f.toml:1: "),
            ("[[path]]\nname = 'a'\nports = 1\n\n[[path]]\nname = 'b'\n", "f.toml:5: "),
            ("[[path]]\nname = 'a'\nports = 0\n", "f.toml:1: "),
            ("[[path]]\ninterface = 'a'\n", "f.toml:1: "),
            ("[[path]]\nname = 'a'\ninterface = 'b'\nwg = 'b.conf'\n", "f.toml:1: "),
            ("path = 'a'\n", "f.toml:1: "),
            ("tun = 'any0'\nudp = [5000, '7-5']\n", "f.toml:2: "),
        ] {
            let message = mistake(text);
            assert!(message.starts_with(line) && !message.contains('\n'), "{message}");
        }
    }
}
