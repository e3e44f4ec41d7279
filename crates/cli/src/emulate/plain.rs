//! Output of an emulation on a terminal: the lines that its programs print, each with its
//! program's name.

use std::io::{self, Write};

use anabranch_emulator::{Network, Notice, Program, ProgramEnd};

use super::work::{Interface, sentence};
use super::{print_line, user_ns};
use crate::failure::Failure;

/// Text interface of an emulation, for its user: prints lines of text, and reads no commands.
pub(super) struct Plain {
    /// Whether the user is not root, so that the hosts are in a user namespace that this program
    /// has created.
    pub(super) rootless: bool,
    /// Whether the COMMAND of the command line uses the terminal. If so, only the output of the
    /// other programs is printed, on standard error.
    pub(super) quiet: bool,
}

impl Interface for Plain {
    fn listens(&self) -> bool {
        false
    }

    fn ready(&mut self, network: &Network) -> Result<(), Failure> {
        if self.quiet {
            return Ok(());
        }
        let user = if self.rootless {
            format!(" --user={} --preserve-credentials", user_ns())
        } else {
            String::new()
        };
        for (name, namespace) in network.hosts() {
            print_line(format_args!("{name}: nsenter{user} --net={}", namespace.path().display()));
        }
        print_line(format_args!("The network is up; Ctrl-C ends it."));
        Ok(())
    }

    fn execute(&mut self, _network: &Network, _line: &str) -> Result<(), Failure> {
        Ok(())
    }

    fn show(&mut self, program: &Program, notice: &Notice) -> Result<(), Failure> {
        let name = &program.name;
        match notice {
            // The output of COMMAND must not be mixed with the output of other programs.
            Notice::Line { error, text, .. } if *error || self.quiet => {
                let _ = writeln!(io::stderr(), "[{name}] {text}");
            }
            Notice::Line { text, .. } => print_line(format_args!("[{name}] {text}")),
            Notice::Ended(_, ended) if !self.quiet => {
                print_line(format_args!("{}", sentence(program, ended)))
            }
            Notice::Ended(..) | Notice::Started(..) => {}
        }
        Ok(())
    }

    fn end(&mut self, network: &Network, _ends: &[(&Program, ProgramEnd)]) -> Result<(), Failure> {
        if self.quiet {
            return Ok(());
        }
        for (name, link) in network.stats() {
            for (way, stats) in [("forward", link.forward), ("back", link.back)] {
                let (units, delivered) = (stats.units, stats.delivered.units);
                print_line(format_args!(
                    "link {name}, {way}: {units} packets sent, {delivered} arrived"
                ));
            }
        }
        Ok(())
    }
}
