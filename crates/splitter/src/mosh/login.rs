//! The user's login, in which ssh starts mosh-server on the other machine.

use std::fmt;
use std::io::{self, BufRead, BufReader, PipeReader, Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::thread;

use anabranch_os::shell::quoted;

use super::answer::{Answer, AnswerLine, Key};
use super::words::Words;

/// Maximum bytes of a line of ssh's output. Longer lines are read in pieces.
const LONGEST_LINE: u64 = 1 << 16;

/// The IP versions that may be used to reach the server, and the order of the attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// Both versions, with IPv4 addresses first.
    #[default]
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

impl Family {
    /// Returns the `addresses` with an accepted IP version, in the order in which they are tried.
    pub fn sorted(self, addresses: impl IntoIterator<Item = SocketAddr>) -> Vec<SocketAddr> {
        let will_do = |address: &SocketAddr| match self {
            Family::Any => true,
            Family::V4 => address.is_ipv4(),
            Family::V6 => address.is_ipv6(),
        };
        let mut addresses: Vec<_> = addresses.into_iter().filter(will_do).collect();
        addresses.sort_by_key(SocketAddr::is_ipv6);
        addresses
    }

    fn flag(self) -> Option<&'static str> {
        match self {
            Family::Any => None,
            Family::V4 => Some("-4"),
            Family::V6 => Some("-6"),
        }
    }
}

/// Method to determine mosh-server's address, as in mosh(1)'s `--experimental-remote-ip`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteIp {
    /// ssh connects through this command (see [`super::carry`]), and appends the host and the port
    /// to it. The command prints the address that answered.
    Proxy(Vec<String>),
    /// The server reports the address at which the ssh connection arrived (SSH_CONNECTION).
    Remote,
    /// This program resolves the name of the other machine, and passes the address to ssh.
    Local,
}

/// The local address that mosh-server binds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bind {
    /// The server's address at which the ssh connection arrived.
    Ssh,
    /// All addresses of the machine on which mosh-server runs.
    Any,
    /// This IP address of the machine on which mosh-server runs.
    Ip(IpAddr),
}

impl FromStr for Bind {
    type Err = String;

    fn from_str(text: &str) -> Result<Bind, String> {
        match text {
            "ssh" => Ok(Bind::Ssh),
            "any" => Ok(Bind::Any),
            _ => text.parse().map(Bind::Ip).map_err(|_| {
                format!(
                    "'{text}' is not an address at which mosh-server can listen: write ssh, any, \
                     or an IP address"
                )
            }),
        }
    }
}

/// An ssh login that starts mosh-server; it is run once.
#[derive(Clone, Debug)]
pub struct Login {
    /// ssh with the options that the user gave it.
    pub ssh: Words,
    /// The user name on the other machine; `None` for ssh's default.
    pub user: Option<String>,
    /// The other machine, in ssh's notation.
    pub host: String,
    /// Accepted IP versions of the server's address.
    pub family: Family,
    /// Method to determine mosh-server's address.
    pub remote: RemoteIp,
    /// True if ssh requests a terminal on the other machine, as mosh does.
    pub terminal: bool,
    /// The command that starts mosh-server, for the remote shell. The command is not quoted, so it
    /// may be `env A=b mosh-server`.
    pub server: String,
    /// The address that mosh-server binds to.
    pub bind: Bind,
    /// The port, or range of ports (`60000:61000`), that mosh-server binds to; `None` if
    /// mosh-server chooses.
    pub ports: Option<String>,
    /// Number of colours of the local terminal; `None` if it is unknown.
    pub colors: Option<u32>,
    /// The local locale variables (such as `LANG`), which mosh-server uses as a fallback.
    pub locale: Vec<(String, String)>,
    /// The command that the server runs instead of a login shell; empty for a login shell.
    pub command: Vec<String>,
}

/// The address and the key of a mosh-server, from its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoshServer {
    /// IP address and UDP port of mosh-server.
    pub server: SocketAddr,
    /// The key of the session.
    pub key: Key,
}

