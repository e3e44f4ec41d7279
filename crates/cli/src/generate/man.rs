//! Man pages: one for the program, one for each sub-command, one for each kind of settings file.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Arg, Command};
use clap_mangen::Man;
use roff::{Inline, Roff, bold, italic, roman};

use super::files;

/// Writes the pages `anabranch.1`, `anabranch-split.1`, … of `program` to `directory`.
///
/// # Errors
/// A page cannot be written. Pages that were written before it remain.
pub(super) fn write(directory: &Path, mut program: Command) -> io::Result<()> {
    // The sub-command `help` is disabled, because it would otherwise get a page for each other
    // sub-command.
    program = program.disable_help_subcommand(true);
    program.build();
    let version = program.render_version();
    files::write(directory, &program, version.trim())?;
    pages(&program).try_for_each(|page| {
        let man = Man::new(with_paragraphs(page.clone()));
        let man = man.source(version.trim()).manual("Anabranch");
        fs::write(directory.join(man.get_filename()), render(page, &man)?)
    })
}

/// Returns `command` and all of its visible sub-commands, recursively.
fn pages(command: &Command) -> Box<dyn Iterator<Item = &Command> + '_> {
    let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    Box::new(std::iter::once(command).chain(shown.flat_map(pages)))
}

/// Makes each line of a help text a paragraph. Otherwise `man` would join lines, such as those in
/// the list of schedules.
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
    synopsis(command).to_writer(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
        man.render_subcommands_section(&mut text)?;
    }
    if let Some(after) = command.get_after_long_help() {
        closing(&after.to_string()).to_writer(&mut text)?;
    }
    see_also(command).to_writer(&mut text)?;
    Ok(text)
}

/// Returns the synopsis of a command: its name, and each option with its value.
fn synopsis(command: &Command) -> Roff {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut words = vec![bold(name)];
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let (before, after) = if arg.is_required_set() { (" ", "") } else { (" [", "]") };
        words.push(roman(before));
        words.extend(arg.get_long().map(|long| bold(format!("--{long}"))));
        words.extend(values(arg));
        words.push(roman(after));
    }
    if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
        words.extend([roman(" "), italic("COMMAND")]);
    }
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]).text(words);
    roff
}

/// Returns the placeholders of an option's values, such as `FILE`.
fn values(arg: &Arg) -> Vec<Inline> {
    if !arg.get_action().takes_values() {
        return Vec::new();
    }
    let names = arg.get_value_names().unwrap_or_default();
    let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    let blank = if arg.get_long().is_some() { " " } else { "" };
    vec![roman(blank), italic(names.join(" "))]
}

/// Returns the section SEE ALSO of a page.
fn see_also(command: &Command) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    let mut words = Vec::new();
    if let Some(file) = files::page_of(command.get_name()) {
        words.extend([bold(file), roman("(5), ")]);
    }
    words.extend([bold("anabranch"), roman("(1), /usr/share/doc/anabranch")]);
    roff.text(words);
    roff
}

/// Converts the text at the end of `--help` to a part of a page. The lines stay as they are, and
/// each headline begins a section of the page.
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

/// Returns whether `line` is a headline of the help: it is in capitals and not indented.
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
