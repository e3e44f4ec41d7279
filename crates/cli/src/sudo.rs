//! Command line that runs this process again with `sudo`, for error messages to users who lack a
//! privilege.

use std::env;
use std::path::PathBuf;

use anabranch_os::shell::line;

/// Returns `sudo` followed by this process's command line and the words `more`, quoted for a
/// shell. The program's name is its full path, because root's `PATH` may lack its folder.
pub(crate) fn command_line(more: impl IntoIterator<Item = String>) -> String {
    let mut words = env::args_os();
    let named = words.next().map(PathBuf::from).unwrap_or_default();
    let program = env::current_exe().unwrap_or(named).to_string_lossy().into_owned();
    let words = words.map(|word| word.to_string_lossy().into_owned());
    as_root(program, words.chain(more))
}

fn as_root(program: String, words: impl Iterator<Item = String>) -> String {
    let words: Vec<_> = ["sudo".to_owned(), program].into_iter().chain(words).collect();
    line(words.iter().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_same_words_again() {
        let words = ["emulate", "it's.toml", "--", "sh", "-c", "echo $HOME"].map(str::to_owned);
        let line = as_root("/opt/my tools/anabranch".into(), words.clone().into_iter());
        let again = shlex::split(line.strip_prefix("sudo '/opt/my tools/anabranch' ").unwrap());
        assert_eq!(again.unwrap(), words);
    }
}
