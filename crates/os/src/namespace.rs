//! A network namespace without a name.

#![allow(unsafe_code, reason = "unshare(2) is unsafe in rustix: it could part the file table too")]

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::thread;

use rustix::thread::{CapabilitySet, CapabilitySets, LinkNameSpaceType, UnshareFlags};

/// A network namespace that lives as long as this handle, or a process inside it, does.
///
/// It has no name in the file system, so nothing is left of it when the process ends, however it
/// ends.
#[derive(Debug)]
pub struct Namespace {
    handle: File,
}

impl Namespace {
    /// Makes a new, empty namespace: only a loopback interface, switched off.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN`.
    pub fn new() -> io::Result<Namespace> {
        on_fresh_thread(|| {
            // SAFETY: NEWNET changes nothing but the network namespace of this thread, which ends
            // right after;
            // the file table stays shared.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
            Ok(Namespace { handle: File::open("/proc/thread-self/ns/net")? })
        })
    }

    /// The namespace that `file` stands for, such as `/run/netns/NAME` or `/proc/PID/ns/net`.
    pub fn open(file: &Path) -> io::Result<Namespace> {
        Ok(Namespace { handle: File::open(file)? })
    }

    /// A second handle on the same namespace.
    ///
    /// # Errors
    /// The kernel's: no file descriptor is left.
    pub fn try_clone(&self) -> io::Result<Namespace> {
        Ok(Namespace { handle: self.handle.try_clone()? })
    }

    /// A path by which other processes may enter while this handle lives: `nsenter --net=PATH`.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.handle.as_raw_fd()).into()
    }

    /// Runs `work` on a thread of its own inside the namespace.
    ///
    /// Sockets and interfaces that it opens belong to the namespace and may be used from anywhere.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
        on_fresh_thread(|| {
            self.enter()?;
            work()
        })
    }

    /// Moves the calling thread into the namespace, for good.
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

/// Where this process may not make network namespaces, makes it root of a new user namespace, in
/// which it may. True if it did so; then other processes must enter `/proc/PID/ns/user` first.
///
/// Call it before any thread is started: the kernel moves only processes of a single thread. If the
/// machine does not allow it either, nothing changes, and [`Namespace::new`] will say what is
/// missing.
pub fn enter_user_namespace_if_needed() -> bool {
    let may = |sets: CapabilitySets| sets.effective.contains(CapabilitySet::SYS_ADMIN);
    !rustix::thread::capabilities(None).is_ok_and(may) && become_root().is_ok()
}

/// Gives the calling thread a mount namespace of its own, a copy of the present one.
pub fn own_mounts() -> io::Result<()> {
    // SAFETY: NEWNS, and FS with it, part mounts and working directory, not the file table.
    Ok(unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?)
}

/// Maps the user and group of this process to root in a new user namespace.
fn become_root() -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    // SAFETY: NEWUSER does not part the file table.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }?;
    // A group may only be mapped by someone who cannot drop groups any more (user_namespaces(7)).
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {} 1", user.as_raw()))?;
    fs::write("/proc/self/gid_map", format!("0 {} 1", group.as_raw()))
}

/// A thread's namespace cannot be put back without privilege, so what enters one gets its own
/// thread.
pub(crate) fn on_fresh_thread<R: Send>(
    work: impl FnOnce() -> io::Result<R> + Send,
) -> io::Result<R> {
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
