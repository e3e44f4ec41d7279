//! `anabranch mosh`: a login by Mosh whose packets the splitter forwards.

mod client;
mod screen;
mod shared;

use std::env;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anabranch_splitter::mosh::{
    Bind, Client, Family, Key, Login, MoshServer, RemoteIp, Words, carry,
};
use anabranch_splitter::split::{Settings, Target, look_ahead};
use clap::ValueEnum;

use crate::failure::Failure;
use crate::split;
use shared::Shared;

/// Text at the end of `--help`.
const EXAMPLES: &str = "\
EXAMPLES
  Log in as mosh does, over Wi-Fi and mobile data at once; the server needs only Mosh:
    anabranch mosh me@shell.example.net --path wlan=if:wlan0 --path lte=if:wwan0

  Another port and key for ssh, and a command instead of a shell:
    anabranch mosh --ssh 'ssh -p 2222 -i ~/.ssh/lab' me@192.0.2.7 --path rot=ports:8 -- tmux attach

  Without ssh. `mosh-server new` runs on the other machine and printed MOSH CONNECT 60001 KEY:
    MOSH_KEY=KEY anabranch mosh shell.example.net --port 60001 --path rot=ports:8

The login with ssh is not split: it uses this machine's default route, whatever --path is. An
observer there sees an ssh connection. The Mosh session after it is split.

ENVIRONMENT
  MOSH_KEY                    with --port: the key that mosh-server printed
  ANABRANCH_SOCKS5_PASSWORD   password for proxies with a user name but without a password

EXIT CODES
  the exit code of mosh-client (128 + N if signal N killed it)
  1 failed while running, for example a failed login   2 bad usage or settings";

/// Log in to another machine with Mosh, over several network paths.
///
/// This command logs in with ssh as mosh does, and starts mosh-server on the other machine. Then
/// it runs the unmodified mosh-client here, and splits its traffic to the server over the paths.
/// It prints nothing while mosh-client uses the terminal.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "--help shows examples.")]
pub(crate) struct MoshArgs {
    /// Log in to this machine: a host name that ssh knows, or an IP address.
    #[arg(value_name = "[USER@]HOST")]
    host: String,

    /// Run this command on the other machine instead of a login shell.
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    command: Vec<String>,

    /// Connect to a mosh-server that already runs at this UDP port, without a login. Put its key
    /// into the environment variable MOSH_KEY.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    #[arg(help_heading = "Login", conflicts_with_all = ["command", "server", "ssh", "bind_server", "server_port", "remote_ip"])]
    port: Option<u16>,

    /// Log in with this ssh command, such as 'ssh -p 2222'.
    #[arg(long, value_name = "COMMAND", default_value = "ssh", help_heading = "Login")]
    ssh: Words,

    /// Start mosh-server on the other machine with this shell command.
    #[arg(long, value_name = "COMMAND", default_value = "mosh-server", help_heading = "Login")]
    server: String,

    /// Let mosh-server listen at this UDP port, or at a free port of this range [default: 60000 to
    /// 61000].
    #[arg(long, value_name = "PORT[:PORT2]", value_parser = ports, help_heading = "Login")]
    server_port: Option<String>,

    /// Let mosh-server listen at this address of its machine: ssh (the address of the ssh
    /// connection), any (all addresses), or an IP address.
    #[arg(long, value_name = "ssh|any|IP", default_value = "ssh", help_heading = "Login")]
    bind_server: Bind,

    /// Choose how the address of the Mosh server is determined.
    #[arg(long, visible_alias = "experimental-remote-ip", value_enum, value_name = "HOW")]
    #[arg(default_value = "proxy", help_heading = "Login")]
    remote_ip: AddressMethod,

    /// Prevent ssh from allocating a terminal (pty) on the other machine for the login.
    #[arg(long, help_heading = "Login")]
    no_ssh_pty: bool,

    #[command(flatten)]
    family: FamilyArgs,

    /// Run this mosh-client command for the session.
    #[arg(long, value_name = "COMMAND", default_value = "mosh-client", help_heading = "Client")]
    client: Words,

    /// Choose when mosh-client shows keystrokes before the server has confirmed them.
    #[arg(long, value_enum, value_name = "WHEN", help_heading = "Client")]
    predict: Option<Predict>,

    /// Let typed characters that the server has not confirmed yet replace the text at the cursor.
    /// Without this option these characters are inserted, and the text after them moves.
    #[arg(long, help_heading = "Client")]
    predict_overwrite: bool,

