//! Dials: attempts to open the stream of a path. A dial opens a TCP connection. Then it performs
//! the dialogue with a proxy or the TLS handshake, if the path needs one. For OpenSSH, a dial
//! starts the program `ssh`. Dials block, so each has its own thread.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_os::target::Target;
use anabranch_proxy::client::{
    ClientFault, Destination, HttpDialogue, SocksDialogue, SocksRequest,
};
use socket2::Socket;

use crate::paths::{SshHost, StreamKind};
use crate::socks::{ConnectSettings, DeadlineStream, Proxy, ProxyFault, connect};
use crate::streams::{TlsEnd, TlsError, TlsStream, prepare};

/// Timeout for opening a TCP connection.
const CONNECTING: Duration = Duration::from_secs(8);
/// Timeout for a TLS handshake.
const SHAKING: Duration = Duration::from_secs(10);
/// Timeout for the dialogue with a proxy. If the proxy is a client of an onion network, it builds
/// a circuit in this time.
const TALKING: Duration = Duration::from_secs(60);
/// Maximum bytes of a proxy's answer read at once.
const AT_ONCE: usize = 1_024;

/// Parameters of a dial (an attempt to open the stream of a path).
pub(super) struct Order {
    pub(super) kind: StreamKind,
    /// Address, source address and interface for the connection to the first hop; `None` if
    /// OpenSSH makes this connection.
    pub(super) reach: Option<ConnectSettings>,
    /// Address or name of the far end, which is sent to proxies as the destination.
    pub(super) far: Target,
    /// Whether the name of the first hop (proxy or far end) is resolved again before connecting to
    /// it.
    pub(super) afresh: bool,
    /// TLS settings for a path over TLS; `None` if such paths cannot be used.
    pub(super) tls: Option<Arc<dyn TlsEnd>>,
}

/// Outcome of a dial (an attempt to open the stream of a path) that did not fail.
pub(super) enum DialOutcome {
    /// A stream to the first hop is open. A proxy or OpenSSH may still fail to reach the far end.
    Open(Line),
    /// The name of the first hop (proxy or far end) now resolves to these addresses, and no longer
    /// to the address in use.
    Moved(Vec<SocketAddr>),
}

/// An open stream of a path, with the OpenSSH process or the TLS connection that the stream needs.
pub(super) struct Line {
    pub(super) socket: Socket,
    /// First bytes of the stream, which arrived together with the proxy's answer.
    pub(super) rest: Vec<u8>,
    /// The OpenSSH process to whose standard input and output the stream is connected, if there is
    /// one.
    pub(super) ssh: Option<Ssh>,
    /// The TLS connection on the stream, whose handshake is complete; `None` without TLS.
    pub(super) tls: Option<Box<dyn TlsStream>>,
}

/// A running OpenSSH client, which is killed when the value is dropped.
pub(super) struct Ssh {
    child: Child,
    /// Our end of the client's standard error. It is non-blocking, because another process that
    /// the client has started, such as a `ProxyCommand`, may keep the other end open.
    errors: UnixStream,
}

impl Drop for Ssh {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ssh {
    /// Returns the last line that the process wrote to its standard error, once it has ended;
    /// `None` while it runs.
    pub(super) fn last_words(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten()?;
        let mut text = Vec::new();
        // On an error, `text` still has the bytes that arrived before.
        let _ = (&self.errors).take(4_096).read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text);
        let plain = |line: &str| line.chars().filter(|c| !c.is_control()).collect::<String>();
        text.lines().map(plain).rfind(|line| !line.is_empty())
    }
}

/// Reason why a stream could not be opened. It is shown after the path's name.
#[derive(Debug)]
pub(super) enum DialFault {
    /// The far end's address cannot be sent to a proxy.
    Destination,
    /// The connection to the far end failed.
    Straight(io::Error),
    /// The connection to a proxy failed, or its password could not be read.
    Proxy(Target, ProxyFault),
    /// A proxy closed the connection, or stopped answering, before it had opened the stream to the
    /// far end.
    Cut(Target, io::Error),
    /// A proxy refused the stream.
    Dialogue(Target, ClientFault),
    /// OpenSSH cannot be started.
    Ssh(io::Error),
    /// The TLS handshake failed.
    Tls(TlsError),
    /// The system lacks a resource for the stream, such as a file descriptor.
    System(io::Error),
}