/// Reason why a login failed to start a session. Each message has one line, and contains no key.
#[derive(Debug)]
pub enum LoginError {
    /// ssh could not be run. The fields are ssh's name and the error.
    Ssh(String, io::Error),
    /// The name of the other machine does not resolve to an address of an accepted IP version. The
    /// fields are the name and the error.
    Resolve(String, io::Error),
    /// Reading ssh's output failed.
    Read(io::Error),
    /// ssh ended before mosh-server answered. The fields are the destination and ssh's exit
    /// status.
    Ended(String, ExitStatus),
    /// A line begins like mosh-server's answer but is malformed.
    Malformed,
    /// mosh-server answered, but its address is unknown.
    NoAddress,
}

impl fmt::Display for LoginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoginError::Ssh(ssh, error) => write!(
                f,
                "cannot run '{ssh}': {error}; install OpenSSH's client, choose another program \
                 with --ssh, or connect to a running mosh-server with --port and MOSH_KEY"
            ),
            LoginError::Resolve(host, error) => {
                write!(f, "the name '{host}' does not resolve: {error}")
            }
            LoginError::Read(error) => write!(f, "cannot read ssh's output: {error}"),
            LoginError::Ended(host, status) => write!(
                f,
                "ssh ended ({status}) before a mosh-server answered; check that 'ssh {host}' \
                 works, and that Mosh is installed there (--server gives its path)"
            ),
            LoginError::Malformed => f.write_str(
                "mosh-server's answer has no port and key: check that --server starts a \
                 mosh-server",
            ),
            LoginError::NoAddress => f.write_str(
                "the server's address is unknown: try --remote-ip remote (the server reports it) \
                 or --remote-ip local (its name is looked up here)",
            ),
        }
    }
}

impl std::error::Error for LoginError {}

impl Login {
    /// Logs in and starts mosh-server. Writes all output of ssh and of the server to `log`,
    /// except mosh-server's answer.
    ///
    /// # Errors
    /// [`LoginError`] if the login failed to start a session.
    pub fn run(&self, log: &mut dyn Write) -> Result<MoshServer, LoginError> {
        let local = self.look_up()?;
        let (mut child, out) = self.start(local)?;
        let (answer, rest) = read(out, log).inspect_err(|_| end(&mut child))?;
        // The thread reads on, so that ssh does not block on a full pipe. ssh ends when
        // mosh-server has left its terminal.
        thread::spawn(move || io::copy(&mut { rest }, &mut io::sink()));
        let status = child.wait().map_err(LoginError::Read)?;
        let Some((port, key)) = answer.connect else {
            return Err(LoginError::Ended(self.destination(None), status));
        };
        let ip = match self.remote {
            RemoteIp::Proxy(_) => answer.reached,
            RemoteIp::Remote => answer.remote,
            RemoteIp::Local => local,
        };
        let ip = ip.ok_or(LoginError::NoAddress)?;
        Ok(MoshServer { server: SocketAddr::new(ip, port), key })
    }

    /// Resolves the name of the other machine. Returns `None` if ssh is to resolve this name.
    fn look_up(&self) -> Result<Option<IpAddr>, LoginError> {
        if self.remote != RemoteIp::Local {
            return Ok(None);
        }
        let blame = |error| LoginError::Resolve(self.host.clone(), error);
        let found = (self.host.as_str(), 0).to_socket_addrs().map_err(blame)?;
        let first = self.family.sorted(found).first().map(SocketAddr::ip);
        let none = || {
            io::Error::new(
                io::ErrorKind::NotFound,
                "the name has no address of the requested kind, IPv4 (-4) or IPv6 (-6)",
            )
        };
        first.map(Some).ok_or_else(|| blame(none()))
    }

    fn start(&self, local: Option<IpAddr>) -> Result<(Child, PipeReader), LoginError> {
        let blame = |error| LoginError::Ssh(self.ssh.program().to_owned(), error);
        let (reader, writer) = io::pipe().map_err(blame)?;
        let mut command = Command::new(self.ssh.program());
        command.args(self.ssh.arguments()).args(self.arguments(local));
        // The output of the proxy command arrives on ssh's standard error.
        command.stdin(Stdio::null()).stderr(writer.try_clone().map_err(blame)?).stdout(writer);
        // If this process has the key of another session, ssh must not send it to the other
        // machine.
        command.env_remove("MOSH_KEY");
        command.spawn().map(|child| (child, reader)).map_err(blame)
    }

