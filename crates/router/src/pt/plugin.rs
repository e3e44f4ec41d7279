//! An external program with pluggable transports (Tor's pt-spec). [`Plugin`] starts the program
//! with the environment of pt-spec, reads its output, and restarts it when it ends. Dropping the
//! [`Plugin`] stops the program.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{self, Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{env, fmt};

use anabranch_multipath::Time;
use anabranch_os::clock::Clock;
use anabranch_os::poller::{Poller, Ready};
use anabranch_pt::{Args, Failure, Manager, Method, Protocol, Severity};
use rustix::process::{Pid, Signal, kill_process};

use crate::onion::bridge_routes::Transports;

/// Prefix of the environment variables in Tor's specification of pluggable transports (pt-spec).
const PREFIX: &str = "TOR_PT_";
/// Subfolder of our data folder for the state of the external program with transports. C tor uses
/// the same name.
const STATE: &str = "pt_state";
/// Maximum time that the external program may take to report all of its transports.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum time from closing the standard input of the external program to its end. Then SIGTERM
/// is sent.
const PARTING: Duration = Duration::from_secs(2);
/// Maximum time from sending SIGTERM to the end of the external program. Then SIGKILL is sent.
const TERM: Duration = Duration::from_secs(1);
/// Maximum number of lines that are forwarded to the log from the external program's standard
/// error. The count begins again at each start of the program.
const LINES: usize = 10;
/// Maximum number of bytes of a line of the external program's standard error that is forwarded to
/// the log.
const LONGEST: usize = 500;
/// Pause before the first restart of the external program. The pause doubles with each restart, up
/// to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Maximum pause before a restart of the external program.
const LAST_PAUSE: Duration = Duration::from_secs(60);
/// Minimum run time of the external program after which the pause before the next restart is
/// [`FIRST_PAUSE`] again.
const LONG_RUN: Duration = Duration::from_secs(60);
/// Maximum wait for output of the program before its state is checked.
const LOOK: Duration = Duration::from_secs(1);
/// Poller token of the socket that becomes readable when the thread must end.
const STOP: u64 = 0;
/// Poller token of the program's standard output.
const OUTPUT: u64 = 1;
/// Poller token of the program's standard error.
const ERRORS: u64 = 2;

/// Settings of an external program with transports.
#[derive(Clone, Debug)]
pub struct PluginSettings {
    /// Path of the external program, and its arguments.
    pub program: Vec<String>,
    /// Names of the transports to start.
    pub transports: Vec<String>,
    /// Our data folder. The external program may write to a subfolder of it.
    pub data: PathBuf,
    /// Further settings for the external program of a bridge; `None` at a client.
    pub server: Option<ServerPlugin>,
}

/// Settings of an external program with transports at a bridge.
#[derive(Clone, Debug)]
pub struct ServerPlugin {
    /// Addresses at which transports should listen, by the transport's name.
    pub listen: Vec<(String, SocketAddr)>,
    /// The operator's options for transports, by the transport's name.
    pub options: Vec<(String, Args)>,
    /// Address of the relay's Extended ORPort, and path of the file with the cookie for this port.
    pub extended: (SocketAddr, PathBuf),
    /// Address of the relay's ORPort for plain connections.
    pub relay: SocketAddr,
}

/// Reason why an external program with transports cannot be started.
#[derive(Debug)]
pub enum PluginFailure {
    /// The folder for the state of the external program cannot be created.
    Folder(PathBuf, io::Error),
    /// The external program cannot be executed. The fields are its path and the error.
    Start(String, io::Error),
}

impl fmt::Display for PluginFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PluginFailure::Folder(path, error) => write!(out, "{}: {error}", path.display()),
            PluginFailure::Start(program, error) => {
                write!(out, "'{program}' cannot be started: {error}")
            }
        }
    }
}

impl std::error::Error for PluginFailure {}

