//! Runs a program inside a namespace made with `--netns`, so that it cannot reach the machine's
//! resolvers.
//!
//! `ip netns exec` changes the network and mounts the files of `/etc/netns/NAME` over the files of
//! `/etc`. But Unix sockets are not bound to a network namespace. A program inside could still
//! reach the machine's nscd, systemd-resolved and D-Bus, which look up names outside. So this
//! module hides the directories of their sockets: it mounts an empty directory over each.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change,
    mount_remount, unmount,
};
use rustix::process::{Gid, Uid};

use super::named;
use anabranch_os::namespace::{Namespace, own_mounts};

/// Directories that are hidden from the program, because they contain sockets of programs that
/// look up names. These programs are nscd, systemd-resolved, Avahi, nslcd, SSSD, and the system's
/// D-Bus (also used by systemd-resolved and Avahi).
const COVERED: [&str; 6] = [
    "/run/nscd",
    "/run/dbus",
    "/run/systemd/resolve",
    "/run/avahi-daemon",
    "/run/nslcd",
    "/var/lib/sss/pipes",
];

/// The user that a program runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunAs {
    /// User ID (UID).
    pub user: u32,
    /// ID of the user's primary group (GID).
    pub group: u32,
    /// IDs of all groups of the user.
    pub groups: Vec<u32>,
    /// Name of the user.
    pub name: String,
    /// Home directory of the user.
    pub home: PathBuf,
}

impl RunAs {
    /// Looks up `user`, which is a number or a name.
    ///
    /// # Errors
    /// There is no such user.
    pub fn of(user: &str) -> io::Result<RunAs> {
        let unknown = || io::Error::other(format!("there is no user '{user}'"));
        let entry = output("getent", &["passwd", "--", user])?;
        let fields: Vec<&str> = entry.trim_end().split(':').collect();
        let [name, _, number, group, _, home, ..] = fields[..] else { return Err(unknown()) };
        let groups = output("id", &["-G", "--", name])?;
        let groups = groups.split_whitespace().filter_map(|group| group.parse().ok()).collect();
        let (user, group) = number.parse().ok().zip(group.parse().ok()).ok_or_else(unknown)?;
        Ok(RunAs { user, group, groups, name: name.to_owned(), home: home.into() })
    }
}

fn output(program: &str, words: &[&str]) -> io::Result<String> {
    let done = Command::new(program).args(words).output()?;
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Returns the names of this machine's network namespaces.
pub fn namespaces() -> Vec<String> {
    let entries = fs::read_dir(named::FOLDER).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Replaces this process by `program` inside the namespace `name`, run as `user` if that is given.
/// The files of `/etc/netns/NAME` are mounted over the files of `/etc`, and empty mounts hide the
/// sockets of the machine's resolvers. Returns only on failure.
pub fn launch(
    name: &str,
    program: &OsStr,
    arguments: &[OsString],
    user: Option<&RunAs>,
) -> io::Error {
    match enter(name, user) {
        Ok(()) => {
            let mut command = Command::new(program);
            command.args(arguments);
            if let Some(user) = user {
                command.env("HOME", &user.home).env("USER", &user.name).env("LOGNAME", &user.name);
                let runtime = format!("/run/user/{}", user.user);
                if Path::new(&runtime).is_dir() {
                    command.env("XDG_RUNTIME_DIR", runtime);
                }
            }
            command.exec()
        }
        Err(error) => error,
    }
}

/// Moves the calling thread into the namespace `name` and, if `user` is given, changes to that
/// user. One thread is enough, because the program that is executed next replaces all threads.
fn enter(name: &str, user: Option<&RunAs>) -> io::Result<()> {
    let step = |what: &str| {
        let what = what.to_owned();
        move |error: Errno| {
            io::Error::new(io::Error::from(error).kind(), format!("{what}: {error}"))
        }
    };
    Namespace::open(&named::file(name))?.enter()?;
    own_mounts()?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .map_err(step("cannot separate the program's mounts from those of the machine"))?;
    // The old mount of `/sys` shows the interfaces of the namespace in which it was mounted.
    if unmount("/sys", UnmountFlags::DETACH).is_ok() {
        mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None)
            .map_err(step("cannot mount /sys"))?;
    }
    let laid = laid_over(&Path::new("/etc/netns").join(name))?;
    for folder in COVERED {
        cover(Path::new(folder), &laid)?;
    }
    for (source, target) in &laid {
        // A file that does not exist in `/etc` has no mount point. A file in a covered directory
        // was already copied.
        let target = fs::canonicalize(target).ok().filter(|target| !is_covered(target));
        if let Some(target) = target {
            let what = format!("cannot mount a file over {}", target.display());
            mount_bind(source, &target).map_err(step(&what))?;
        }
    }
    match user {
        Some(user) => become_user(user),
        None => Ok(()),
    }
}

/// Returns the files of `folder` (`/etc/netns/NAME`), each with the file of `/etc` that it
/// replaces inside the namespace.
fn laid_over(folder: &Path) -> io::Result<Vec<(PathBuf, PathBuf)>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let laid =
        entries.flatten().map(|entry| (entry.path(), Path::new("/etc").join(entry.file_name())));
    Ok(laid.collect())
}

/// Hides `folder`: mounts an empty read-only directory over it. `laid` pairs each replacement file
/// with the file of `/etc` that it replaces. If that file (often `/etc/resolv.conf`) is a link
/// into `folder`, the replacement is copied into the new directory.
fn cover(folder: &Path, laid: &[(PathBuf, PathBuf)]) -> io::Result<()> {
    let Ok(folder) = fs::canonicalize(folder) else { return Ok(()) };
    let inside = |(source, target): &(PathBuf, PathBuf)| {
        let target = fs::canonicalize(target).ok()?;
        Some((source.clone(), target)).filter(|(_, target)| target.starts_with(&folder))
    };
    let inside: Vec<_> = laid.iter().filter_map(inside).collect();
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("anabranch", &folder, "tmpfs", flags, Some(c"mode=0755"))?;
    for (source, target) in inside {
        target.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::copy(source, target)?;
    }
    Ok(mount_remount(&folder, flags | MountFlags::RDONLY, c"mode=0755")?)
}

/// Returns whether `path` is in a directory that is hidden by an empty mount.
fn is_covered(path: &Path) -> bool {
    let folders = COVERED.iter().filter_map(|folder| fs::canonicalize(folder).ok());
    folders.into_iter().any(|folder| path.starts_with(folder))
}

fn become_user(user: &RunAs) -> io::Result<()> {
    let groups: Vec<Gid> = user.groups.iter().map(|&group| Gid::from_raw(group)).collect();
    rustix::thread::set_thread_groups(&groups)?;
    let group = Gid::from_raw(user.group);
    rustix::thread::set_thread_res_gid(group, group, group)?;
    let user = Uid::from_raw(user.user);
    Ok(rustix::thread::set_thread_res_uid(user, user, user)?)
}
