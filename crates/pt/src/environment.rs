//! Environment variables that a pluggable transport receives from its manager, the program that
//! starts it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::args::{Args, split};
use crate::line::{Line, is_name};

const VERSION: &str = "1";

/// The settings that a pluggable transport receives in environment variables when it is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The directory for the transport's files.
    pub state: String,
    /// True if the transport exits when its standard input ends.
    pub ends_with_input: bool,
    /// Source addresses of the transport's own connections.
    pub outbound: Outbound,
    /// The side on which the transport runs (client or bridge), with that side's settings.
    pub side: Side,
}

/// Source addresses for a transport's own connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outbound {
    /// Source address of connections over IPv4; `None` lets the kernel choose.
    pub v4: Option<Ipv4Addr>,
    /// Source address of connections over IPv6; `None` lets the kernel choose.
    pub v6: Option<Ipv6Addr>,
}

impl Outbound {
    /// Returns the source address for a connection to `to`; `None` if the kernel chooses. For a
    /// loopback address, the kernel always chooses, as pt-spec requires.
    #[must_use]
    pub fn towards(&self, to: IpAddr) -> Option<IpAddr> {
        match to {
            _ if to.to_canonical().is_loopback() => None,
            IpAddr::V4(_) => self.v4.map(IpAddr::V4),
            IpAddr::V6(_) => self.v6.map(IpAddr::V6),
        }
    }
}

/// The role of a transport (at a client or at a bridge), with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// The transport runs at a client.
    Client(Client),
    /// The transport runs at a bridge.
    Server(Server),
}

/// Settings of a transport at a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Names of the requested transports.
    pub transports: Vec<String>,
    /// URI of the proxy that the transport has to use for connections to bridges; `None` for
    /// direct connections.
    pub proxy: Option<String>,
}

/// Settings of a transport at a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The requested transports.
    pub methods: Vec<ServerMethod>,
    /// Address of the relay's ORPort, where the transport sends its clients' data; `None` if the
    /// environment contains none.
    pub relay: Option<SocketAddr>,
    /// Address of the relay's Extended ORPort, and the path of its cookie file; `None` if the
    /// relay has no such port.
    pub extended: Option<(SocketAddr, String)>,
}

/// A transport that is to run at a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerMethod {
    /// Name of the transport.
    pub name: String,
    /// Listening address of the transport. If it is `None`, the transport chooses one.
    pub address: Option<SocketAddr>,
    /// The bridge operator's options for this transport.
    pub options: Args,
}

/// Error: the environment variables are invalid. Contains the line that the transport prints to
/// report this error to its manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentError(pub Line);

impl std::fmt::Display for EnvironmentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for EnvironmentError {}

impl Environment {
    /// Reads the settings from environment variables. `get` returns the value of a variable;
    /// `None` if the variable is not set.
    ///
    /// # Errors
    /// [`EnvironmentError`] if a variable is missing or invalid.
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
        let outbound = outbound(&get)?;
        let named = ["TOR_PT_CLIENT_TRANSPORTS", "TOR_PT_SERVER_TRANSPORTS"].map(&get);
        let side = match named {
            [Some(_), Some(_)] => {
                return Err(wrong(
                    "both TOR_PT_CLIENT_TRANSPORTS and TOR_PT_SERVER_TRANSPORTS are set",
                ));
            }
            [None, None] => {
                return Err(wrong(
                    "neither TOR_PT_CLIENT_TRANSPORTS nor TOR_PT_SERVER_TRANSPORTS is set",
                ));
            }
            [Some(names), None] => Side::Client(Client {
                transports: transports(&names)?,
                proxy: get("TOR_PT_PROXY").filter(|proxy| !proxy.is_empty()),
            }),
            [None, Some(names)] => Side::Server(server(&get, &transports(&names)?)?),
        };
        Ok(Environment { state, ends_with_input, outbound, side })
    }
}

fn wrong(why: impl Into<String>) -> EnvironmentError {
    EnvironmentError(Line::EnvError(why.into()))
}

fn outbound(get: &impl Fn(&str) -> Option<String>) -> Result<Outbound, EnvironmentError> {
    let value = |name: &str| get(name).filter(|value| !value.is_empty());
    let v4 = value("TOR_PT_OUTBOUND_BIND_ADDRESS_V4").map(|text| {
        let why =
            || wrong(format!("TOR_PT_OUTBOUND_BIND_ADDRESS_V4: '{text}' is not an IPv4 address"));
        text.parse().map_err(|_| why())
    });
    let v6 = value("TOR_PT_OUTBOUND_BIND_ADDRESS_V6").map(|text| {
        // IPv6 addresses should be in brackets, but some managers omit them.
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let why =
            || wrong(format!("TOR_PT_OUTBOUND_BIND_ADDRESS_V6: '{text}' is not an IPv6 address"));
        inner.unwrap_or(&text).parse().map_err(|_| why())
    });
    Ok(Outbound { v4: v4.transpose()?, v6: v6.transpose()? })
}

