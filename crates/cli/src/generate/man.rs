//! Man pages: one for the program, one for each sub-command.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Arg, Command};
use clap_mangen::Man;
use roff::{Roff, roman};

/// Writes the pages `anabranch.1`, `anabranch-split.1`, … of `program` to `directory`.
///
/// # Errors
/// A page cannot be written; those before it stay.
pub(super) fn write(directory: &Path, mut program: Command) -> io::Result<()> {
    // "help" would get a page for each sub-command again.
    program = program.disable_help_subcommand(true);
    program.build();
    let version = program.render_version();
    pages(&program).try_for_each(|page| {
        let man = Man::new(with_paragraphs(page.clone()));
        let man = man.source(version.trim()).manual("Anabranch");
        fs::write(directory.join(man.get_filename()), render(page, &man)?)
    })
}

/// The program and all its sub-commands, however deep.
fn pages(command: &Command) -> Box<dyn Iterator<Item = &Command> + '_> {
    let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    Box::new(std::iter::once(command).chain(shown.flat_map(pages)))
}

/// What stands on lines of its own in `--help`, such as the schedules, would flow together.
fn with_paragraphs(command: Command) -> Command {
    command.mut_args(|arg: Arg| match arg.get_long_help().map(ToString::to_string) {
        Some(text) if text.contains('\n') => {
            let lines = text.lines().filter(|line| !line.is_empty());
            arg.long_help(lines.collect::<Vec<_>>().join("\n\n"))
        }
        _ => arg,
    })
}

fn render(command: &Command, man: &Man) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
        man.render_subcommands_section(&mut text)?;
    }
    if let Some(after) = command.get_after_long_help() {
        closing(&after.to_string()).to_writer(&mut text)?;
    }
    Ok(text)
}

/// What `--help` ends with: its lines as they are, each headline a section.
fn closing(text: &str) -> Roff {
    let mut roff = Roff::new();
    for line in text.lines() {
        if is_headline(line) {
            roff.control("fi", []).control("SH", [line]).control("nf", []);
        } else {
            roff.text([roman(line)]);
        }
    }
    roff.control("fi", []);
    roff
}

/// As the help writes them: in capitals, not set in.
fn is_headline(line: &str) -> bool {
    line.starts_with(|c: char| c.is_ascii_uppercase()) && line == line.to_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_headline_of_the_help_becomes_a_section_that_keeps_its_lines() {
        let text = closing("EXIT CODES\n  0 well   2 misuse\n\nSEE ALSO\n  .other\n").to_roff();
        let sections: Vec<_> = text.lines().filter(|line| line.starts_with(".SH")).collect();
        assert_eq!(sections, [".SH \"EXIT CODES\"", ".SH \"SEE ALSO\""]);
        assert!(text.contains("\n  0 well   2 misuse\n"), "{text}");
    }

    #[test]
    fn lines_of_an_options_help_become_paragraphs() {
        let command = Command::new("x").arg(Arg::new("a").long_help("one\n\ntwo\nthree"));
        let command = with_paragraphs(command);
        let help = command.get_arguments().next().unwrap().get_long_help().unwrap();
        assert_eq!(help.to_string(), "one\n\ntwo\n\nthree");
    }
}
