//! Named network namespaces, in the form of `ip netns`: a file in `/run/netns` on which the
//! namespace is mounted.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};

use anabranch_os::namespace::Namespace;
use anabranch_os::udp::{UdpOptions, UdpSocket};

/// The mount namespace in which a named network namespace is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountPoint {
    /// The mount namespace of this process.
    Here,
    /// The mount namespace of the process with this process ID, but not that of this process. `ip
    /// netns exec` makes a mount namespace for each command, and mounts inside it do not appear
    /// outside.
    MountsOf(u32),
    /// The namespace is not mounted anywhere: only the file with the name is left.
    Nowhere,
}

/// Returns where the namespace `name` is mounted.
///
/// # Errors
/// `/proc` cannot be read.
pub fn place(name: &str) -> io::Result<MountPoint> {
    // All files of namespaces are on one device.
    let device = fs::metadata("/proc/thread-self/ns/net")?.dev();
    let is_namespace = |file: &Path| fs::metadata(file).is_ok_and(|about| about.dev() == device);
    let file = file(name);
    if is_namespace(&file) {
        return Ok(MountPoint::Here);
    }
    let below_root = file.strip_prefix("/").expect("the path is absolute");
    let numbers = fs::read_dir("/proc")?.flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let sees = |process: &u32| {
        is_namespace(&Path::new("/proc").join(process.to_string()).join("root").join(below_root))
    };
    Ok(numbers.filter(sees).min().map_or(MountPoint::Nowhere, MountPoint::MountsOf))
}

/// Directory of the files on which named namespaces are mounted.
pub(super) const FOLDER: &str = "/run/netns";

/// Returns the file of the namespace `name`.
pub(crate) fn file(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// Gives `namespace` the name `name`: mounts it on a file with this name in [`FOLDER`].
///
/// # Errors
/// A file with this name exists (`AlreadyExists`), or a system call failed.
pub(crate) fn give(name: &str, namespace: &Namespace) -> io::Result<()> {
    fs::create_dir_all(FOLDER)?;
    share()?;
    let file = file(name);
    File::create_new(&file)?;
    Ok(mount_bind(namespace.path(), &file)?)
}

/// Returns a number that identifies the calling thread's network namespace: its cookie or, on
/// kernels without cookies, the inode of its file, which may be reused.
pub(crate) fn number() -> io::Result<u64> {
    let any = "127.0.0.1:0".parse().expect("the address is valid");
    let cookie = UdpSocket::bind(any, &UdpOptions::default()).and_then(|socket| socket.namespace());
    cookie.or_else(|_| Ok(fs::metadata("/proc/thread-self/ns/net")?.ino()))
}

/// Returns whether `name` still refers to the namespace with the number `known`, and not to a
/// later one.
pub(crate) fn is_still(name: &str, known: Option<u64>) -> bool {
    let file = file(name);
    match Namespace::open(&file).and_then(|namespace| namespace.run(number)) {
        Ok(found) => known.is_none_or(|known| known == found),
        // A splitter may have been killed between making the file and mounting on it, or this
        // process may lack the permission to enter.
        Err(_) => fs::metadata(&file).is_ok_and(|about| about.is_file() && about.len() == 0),
    }
}

/// Removes the name of a namespace. The namespace itself ends with the last process inside. A
/// missing name is not an error.
pub(crate) fn remove(name: &str) -> io::Result<()> {
    let file = file(name);
    if !file.exists() {
        return Ok(());
    }
    match unmount(&file, UnmountFlags::DETACH) {
        // A splitter may have been killed between making the file and mounting on it.
        Ok(()) | Err(rustix::io::Errno::INVAL) => fs::remove_file(&file),
        Err(error) => Err(error.into()),
    }
}

/// Makes [`FOLDER`] a shared mount, as `ip netns` does. Mounts in it then appear in other mount
/// namespaces, and can be unmounted there.
fn share() -> io::Result<()> {
    let flags = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    if mount_change(FOLDER, flags).is_ok() {
        return Ok(());
    }
    mount_bind(FOLDER, FOLDER)?;
    Ok(mount_change(FOLDER, flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a namespace with the name `name`. Without the permission, prints the error and
    /// returns `None`.
    fn named(name: &str) -> Option<Namespace> {
        let made = Namespace::new().and_then(|namespace| {
            give(name, &namespace)?;
            Ok(namespace)
        });
        made.inspect_err(|error| println!("skipped: {error}")).ok()
    }

    #[test]
    fn a_name_comes_and_goes_and_is_not_taken_twice() {
        let name = format!("anabranch-test-{}", std::process::id());
        let Some(namespace) = named(&name) else { return };
        assert_eq!(give(&name, &namespace).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(is_still(&name, Some(namespace.run(number).unwrap())));
        remove(&name).unwrap();
        remove(&name).unwrap();
        assert!(!file(&name).exists());
    }

    #[test]
    fn a_name_that_somebody_else_has_taken_is_not_ours_any_more() {
        let name = format!("anabranch-taken-{}", std::process::id());
        let Some(first) = named(&name) else { return };
        let known = first.run(number).unwrap();
        remove(&name).unwrap();
        drop(first);
        let _second = named(&name).unwrap();
        assert!(
            !is_still(&name, Some(known)),
            "also where the kernel uses its file's number again"
        );
        assert!(is_still(&name, None));
        remove(&name).unwrap();
        fs::write(file(&name), "").unwrap();
        assert!(is_still(&name, Some(known)), "nothing is mounted on it");
        remove(&name).unwrap();
    }
}
