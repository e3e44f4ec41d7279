//! `anabranch emulate`: an emulated network on this machine, and programs in it.

mod json;
mod plain;
mod work;

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{fs, time::Duration};

use anabranch_emulator::{
    self as emulate, Expect, IMPAIRMENTS, Impairment, Job, Network, Output, Program, SetupError,
    Topology,
};
use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::sudo;
use work::{Interface, Work};

/// Emulate a network on this machine: hosts, links with rate, delay, loss and queue, and programs
/// on the hosts.
///
/// A host is a network namespace without a name. Without COMMAND, the emulator prints an nsenter
/// command for each host, with which you can run programs there. The network ends when COMMAND and
/// the programs of the topology file have ended. It does not wait for programs that the file marks
/// as background. The network also ends on SIGTERM, on SIGINT if there is no COMMAND, and with
/// --json at the end of standard input. Programs that still run when the network ends get SIGTERM
/// and, two seconds later, SIGKILL. When this process ends, its network and programs end too.
///
/// The exit status is that of COMMAND. But it is 1 if a program of the topology file ended in
/// another way than its key `expect` in that file allows.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_long_help = links())]
pub(crate) struct EmulateArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// Read the network from this TOML file, which has the tables `[[host]]`, `[[link]]`,
    /// `[[event]]` and `[[program]]` (docs/emulator.md).
    #[arg(required = true, value_name = "TOPOLOGY.toml")]
    topology: Option<PathBuf>,
    /// Print events as JSON lines on standard output, and read commands as JSON lines from
    /// standard input.
    #[arg(long)]
    json: bool,
    /// Do not print the output of the programs, but write it into the files NAME.stdout and
    /// NAME.stderr in folder DIR. NAME is the name of a program in the topology file.
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
    /// Run COMMAND on this host of the emulated network [default: the first host in the topology
    /// file].
    #[arg(long = "in", value_name = "HOST", requires = "command")]
    host: Option<String>,
    /// Run this program on the emulated host that --in names, with this terminal as input and
    /// output.
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "json")]
    command: Vec<String>,
}

#[derive(Subcommand)]
enum Action {
    /// Check whether this machine can emulate networks, and list what it lacks.
    Check,
}

impl EmulateArgs {
    /// Runs the network until a signal ends it or all of its programs have ended.
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        let rootless = emulate::enter_user_namespace_if_needed();
        match (self.action.take(), self.topology.take()) {
            (Some(Action::Check), _) => check(),
            (None, Some(file)) => self.emulate(&file, rootless),
            (None, None) => Err(Failure::misuse(
                "no topology file is given: run 'anabranch emulate TOPOLOGY.toml'",
            )),
        }
    }

    fn emulate(&self, file: &Path, rootless: bool) -> Result<(), Failure> {
        let name = file.display().to_string();
        let text = fs::read_to_string(file).map_err(|e| Failure::misuse(format!("{name}: {e}")))?;
        let topology = Topology::parse(&text, &name).map_err(Failure::misuse)?;
        let jobs = self.jobs(&topology, &name)?;
        // Signals are handled before the network exists. Otherwise a signal could end the program
        // without removing the network.
        let work = Work::prepare(!self.command.is_empty()).map_err(Failure::trouble)?;
        let network = Network::start(&topology).map_err(refused)?;
        let interface: &mut dyn Interface = if self.json {
            &mut json::Json { rootless }
        } else {
            &mut plain::Plain { rootless, quiet: !self.command.is_empty() }
        };
        work.run(network, jobs, interface)
    }

    /// Returns the programs to run, each with the path of its executable file on this machine. The
    /// COMMAND of the command line is the last.
    fn jobs(&self, topology: &Topology, file: &str) -> Result<Vec<Job>, Failure> {
        let output = self.logs.clone().map_or(Output::Lines, Output::Folder);
        let job = |program: &Program| {
            let executable = program.locate(file).map_err(Failure::misuse)?;
            Ok(Job { program: program.clone(), executable, output: output.clone() })
        };
        let mut jobs: Vec<Job> =
            topology.programs.iter().map(job).collect::<Result<_, Failure>>()?;
        if let Some(program) = self.own_program(topology)? {
            let executable = program.locate(file).map_err(|e| Failure::misuse(e.message))?;
            jobs.push(Job { program, executable, output: Output::Ours });
        }
        Ok(jobs)
    }

    /// Returns the COMMAND of the command line as a program of the topology; `None` without
    /// COMMAND.
    fn own_program(&self, topology: &Topology) -> Result<Option<Program>, Failure> {
        if self.command.is_empty() {
            return Ok(None);
        }
        let wanted = self.host.as_ref().unwrap_or(&topology.hosts[0].name);
        let mut names = topology.hosts.iter().map(|host| host.name.as_str());
        let Some(host) = names.position(|name| name == wanted) else {
            let names: Vec<_> = topology.hosts.iter().map(|host| host.name.as_str()).collect();
            let message = format!(
                "--in: there is no host `{wanted}` in the topology; choose one of {}",
                names.join(", ")
            );
            return Err(Failure::misuse(message));
        };
        Ok(Some(Program {
            name: "COMMAND".to_owned(),
            host,
            command: self.command.clone(),
            environment: Default::default(),
            directory: None,
            start: Duration::ZERO,
            background: false,
            expect: Expect::Any,
            line: 0,
        }))
    }
}

/// Returns the end of the long help text: the properties of links.
fn links() -> String {
    let line = |impairment: &Impairment| {
        let Impairment { name, back, form, about } = impairment;
        let back = back.map_or_else(String::new, |back| format!(" (and {back})"));
        format!("  {name}{back}: {about}\n      {form}")
    };
    let lines: Vec<String> = IMPAIRMENTS.iter().map(line).collect();
    format!(
        "LINKS\n  These keys set the properties of a link, in [[link]] and [[event]] tables and in \
         commands\n  with --json. A key in brackets sets only the direction from the second end \
         to the first\n  (docs/emulator.md):\n{}",
        lines.join("\n")
    )
}

/// Returns the failure for `error`. If root is required, the message includes the `sudo` command
/// line.
fn refused(error: SetupError) -> Failure {
    if error.needs_root() {
        return Failure::misuse(format!("{error}: {}", sudo::command_line([])));
    }
    Failure::misuse(error)
}

/// Prints each requirement of emulated networks, and whether this machine meets it. Fails only if
/// a requirement is not met that every topology has.
fn check() -> Result<(), Failure> {
    let needs = emulate::check();
    for need in &needs {
        let only = need.only_for.map_or_else(String::new, |only| format!(", for {only}"));
        match &need.missing {
            None => print_line(format_args!("ok       {}{only}", need.what)),
            Some(why) => print_line(format_args!("missing  {}{only}: {why}", need.what)),
        }
    }
    let essential = |need: &&emulate::Need| need.missing.is_some() && need.only_for.is_none();
    match needs.iter().filter(essential).count() {
        0 => Ok(()),
        missing => Err(Failure::trouble(format!(
            "this machine lacks features ({missing}), so it can emulate only some networks or \
             none: follow the advice in the lines marked 'missing' above"
        ))),
    }
}

fn user_ns() -> String {
    format!("/proc/{}/ns/user", std::process::id())
}

/// Prints a line on standard output. Unlike `println!`, this does not panic if the output is
/// closed.
fn print_line(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{line}");
}
