//! Network namespaces with a name, as `ip netns` knows them: a file in `/run/netns` on which the namespace is mounted.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};

use crate::emulate::Namespace;

const FOLDER: &str = "/run/netns";

/// The file of the namespace `name`.
pub(crate) fn file(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// Makes the namespace `name`.
///
/// # Errors
/// `AlreadyExists`; what the kernel says.
pub(crate) fn create(name: &str) -> io::Result<Namespace> {
    fs::create_dir_all(FOLDER)?;
    share()?;
    let file = file(name);
    File::create_new(&file)?;
    let namespace = Namespace::new()?;
    mount_bind(namespace.path(), &file)?;
    Ok(namespace)
}

/// Removes the name; the namespace goes with the last process inside. One that is gone already is no error.
pub(crate) fn remove(name: &str) -> io::Result<()> {
    let file = file(name);
    if !file.exists() {
        return Ok(());
    }
    match unmount(&file, UnmountFlags::DETACH) {
        // A run that was killed between making the file and mounting on it.
        Ok(()) | Err(rustix::io::Errno::INVAL) => fs::remove_file(&file),
        Err(error) => Err(error.into()),
    }
}

/// Lets what is mounted in the folder be seen in other mount namespaces, and removed there, as `ip netns` does.
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

    #[test]
    fn a_name_comes_and_goes_and_is_not_taken_twice() {
        let name = format!("anabranch-test-{}", std::process::id());
        let namespace = match create(&name) {
            Err(error) => return println!("skipped: {error}"),
            Ok(namespace) => namespace,
        };
        assert_eq!(create(&name).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let by_name = Namespace::open(&file(&name)).unwrap();
        let number = |namespace: &Namespace| {
            namespace.run(|| fs::read_link("/proc/thread-self/ns/net")).unwrap()
        };
        assert_eq!(number(&namespace), number(&by_name));
        remove(&name).unwrap();
        remove(&name).unwrap();
        assert!(!file(&name).exists());
    }
}
