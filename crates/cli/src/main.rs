//! The `anabranch` program, with one module for each sub-command.

#[cfg(feature = "onion")]
mod anonymity;
#[cfg(test)]
mod documents;
mod emulate;
mod exec;
#[cfg(feature = "experiments")]
mod experiment;
mod failure;
mod generate;
mod help;
mod key;
mod merge;
#[cfg(feature = "experiments")]
mod more;
mod mosh;
#[cfg(feature = "onion")]
mod onion;
mod plain;
mod report;
mod screen;
#[cfg(feature = "experiments")]
mod sim;
mod split;
mod status;
mod sudo;
mod text;
mod tls;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use failure::Failure;

/// Split encrypted sessions over several network paths, and merge them again.
#[derive(Parser)]
#[command(version, propagate_version = true, arg_required_else_help = true)]
#[command(max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Split(Box<split::SplitArgs>),
    Merge(Box<merge::MergeArgs>),
    Key(key::KeyArgs),
    Exec(exec::ExecArgs),
    Mosh(Box<mosh::MoshArgs>),
    /// Connect ssh to the server on behalf of `anabranch mosh`.
    #[command(hide = true)]
    MoshProxy(mosh::ProxyArgs),
    #[cfg(feature = "onion")]
    Client(Box<onion::ClientArgs>),
    #[cfg(feature = "onion")]
    Relay(Box<onion::RelayArgs>),
    #[cfg(feature = "onion")]
    Authority(Box<onion::AuthorityArgs>),
    #[cfg(feature = "onion")]
    Up(onion::UpArgs),
    #[cfg(feature = "onion")]
    Pt(Box<onion::PtArgs>),
    Status(status::StatusArgs),
    Emulate(emulate::EmulateArgs),
    #[cfg(feature = "experiments")]
    Sim(sim::SimArgs),
    #[cfg(feature = "experiments")]
    Experiment(experiment::ExperimentArgs),
    #[cfg(feature = "experiments")]
    #[command(hide = true)]
    More(more::MoreArgs),
    #[cfg(feature = "onion")]
    Anonymity(anonymity::AnonymityArgs),
    Report(report::ReportArgs),
    Generate(generate::GenerateArgs),
}

fn main() -> ExitCode {
    failure::exit_code(parse().and_then(run))
}

/// Reads the command line.
fn parse() -> Result<Cli, Failure> {
    let command = help::sentences(plain::values(Cli::command()));
    let matches = plain::matches(&command, std::env::args_os().collect())?;
    Ok(Cli::from_arg_matches(&matches)?)
}

fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Split(args) => args.run(),
        Command::Merge(args) => args.run(),
        Command::Key(args) => args.run(),
        Command::Exec(args) => args.run(),
        Command::Mosh(args) => args.run(),
        Command::MoshProxy(args) => args.run(),
        #[cfg(feature = "onion")]
        Command::Client(args) => args.run(),
        #[cfg(feature = "onion")]
        Command::Relay(args) => args.run(),
        #[cfg(feature = "onion")]
        Command::Authority(args) => args.run(),
        #[cfg(feature = "onion")]
        Command::Up(args) => args.run(),
        #[cfg(feature = "onion")]
        Command::Pt(args) => args.run(),
        Command::Status(args) => args.run(),
        Command::Emulate(args) => args.run(),
        #[cfg(feature = "experiments")]
        Command::Sim(args) => args.run(),
        #[cfg(feature = "experiments")]
        Command::Experiment(args) => args.run(),
        #[cfg(feature = "experiments")]
        Command::More(args) => args.run(),
        #[cfg(feature = "onion")]
        Command::Anonymity(args) => args.run(),
        Command::Report(args) => args.run(),
        Command::Generate(args) => args.run(help::sentences(Cli::command())),
    }
}