impl fmt::Display for DialFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DialFault::Destination => f.write_str(
                "a proxy cannot connect to a far end with this name: write a name of 1 to 255 \
                 printable characters",
            ),
            DialFault::Straight(error) if error.kind() == io::ErrorKind::ConnectionRefused => f
                .write_str(
                    "no far end listens at the path's address (connection refused): start \
                     'anabranch merge' with --listen-tcp, and check address and port",
                ),
            DialFault::Straight(error) => write!(f, "the far end cannot be reached: {error}"),
            DialFault::Proxy(at, fault) => write!(f, "the proxy {at} {fault}"),
            DialFault::Cut(at, error) if is_end(error) => {
                write!(f, "the proxy {at} closed the connection before its answer was complete")
            }
            DialFault::Cut(at, error) if is_late(error) => {
                write!(f, "the proxy {at} does not answer in time")
            }
            DialFault::Cut(at, error) => write!(f, "the proxy {at} cut the connection: {error}"),
            DialFault::Dialogue(at, fault) => write!(f, "the proxy {at} {fault}"),
            DialFault::Ssh(error) => write!(f, "cannot run ssh: {error}"),
            DialFault::Tls(error) => {
                write!(f, "the TLS connection with the far end failed: {error}")
            }
            DialFault::System(error) => error.fmt(f),
        }
    }
}

fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let ends = [BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof];
    ends.contains(&error.kind())
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

/// Opens the stream of a path to the far end.
///
/// # Errors
/// The first hop cannot be reached, or a proxy does not lead to the far end.
pub(super) fn dial(order: &Order) -> Result<DialOutcome, DialFault> {
    if let Some(found) = moved(order) {
        return Ok(DialOutcome::Moved(found));
    }
    let line = match (&order.kind, &order.reach) {
        (StreamKind::Ssh(host), _) => by_ssh(host, order)?,
        (StreamKind::Tls(at), Some(reach)) => by_tls(at, reach, order.tls.as_deref())?,
        (kind, Some(reach)) => match kind.proxy() {
            Some(proxy) => by_proxy(kind, proxy, reach, &order.far)?,
            None => straight(reach)?,
        },
        (_, None) => return Err(DialFault::Destination),
    };
    Ok(DialOutcome::Open(line))
}

/// Resolves the name of the stream's first hop (proxy or far end). Returns its addresses if the
/// address in use is no longer among them; `None` otherwise.
fn moved(order: &Order) -> Option<Vec<SocketAddr>> {
    let (hop, reach) = (order.kind.first_hop(&order.far)?, order.reach.as_ref()?);
    if !order.afresh || hop.literal().is_some() {
        return None;
    }
    let found = hop.resolve().ok()?;
    (!found.iter().any(|at| at.ip() == reach.proxy.ip())).then_some(found)
}

fn straight(reach: &ConnectSettings) -> Result<Line, DialFault> {
    let socket = connect(reach, CONNECTING).map_err(DialFault::Straight)?;
    prepare(&socket).map_err(DialFault::System)?;
    Ok(Line { socket, rest: Vec::new(), ssh: None, tls: None })
}

/// Connects to the far end directly, and performs the TLS handshake.
fn by_tls(
    at: &Target,
    reach: &ConnectSettings,
    end: Option<&dyn TlsEnd>,
) -> Result<Line, DialFault> {
    let missing = || {
        TlsError(
            "the far end's certificate cannot be checked: add --tls-fingerprint or --tls-ca".into(),
        )
    };
    let end = end.ok_or_else(missing).map_err(DialFault::Tls)?;
    let mut tls = end.begin(Some(at)).map_err(DialFault::Tls)?;
    let line = straight(reach)?;
    let mut stream = DeadlineStream::new(&line.socket, Instant::now() + SHAKING);
    let (mut wire, mut rest) = (Vec::new(), Vec::new());
    let mut received = vec![0; 16 << 10];
    loop {
        wire.clear();
        tls.transmit(&mut wire);
        stream.write_all(&wire).map_err(cut)?;
        if tls.is_open() {
            return Ok(Line { rest, tls: Some(tls), ..line });
        }
        let length = stream.read(&mut received).map_err(cut)?;
        if length == 0 {
            return Err(cut(io::ErrorKind::UnexpectedEof.into()));
        }
        if let Err(error) = tls.receive(&received[..length], &mut rest) {
            // Send the alert, so that the other end learns the reason.
            tls.transmit(&mut wire);
            let _ = stream.write_all(&wire);
            return Err(DialFault::Tls(error));
        }
    }
}

/// Converts the I/O error if the far end closed the connection, or stopped answering, during the
/// TLS handshake.
fn cut(error: io::Error) -> DialFault {
    let text = match () {
        () if is_end(&error) => "the far end closed the connection in the handshake: check that \
                                 the port is the far end's --listen-tls port"
            .to_owned(),
        () if is_late(&error) => "the far end does not answer in time: check that the port is the \
                                  far end's --listen-tls port"
            .to_owned(),
        () => error.to_string(),
    };
    DialFault::Tls(TlsError(text))
}