    fn arguments(&self, local: Option<IpAddr>) -> Vec<String> {
        // ssh makes a new connection, because a shared one would not reveal the address and would
        // keep our pipe open.
        let mut words = vec!["-n".to_owned(), "-S".into(), "none".into()];
        match &self.remote {
            RemoteIp::Proxy(proxy) => {
                words.extend(["-o".to_owned(), format!("ProxyCommand={}", proxy_command(proxy))]);
            }
            RemoteIp::Remote | RemoteIp::Local => {
                words.extend(self.family.flag().map(str::to_owned));
            }
        }
        words.extend(self.terminal.then(|| "-tt".to_owned()));
        words.extend([self.destination(local), "--".into(), self.remote_command()]);
        words
    }

    fn destination(&self, local: Option<IpAddr>) -> String {
        let host = local.map_or_else(|| self.host.clone(), |ip| ip.to_string());
        self.user.as_ref().map_or(host.clone(), |user| format!("{user}@{host}"))
    }

    /// Returns the command line that starts mosh-server, for the shell on the other machine.
    fn remote_command(&self) -> String {
        let mut words = vec![self.server.clone(), "new".into()];
        words.extend(self.colors.map(|colors| format!("-c {colors}")));
        words.extend(match self.bind {
            Bind::Ssh => Some("-s".to_owned()),
            Bind::Any => None,
            Bind::Ip(ip) => Some(format!("-i {ip}")),
        });
        words.extend(self.ports.as_ref().map(|ports| format!("-p {}", quoted(ports))));
        let locale = self.locale.iter();
        words.extend(
            locale.map(|(name, value)| format!("-l {}", quoted(&format!("{name}={value}")))),
        );
        if !self.command.is_empty() {
            words.push("--".into());
            words.extend(self.command.iter().map(|word| quoted(word)));
        }
        let command = words.join(" ");
        if self.remote != RemoteIp::Remote {
            return command;
        }
        let print_connection =
            r#"[ -n "$SSH_CONNECTION" ] && printf "\nMOSH SSH_CONNECTION %s\n" "$SSH_CONNECTION""#;
        format!("sh -c {}", quoted(&format!("{print_connection} ; {command}")))
    }
}

/// Kills the ssh process after a failed login; otherwise it would keep running.
fn end(child: &mut Child) {
    // An error means that the process has already ended.
    let _ = child.kill();
    let _ = child.wait();
}

/// Returns the text of ssh's option `ProxyCommand`. A shell parses it, and ssh expands `%`
/// sequences in it.
fn proxy_command(words: &[String]) -> String {
    let words: Vec<_> = words.iter().map(|word| quoted(&word.replace('%', "%%"))).collect();
    format!("{} -- %h %p", words.join(" "))
}

/// Reads ssh's output until mosh-server has answered or ssh has ended. Returns the answer, and the
/// pipe with ssh's remaining output.
fn read(
    out: PipeReader,
    log: &mut dyn Write,
) -> Result<(Answer, BufReader<PipeReader>), LoginError> {
    let (mut lines, mut answer) = (BufReader::new(out), Answer::default());
    let mut line = Vec::new();
    while answer.connect.is_none() {
        line.clear();
        let got = (&mut lines).take(LONGEST_LINE).read_until(b'\n', &mut line);
        if got.map_err(LoginError::Read)? == 0 {
            break;
        }
        match answer.take(&String::from_utf8_lossy(&line)) {
            AnswerLine::Part => {}
            AnswerLine::Malformed => return Err(LoginError::Malformed),
            // A failed write is ignored: the reader may be gone.
            AnswerLine::Other => _ = log.write_all(&line).and_then(|()| log.flush()),
        }
    }
    Ok((answer, lines))
}

#[cfg(test)]
#[path = "login_tests.rs"]
mod tests;