    /// Do not switch this terminal to its alternate screen during the session.
    #[arg(long, help_heading = "Client")]
    no_init: bool,

    /// Append events of the splitting, such as a failed path, to FILE: as lines of text, or as
    /// JSON objects with --json.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    log: Option<PathBuf>,

    #[command(flatten)]
    shared: Shared,
}

/// The address family for the connection to the server.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct FamilyArgs {
    /// Connect to the server over IPv4 only.
    #[arg(short = '4', help_heading = "Login", conflicts_with = "v6")]
    v4: bool,

    /// Connect to the server over IPv6 only.
    #[arg(short = '6', help_heading = "Login")]
    v6: bool,
}

impl FamilyArgs {
    fn family(&self) -> Family {
        match (self.v4, self.v6) {
            (true, _) => Family::V4,
            (_, true) => Family::V6,
            _ => Family::Any,
        }
    }

    fn flag(&self) -> Option<&'static str> {
        match self.family() {
            Family::V4 => Some("-4"),
            Family::V6 => Some("-6"),
            Family::Any => None,
        }
    }
}

/// Method that determines the server's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AddressMethod {
    /// Use the address of the ssh connection. Anabranch makes this connection itself, as ssh's
    /// ProxyCommand.
    Proxy,
    /// Look up the host name on this machine, without ssh's configuration.
    Local,
    /// Ask the server which of its addresses the ssh connection uses.
    Remote,
}

/// Value of the environment variable MOSH_PREDICTION_DISPLAY, which determines when `mosh-client`
/// shows keystrokes before the server has confirmed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Predict {
    /// Only on slow connections.
    Adaptive,
    /// On all connections.
    Always,
    /// On no connection.
    Never,
    /// On all connections, even if the display is then often wrong.
    Experimental,
}

/// Arguments of the hidden command that connects ssh to the server, as the ProxyCommand of ssh.
#[derive(Debug, clap::Args)]
pub(crate) struct ProxyArgs {
    /// Connect to this server, which ssh has determined.
    host: String,
    /// Connect to this TCP port of the server.
    port: u16,
    #[command(flatten)]
    family: FamilyArgs,
}

impl ProxyArgs {
    /// Forwards an ssh connection until the connection ends.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let blame = |error| Failure::trouble(format!("{}: {error}", self.host));
        carry(&self.host, self.port, self.family.family()).map_err(blame)
    }
}

