//! The forms that values have in a TOML file: those that flags have, and lists and tables.

use std::fmt::{self, Display};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use anabranch_os::target::Target;
use anabranch_os::toml_keys::in_plain_words;
use anabranch_splitter::paths::{PathSpec, SpecError, StreamKind};
use anabranch_splitter::socks::{Login, Password, Proxy, ProxyError};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::uplinks::PathChoice;
use super::values::{self, Mark};
use crate::status::run_name;

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

/// A run's name.
pub(crate) fn name<'de, D>(deserializer: D) -> Result<Option<String>, D::Error>
where
    D: Deserializer<'de>,
{
    let text = Scalar::deserialize(deserializer)?.text();
    run_name(&text).map(Some).map_err(|why| D::Error::custom(format!("'{text}': {why}")))
}

/// What stands where a text is wanted: numbers are taken for their text, whose own reader then
/// shows the right form (`every = 100`: milliseconds or packets?).
#[derive(Deserialize)]
#[serde(untagged, expecting = "it is not a text: put the value in quotes")]
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
#[serde(
    untagged,
    expecting = "it is not a text: put the value in quotes, or write a list of texts"
)]
#[cfg(feature = "onion")]
pub(crate) enum OneOrMany {
    /// One.
    One(String),
    /// Any number.
    Many(Vec<String>),
}

#[cfg(feature = "onion")]
impl OneOrMany {
    /// All of them.
    pub(crate) fn texts(self) -> Vec<String> {
        match self {
            OneOrMany::One(text) => vec![text],
            OneOrMany::Many(texts) => texts,
        }
    }
}

/// A mark: a number (TOML knows 0x... itself), or the text of one.
pub(super) fn mark<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Mark>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "it is not a firewall mark: write a number such as 51820 or 0xca6c"
    )]
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

/// A value of a flag that may repeat, or a list of such.
pub(crate) fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let texts = Scalars::deserialize(deserializer)?.texts();
    texts.iter().map(|text| text.parse().map_err(|error| refused::<D>(text, &error))).collect()
}

/// As [`list`]; each text may hold several values with commas between them, as the flag's does.
pub(crate) fn commas<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let texts = Scalars::deserialize(deserializer)?.texts();
    let parts = texts.iter().flat_map(|text| text.split(',')).map(str::trim);
    parts.map(|text| text.parse().map_err(|error| refused::<D>(text, &error))).collect()
}

/// As [`commas`], for a list that may be left out.
pub(crate) fn some_commas<'de, D, T>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    commas(deserializer).map(Some)
}

/// Names the text unless its reader's words do.
fn refused<'de, D: Deserializer<'de>>(text: &str, error: &impl Display) -> D::Error {
    let told = in_plain_words(&error.to_string());
    D::Error::custom(match told.contains(text) {
        true => told,
        false => format!("'{text}': {told}"),
    })
}

/// A scalar, or a list of scalars.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "it has the wrong form: put text in quotes, or write a list of texts"
)]
enum Scalars {
    One(Scalar),
    Many(Vec<Scalar>),
}

impl Scalars {
    fn texts(self) -> Vec<String> {
        match self {
            Scalars::One(one) => vec![one.text()],
            Scalars::Many(many) => many.into_iter().map(Scalar::text).collect(),
        }
    }
}

/// The `[[path]]` tables, or texts as the flag has them.
pub(super) fn paths<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<PathChoice>, D::Error> {
    deserializer.deserialize_any(Paths)
}

struct Paths;

impl<'de> Visitor<'de> for Paths {
    type Value = Vec<PathChoice>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a [[path]] table (in double brackets) for each path, or 'auto', or paths written as \
             in --path, such as 'wlan=if:wlan0'",
        )
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<PathChoice>, E> {
        text.parse().map(|path| vec![path]).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut tables: A) -> Result<Vec<PathChoice>, A::Error> {
        let mut paths = Vec::new();
        while let Some(PathItem(path)) = tables.next_element()? {
            paths.push(path);
        }
        Ok(paths)
    }
}

