//! Test that every command in the README and the guides exists. It parses commands of this program
//! with the program's own command line, looks up targets of `make` in the Makefile, and checks
//! other programs by name.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../tests/guide/mod.rs"]
mod guide;

use std::fs;

use clap::Parser;

use crate::Cli;

/// Programs of other projects that occur in commands in the README and the guides.
const OTHERS: &str = "apt cat chmod chown chromium cp curl export install ip iptables journalctl mkdir nft \
     ping pip python3 sysctl systemctl wg-quick xz";

/// Tests that every command in the README and the guides is known. `crates/cli/tests/documents.rs`
/// runs many of the commands, and `lab/tests/test_documents.py` checks the commands of the lab.
#[test]
fn every_command_of_the_documents_is_known() {
    let makefile = fs::read_to_string(guide::root().join("Makefile")).unwrap();
    let commands = guide::commands();
    let ours = commands.iter().filter(|typed| typed.words[0] == "anabranch").count();
    assert!(ours > 30, "only {ours} commands of ours were found");
    for typed in commands {
        let (place, words) = (&typed.place, &typed.words);
        match words[0].as_str() {
            "anabranch" => {
                if let Err(error) = Cli::try_parse_from(words) {
                    panic!("{place}: {}\n{error}", words.join(" "));
                }
            }
            "make" => {
                let target = format!("\n{}:", words[1]);
                assert!(makefile.contains(&target), "{place}: make has no {}", words[1]);
            }
            "anabranch-lab" => {}
            other => {
                let known = OTHERS.split(' ').any(|name| name == other);
                assert!(known, "{place}: {other} is not a program that the documents use");
            }
        }
    }
}
