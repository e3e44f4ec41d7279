//! This command line once more, for whoever lacks the privilege for it.

use std::env;
use std::path::PathBuf;

/// `sudo` and the whole command line of this process, the program by its full path (root's `PATH` may lack it), as a
/// shell reads it.
pub(crate) fn command_line() -> String {
    let mut words = env::args_os();
    let named = words.next().map(PathBuf::from).unwrap_or_default();
    let program = env::current_exe().unwrap_or(named).into_os_string();
    let words = [program].into_iter().chain(words);
    quoted(words.map(|word| word.to_string_lossy().into_owned()))
}

fn quoted(words: impl Iterator<Item = String>) -> String {
    let quoted: Vec<String> = words
        .map(|word| shlex::try_quote(&word).map(|quoted| quoted.into_owned()).unwrap_or_default())
        .collect();
    format!("sudo {}", quoted.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_same_words_again() {
        let words =
            ["/opt/my tools/anabranch", "emulate", "it's.toml", "--", "sh", "-c", "echo $HOME"];
        let line = quoted(words.iter().map(|&word| word.to_owned()));
        let again = shlex::split(line.strip_prefix("sudo ").unwrap()).unwrap();
        assert_eq!(again, words);
        assert_eq!(quoted(["/bin/anabranch".to_owned()].into_iter()), "sudo /bin/anabranch");
    }
}