fn by_proxy(
    kind: &StreamKind,
    proxy: &Proxy,
    reach: &ConnectSettings,
    far: &Target,
) -> Result<Line, DialFault> {
    let blame = |fault| DialFault::Proxy(proxy.at.clone(), fault);
    let to = Destination::new(&far.host, far.port).ok_or(DialFault::Destination)?;
    let login = proxy.credentials().map_err(blame)?;
    let socket = connect(reach, CONNECTING);
    let socket = socket.map_err(|error| blame(ProxyFault::of_connecting(error)))?;
    prepare(&socket).map_err(DialFault::System)?;
    let mut talk = ProxyDialogue {
        stream: DeadlineStream::new(&socket, Instant::now() + TALKING),
        at: &proxy.at,
    };
    let rest = match kind {
        StreamKind::Http(_) => {
            let mut out = Vec::new();
            let made = HttpDialogue::new(&to, login.as_ref(), &mut out);
            let mut dialogue = made.map_err(|fault| talk.blame(fault))?;
            talk.write(&out)?;
            while !dialogue.take(&talk.read()?).map_err(|fault| talk.blame(fault))? {}
            dialogue.rest().to_vec()
        }
        _ => {
            let mut out = Vec::new();
            let mut dialogue = SocksDialogue::new(SocksRequest::Connect(to), login, &mut out);
            loop {
                talk.write(&std::mem::take(&mut out))?;
                let received = talk.read()?;
                let grant =
                    dialogue.take(&received, &mut out).map_err(|fault| talk.blame(fault))?;
                if grant.is_some() {
                    break dialogue.rest().to_vec();
                }
            }
        }
    };
    Ok(Line { socket, rest, ssh: None, tls: None })
}

/// A dialogue with a proxy that asks for a stream to the far end, with a deadline.
struct ProxyDialogue<'t> {
    stream: DeadlineStream<'t>,
    at: &'t Target,
}

impl ProxyDialogue<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), DialFault> {
        let written = self.stream.write_all(bytes);
        written.map_err(|error| self.cut(error))
    }

    fn read(&mut self) -> Result<Vec<u8>, DialFault> {
        let mut buffer = vec![0; AT_ONCE];
        let length = self.stream.read(&mut buffer).map_err(|error| self.cut(error))?;
        if length == 0 {
            return Err(self.cut(io::ErrorKind::UnexpectedEof.into()));
        }
        buffer.truncate(length);
        Ok(buffer)
    }

    fn cut(&self, error: io::Error) -> DialFault {
        DialFault::Cut(self.at.clone(), error)
    }

    fn blame(&self, fault: ClientFault) -> DialFault {
        DialFault::Dialogue(self.at.clone(), fault)
    }
}

/// Starts OpenSSH. The stream is its standard input and output. If `ssh` fails, the stream ends
/// later, and [`Ssh::last_words`] has the reason.
fn by_ssh(host: &SshHost, order: &Order) -> Result<Line, DialFault> {
    let (ours, ssh) = started(&mut command(host, order))?;
    Ok(Line { socket: Socket::from(ours), rest: Vec::new(), ssh: Some(ssh), tls: None })
}

/// Starts `command`. Returns a socket that is connected to its standard input and output, and the
/// process.
fn started(command: &mut Command) -> Result<(UnixStream, Ssh), DialFault> {
    let (ours, theirs) = UnixStream::pair().map_err(DialFault::System)?;
    let (errors, their_errors) = UnixStream::pair().map_err(DialFault::System)?;
    errors.set_nonblocking(true).map_err(DialFault::System)?;
    let input = theirs.try_clone().map_err(DialFault::System)?;
    let child = command
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(input)))
        .stdout(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
        .stderr(Stdio::from(std::os::fd::OwnedFd::from(their_errors)))
        .spawn()
        .map_err(DialFault::Ssh)?;
    Ok((ours, Ssh { child, errors }))
}