fn transports(names: &str) -> Result<Vec<String>, EnvironmentError> {
    let checked = |name: &str| match is_name(name) {
        true => Ok(name.to_owned()),
        false => Err(wrong(format!(
            "'{name}' is not a valid name of a transport (letters, digits and _)"
        ))),
    };
    let mut all = Vec::new();
    for name in names.split(',') {
        let name = checked(name)?;
        // A transport that is named more than once is started once.
        if !all.contains(&name) {
            all.push(name);
        }
    }
    Ok(all)
}

fn server(
    get: &impl Fn(&str) -> Option<String>,
    names: &[String],
) -> Result<Server, EnvironmentError> {
    let address = |name: &str| {
        let value = get(name).filter(|value| !value.is_empty());
        let read = |value: String| {
            value.parse::<SocketAddr>().map_err(|_| wrong(format!("{name} is not ADDRESS:PORT")))
        };
        value.map(read).transpose()
    };
    let bound = get("TOR_PT_SERVER_BINDADDR").unwrap_or_default();
    let options = get("TOR_PT_SERVER_TRANSPORT_OPTIONS").unwrap_or_default();
    let method = |name: &String| {
        let address = bound.split(',').find_map(|part| part.strip_prefix(&format!("{name}-")));
        let read = |text: &str| {
            text.parse()
                .map_err(|_| wrong(format!("TOR_PT_SERVER_BINDADDR: '{text}' is not ADDRESS:PORT")))
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

/// Parses the options of the transport `name` in `all`, which has the form
/// `name:key=value;name:key=value`. In keys and values, `:` and `;` are escaped, too.
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
            ("TOR_PT_CLIENT_TRANSPORTS", "a,b,a"),
            ("TOR_PT_PROXY", "socks5://127.0.0.1:1"),
            ("TOR_PT_EXIT_ON_STDIN_CLOSE", "1"),
        ])
        .unwrap();
        assert!(client.ends_with_input && client.state == "/s");
        let Side::Client(side) = client.side else { panic!("it is at a client") };
        assert_eq!((side.transports, side.proxy.is_some()), (vec!["a".into(), "b".into()], true));
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
    fn connections_come_from_the_addresses_that_are_named_but_for_those_on_this_machine() {
        let outbound = |v4: &str, v6: &str| {
            read(&[
                ("TOR_PT_CLIENT_TRANSPORTS", "a"),
                ("TOR_PT_OUTBOUND_BIND_ADDRESS_V4", v4),
                ("TOR_PT_OUTBOUND_BIND_ADDRESS_V6", v6),
            ])
            .map(|environment| environment.outbound)
            .map_err(|error| error.0.to_string())
        };
        let [four, six] = ["203.0.113.4", "2001:db8::4"].map(|at| at.parse::<IpAddr>().unwrap());
        for brackets in ["[2001:db8::4]", "2001:db8::4"] {
            let both = outbound("203.0.113.4", brackets).unwrap();
            let towards = |to: &str| both.towards(to.parse().unwrap());
            assert_eq!(towards("192.0.2.1"), Some(four));
            assert_eq!(towards("2001:db8::1"), Some(six));
            for near in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
                assert_eq!(towards(near), None, "{near}");
            }
        }
        assert_eq!(outbound("", ""), Ok(Outbound::default()));
        assert_eq!(outbound("203.0.113.4", "").unwrap().towards(six), None);
        for (v4, v6, wanted) in [
            ("2001:db8::4", "", "V4: '2001:db8::4' is not an IPv4 address"),
            ("203.0.113.4:80", "", "V4: '203.0.113.4:80' is not an IPv4 address"),
            ("", "203.0.113.4", "V6: '203.0.113.4' is not an IPv6 address"),
            ("", "[2001:db8::4", "V6: '[2001:db8::4' is not an IPv6 address"),
        ] {
            let message = format!("ENV-ERROR TOR_PT_OUTBOUND_BIND_ADDRESS_{wanted}");
            assert_eq!(outbound(v4, v6), Err(message));
        }
    }

    #[test]
    fn what_makes_no_sense_is_the_line_that_its_manager_reads() {
        let line = |pairs: &[(&str, &str)]| read(pairs).unwrap_err().0.to_string();
        assert_eq!(line(&[("TOR_PT_MANAGED_TRANSPORT_VER", "2")]), "VERSION-ERROR no-version");
        assert!(line(&[("TOR_PT_STATE_LOCATION", "")]).contains("TOR_PT_STATE_LOCATION"));
        assert!(line(&[]).starts_with("ENV-ERROR neither TOR_PT_CLIENT_TRANSPORTS"));
        let both = [("TOR_PT_CLIENT_TRANSPORTS", "a"), ("TOR_PT_SERVER_TRANSPORTS", "a")];
        assert!(line(&both).contains("both TOR_PT_CLIENT_TRANSPORTS"));
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
