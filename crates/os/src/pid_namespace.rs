//! PID namespaces. When the first process of a PID namespace ends, the kernel kills all other
//! processes in the namespace.

#![allow(
    unsafe_code,
    reason = "unshare(2), and what a child does before it becomes another program"
)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::{ThreadNameSpaceType, UnshareFlags};

use crate::namespace::on_fresh_thread;

/// A PID namespace with its own `/proc`, in its own mount namespace.
///
/// The first process is `cat`, which reads a pipe that this process holds. The pipe closes when
/// this process ends, for whatever reason. Then `cat` exits, and the kernel kills all other
/// processes in the namespace.
pub struct PidNamespace {
    first: Child,
    pidfd: OwnedFd,
}

impl PidNamespace {
    /// Creates a PID namespace.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN`, or where parts of `/proc` are hidden, as in some
    /// containers.
    pub fn new() -> io::Result<PidNamespace> {
        let mut first = on_fresh_thread(spawn_first)?;
        match pidfd_open(Pid::from_child(&first), PidfdFlags::empty()) {
            Ok(pidfd) => Ok(PidNamespace { first, pidfd }),
            Err(error) => {
                let _ = first.kill().and_then(|()| first.wait());
                Err(error.into())
            }
        }
    }

    /// Runs `work` on a new thread. Processes that `work` starts are in the namespace. Their
    /// working directory is `/` unless they set another one.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
        on_fresh_thread(|| {
            // SAFETY: FS unshares the working directory and the root from other threads, not the
            // file table. The kernel requires this of a thread that changes its mount namespace.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }?;
            let kinds = ThreadNameSpaceType::PROCESS_ID | ThreadNameSpaceType::MOUNT;
            rustix::thread::move_into_thread_name_spaces(self.pidfd.as_fd(), kinds)?;
            work()
        })
    }

    /// Kills all processes in the namespace. No further process can be started in it.
    pub fn kill(&self) {
        // An error means that the process has ended already.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }
}

impl Drop for PidNamespace {
    /// Kills all processes in the namespace, and waits until none is left. The kernel ends the
    /// namespace only after this process has waited for each child that it started there, so this
    /// function may block until then.
    fn drop(&mut self) {
        self.kill();
        let _ = self.first.wait();
    }
}

fn spawn_first() -> io::Result<Child> {
    // SAFETY: NEWPID affects the children of this thread, which ends after the first one.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWPID) }?;
    let mut cat = Command::new("cat");
    cat.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // The process is outside the terminal's foreground group, so that Ctrl-C reaches only this
    // process.
    cat.process_group(0).current_dir("/");
    // SAFETY: `furnish` allocates nothing, takes no lock, and makes only system calls.
    unsafe { cat.pre_exec(furnish) };
    cat.spawn()
}

/// Prepares the first process of the namespace between fork and exec: ignores SIGCHLD, and mounts
/// a new `/proc`.
fn furnish() -> io::Result<()> {
    // SAFETY: an ignored SIGCHLD stays ignored after exec, and makes the kernel reap orphans that
    // end here. The call is async-signal-safe, and thus allowed after fork.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    // SAFETY: NEWNS does not unshare the file table.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    // Later mounts of the machine propagate into the namespace, and its own mounts do not
    // propagate out.
    mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount(c"proc", c"/proc", c"proc", flags, c"")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a namespace; `None` if this machine allows none.
    fn namespace() -> Option<PidNamespace> {
        PidNamespace::new().map_err(|error| eprintln!("skipped: no PID namespace: {error}")).ok()
    }

    fn shell(script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir("/");
        shell
    }

    #[test]
    fn processes_see_only_their_own() {
        let Some(namespace) = namespace() else { return };
        // The shell counts without a pipeline, because some programs of a pipeline might not have
        // started yet.
        let script = "echo $$; set -- /proc/[0-9]*; echo $#";
        let output = namespace.run(|| shell(script).output()).unwrap();
        // The processes are `cat` and the shell. The shell has the process number 2.
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "2\n2\n");
    }

    #[test]
    fn its_end_is_the_end_of_all_in_it() {
        let Some(namespace) = namespace() else { return };
        let mut child = namespace.run(|| shell("setsid sleep 600 & sleep 600").spawn()).unwrap();
        let waiter = std::thread::spawn(move || child.wait());
        drop(namespace);
        assert_eq!(waiter.join().unwrap().unwrap().code(), None);
    }

    #[test]
    fn nothing_starts_after_its_end() {
        let Some(namespace) = namespace() else { return };
        namespace.kill();
        let start = std::time::Instant::now();
        // The signal may take a moment.
        while let Ok(mut child) = namespace.run(|| shell("sleep 600").spawn()) {
            child.wait().unwrap();
            assert!(start.elapsed().as_secs() < 10);
        }
    }
}
