//! Network namespaces without a name.

#![allow(
    unsafe_code,
    reason = "unshare(2) is unsafe in rustix, because it can also separate the file table"
)]

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::thread;

use rustix::thread::{CapabilitySet, CapabilitySets, LinkNameSpaceType, UnshareFlags};

/// A network namespace, which exists as long as this handle or a process inside it exists.
///
/// The namespace has no name in the file system, so it disappears with the last process that uses
/// it, however this process ends.
#[derive(Debug)]
pub struct Namespace {
    handle: File,
}

impl Namespace {
    /// Creates a namespace that contains only a loopback interface, which is down.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN`.
    pub fn new() -> io::Result<Namespace> {
        on_fresh_thread(|| {
            // SAFETY: NEWNET changes only the network namespace of this thread, which ends right
            // afterwards. The file table stays shared.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
            Ok(Namespace { handle: File::open("/proc/thread-self/ns/net")? })
        })
    }

    /// Opens the namespace of the file `file`, such as `/run/netns/NAME` or `/proc/PID/ns/net`.
    pub fn open(file: &Path) -> io::Result<Namespace> {
        Ok(Namespace { handle: File::open(file)? })
    }

    /// Creates a second handle of this network namespace.
    ///
    /// # Errors
    /// An error of the kernel, for example if no file descriptor is left.
    pub fn try_clone(&self) -> io::Result<Namespace> {
        Ok(Namespace { handle: self.handle.try_clone()? })
    }

    /// Returns a path through which other processes may enter the namespace while this handle
    /// exists: `nsenter --net=PATH`.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.handle.as_raw_fd()).into()
    }

    /// Runs `work` on a new thread inside the namespace.
    ///
    /// Sockets and interfaces that `work` opens belong to the namespace, and may be used from any
    /// thread.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
        on_fresh_thread(|| {
            self.enter()?;
            work()
        })
    }

    /// Moves the calling thread into the namespace permanently.
    pub fn enter(&self) -> io::Result<()> {
        let kind = Some(LinkNameSpaceType::Network);
        Ok(rustix::thread::move_into_link_name_space(self.handle.as_fd(), kind)?)
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// Makes this process root of a new user namespace, unless the process may already create network
/// namespaces. Returns true if the process is now in a new user namespace. In that case, other
/// processes have to enter `/proc/PID/ns/user` before they can enter a network namespace.
///
/// Call this function before any thread is started, because the kernel moves only single-threaded
/// processes. If the machine does not allow user namespaces, nothing changes, and
/// [`Namespace::new`] will return `EPERM`.
pub fn enter_user_namespace_if_needed() -> bool {
    let may = |sets: CapabilitySets| sets.effective.contains(CapabilitySet::SYS_ADMIN);
    !rustix::thread::capabilities(None).is_ok_and(may) && become_root().is_ok()
}

/// Moves the calling thread into a mount namespace of its own, a copy of the thread's previous
/// mount namespace.
pub fn own_mounts() -> io::Result<()> {
    // SAFETY: NEWNS, and FS with it, unshare mounts and the working directory, not the file table.
    Ok(unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?)
}

/// Maps the user and the group of this process to root in the new user namespace.
fn become_root() -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    // SAFETY: NEWUSER does not unshare the file table.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }?;
    // Only a process that can no longer drop groups may map one (user_namespaces(7)).
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {} 1", user.as_raw()))?;
    fs::write("/proc/self/gid_map", format!("0 {} 1", group.as_raw()))
}

/// Runs `work` on a new thread, so that `work` may move its thread into another namespace. A
/// thread cannot return to its old namespace without privilege.
pub(crate) fn on_fresh_thread<R: Send>(
    work: impl FnOnce() -> io::Result<R> + Send,
) -> io::Result<R> {
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
