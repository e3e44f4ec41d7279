//! Search for third-party programs. The error for missing programs names their sources.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Directories in which experiments search for third-party programs, and the programs found so
/// far.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    folders: Vec<PathBuf>,
    found: BTreeMap<&'static str, PathBuf>,
}

/// Programs that were not found, each with the package or project that provides it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing(pub Vec<(&'static str, &'static str)>);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.0.iter().map(|(name, from)| format!("{name} ({from})")).collect();
        write!(
            f,
            "missing programs: {}; run `tests/interop/setup --area experiments` in the source \
             tree, which installs and builds them, or name their folder with --programs",
            all.join(", ")
        )
    }
}

impl std::error::Error for Missing {}

/// Returns this project's directory in the user's cache; `None` if the user has no home.
pub fn cache() -> Option<PathBuf> {
    let named = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    Some(named.or_else(home)?.join("anabranch"))
}

/// Returns the directory of the programs that the interop tests have built for this user; `None`
/// if the user has no home.
pub fn built() -> Option<PathBuf> {
    Some(cache()?.join("peers/bin"))
}

impl Programs {
    /// Creates a search in these directories, in this order: `own` (the user's directory, if
    /// given), the programs that the interop tests have built, `PATH`, and the directories where
    /// Debian installs servers.
    pub fn new(own: Option<&Path>) -> Programs {
        let path = env::var_os("PATH").unwrap_or_default();
        let mut folders: Vec<PathBuf> =
            own.into_iter().map(Path::to_owned).chain(built()).collect();
        folders.extend(env::split_paths(&path));
        folders.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
        Programs { folders, found: BTreeMap::new() }
    }

    /// Searches for the programs in `wanted`, each given with the package or project that provides
    /// it.
    ///
    /// # Errors
    /// Some programs are missing. The error names all of them.
    pub fn find(&mut self, wanted: &[(&'static str, &'static str)]) -> Result<(), Missing> {
        let mut missing = Vec::new();
        for &(name, from) in wanted {
            let places = self.folders.iter().map(|folder| folder.join(name));
            match places.into_iter().find(|file| is_executable(file)) {
                Some(file) => drop(self.found.insert(name, file)),
                None => missing.push((name, from)),
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(Missing(missing)) }
    }

    /// Returns all programs found so far, each with its path.
    pub(super) fn found(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        self.found.iter().map(|(&name, file)| (name, file.as_path()))
    }

    /// Returns the path of the program `name`; `name` itself if the program was not found.
    pub fn path(&self, name: &'static str) -> PathBuf {
        self.found.get(name).cloned().unwrap_or_else(|| name.into())
    }
}

fn is_executable(file: &Path) -> bool {
    file.is_file() && access(file, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_folders_come_first() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("sh");
        std::fs::copy("/bin/sh", &own).unwrap();
        let mut programs = Programs::new(Some(folder.path()));
        programs.find(&[("sh", "dash"), ("ls", "coreutils")]).unwrap();
        assert_eq!(programs.path("sh"), own);
        assert!(programs.path("ls").is_absolute());
    }

    #[test]
    fn all_that_is_missing_is_told_at_once_with_the_remedy() {
        let wanted = [("no-such-server", "its package"), ("sh", "dash"), ("no-such-client", "x")];
        let error = Programs::new(None).find(&wanted).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "missing programs: no-such-server (its package), no-such-client (x); "
            )
        );
        assert!(error.contains("tests/interop/setup --area experiments"), "{error}");
    }
}
