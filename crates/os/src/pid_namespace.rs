//! A PID namespace: when its first process ends, the kernel ends all others in it.

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

/// A PID namespace with a `/proc` of its own, in a mount namespace of its own.
///
/// Its first process is `cat`, which reads a pipe that this process holds. The pipe ends with this
/// process, however it ends; then `cat` ends, and the kernel kills whatever else is in there.
pub struct PidNamespace {
    first: Child,
    pidfd: OwnedFd,
}

impl PidNamespace {
    /// Makes one.
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

    /// Runs `work` on a thread of its own. Processes that it starts are born in the namespace;
    /// their working directory is `/` unless they are given one.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
        on_fresh_thread(|| {
            // SAFETY: FS parts the working directory and the root from other threads, not the file
            // table. The kernel wants it of those who change their mount namespace.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }?;
            let kinds = ThreadNameSpaceType::PROCESS_ID | ThreadNameSpaceType::MOUNT;
            rustix::thread::move_into_thread_name_spaces(self.pidfd.as_fd(), kinds)?;
            work()
        })
    }

    /// Kills all processes in the namespace. No further one can be started.
    pub fn kill(&self) {
        // An error means that it has ended.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }
}

impl Drop for PidNamespace {
    /// Returns when no process is left, but for zombies of other parents.
    fn drop(&mut self) {
        self.kill();
        let _ = self.first.wait();
    }
}

fn spawn_first() -> io::Result<Child> {
    // SAFETY: NEWPID concerns the children of this thread, which ends after the first.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWPID) }?;
    let mut cat = Command::new("cat");
    cat.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // Apart from the terminal's foreground group: Ctrl-C is for us.
    cat.process_group(0).current_dir("/");
    // SAFETY: it allocates nothing, takes no lock, and makes system calls only.
    unsafe { cat.pre_exec(furnish) };
    cat.spawn()
}

/// What the first process does before it becomes `cat`.
fn furnish() -> io::Result<()> {
    // SAFETY: an ignored SIGCHLD, which stays ignored after exec, has the kernel clear away orphans
    // that end here; the call is on the list of those that are safe after fork.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    // SAFETY: NEWNS does not part the file table.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    // The machine's later mounts come in here, ours do not go out.
    mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount(c"proc", c"/proc", c"proc", flags, c"")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A namespace, unless this machine allows none.
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
        // The shell counts by itself: of a pipeline's programs some may not be there yet.
        let script = "echo $$; set -- /proc/[0-9]*; echo $#";
        let output = namespace.run(|| shell(script).output()).unwrap();
        // `cat` and the shell; the shell is the second that was ever there.
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
