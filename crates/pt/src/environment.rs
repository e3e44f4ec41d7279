//! What a transport is told by its environment.

use std::net::SocketAddr;

use crate::args::{Args, split};
use crate::line::{Line, is_name};

const VERSION: &str = "1";

/// What a transport is started for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The folder that it may write to.
    pub state: String,
    /// Whether it ends when its standard input does.
    pub ends_with_input: bool,
    /// At a client, or at a bridge.
    pub side: Side,
}

/// Where a transport is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// At a client.
    Client(Client),
    /// At a bridge.
    Server(Server),
}

/// At a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// The transports that are wanted.
    pub transports: Vec<String>,
    /// The proxy by which it is to speak to bridges, as a URI.
    pub proxy: Option<String>,
}

/// At a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The transports that are wanted.
    pub methods: Vec<ServerMethod>,
    /// The relay's port.
    pub relay: Option<SocketAddr>,
    /// Its Extended ORPort, and the file with the cookie for it.
    pub extended: Option<(SocketAddr, String)>,
}

/// A transport at a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerMethod {
    /// Its name.
    pub name: String,
    /// Where it is to listen; `None` leaves it to the transport.
    pub address: Option<SocketAddr>,
    /// What the operator has set.
    pub options: Args,
}

/// Why it makes no sense, as the line that its manager is to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentError(pub Line);

impl Environment {
    /// Reads the variables; `get` gives the value of one.
    ///
    /// # Errors
    /// [`EnvironmentError`]
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Environment, EnvironmentError> {
        let needed = |name: &str| {
            let value = get(name).filter(|value| !value.is_empty());
            value.ok_or_else(|| wrong(format!("{name} is not set")))
        };
        let versions = needed("TOR_PT_MANAGED_TRANSPORT_VER")?;
        if !versions.split(',').any(|version| version == VERSION) {
            return Err(EnvironmentError(Line::VersionError("no-version".to_owned())));
        }
        let state = needed("TOR_PT_STATE_LOCATION")?;
        let ends_with_input = get("TOR_PT_EXIT_ON_STDIN_CLOSE").as_deref() == Some("1");
        let named = ["TOR_PT_CLIENT_TRANSPORTS", "TOR_PT_SERVER_TRANSPORTS"].map(&get);
        let side = match named {
            [Some(_), Some(_)] => {
                return Err(wrong("it is told to be at a client and at a bridge"));
            }
            [None, None] => return Err(wrong("no transports are named")),
            [Some(names), None] => Side::Client(Client {
                transports: transports(&names)?,
                proxy: get("TOR_PT_PROXY").filter(|proxy| !proxy.is_empty()),
            }),
            [None, Some(names)] => Side::Server(server(&get, &transports(&names)?)?),
        };
        Ok(Environment { state, ends_with_input, side })
    }
}

fn wrong(why: impl Into<String>) -> EnvironmentError {
    EnvironmentError(Line::EnvError(why.into()))
}

fn transports(names: &str) -> Result<Vec<String>, EnvironmentError> {
    let checked = |name: &str| match is_name(name) {
        true => Ok(name.to_owned()),
        false => Err(wrong(format!("'{name}' names no transport"))),
    };
    names.split(',').map(checked).collect()
}

fn server(
    get: &impl Fn(&str) -> Option<String>,
    names: &[String],
) -> Result<Server, EnvironmentError> {
    let address = |name: &str| {
        let value = get(name).filter(|value| !value.is_empty());
        let read = |value: String| {
            value.parse::<SocketAddr>().map_err(|_| wrong(format!("{name} is no address")))
        };
        value.map(read).transpose()
    };
    let bound = get("TOR_PT_SERVER_BINDADDR").unwrap_or_default();
    let options = get("TOR_PT_SERVER_TRANSPORT_OPTIONS").unwrap_or_default();
    let method = |name: &String| {
        let address = bound.split(',').find_map(|part| part.strip_prefix(&format!("{name}-")));
        let read = |text: &str| {
            text.parse().map_err(|_| wrong(format!("TOR_PT_SERVER_BINDADDR: '{text}'")))
        };
        let options = options_of(name, &options)?;
        Ok(ServerMethod { name: name.clone(), address: address.map(read).transpose()?, options })
    };
    let methods = names.iter().map(method).collect::<Result<_, EnvironmentError>>()?;
    let relay = address("TOR_PT_ORPORT")?;
    let extended = address("TOR_PT_EXTENDED_SERVER_PORT")?;
    let cookie = get("TOR_PT_AUTH_COOKIE_FILE").filter(|file| !file.is_empty());
    if relay.is_none() && extended.is_none() {
        return Err(wrong("neither TOR_PT_ORPORT nor TOR_PT_EXTENDED_SERVER_PORT is set"));
    }
    let extended = match (extended, cookie) {
        (Some(extended), Some(cookie)) => Some((extended, cookie)),
        (Some(_), None) if relay.is_none() => {
            return Err(wrong(
                "TOR_PT_EXTENDED_SERVER_PORT is set without TOR_PT_AUTH_COOKIE_FILE",
            ));
        }
        _ => None,
    };
    Ok(Server { methods, relay, extended })
}

