//! Programs that run in the hosts of a network. Each program has a thread that starts it and waits
//! for its end.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anabranch_os::pid_namespace::PidNamespace;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::program::{Program, ProgramEnd};
use super::{Namespace, Network, SetupError};

/// Time between SIGTERM and SIGKILL when programs are stopped.
const GRACE: Duration = Duration::from_secs(2);
/// Maximum delay, after the end of a program, before the end is reported. The program's last lines
/// of output can thus be reported first.
const LAST_LINES: Duration = Duration::from_millis(100);
/// Maximum length in bytes of a line of output that is reported at once; longer lines are split.
const LONGEST_LINE: u64 = 16_384;

/// Destination of a program's standard output and standard error. Only with [`Output::Ours`], the
/// program also has a standard input; otherwise its input is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The output is written to the files `NAME.stdout` and `NAME.stderr` in this directory.
    Folder(PathBuf),
    /// Each line of output is reported by [`Notice::Line`].
    Lines,
    /// The output goes where this process's own output goes. The program also has this process's
    /// standard input, and its terminal if there is one.
    Ours,
}

/// An event in the life of a program. The first field is the program's index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The program with this index was started, and has this process ID.
    Started(usize, u32),
    /// The program wrote a line of text to standard output or standard error.
    Line {
        /// Index of the program.
        program: usize,
        /// True if the line is from standard error.
        error: bool,
        /// The line without its line break; invalid UTF-8 is replaced.
        text: String,
    },
    /// The program with this index has ended. Output lines of the program or its children may
    /// still follow.
    Ended(usize, ProgramEnd),
}

impl Notice {
    /// Returns the index of the program that the notice concerns.
    pub fn program(&self) -> usize {
        match *self {
            Notice::Started(program, _) | Notice::Ended(program, _) => program,
            Notice::Line { program, .. } => program,
        }
    }
}

/// A program to start, with its executable file and the destination of its output.
#[derive(Clone, Debug)]
pub struct Job {
    /// Program to run.
    pub program: Program,
    /// File to execute, from [`Program::locate`].
    pub executable: PathBuf,
    /// Destination of the program's output.
    pub output: Output,
}

/// Programs started in the hosts of a network.
///
/// The programs run in a PID namespace. It ends when this value is dropped, and when this process
/// ends for any reason.
pub struct Programs {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    space: PidNamespace,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    stopping: bool,
    progress: Vec<Progress>,
}

enum Progress {
    Waiting,
    Running(OwnedFd),
    Done(ProgramEnd),
}

impl Programs {
    /// Starts the programs in `jobs`, each in its host and at its start time, which counts from
    /// this call. `notify` is called with each notice, on any thread.
    ///
    /// # Errors
    /// [`SetupError`] if no PID namespace or no log directory can be created. A program that
    /// cannot be started is reported by [`Notice::Ended`], not as an error.
    pub fn start<T>(network: &Network, jobs: Vec<Job>, notify: T) -> Result<Programs, SetupError>
    where
        T: Fn(Notice) + Clone + Send + Sync + 'static,
    {
        let step = |name: &str| {
            let step = name.to_owned();
            move |cause| SetupError { step, cause }
        };
        for folder in jobs.iter().filter_map(|job| job.output.folder()) {
            let name = format!("make the folder `{}` for logs", folder.display());
            fs::create_dir_all(folder).map_err(step(&name))?;
        }
        let space = PidNamespace::new().map_err(step("make a PID namespace"))?;
        let progress = jobs.iter().map(|_| Progress::Waiting).collect();
        let state = Mutex::new(State { stopping: false, progress });
        let shared = Arc::new(Shared { space, state, changed: Condvar::new() });
        let mut programs = Programs { shared, threads: Vec::new() };
        let start = Instant::now();
        for (at, job) in jobs.into_iter().enumerate() {
            let host = network.namespace(job.program.host).try_clone();
            let host = host.map_err(step("keep a host's network namespace open"))?;
            let (shared, notify) = (Arc::clone(&programs.shared), notify.clone());
            programs
                .threads
                .push(thread::spawn(move || shared.supervise(at, &job, &host, start, &notify)));
        }
        Ok(programs)
    }

    /// Stops all programs, and returns how each of them ended. Programs that do not end on SIGTERM
    /// are killed, with all their children.
    pub fn stop(mut self) -> Vec<ProgramEnd> {
        self.end();
        let mut state = self.shared.lock();
        let ends = state.progress.drain(..).map(|progress| match progress {
            Progress::Done(ended) => ended,
            Progress::Waiting | Progress::Running(_) => ProgramEnd::Stopped,
        });
        ends.collect()
    }

    fn end(&mut self) {
        self.shared.terminate_all();
        self.shared.space.kill();
        for thread in self.threads.drain(..) {
            // That thread has already reported its panic.
            let _ = thread.join();
        }
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.end();
    }
}

