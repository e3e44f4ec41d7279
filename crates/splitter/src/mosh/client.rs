//! Runs mosh-client in the foreground, and restores the terminal.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use super::answer::Key;
use super::words::Words;

/// Control sequences of xterm that reset the terminal after mosh-client was killed: cursor keys,
/// attributes, cursor, mouse reports and screen.
const PLAIN: &[u8] =
    b"\x1b[?1l\x1b[0m\x1b[?25h\x1b[?1003l\x1b[?1002l\x1b[?1000l\x1b[?1006l\x1b[?1049l\r\n";

/// The command that runs mosh-client.
#[derive(Clone, Debug)]
pub struct Client {
    /// The program mosh-client with the options that the user gave it.
    pub command: Words,
    /// Environment variables for the program, such as `MOSH_PREDICTION_DISPLAY` (mosh(1)).
    pub settings: Vec<(&'static str, String)>,
}

impl Client {
    /// Returns the number of colours of the terminal, as mosh-client reports it; `None` if
    /// mosh-client reports no number.
    ///
    /// # Errors
    /// mosh-client cannot be run.
    pub fn colors(&self) -> io::Result<Option<u32>> {
        let mut ask = Command::new(self.command.program());
        ask.args(self.command.arguments()).arg("-c").env_remove("MOSH_KEY").stdin(Stdio::null());
        let output = ask.stderr(Stdio::null()).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().parse().ok())
    }

    /// Starts mosh-client on this terminal, connected to `splitter`.
    ///
    /// # Errors
    /// mosh-client cannot be run.
    pub fn start(&self, splitter: SocketAddr, key: &Key) -> io::Result<Running> {
        let mut command = Command::new(self.command.program());
        command.args(self.command.arguments());
        command.args([splitter.ip().to_string(), splitter.port().to_string()]);
        command.env("MOSH_KEY", key.expose());
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        Ok(Running { handle: pidfd_open(pid, PidfdFlags::empty())?, child })
    }
}

/// A running mosh-client.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// Handle of the process, which remains valid even if the process number is reused.
    handle: OwnedFd,
}

impl Running {
    /// Returns a function that terminates mosh-client. The function remains valid after `self` is
    /// dropped.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn ender(&self) -> io::Result<impl Fn() + Send + use<>> {
        let handle = self.handle.try_clone()?;
        // On this signal the client closes its session. An error means that the client has already
        // ended.
        Ok(move || {
            let _ = pidfd_send_signal(&handle, Signal::TERM);
        })
    }

    /// Waits until the client ends. Returns its exit status or, like a shell, 128 plus the number
    /// of the signal that killed it.
    ///
    /// # Errors
    /// The system does not report the status.
    pub fn wait(mut self) -> io::Result<ClientEnd> {
        self.child.wait().map(ClientEnd::from)
    }
}

/// The end of a client: its exit code, and whether a signal killed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientEnd {
    /// Exit status of the client; 128 plus the number of the signal if a signal killed the client.
    pub code: u8,
    /// True if a signal killed the client, so that it did not restore the terminal.
    pub killed: bool,
}

impl From<ExitStatus> for ClientEnd {
    fn from(status: ExitStatus) -> ClientEnd {
        let code = status.code().or_else(|| Some(128 + status.signal()?));
        // Both values are below 256: exit codes have 8 bits, and there are 64 signals.
        let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
        ClientEnd { code, killed: status.signal().is_some() }
    }
}

/// The saved state of this program's terminal; `None` if standard input is not a terminal.
#[derive(Debug)]
pub struct Terminal(Option<Termios>);

impl Terminal {
    /// Saves the state of the terminal at standard input. If standard input is not a terminal,
    /// saves nothing.
    pub fn remember() -> Terminal {
        Terminal(tcgetattr(io::stdin()).ok())
    }

    /// Restores the terminal after mosh-client has ended. `ended` describes how it ended. Errors
    /// are ignored.
    pub fn restore(&self, ended: ClientEnd) {
        if let Some(before) = &self.0 {
            let _ = tcsetattr(io::stdin(), OptionalActions::Drain, before);
        }
        let mut out = io::stdout();
        if ended.killed && out.is_terminal() {
            let _ = out.write_all(PLAIN).and_then(|()| out.flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "abcdefghijklmnopqrstuv";

    fn client(script: &str) -> Client {
        let command = format!("sh -c {} sh", anabranch_os::shell::quoted(script));
        Client {
            command: command.parse().unwrap(),
            settings: vec![("MOSH_NO_TERM_INIT", "1".into())],
        }
    }

    fn end_of(script: &str) -> ClientEnd {
        let key = KEY.parse().unwrap();
        client(script).start("127.0.0.1:7".parse().unwrap(), &key).unwrap().wait().unwrap()
    }

    #[test]
    fn the_key_is_in_the_environment_and_not_on_the_command_line() {
        let ended = end_of(&format!(
            "test $MOSH_KEY = {KEY} -a $MOSH_NO_TERM_INIT = 1 -a \"$*\" = '127.0.0.1 7'"
        ));
        assert_eq!(ended, ClientEnd { code: 0, killed: false });
    }

    #[test]
    fn its_end_is_told_as_a_shell_tells_it() {
        assert_eq!(end_of("exit 7"), ClientEnd { code: 7, killed: false });
        assert_eq!(end_of("kill -TERM $$"), ClientEnd { code: 143, killed: true });
    }

    #[test]
    fn it_can_be_told_to_end_and_told_again_when_it_has() {
        let key = KEY.parse().unwrap();
        let running = client("exec sleep 60").start("127.0.0.1:7".parse().unwrap(), &key).unwrap();
        let end = running.ender().unwrap();
        end();
        assert!(running.wait().unwrap().killed);
        end();
    }

    #[test]
    fn colours_are_asked_for() {
        assert_eq!(client("test $1 = -c && echo 256").colors().unwrap(), Some(256));
        assert_eq!(client("echo none").colors().unwrap(), None);
    }
}