/// Returns the command that starts OpenSSH with the user's configuration, keys and agent. OpenSSH
/// never prompts.
fn command(host: &SshHost, order: &Order) -> Command {
    let mut ssh = Command::new("ssh");
    for option in [
        "BatchMode=yes",
        "ConnectTimeout=8",
        "ExitOnForwardFailure=yes",
        "ServerAliveInterval=8",
        "ServerAliveCountMax=3",
        "ControlMaster=no",
        "ControlPath=none",
    ] {
        ssh.args(["-o", option]);
    }
    host.user.iter().for_each(|user| _ = ssh.args(["-l", user]));
    host.port.iter().for_each(|port| _ = ssh.args(["-p", &port.to_string()]));
    ssh.args(["-W", &order.far.to_string(), "--", &host.host]);
    ssh
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn order(kind: &str, at: SocketAddr) -> Order {
        let (word, value) = kind.split_once(':').unwrap();
        let spec: crate::paths::PathSpec = format!("a={word}:{value}{at}").parse().unwrap();
        let reach = ConnectSettings {
            proxy: at,
            local: "127.0.0.1:0".parse().unwrap(),
            device: None,
            mark: None,
        };
        Order {
            kind: spec.stream.unwrap(),
            reach: Some(reach),
            far: "far.example.net:443".parse().unwrap(),
            afresh: false,
            tls: None,
        }
    }

    /// Starts a proxy that sends `into_input` to each client. It then waits until the client
    /// closes the connection or, if `hangs_up`, closes it.
    fn proxy(into_input: &'static [u8], hangs_up: bool) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut received = [0; 1024];
            let _ = client.read(&mut received);
            let _ = client.write_all(into_input);
            while !hangs_up && client.read(&mut received).is_ok_and(|length| length > 0) {}
        });
        at
    }

    fn fault(kind: &str, into_input: &'static [u8]) -> String {
        match dial(&order(kind, proxy(into_input, true))) {
            Ok(_) => panic!("{kind} leads through {into_input:?}"),
            Err(fault) => fault.to_string(),
        }
    }

    #[test]
    fn a_stream_opens_through_either_proxy_and_loses_nothing_after_the_answer() {
        const SOCKS: &[u8] = b"\x05\0\x05\0\0\x01\0\0\0\0\0\0rest";
        const HTTP: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nrest";
        for (kind, into_input) in [("socks5-tcp:", SOCKS), ("http:", HTTP)] {
            let Ok(DialOutcome::Open(line)) = dial(&order(kind, proxy(into_input, false))) else {
                panic!("{kind} does not open")
            };
            assert_eq!(line.rest, b"rest", "{kind}");
        }
    }

    #[test]
    fn each_hostile_answer_is_one_plain_line() {
        let cases: [(&str, &'static [u8], &str); 9] = [
            ("socks5-tcp:", b"SSH-2.0-OpenSSH\r\n", "does not speak the expected proxy protocol"),
            ("socks5-tcp:", b"\x05", "closed the connection"),
            ("socks5-tcp:", b"\x05\0\x05\0\0", "closed the connection"),
            ("socks5-tcp:", b"\x05\0\x05\x02\0\x01\0\0\0\0\0\0", "not allowed by its rules"),
            ("socks5-tcp:", b"\x05\xff", "wants a user name and a password"),
            ("http:", b"H", "closed the connection"),
            ("http:", b"HTTP/1.1 407 No\r\n\r\n", "wants a user name and a password"),
            ("http:anna:secret@", b"HTTP/1.1 407 No\r\n\r\n", "refuses the user name"),
            ("http:", b"\x05\0", "does not speak the expected proxy protocol"),
        ];
        for (kind, into_input, words) in cases {
            let message = fault(kind, into_input);
            assert!(message.starts_with("the proxy 127.0.0.1:"), "{message}");
            assert!(message.contains(words), "{kind} {into_input:?}: {message}");
            assert!(
                !message.contains("secret") && !message.contains(char::is_control),
                "{message}"
            );
        }
    }

    #[test]
    fn an_endless_banner_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let talking = thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let _ = client.write_all(b"HTTP/1.1 200 OK\r\n");
            while client.write_all(&b"X-A: b\r\n".repeat(64)).is_ok() {}
        });
        let message = dial(&order("http:", at)).err().unwrap().to_string();
        assert!(
            message.contains("malformed") || message.contains("without completing"),
            "{message}"
        );
        talking.join().unwrap();
    }

    #[test]
    fn ssh_is_asked_for_nothing_but_a_stream() {
        let order = order("tcp:", "127.0.0.1:1".parse().unwrap());
        let ssh = command(&"anna@relay:2222".parse().unwrap(), &order);
        let arguments: Vec<_> = ssh.get_args().map(|text| text.to_str().unwrap()).collect();
        let line = arguments.join(" ");
        let end = "-l anna -p 2222 -W far.example.net:443 -- relay";
        assert!(line.starts_with("-o BatchMode=yes ") && line.ends_with(end), "{line}");
    }

    /// A `ProxyCommand` may outlive the client that has started it, and keeps its standard error.
    #[test]
    fn the_last_words_of_ssh_wait_for_no_other_process() {
        let script = "sleep 20 & echo 'anna@relay: Permission denied (publickey).' >&2; exit 255";
        let (_ours, mut ssh) = started(Command::new("sh").args(["-c", script])).unwrap();
        let begun = Instant::now();
        let words = loop {
            match ssh.last_words() {
                None => thread::sleep(Duration::from_millis(5)),
                Some(words) => break words,
            }
        };
        assert_eq!(words, "anna@relay: Permission denied (publickey).");
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    }
}