/// The options of one transport: `name:key=value;name:key=value`, `:` and `;` escaped, too.
fn options_of(name: &str, all: &str) -> Result<Args, EnvironmentError> {
    let prefix = format!("{name}:");
    let own: Vec<&str> = split(all, ';').filter_map(|part| part.strip_prefix(&prefix)).collect();
    Args::parse(&own.join(";"), ';')
        .map_err(|error| wrong(format!("TOR_PT_SERVER_TRANSPORT_OPTIONS: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Environment, EnvironmentError> {
        let usual = [("TOR_PT_MANAGED_TRANSPORT_VER", "1,2"), ("TOR_PT_STATE_LOCATION", "/s")];
        let of = |name: &str| {
            let found = pairs.iter().chain(&usual).find(|(one, _)| *one == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Environment::read(of)
    }

    #[test]
    fn a_client_is_told_its_transports_and_its_proxy() {
        let client = read(&[
            ("TOR_PT_CLIENT_TRANSPORTS", "a,b"),
            ("TOR_PT_PROXY", "socks5://127.0.0.1:1"),
            ("TOR_PT_EXIT_ON_STDIN_CLOSE", "1"),
        ])
        .unwrap();
        assert!(client.ends_with_input && client.state == "/s");
        let Side::Client(side) = client.side else { panic!("it is at a client") };
        assert_eq!((side.transports.len(), side.proxy.is_some()), (2, true));
    }

    #[test]
    fn a_bridge_is_told_where_to_listen_what_was_set_and_where_its_relay_is() {
        let server = read(&[
            ("TOR_PT_SERVER_TRANSPORTS", "a,b"),
            ("TOR_PT_SERVER_BINDADDR", "a-[::]:443,b-127.0.0.1:80"),
            ("TOR_PT_SERVER_TRANSPORT_OPTIONS", "b:k=1;a:k=x\\;y;a:l=2"),
            ("TOR_PT_ORPORT", "127.0.0.1:9001"),
            ("TOR_PT_EXTENDED_SERVER_PORT", "127.0.0.1:9002"),
            ("TOR_PT_AUTH_COOKIE_FILE", "/c"),
        ]);
        let Side::Server(server) = server.unwrap().side else { panic!("it is at a bridge") };
        assert_eq!(server.methods[0].options.get("k"), Some("x;y"));
        assert_eq!(server.methods[0].options.get("l"), Some("2"));
        assert_eq!(server.methods[1].options.get("k"), Some("1"));
        assert_eq!(server.methods[1].address, "127.0.0.1:80".parse().ok());
        assert!(server.relay.is_some() && server.extended.is_some());
    }

    #[test]
    fn what_makes_no_sense_is_the_line_that_its_manager_reads() {
        let line = |pairs: &[(&str, &str)]| read(pairs).unwrap_err().0.to_string();
        assert_eq!(line(&[("TOR_PT_MANAGED_TRANSPORT_VER", "2")]), "VERSION-ERROR no-version");
        assert!(line(&[("TOR_PT_STATE_LOCATION", "")]).contains("TOR_PT_STATE_LOCATION"));
        assert!(line(&[]).starts_with("ENV-ERROR no transports"));
        let both = [("TOR_PT_CLIENT_TRANSPORTS", "a"), ("TOR_PT_SERVER_TRANSPORTS", "a")];
        assert!(line(&both).contains("at a client and at a bridge"));
        assert!(line(&[("TOR_PT_CLIENT_TRANSPORTS", "a b")]).contains("'a b'"));
        assert!(line(&[("TOR_PT_SERVER_TRANSPORTS", "a")]).contains("neither"));
        let server = |name, value| {
            line(&[
                ("TOR_PT_SERVER_TRANSPORTS", "a"),
                ("TOR_PT_ORPORT", "127.0.0.1:1"),
                (name, value),
            ])
        };
        assert!(server("TOR_PT_SERVER_BINDADDR", "a-nowhere").contains("nowhere"));
        assert!(server("TOR_PT_SERVER_TRANSPORT_OPTIONS", "a:k").contains("KEY=VALUE"));
        assert!(
            line(&[("TOR_PT_SERVER_TRANSPORTS", "a"), ("TOR_PT_ORPORT", "x")]).contains("ORPORT")
        );
        let alone =
            [("TOR_PT_SERVER_TRANSPORTS", "a"), ("TOR_PT_EXTENDED_SERVER_PORT", "127.0.0.1:1")];
        assert!(line(&alone).contains("COOKIE"));
    }
}
