//! Processes that the caller starts, one by one, in the hosts of a network.

use std::fs;
use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use anabranch_os::pid_namespace::PidNamespace;
use rustix::mount::{MountFlags, mount};

use super::Namespace;

/// Mount point of the in-memory directory for a group's own files, as the group's processes see
/// it. The files vanish when the last process ends.
const OWN_FILES: &str = "/run";

/// A PID namespace for processes in the hosts of a network. All of these processes end when this
/// value is dropped, and when this process ends for any reason.
///
/// The processes see an empty in-memory `/run`, for control sockets and for the files of
/// [`ProcessGroup::write`]. Its files vanish when the group ends.
pub struct ProcessGroup {
    space: PidNamespace,
}

/// A process of a [`ProcessGroup`]. When this value is dropped, the process is killed and its end
/// is awaited. It must be dropped before the group, because the end of a group waits for all of
/// its processes.
pub struct GroupProcess<'a> {
    child: Child,
    group: PhantomData<&'a ProcessGroup>,
}

impl ProcessGroup {
    /// Creates a group without processes.
    ///
    /// # Errors
    /// The machine does not allow a PID namespace, or a mount inside the namespace.
    pub fn new() -> io::Result<ProcessGroup> {
        let space = PidNamespace::new()?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        space.run(|| Ok(mount(c"tmpfs", c"/run", c"tmpfs", flags, c"mode=0755")?))?;
        Ok(ProcessGroup { space })
    }

    /// Starts a process in `host`. By default, its working directory is `/` and it inherits
    /// standard input; `command` may set others. The process does not receive this terminal's
    /// Ctrl-C.
    ///
    /// # Errors
    /// The process cannot be started, for example because the program does not exist.
    pub fn start(&self, host: &Namespace, command: &mut Command) -> io::Result<GroupProcess<'_>> {
        command.process_group(0);
        let child = self.space.run(|| {
            host.enter()?;
            command.spawn()
        })?;
        Ok(GroupProcess { child, group: PhantomData })
    }

    /// Runs a program in `host` until the program ends, with `input` as its standard input.
    ///
    /// # Errors
    /// The program cannot be started, or its exit status is not 0. The error contains the
    /// program's standard error.
    pub fn run(&self, host: &Namespace, command: &mut Command, input: &[u8]) -> io::Result<Output> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.start(host, command)?;
        if let Some(mut pipe) = child.stdin.take() {
            // If a program stops before it has read its input, its own error message has the
            // reason.
            let _ = pipe.write_all(input);
        }
        let output = child.finish()?;
        if output.status.success() {
            return Ok(output);
        }
        let name = command.get_program().to_string_lossy();
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!("{name} ended with {}: {}", output.status, stderr.trim())))
    }

    /// Writes the file `name` to the group's in-memory `/run`. Returns the file's path as the
    /// group's processes see it.
    ///
    /// # Errors
    /// The file cannot be written, for example for lack of memory.
    pub fn write(&self, name: &str, content: &[u8]) -> io::Result<PathBuf> {
        let path = Path::new(OWN_FILES).join(name);
        self.space.run(|| fs::write(&path, content))?;
        Ok(path)
    }

    /// Runs `work` on a thread that sees the group's in-memory `/run`, and passes the directory's
    /// path to `work`.
    ///
    /// # Errors
    /// The errors of `work`.
    pub fn among_files<R: Send>(
        &self,
        work: impl FnOnce(&Path) -> io::Result<R> + Send,
    ) -> io::Result<R> {
        self.space.run(|| work(Path::new(OWN_FILES)))
    }
}

impl GroupProcess<'_> {
    /// Waits until the process ends. Returns its exit status and its output to the captured pipes.
    pub fn finish(mut self) -> io::Result<Output> {
        drop(self.child.stdin.take());
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        std::thread::scope(|scope| {
            let errors = scope.spawn(move || {
                let mut text = Vec::new();
                stderr.map(|mut pipe| pipe.read_to_end(&mut text)).transpose().map(|_| text)
            });
            let mut text = Vec::new();
            stdout.map(|mut pipe| pipe.read_to_end(&mut text)).transpose()?;
            let status = self.child.wait()?;
            let stderr = errors.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok(Output { status, stdout: text, stderr })
        })
    }
}

impl Deref for GroupProcess<'_> {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.child
    }
}

impl DerefMut for GroupProcess<'_> {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for GroupProcess<'_> {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a group and a host for its processes; `None` if this machine allows no namespaces.
    fn group() -> Option<(ProcessGroup, Namespace)> {
        let made = ProcessGroup::new().and_then(|group| Ok((group, Namespace::new()?)));
        made.map_err(|error| eprintln!("skipped: no namespaces: {error}")).ok()
    }

    fn shell(script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        shell
    }

    #[test]
    fn files_of_a_crew_are_seen_by_it_alone() {
        let Some((group, host)) = group() else { return };
        let path = group.write("anabranch-crew-test", b"here").unwrap();
        assert!(!path.exists(), "not on the machine's own /run");
        let output =
            group.run(&host, &mut shell("cat /run/anabranch-crew-test; cat"), b"!").unwrap();
        assert_eq!(output.stdout, b"here!");
        let names = group.among_files(|folder| Ok(fs::read_dir(folder)?.count())).unwrap();
        assert_eq!(names, 1);
    }

    #[test]
    fn a_program_that_fails_says_why() {
        let Some((group, host)) = group() else { return };
        let error = group.run(&host, &mut shell("echo no >&2; exit 3"), b"").unwrap_err();
        assert_eq!(error.to_string(), "sh ended with exit status: 3: no");
    }

    #[test]
    fn the_end_of_a_crew_is_the_end_of_what_its_members_started() {
        let Some((group, host)) = group() else { return };
        let mut command = shell("setsid sleep 600 & echo begun; sleep 600");
        let mut member = group.start(&host, command.stdout(Stdio::piped())).unwrap();
        let mut pipe = member.stdout.take().unwrap();
        pipe.read_exact(&mut [0; 6]).unwrap();
        drop(member);
        drop(group);
        // The pipe ends when no process has it open for writing.
        assert_eq!(pipe.read_to_end(&mut Vec::new()).unwrap(), 0);
    }
}