/// A running external program with transports. It is stopped when this value is dropped.
pub struct Plugin {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Plugin {
    /// Starts an external program with transports, and a thread that keeps the program running.
    /// The addresses of the program's transports, and the program's messages, are stored in
    /// `transports`. At a bridge, the transports listen for clients at these addresses.
    ///
    /// # Errors
    /// Returns a [`PluginFailure`] if the first start fails. After later failures the program is
    /// restarted.
    pub fn start(
        settings: PluginSettings,
        transports: Transports,
    ) -> Result<Plugin, PluginFailure> {
        let state = settings.data.join(STATE);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&state);
        made.map_err(|error| PluginFailure::Folder(state.clone(), error))?;
        let name = settings.program.first().cloned().unwrap_or_default();
        let cannot = |error| PluginFailure::Start(name.clone(), error);
        let child = spawn(&settings, &state).map_err(cannot)?;
        let (stop, end) = UnixStream::pair().map_err(cannot)?;
        let clock = Clock::start();
        let keeper = PluginThread { settings, state, transports, end, clock };
        let thread = thread::Builder::new().name("plugin".into());
        let thread = thread.spawn(move || keeper.run(child)).map_err(cannot)?;
        Ok(Plugin { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// State of the thread that keeps an external program with transports running.
struct PluginThread {
    settings: PluginSettings,
    state: PathBuf,
    transports: Transports,
    /// Socket whose other end is closed when the thread should end.
    end: UnixStream,
    clock: Clock,
}

/// Reason why the output of the external program is no longer read.
enum OutputEnd {
    /// The thread that keeps the program running should end.
    Wanted,
    /// The program has ended, or should be stopped because it has failed. The field is the reason,
    /// if it is known.
    Ended(Option<String>),
}

impl PluginThread {
    fn run(self, first: Child) {
        let (mut child, mut pause) = (Some(first), FIRST_PAUSE);
        loop {
            let begun = self.clock.now();
            let over = match child.take().map_or_else(|| spawn(&self.settings, &self.state), Ok) {
                Ok(mut child) => {
                    let over = self.listen(&mut child);
                    part(child, &over);
                    over
                }
                Err(error) => OutputEnd::Ended(Some(error.to_string())),
            };
            for name in &self.settings.transports {
                self.transports.gone(name);
            }
            let OutputEnd::Ended(why) = over else { return };
            if self.clock.now().since(begun) >= LONG_RUN {
                pause = FIRST_PAUSE;
            }
            let why = why.unwrap_or_else(|| "the program has ended".to_owned());
            self.log(&format!("{why}; it starts again in {:.1} s", pause.as_secs_f32()));
            if self.must_stop(pause) {
                return;
            }
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// Reads the output of the external program until the program ends, or until this thread
    /// should end.
    fn listen(&self, child: &mut Child) -> OutputEnd {
        let broken = |error: io::Error| OutputEnd::Ended(Some(error.to_string()));
        let (Some(mut output), Some(errors)) = (child.stdout.take(), child.stderr.take()) else {
            return OutputEnd::Ended(None);
        };
        let mut errors = Errors { output: errors, line: Vec::new(), left: LINES };
        let mut poller = match self.watch(&output, &errors.output) {
            Ok(poller) => poller,
            Err(error) => return broken(error),
        };
        let (mut manager, mut was_ready) = (Manager::new(false), false);
        let deadline = self.clock.now() + PATIENCE;
        loop {
            let ready: Vec<Ready> = match poller.wait(Some(LOOK)) {
                Ok(ready) => ready.collect(),
                Err(error) => return broken(error),
            };
            if ready.iter().any(|one| one.token == STOP) {
                return OutputEnd::Wanted;
            }
            // Messages that the program wrote before its end are reported before the end.
            if ready.iter().any(|one| one.token == ERRORS)
                && !errors.read_output(|line| self.log(line))
                && let Err(error) = poller.remove(&errors.output)
            {
                return broken(error);
            }
            if ready.iter().any(|one| one.token == OUTPUT) {
                let result = read_output(&mut output, &mut manager);
                self.pass_on(&mut manager);
                match result {
                    Ok(true) => {}
                    Ok(false) => return OutputEnd::Ended(None),
                    Err(failure) => return OutputEnd::Ended(Some(failure.to_string())),
                }
            }
            if manager.is_ready() && !std::mem::replace(&mut was_ready, true) {
                self.up(&manager);
            }
            if is_late(was_ready, self.clock.now(), deadline) {
                return OutputEnd::Ended(Some(
                    "the program does not report its transports".to_owned(),
                ));
            }
        }
    }

    fn watch(&self, output: &ChildStdout, errors: &ChildStderr) -> io::Result<Poller> {
        let poller = Poller::new(3)?;
        poller.add(&self.end, STOP)?;
        poller.add(output, OUTPUT)?;
        poller.add(errors, ERRORS)?;
        Ok(poller)
    }

    /// Forwards the errors and warnings that the external program has reported in messages of
    /// pt-spec.
    fn pass_on(&self, manager: &mut Manager) {
        for (severity, text) in manager.messages() {
            if matches!(severity, Severity::Error | Severity::Warning) {
                self.log(&text);
            }
        }
    }

    /// Records the transports that the external program reports as started, and logs the failures
    /// of its other transports.
    fn up(&self, manager: &Manager) {
        for (name, why) in manager.refused() {
            self.log(&format!("this program cannot start the transport {name}: {why}"));
        }
        for name in &self.settings.transports {
            let method = manager.methods().iter().find(|method| method.name == *name);
            match method {
                Some(Method { address, protocol: Some(Protocol::Socks5), .. }) => {
                    self.transports.ready(name, *address);
                }
                Some(Method { protocol: Some(Protocol::Socks4), .. }) => {
                    self.log(&format!("transport {name} uses SOCKS4, which is not supported"));
                }
                Some(Method { address, args, protocol: None, .. }) => {
                    self.transports.offer(name, *address, args.clone());
                }
                None if manager.refused().iter().any(|(refused, _)| refused == name) => {}
                None => self.log(&format!("the program does not know the transport {name}")),
            }
        }
    }

    /// Waits for `pause`, or until this thread should end. Returns true in the latter case.
    fn must_stop(&self, pause: Duration) -> bool {
        let Ok(mut poller) = Poller::new(1) else { return true };
        let wait = poller.add(&self.end, STOP).and_then(|()| Ok(poller.wait(Some(pause))?.count()));
        wait.map_or(true, |count| count > 0)
    }

    fn log(&self, text: &str) {
        let program = self.settings.program.first().map_or("", String::as_str);
        self.transports.log(format!("{program}: {text}"));
    }
}

fn is_late(was_ready: bool, now: Time, deadline: Time) -> bool {
    !was_ready && now >= deadline
}

/// Reads the external program's standard output once. Returns false at the end of the output.
///
/// # Errors
/// The program has sent an invalid message.
fn read_output(output: &mut ChildStdout, manager: &mut Manager) -> Result<bool, Failure> {
    let mut buffer = [0; 4096];
    match output.read(&mut buffer) {
        Ok(0) | Err(_) => Ok(false),
        Ok(count) => manager.take(&buffer[..count]).map(|()| true),
    }
}

/// Reader of the external program's standard error.
struct Errors {
    output: ChildStderr,
    /// The beginning of a line that is not complete yet.
    line: Vec<u8>,
    /// Number of lines that may still be forwarded to the log.
    left: usize,
}

impl Errors {
    /// Reads the external program's standard error once, and passes complete lines to `pass_on`.
    /// Returns false at the end of the output.
    fn read_output(&mut self, mut pass_on: impl FnMut(&str)) -> bool {
        let mut buffer = [0; 4096];
        let count = self.output.read(&mut buffer).unwrap_or(0);
        let end: &[u8] = if count == 0 { b"\n" } else { &[] };
        for &byte in buffer[..count].iter().chain(end) {
            if byte != b'\n' {
                self.line.extend((self.line.len() < LONGEST).then_some(byte));
                continue;
            }
            let line = String::from_utf8_lossy(&self.line).trim().to_owned();
            self.line.clear();
            if !line.is_empty() && self.left > 0 {
                self.left -= 1;
                pass_on(&line);
            }
        }
        count > 0
    }
}

/// Stops the external program as pt-spec requires: closes its standard input, then sends SIGTERM,
/// and finally SIGKILL.
fn part(mut child: Child, over: &OutputEnd) {
    drop(child.stdin.take());
    let patience = if matches!(over, OutputEnd::Wanted) { PARTING } else { PARTING / 4 };
    if has_ended(&mut child, patience) {
        return;
    }
    let _ = kill_process(Pid::from_child(&child), Signal::TERM);
    if has_ended(&mut child, TERM) {
        return;
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Waits at most `patience` for the external program to end. Returns whether it has ended.
fn has_ended(child: &mut Child, patience: Duration) -> bool {
    let begun = Clock::start();
    while begun.now().since(Time::ZERO) < patience {
        match child.try_wait() {
            Ok(None) => thread::sleep(Duration::from_millis(10)),
            Ok(Some(_)) | Err(_) => return true,
        }
    }
    false
}

fn spawn(settings: &PluginSettings, state: &Path) -> io::Result<Child> {
    let Some((program, args)) = settings.program.split_first() else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            command.env_remove(name);
        }
    }
    command.args(args).envs(variables(settings, state));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

fn variables(settings: &PluginSettings, state: &Path) -> Vec<(&'static str, OsString)> {
    let names = OsString::from(settings.transports.join(","));
    let mut all = vec![
        ("TOR_PT_MANAGED_TRANSPORT_VER", "1".into()),
        ("TOR_PT_STATE_LOCATION", whole(state)),
        ("TOR_PT_EXIT_ON_STDIN_CLOSE", "1".into()),
    ];
    let Some(server) = &settings.server else {
        all.push(("TOR_PT_CLIENT_TRANSPORTS", names));
        return all;
    };
    let listen: Vec<String> =
        server.listen.iter().map(|(name, at)| format!("{name}-{at}")).collect();
    let options = server.options.iter().filter(|(_, args)| !args.is_empty());
    let options: Vec<String> = options.map(|(name, args)| args.to_options(name)).collect();
    let (extended, cookie) = &server.extended;
    all.extend([
        ("TOR_PT_SERVER_TRANSPORT_OPTIONS", options.join(";").into()),
        ("TOR_PT_SERVER_TRANSPORTS", names),
        ("TOR_PT_SERVER_BINDADDR", listen.join(",").into()),
        ("TOR_PT_ORPORT", server.relay.to_string().into()),
        ("TOR_PT_EXTENDED_SERVER_PORT", extended.to_string().into()),
        ("TOR_PT_AUTH_COOKIE_FILE", whole(cookie)),
    ]);
    all
}

/// Returns `path` as an absolute path. Tor's pt-spec requires absolute paths.
fn whole(path: &Path) -> OsString {
    path::absolute(path).unwrap_or_else(|_| path.to_owned()).into()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Starts a transport that consists of a few lines of shell.
    fn plugin(script: &str, data: &Path, transports: &Transports) -> Result<Plugin, PluginFailure> {
        let program = ["sh", "-c", script].map(str::to_owned).to_vec();
        let wanted = ["x", "y"].map(str::to_owned).to_vec();
        let data = data.to_owned();
        let settings = PluginSettings { program, transports: wanted, data, server: None };
        Plugin::start(settings, transports.clone())
    }

    fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    const UP: &str = "echo VERSION 1; echo CMETHOD x socks5 127.0.0.1:9; \
                      echo CMETHOD-ERROR y not today; echo CMETHODS DONE; ";

    #[test]
    fn one_that_ends_is_started_again_and_ends_with_its_input() {
        let folder = tempfile::tempdir().unwrap();
        let transports = Transports::new().unwrap();
        let count = folder.path().join("count");
        // The first run of the program ends when the file `count.die` exists. The second run ends
        // when its standard input ends.
        let script = format!(
            "echo $TOR_PT_CLIENT_TRANSPORTS $TOR_PT_STATE_LOCATION >> {0}; {UP} \
             if [ $(wc -l < {0}) = 1 ]; then while [ ! -e {0}.die ]; do sleep .02; done; exit 3; \
             fi; \
             cat; echo end >> {0}",
            count.display()
        );
        let plugin = plugin(&script, folder.path(), &transports).unwrap();
        wait_until("it is up", || transports.at("x").is_some());
        assert_eq!(transports.at("y"), None);
        std::fs::write(folder.path().join("count.die"), "").unwrap();
        wait_until("it is gone", || transports.at("x").is_none());
        wait_until("it is up again", || transports.at("x").is_some());
        let messages = transports.news().messages;
        assert!(
            messages
                .iter()
                .any(|line| line == "sh: this program cannot start the transport y: not today"),
            "{messages:?}"
        );
        assert!(
            messages
                .iter()
                .any(|line| line.starts_with("sh: the program has ended; it starts again")),
            "{messages:?}"
        );
        drop(plugin);
        let text = std::fs::read_to_string(&count).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let state = folder.path().join(STATE).display().to_string();
        assert_eq!(lines, [&*format!("x,y {state}"), &format!("x,y {state}"), "end"]);
        assert_eq!(transports.at("x"), None);
    }

    #[test]
    fn one_that_breaks_the_protocol_or_cannot_be_started_is_told_in_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let transports = Transports::new().unwrap();
        let _plugin = plugin("echo CMETHODS DONE; cat", folder.path(), &transports).unwrap();
        let mut messages = Vec::new();
        wait_until("it is told", || {
            messages.extend(transports.news().messages);
            !messages.is_empty()
        });
        let wanted = "sh: the transport's program wrote 'CMETHODS DONE', which breaks the protocol \
                      for pluggable transports; it starts again";
        assert!(messages[0].starts_with(wanted), "{messages:?}");
        let program = vec!["/no/such/program".to_owned()];
        let data = folder.path().to_owned();
        let settings = PluginSettings { program, transports: Vec::new(), data, server: None };
        let refused = Plugin::start(settings, transports).map(drop).unwrap_err().to_string();
        assert!(refused.starts_with("'/no/such/program' cannot be started: "), "{refused}");
    }

    #[test]
    fn one_that_does_not_end_with_its_input_is_told_by_sigterm() {
        let folder = tempfile::tempdir().unwrap();
        let transports = Transports::new().unwrap();
        let marker = folder.path().join("told");
        let script = format!(
            "trap 'echo term >> {}; exit' TERM; {UP} while :; do sleep .05; done",
            marker.display()
        );
        let plugin = plugin(&script, folder.path(), &transports).unwrap();
        wait_until("it is up", || transports.at("x").is_some());
        drop(plugin);
        assert_eq!(std::fs::read_to_string(&marker).unwrap(), "term\n");
    }

    #[test]
    fn what_it_complains_of_before_it_ends_is_passed_on() {
        let folder = tempfile::tempdir().unwrap();
        let transports = Transports::new().unwrap();
        // A log message and an invalid line may arrive in the same read.
        let script = "i=0; while [ $i -lt 99 ]; do i=$((i+1)); echo complaint $i >&2; done; \
                      printf 'VERSION 1\\nLOG SEVERITY=error MESSAGE=logged\\nCMETHOD\\n'; cat";
        let _plugin = plugin(script, folder.path(), &transports).unwrap();
        let mut messages = Vec::new();
        wait_until("it is told", || {
            messages.extend(transports.news().messages);
            messages.iter().any(|line| line.contains("it starts again"))
        });
        let ended = messages.iter().position(|line| line.contains("it starts again")).unwrap();
        let complaints =
            messages.iter().take(ended).filter(|line| line.contains("complaint")).count();
        assert_eq!((complaints, &*messages[0]), (LINES, "sh: complaint 1"), "{messages:?}");
        assert_eq!(messages[ended - 1], "sh: logged");
    }

    #[test]
    fn a_bridges_program_is_told_where_to_listen_and_where_its_relay_is() {
        let server = ServerPlugin {
            listen: vec![("x".to_owned(), "0.0.0.0:443".parse().unwrap())],
            options: vec![("x".to_owned(), Args(vec![("k".to_owned(), "a:b;c=d".to_owned())]))],
            extended: ("127.0.0.1:8".parse().unwrap(), "c".into()),
            relay: "127.0.0.1:9".parse().unwrap(),
        };
        let (program, transports) = (vec!["p".to_owned()], vec!["x".to_owned()]);
        let data = PathBuf::from("/d");
        let settings = PluginSettings { program, transports, data, server: Some(server) };
        let vars = variables(&settings, Path::new("d/pt_state"));
        let of =
            |name: &str| vars.iter().find(|(one, _)| *one == name).map(|(_, value)| value.clone());
        let environment = anabranch_pt::Environment::read(|name| of(name)?.into_string().ok());
        let anabranch_pt::Side::Server(server) = environment.unwrap().side else {
            panic!("it is at a bridge")
        };
        assert_eq!(server.methods[0].options.get("k"), Some("a:b;c=d"));
        assert_eq!(server.methods[0].address, "0.0.0.0:443".parse().ok());
        let here = env::current_dir().unwrap();
        assert_eq!(server.extended.unwrap().1, here.join("c").display().to_string());
        assert_eq!(of("TOR_PT_STATE_LOCATION").unwrap(), here.join("d/pt_state"));
    }
}