impl Output {
    fn folder(&self) -> Option<&PathBuf> {
        if let Output::Folder(folder) = self { Some(folder) } else { None }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the program with the index `at` from its start to its end, and reports both.
    fn supervise(
        &self,
        at: usize,
        job: &Job,
        host: &Namespace,
        start: Instant,
        notify: &(impl Fn(Notice) + Clone + Send + Sync),
    ) {
        let child = self.wait_until(start + job.program.start).then(|| self.spawn(at, job, host));
        let failed = |error: io::Error| ProgramEnd::Failed(error.to_string());
        let mut child =
            match child.ok_or(ProgramEnd::NotStarted).and_then(|child| child.map_err(failed)) {
                Ok(child) => child,
                Err(ended) => return notify(Notice::Ended(at, self.record(at, ended))),
            };
        notify(Notice::Started(at, child.id()));
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        thread::scope(|scope| {
            let readers = [
                scope.spawn(|| output.map(|pipe| read_lines(pipe, at, false, notify.clone()))),
                scope.spawn(|| errors.map(|pipe| read_lines(pipe, at, true, notify.clone()))),
            ];
            let ended = child.wait().map_or_else(failed, ended);
            let ended = self.record(at, ended);
            // The last lines are reported before the end. The program's children may keep the
            // pipes open, so the wait is limited.
            let patience = Instant::now() + LAST_LINES;
            while readers.iter().any(|r| !r.is_finished()) && Instant::now() < patience {
                thread::sleep(Duration::from_millis(1));
            }
            notify(Notice::Ended(at, ended));
        });
    }

    /// Sleeps until `time`, and then returns true. Returns false at once when the programs are
    /// being stopped.
    fn wait_until(&self, time: Instant) -> bool {
        let left = time.saturating_duration_since(Instant::now());
        let running = |state: &mut State| !state.stopping;
        let waited = self.changed.wait_timeout_while(self.lock(), left, running);
        !waited.unwrap_or_else(PoisonError::into_inner).0.stopping
    }

    fn spawn(&self, at: usize, job: &Job, host: &Namespace) -> io::Result<Child> {
        let mut command = command(job)?;
        let mut child = self.space.run(|| {
            host.enter()?;
            command.spawn()
        })?;
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let pidfd = pidfd.inspect_err(|_| drop(child.kill().and_then(|()| child.wait())))?;
        let mut state = self.lock();
        if state.stopping {
            // The program started too late to receive the signal that was sent to all programs.
            let _ = pidfd_send_signal(&pidfd, Signal::TERM);
        }
        state.progress[at] = Progress::Running(pidfd);
        Ok(child)
    }

    /// Records how a program ended. While programs are being stopped, any end counts as
    /// [`ProgramEnd::Stopped`], or [`ProgramEnd::NotStarted`] if the program was not running.
    fn record(&self, at: usize, ended: ProgramEnd) -> ProgramEnd {
        let mut state = self.lock();
        let was_running = matches!(state.progress[at], Progress::Running(_));
        let ended = match (state.stopping, was_running) {
            (true, true) => ProgramEnd::Stopped,
            (true, false) => ProgramEnd::NotStarted,
            (false, _) => ended,
        };
        state.progress[at] = Progress::Done(ended.clone());
        drop(state);
        self.changed.notify_all();
        ended
    }

    /// Sends SIGTERM to all running programs, and waits for at most [`GRACE`] until they end.
    fn terminate_all(&self) {
        let mut state = self.lock();
        state.stopping = true;
        self.changed.notify_all();
        for progress in &state.progress {
            if let Progress::Running(pidfd) = progress {
                let _ = pidfd_send_signal(pidfd, Signal::TERM);
            }
        }
        let running = |state: &mut State| {
            state.progress.iter().any(|progress| !matches!(progress, Progress::Done(_)))
        };
        drop(self.changed.wait_timeout_while(state, GRACE, running));
    }
}

fn command(job: &Job) -> io::Result<Command> {
    let Job { program, executable, output } = job;
    let mut command = Command::new(executable);
    command.arg0(&program.command[0]).args(&program.command[1..]).envs(&program.environment);
    let directory = program.directory.clone().unwrap_or_else(|| ".".into());
    // The program's thread has `/` as its working directory, so the path is resolved here.
    command.current_dir(fs::canonicalize(directory)?);
    if *output == Output::Ours {
        return Ok(command);
    }
    // The program is outside the terminal's foreground group, so Ctrl-C reaches only this process.
    // This process then stops the programs.
    command.stdin(Stdio::null()).process_group(0);
    match output {
        Output::Folder(folder) => {
            let file = |kind| File::create(folder.join(format!("{}.{kind}", program.name)));
            command.stdout(file("stdout")?).stderr(file("stderr")?);
        }
        _ => {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
    }
    Ok(command)
}

fn ended(status: ExitStatus) -> ProgramEnd {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProgramEnd::Code(code),
        (None, Some(signal)) => ProgramEnd::Signal(signal),
        (None, None) => ProgramEnd::Failed(format!("ended with {status}")),
    }
}

/// Passes each line from a program's output pipe to `notify`, until all writers have closed the
/// pipe.
fn read_lines(pipe: impl Read, program: usize, error: bool, notify: impl Fn(Notice)) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    // An error is treated as the end of the pipe.
    while pipe.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&line);
        let text = text.strip_suffix('\n').unwrap_or(&text).to_owned();
        notify(Notice::Line { program, error, text });
        line.clear();
    }
}
