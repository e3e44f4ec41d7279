//! Files that only one process at a time may use (flock(2)).

use std::fs::{File, TryLockError};
use std::io;
use std::ops::{Deref, DerefMut};

/// A file that is locked until this value is dropped. Dropping unlocks the file explicitly:
/// closing it would not, while a forked child still has a copy of the file descriptor.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Locks `file`. Returns `None` if the file is already locked.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn take(file: File) -> io::Result<Option<FileLock>> {
        match file.try_lock() {
            Ok(()) => Ok(Some(FileLock(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Deref for FileLock {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl DerefMut for FileLock {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.0
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}
