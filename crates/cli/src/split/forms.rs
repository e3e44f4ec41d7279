//! Forms of values in a TOML file. Values have the same forms as in options, or are lists and
//! tables.

use std::fmt::{self, Display};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use anabranch_os::target::Target;
use anabranch_os::toml_keys::in_plain_words;
use anabranch_splitter::paths::{MAX_CIRCUITS, MAX_PORTS, PathSpec, SpecError, StreamKind};
use anabranch_splitter::socks::{Login, Password, Proxy, ProxyError};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::uplinks::PathChoice;
use super::values::{self, Mark};
use crate::status::run_name;

/// Parses a text or a number in the same way as the value of the option on the command line: with
/// the `FromStr` of `T`.
pub(crate) fn text<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let text = Scalar::deserialize(deserializer)?.text();
    text.parse().map(Some).map_err(D::Error::custom)
}

/// Parses an address with a port.
pub(crate) fn address<'de, D>(deserializer: D) -> Result<Option<SocketAddr>, D::Error>
where
    D: Deserializer<'de>,
{
    let text = Scalar::deserialize(deserializer)?.text();
    values::address(&text).map(Some).map_err(D::Error::custom)
}

/// Parses the name of a running program (`--name`).
pub(crate) fn name<'de, D>(deserializer: D) -> Result<Option<String>, D::Error>
where
    D: Deserializer<'de>,
{
    let text = Scalar::deserialize(deserializer)?.text();
    run_name(&text).map(Some).map_err(|why| D::Error::custom(format!("'{text}': {why}")))
}

/// A value where a text is expected. A number, as in `every = 100` without a unit, is converted to
/// text. The option's own parser then reports the valid forms.
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
    /// A single text.
    One(String),
    /// A list of any number of texts.
    Many(Vec<String>),
}

#[cfg(feature = "onion")]
impl OneOrMany {
    /// Returns the single text or all texts of the list.
    pub(crate) fn texts(self) -> Vec<String> {
        match self {
            OneOrMany::One(text) => vec![text],
            OneOrMany::Many(texts) => texts,
        }
    }
}

/// Parses a firewall mark: a TOML number, such as `0x1f`, or the same number as text.
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

/// Parses a single value of a repeatable option, or a list of such values.
pub(crate) fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let texts = Scalars::deserialize(deserializer)?.texts();
    texts.iter().map(|text| text.parse().map_err(|error| refused::<D>(text, &error))).collect()
}

/// Parses values as [`list`] does. Each text may contain several values with commas between them,
/// as on the command line.
pub(crate) fn commas<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let texts = Scalars::deserialize(deserializer)?.texts();
    let parts = texts.iter().flat_map(|text| text.split(',')).map(str::trim);
    parts.map(|text| text.parse().map_err(|error| refused::<D>(text, &error))).collect()
}

/// Parses the values of an optional list as [`commas`] does.
pub(crate) fn some_commas<'de, D, T>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    commas(deserializer).map(Some)
}

/// Returns the error for the invalid value `text`. Adds `text` to the parser's message if the
/// message does not contain it.
fn refused<'de, D: Deserializer<'de>>(text: &str, error: &impl Display) -> D::Error {
    let message = in_plain_words(&error.to_string());
    D::Error::custom(match message.contains(text) {
        true => message,
        false => format!("'{text}': {message}"),
    })
}

/// A text or number, or a list of texts and numbers.
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

/// Parses the value of the key `path`: `[[path]]` tables, or texts as in the option `--path`.
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

/// A `[[path]]` table, or a text in a list of paths. Because of this newtype, an error has the
/// line of this table, and not the line of the first table.
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
    #[serde(default, deserialize_with = "ports")]
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
    #[serde(default, deserialize_with = "circuits")]
    onion: Option<u8>,
}

/// Parses the number of source ports of a path.
fn ports<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    deserializer.deserialize_i64(Count { most: MAX_PORTS })
}

/// Parses the number of circuits of a path.
fn circuits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u8>, D::Error> {
    deserializer.deserialize_i64(Count { most: MAX_CIRCUITS })
}

/// Parser of a whole number from 1 to `most`, whose errors name this range.
struct Count<N> {
    most: N,
}

impl<N: TryFrom<i64> + PartialOrd + Display> Visitor<'_> for Count<N> {
    type Value = Option<N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 1 to {}", self.most)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Option<N>, E> {
        let count = N::try_from(number).ok().filter(|count| number > 0 && *count <= self.most);
        let refusal =
            || E::custom(format!("{number}: write a whole number from 1 to {}", self.most));
        count.map(Some).ok_or_else(refusal)
    }
}

impl PathFields {
    /// Returns the kind of TCP connection that carries the path's packets; `None` if the path
    /// sends datagrams by UDP.
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
                    "path '{}' has several kinds of transport (tcp, socks5-tcp, http, ssh, tls, \
                     onion): keep one of them",
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
                // The text is parsed like the option's value. The name in it is not used.
                let spec: PathSpec =
                    format!("x={word}:{value}").parse().map_err(|error| format!("{error}"))?;
                Ok(spec.stream)
            }
        }
    }

    /// Returns the interface, source address and source ports of the path. If `proxied`, they
    /// belong to the section from this machine to a proxy or another first hop, such as an ssh
    /// server.
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

    /// Returns the SOCKS5 proxy that relays the path's UDP datagrams, if any.
    fn proxy(&self) -> Result<Option<Proxy>, String> {
        let is_led = self.socks5_tcp.is_some() || self.http.is_some();
        let Some(at) = &self.socks5 else {
            let stray = self.user.is_some() || self.password()?.is_some();
            return match stray && !is_led {
                true => {
                    Err("'user' and 'password' belong to a path with 'socks5', 'socks5-tcp' or \
                             'http': add one of these three, or remove 'user' and 'password'"
                        .into())
                }
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

    /// Returns the proxy at the address `at`, with the user and password of the table.
    fn proxy_at(&self, at: &str) -> Result<Proxy, String> {
        let login = match (&self.user, self.password()?) {
            (None, Some(_)) => return Err("there is a password, but no 'user': add 'user'".into()),
            (None, None) => None,
            (Some(user), password) => {
                let password = password.unwrap_or(Password::Environment);
                Some(Login::new(user, password).map_err(|error| error.to_string())?)
            }
        };
        // The address must not contain a user name, because the user name has its own key.
        let at: Target = at.parse().map_err(|_| ProxyError::Form.to_string())?;
        Ok(Proxy { at, login })
    }
}

/// A text, such as a password, that error messages never repeat.
#[derive(Deserialize)]
#[serde(untagged, expecting = "the password is not a text: put it in quotes")]
enum Hidden {
    Text(String),
}