impl MoshArgs {
    /// Logs in and runs `mosh-client`. Returns when it has ended.
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        let (user, host) = user_and_host(&self.host)?;
        let settings = self.settings(&host)?;
        let client = self.client();
        let colors = client.colors().map_err(|error| {
            let name = client.command.program();
            Failure::misuse(format!(
                "cannot run '{name}': {error}; install Mosh (Debian: apt install mosh)"
            ))
        })?;
        if self.port.is_none() {
            let known = self.knows_server(&host);
            look_ahead(&settings, known).map_err(split::blame)?;
        }
        let log = self.log.as_deref().map(|path| {
            let log = split::log(path, self.shared.0.json);
            log.map_err(|error| Failure::misuse(format!("--log: {}: {error}", path.display())))
        });
        let log = log.transpose()?;
        let (to, key) = match self.port {
            Some(port) => (Target { host, port }, key()?),
            None => {
                let learnt = self.log_in(user, host, colors)?;
                (target(learnt.server), learnt.key)
            }
        };
        client::run(&client, &key, settings.towards(to), log)
    }

    /// Returns the splitter's settings. They are checked before the login. At this time the
    /// server's port is still unknown, so the settings contain a placeholder.
    fn settings(&mut self, host: &str) -> Result<Settings, Failure> {
        let json = self.shared.0.json;
        if json && self.log.is_none() {
            return Err(Failure::misuse("--json sets the format of the log file: add --log FILE"));
        }
        let options = &mut self.shared.0;
        options.listen = Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0));
        options.to = Some(Target { host: host.to_owned(), port: self.port.unwrap_or(1) });
        options.protocol = Some("mosh".parse().expect("the list of protocols contains mosh"));
        split::settings(options)
    }

    /// Returns whether the server's address is known before the login. It is known with the method
    /// `Local`, and with the method `Proxy` if `host` is an IP address.
    fn knows_server(&self, host: &str) -> bool {
        match self.remote_ip {
            AddressMethod::Local => true,
            AddressMethod::Proxy => host.parse::<IpAddr>().is_ok(),
            AddressMethod::Remote => false,
        }
    }

    fn client(&self) -> Client {
        let predict = self.predict.and_then(|when| when.to_possible_value());
        let predict = predict.map(|when| ("MOSH_PREDICTION_DISPLAY", when.get_name().to_owned()));
        let overwrite =
            self.predict_overwrite.then(|| ("MOSH_PREDICTION_OVERWRITE", "yes".to_owned()));
        let no_init = self.no_init.then(|| ("MOSH_NO_TERM_INIT", "1".to_owned()));
        let settings = [predict, overwrite, no_init].into_iter().flatten().collect();
        Client { command: self.client.clone(), settings }
    }

    fn log_in(
        &self,
        user: Option<String>,
        host: String,
        colors: Option<u32>,
    ) -> Result<MoshServer, Failure> {
        let login = Login {
            ssh: self.ssh.clone(),
            user,
            host,
            family: self.family.family(),
            remote: self.remote()?,
            terminal: !self.no_ssh_pty,
            server: self.server.clone(),
            bind: self.bind_server,
            ports: self.server_port.clone(),
            colors,
            locale: locale(),
            command: self.command.clone(),
        };
        login.run(&mut io::stderr()).map_err(Failure::trouble)
    }

    fn remote(&self) -> Result<RemoteIp, Failure> {
        Ok(match self.remote_ip {
            AddressMethod::Local => RemoteIp::Local,
            AddressMethod::Remote => RemoteIp::Remote,
            AddressMethod::Proxy => {
                let own = env::current_exe().map_err(Failure::trouble)?;
                let own = own.into_os_string().into_string();
                let own = own.map_err(|_| {
                    Failure::misuse(
                        "--remote-ip proxy: the path of this program is not valid UTF-8: install \
                         the program in another folder",
                    )
                })?;
                let words = [own, "mosh-proxy".to_owned()].into_iter();
                RemoteIp::Proxy(words.chain(self.family.flag().map(str::to_owned)).collect())
            }
        })
    }
}

/// Parses `[USER@]HOST`. Refuses a host that looks like an option, because ssh could then run any
/// command.
fn user_and_host(text: &str) -> Result<(Option<String>, String), Failure> {
    let (user, host) = match text.rsplit_once('@') {
        Some((user, host)) => (Some(user.to_owned()), host),
        None => (None, text),
    };
    let empty = host.is_empty() || user.as_deref() == Some("");
    if empty || text.starts_with('-') || host.starts_with('-') {
        return Err(Failure::misuse(format!("'{text}' is not a host name: write [USER@]HOST")));
    }
    Ok((user, host.to_owned()))
}

fn target(server: SocketAddr) -> Target {
    Target { host: server.ip().to_string(), port: server.port() }
}

/// Reads the session key from the environment variable `MOSH_KEY`, for a `mosh-server` that
/// another program has started.
fn key() -> Result<Key, Failure> {
    let key = env::var("MOSH_KEY").map_err(|_| {
        Failure::misuse(
            "--port: the environment variable MOSH_KEY is missing: set it to the key that \
             mosh-server printed. To log in by ssh and choose mosh-server's port, use \
             --server-port instead of --port",
        )
    })?;
    key.parse().map_err(|error| Failure::misuse(format!("MOSH_KEY: {error}")))
}

/// Returns the environment variables of the locale, which mosh passes to the server.
fn locale() -> Vec<(String, String)> {
    let of_locale = |name: &str| name == "LANG" || name == "LANGUAGE" || name.starts_with("LC_");
    let texts = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    texts.filter(|(name, value)| of_locale(name) && !value.is_empty()).collect()
}

fn ports(text: &str) -> Result<String, String> {
    let numbers: Vec<_> = text.split(':').map(str::parse::<u16>).collect();
    let good = match numbers[..] {
        [Ok(_)] => true,
        [Ok(first), Ok(last)] => 0 < first && first <= last,
        _ => false,
    };
    if good { Ok(text.to_owned()) } else { Err("write PORT or PORT:PORT2".to_owned()) }
}

/// Prints a line for the user, while `mosh-client` does not use the terminal.
fn print_line(line: &str) {
    // A failure means that standard error is closed, so nobody reads the line.
    let _ = writeln!(io::stderr(), "anabranch: {line}");
}
