//! Files for one process at a time (flock(2)).

use std::fs::{File, TryLockError};
use std::io;
use std::ops::{Deref, DerefMut};

/// A file that is locked until this is dropped. A child process shares the file until it executes
/// its program, but dropping this releases the lock at once.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Locks a file; `None` if it is locked already.
    ///
    /// # Errors
    /// The kernel's.
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
