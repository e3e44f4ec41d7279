//! Common form of the help texts of all flags and sub-commands: sentences with a full stop.

use clap::{Arg, Command};

/// Adds a full stop to each help text of `command` and its sub-commands, because clap drops the
/// full stop of a text with one paragraph. The full stop stands before clap's notes in brackets,
/// such as the default value.
pub(crate) fn sentences(mut command: Command) -> Command {
    // This call adds clap's own flags and its sub-command `help`. Their texts have no full stop
    // either.
    command.build();
    of_built(command)
}

fn of_built(mut command: Command) -> Command {
    if let Some(about) = command.get_about().map(|text| ended(&text.to_string())) {
        command = command.about(about);
    }
    if let Some(about) = command.get_long_about().map(|text| ended(&text.to_string())) {
        command = command.long_about(about);
    }
    command.mut_args(of_arg).mut_subcommands(of_built)
}

fn of_arg(mut arg: Arg) -> Arg {
    if let Some(help) = arg.get_help().map(|text| ended(&text.to_string())) {
        arg = arg.help(help);
    }
    if let Some(help) = arg.get_long_help().map(|text| ended(&text.to_string())) {
        arg = arg.long_help(help);
    }
    arg
}

/// Adds a full stop to each paragraph of `text`, except lists.
fn ended(text: &str) -> String {
    let paragraphs = text.trim_end().split("\n\n").map(|paragraph| {
        let is_list = paragraph.contains('\n') || paragraph.ends_with(':');
        if is_list { paragraph.to_owned() } else { sentence(paragraph) }
    });
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

fn sentence(text: &str) -> String {
    let text = text.strip_suffix('.').unwrap_or(text);
    // A note has a name, such as "default: 2". Other brackets belong to the sentence.
    let note = text.strip_suffix(']').and_then(|rest| rest.rsplit_once(" ["));
    match note.filter(|(_, note)| note.contains(": ")) {
        Some((text, note)) => format!("{}. [{note}]", text.strip_suffix('.').unwrap_or(text)),
        None => format!("{text}."),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    #[test]
    fn a_note_follows_the_full_stop() {
        assert_eq!(ended("Print version"), "Print version.");
        assert_eq!(ended("Print events."), "Print events.");
        assert_eq!(ended("Use N threads [default: 2]."), "Use N threads. [default: 2]");
        assert_eq!(ended("Use N threads. [default: 2]"), "Use N threads. [default: 2]");
        assert_eq!(ended("Number files: a_1, ..."), "Number files: a_1, ...");
        assert_eq!(ended("Connect to HOST [PORT]"), "Connect to HOST [PORT].");
        let list = "Choose one [default: a].\n\nThere are:\n\na: first\nb: second\n\nLast";
        let wanted = "Choose one. [default: a]\n\nThere are:\n\na: first\nb: second\n\nLast.";
        assert_eq!(ended(list), wanted);
    }

    /// Collects the help texts of all flags and sub-commands, each with its place.
    fn texts(command: &Command, found: &mut Vec<(String, String)>) {
        let name = command.get_name();
        let about = [command.get_about(), command.get_long_about()];
        let about = about.into_iter().flatten().map(|text| (name.to_owned(), text.to_string()));
        found.extend(about);
        for arg in command.get_arguments() {
            let help = [arg.get_help(), arg.get_long_help()].into_iter().flatten();
            found.extend(help.map(|text| (format!("{name} {arg}"), text.to_string())));
        }
        command.get_subcommands().for_each(|inner| texts(inner, found));
    }

    #[test]
    fn every_help_text_ends_with_a_full_stop() {
        let mut found = Vec::new();
        texts(&sentences(Cli::command()), &mut found);
        assert!(found.len() > 100, "{}", found.len());
        for (place, text) in found {
            let last = text.rsplit("\n\n").next().unwrap();
            let ends = last.ends_with('.') || (last.contains(". [") && last.ends_with(']'));
            assert!(ends || last.contains('\n'), "{place}: {last}");
        }
    }

    #[test]
    fn the_command_line_is_read_as_before() {
        let command = sentences(Cli::command());
        let line = ["anabranch", "split", "tunnel.toml", "--check"];
        let matches = command.clone().try_get_matches_from(line).unwrap();
        assert_eq!(matches.subcommand_name(), Some("split"));
        let help = command.try_get_matches_from(["anabranch", "key", "--help"]).unwrap_err();
        let text = help.render().to_string();
        assert!(text.contains("Usage: anabranch key [OPTIONS]"), "{text}");
        assert!(text.contains("Print version."), "{text}");
    }
}