/// One `[[path]]` table, or one text of a list. It is checked inside a newtype because the reader
/// puts the line of the table to errors from there; to those from further out it puts the line of
/// the first table.
#[derive(Deserialize)]
struct PathItem(#[serde(deserialize_with = "path")] PathChoice);

fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathChoice, D::Error> {
    deserializer.deserialize_any(OnePath)
}

struct OnePath;

impl<'de> Visitor<'de> for OnePath {
    type Value = PathChoice;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path written as in --path, such as 'wlan=if:wlan0', or a [[path]] table")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<PathChoice, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<PathChoice, A::Error> {
        let fields = PathFields::deserialize(MapAccessDeserializer::new(table))?;
        let proxy = fields.proxy().map_err(A::Error::custom)?;
        let stream = fields.stream().map_err(A::Error::custom)?;
        let led = proxy.is_some() || stream.is_some();
        let way = fields.way(led).map_err(A::Error::custom)?;
        let way = PathSpec { stream, ..way };
        Ok(PathChoice::One(match proxy {
            Some(proxy) => way.by(proxy),
            None => way,
        }))
    }
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
    tcp: Option<String>,
    socks5_tcp: Option<String>,
    http: Option<String>,
    ssh: Option<String>,
    tls: Option<String>,
    onion: Option<u8>,
}

impl PathFields {
    /// The stream that the path is, if it is one.
    fn stream(&self) -> Result<Option<StreamKind>, String> {
        let kinds = [
            ("tcp", self.tcp.clone()),
            ("socks5-tcp", self.socks5_tcp.clone()),
            ("http", self.http.clone()),
            ("ssh", self.ssh.clone()),
            ("tls", self.tls.clone()),
            ("onion", self.onion.map(|count| count.to_string())),
        ];
        let given: Vec<_> =
            kinds.iter().filter_map(|(word, value)| Some((*word, value.as_ref()?))).collect();
        let &[(word, value)] = &given[..] else {
            return match given.len() {
                0 => Ok(None),
                _ => Err(format!(
                    "path '{}' has several kinds of transport (tcp, socks5-tcp, http, \
                                  ssh, onion): keep one of them",
                    self.name
                )),
            };
        };
        if self.socks5.is_some() || self.ports.is_some() {
            return Err(SpecError::StreamAnd(self.name.clone()).to_string());
        }
        let is_bound = self.interface.is_some() || self.wg.is_some() || self.address.is_some();
        if word == "ssh" && is_bound {
            return Err(SpecError::SshBound(self.name.clone()).to_string());
        }
        match word {
            "socks5-tcp" => Ok(Some(StreamKind::Socks5(self.proxy_at(value)?))),
            "http" => Ok(Some(StreamKind::Http(self.proxy_at(value)?))),
            _ => {
                // As the flag has it, whose name is not looked at here.
                let spec: PathSpec =
                    format!("x={word}:{value}").parse().map_err(|error| format!("{error}"))?;
                Ok(spec.stream)
            }
        }
    }

    /// The way to the server, or to the proxy or first hop if the path is `proxied`.
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

    /// The proxy that relays the path's datagrams, if any.
    fn proxy(&self) -> Result<Option<Proxy>, String> {
        let is_led = self.socks5_tcp.is_some() || self.http.is_some();
        let Some(at) = &self.socks5 else {
            let stray = self.user.is_some() || self.password()?.is_some();
            return match stray && !is_led {
                true => Err("'user' and 'password' belong to a path with 'socks5', 'socks5-tcp' \
                             or 'http'"
                    .into()),
                false => Ok(None),
            };
        };
        self.proxy_at(at).map(Some)
    }

    fn password(&self) -> Result<Option<Password>, String> {
        match (&self.password, &self.password_file) {
            (Some(_), Some(_)) => {
                Err("'password' and 'password-file' exclude each other: remove one".into())
            }
            (Some(Hidden::Text(text)), None) => Ok(Some(Password::Text(text.clone()))),
            (None, Some(file)) => Ok(Some(Password::File(file.clone()))),
            (None, None) => Ok(None),
        }
    }

    /// The proxy at this address, with the table's user and password.
    fn proxy_at(&self, at: &str) -> Result<Proxy, String> {
        let login = match (&self.user, self.password()?) {
            (None, Some(_)) => return Err("there is a password, but no 'user': add 'user'".into()),
            (None, None) => None,
            (Some(user), password) => {
                let password = password.unwrap_or(Password::Environment);
                Some(Login::new(user, password).map_err(|error| error.to_string())?)
            }
        };
        // Here a user name would be a second way to say the same, and has its own key.
        let at: Target = at.parse().map_err(|_| ProxyError::Form.to_string())?;
        Ok(Proxy { at, login })
    }
}

/// A text that no message repeats.
#[derive(Deserialize)]
#[serde(untagged, expecting = "the password is not a text: put it in quotes")]
enum Hidden {
    Text(String),
}
