//! `anabranch generate`: shell completions and man pages, made from the definition of the command
//! line.

mod files;
mod man;
mod paths;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Command, Subcommand, ValueHint};
use clap_complete::Shell;

use crate::failure::Failure;

/// Write shell completions or man pages of this program.
///
/// Both are generated from the definition of the command line, so they include every option.
#[derive(Args)]
pub(crate) struct GenerateArgs {
    #[command(subcommand)]
    what: GenerateCommand,
}

#[derive(Subcommand)]
enum GenerateCommand {
    /// Print shell completions on standard output.
    ///
    /// Bash reads them from ~/.local/share/bash-completion/completions/anabranch, fish from
    /// ~/.config/fish/completions/anabranch.fish, zsh from a file _anabranch in a folder of its
    /// $fpath.
    Completions {
        /// Print completions for this shell.
        shell: Shell,
    },
    /// Write man pages of the program, of each sub-command and of each kind of TOML file.
    Man {
        /// Write the man pages into this existing directory.
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
}

impl GenerateArgs {
    /// Writes the requested files from the definition of `program`.
    ///
    /// # Errors
    /// Misuse (exit code 2): the directory is not writable. Trouble (exit code 1): writing to
    /// standard output fails.
    pub(crate) fn run(self, program: Command) -> Result<(), Failure> {
        match self.what {
            GenerateCommand::Completions { shell } => print(&completions(shell, program)),
            GenerateCommand::Man { directory } => write_man(&directory, program),
        }
    }
}

fn completions(shell: Shell, mut program: Command) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, "anabranch", &mut script);
    let script = String::from_utf8(script).expect("completion scripts are UTF-8 text");
    paths::complete(shell, script).into_bytes()
}

/// Prints `text`. If the reader closes the pipe early, that is not a failure.
fn print(text: &[u8]) -> Result<(), Failure> {
    match io::stdout().write_all(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::trouble(error)),
        _ => Ok(()),
    }
}

fn write_man(directory: &Path, program: Command) -> Result<(), Failure> {
    let name = directory.display();
    // The directory is checked first, because the error for the first page would not show that the
    // directory is missing.
    if !directory.is_dir() {
        return Err(Failure::misuse(format!("there is no directory '{name}': create it first")));
    }
    let cannot = |error| Failure::misuse(format!("cannot write man pages to '{name}': {error}"));
    man::write(directory, program).map_err(cannot)
}
