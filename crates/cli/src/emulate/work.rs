//! Main loop of a running emulation. It shows events, executes commands and decides when the
//! emulation ends.

use std::io::{self, BufRead};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;

use anabranch_emulator::{Job, Network, Notice, Output, Program, ProgramEnd, Programs};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// Output and input of an emulation: text for its user, or JSON for other programs.
pub(super) trait Interface {
    /// Returns whether commands are read from standard input.
    fn listens(&self) -> bool;
    /// Reports that the network is up, before its programs are started.
    fn ready(&mut self, network: &Network) -> Result<(), Failure>;
    /// Executes the command in `line`, which was read from standard input.
    fn execute(&mut self, network: &Network, line: &str) -> Result<(), Failure>;
    /// Reports the start, the end or an output line of `program`, as given by `notice`.
    fn show(&mut self, program: &Program, notice: &Notice) -> Result<(), Failure>;
    /// Reports how each of the programs has ended. The links' counters can still be read from
    /// `network`.
    fn end(&mut self, network: &Network, ends: &[(&Program, ProgramEnd)]) -> Result<(), Failure>;
}

/// Input of the main loop.
enum Input {
    Line(String),
    Notice(Notice),
    Interrupt,
    /// All programs have ended, and no further output or state change of a program will be
    /// reported.
    Stopped,
    End,
}

/// Maximum number of queued inputs. While the queue is full, programs block when they print, as
/// they would on a slow terminal.
const WAITING: usize = 1024;

/// An emulation that handles signals and has no network yet.
pub(super) struct Work {
    sender: SyncSender<Input>,
    inputs: Receiver<Input>,
    /// Whether the COMMAND of the command line runs on this terminal. If so, Ctrl-C is meant for
    /// COMMAND.
    has_command: bool,
}

impl Work {
    pub(super) fn prepare(has_command: bool) -> io::Result<Work> {
        let (sender, inputs) = mpsc::sync_channel(WAITING);
        watch_signals(sender.clone())?;
        Ok(Work { sender, inputs, has_command })
    }

    /// Runs `jobs` in `network` until all of them have ended, or a signal or the end of standard
    /// input ends the emulation.
    pub(super) fn run(
        self,
        network: Network,
        jobs: Vec<Job>,
        interface: &mut dyn Interface,
    ) -> Result<(), Failure> {
        interface.ready(&network)?;
        if interface.listens() {
            let sender = self.sender.clone();
            thread::spawn(move || read_lines(&sender));
        }
        if jobs.is_empty() {
            self.follow(&network, &[], interface)?;
            return interface.end(&network, &[]);
        }
        let sender = self.sender.clone();
        // Sending fails only if this program is ending anyway.
        let notify = move |notice| drop(sender.send(Input::Notice(notice)));
        let programs = Programs::start(&network, jobs.clone(), notify).map_err(Failure::misuse)?;
        let followed = self.follow(&network, &jobs, interface);
        let ends = self.stop(programs, &jobs, followed.is_ok().then_some(&mut *interface));
        followed?;
        let ends: Vec<_> = jobs.iter().map(|job| &job.program).zip(ends?).collect();
        interface.end(&network, &ends)?;
        verdict(&jobs, &ends)
    }

    /// Stops the programs, and returns how each of them has ended. If `interface` is given, it
    /// shows the programs' output and state changes that arrive in the meantime.
    fn stop(
        &self,
        programs: Programs,
        jobs: &[Job],
        mut interface: Option<&mut dyn Interface>,
    ) -> Result<Vec<ProgramEnd>, Failure> {
        let sender = self.sender.clone();
        thread::scope(|scope| {
            let stopping = scope.spawn(move || {
                let ends = programs.stop();
                let _ = sender.send(Input::Stopped);
                ends
            });
            let mut shown = Ok(());
            // All notices must be received, because their senders would otherwise block for ever.
            while let Ok(input) = self.inputs.recv() {
                match (input, &mut interface) {
                    (Input::Stopped, _) => break,
                    (Input::Notice(notice), Some(interface)) if shown.is_ok() => {
                        shown = interface.show(&jobs[notice.program()].program, &notice);
                    }
                    _ => {}
                }
            }
            let ends = stopping.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            shown.map(|()| ends)
        })
    }

    /// Processes inputs until all programs except background programs have ended, or until a
    /// signal or the end of standard input ends the emulation.
    fn follow(
        &self,
        network: &Network,
        jobs: &[Job],
        interface: &mut dyn Interface,
    ) -> Result<(), Failure> {
        let mut awaited = jobs.iter().filter(|job| !job.program.background).count();
        // An error means that all senders are gone, and therefore that all programs have ended.
        while let Ok(input) = self.inputs.recv() {
            match input {
                Input::End => return Ok(()),
                Input::Interrupt if self.has_command => {}
                Input::Stopped => {}
                Input::Interrupt => return Ok(()),
                Input::Line(line) => interface.execute(network, &line)?,
                Input::Notice(notice) => {
                    let program = &jobs[notice.program()].program;
                    interface.show(program, &notice)?;
                    if matches!(notice, Notice::Ended(..)) && !program.background {
                        awaited -= 1;
                        if awaited == 0 {
                            return Ok(());
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns success if all programs have ended as expected. Otherwise returns the exit status of
/// the COMMAND on this terminal, or an error that names the programs that failed.
fn verdict(jobs: &[Job], ends: &[(&Program, ProgramEnd)]) -> Result<(), Failure> {
    let own = jobs.iter().zip(ends).find(|(job, _)| job.output == Output::Ours);
    match own {
        Some((_, (_, ProgramEnd::Code(0)))) | None => {}
        Some((_, (_, ProgramEnd::Code(code)))) => return Err(Failure::status(*code)),
        // Shells use this exit status for a program that a signal has ended.
        Some((_, (_, ProgramEnd::Signal(signal)))) => return Err(Failure::status(128 + signal)),
        Some((_, (program, ended))) => return Err(Failure::trouble(sentence(program, ended))),
    }
    let wrong: Vec<_> = ends
        .iter()
        .filter(|(program, ended)| !program.is_expected(ended))
        .map(|(program, ended)| sentence(program, ended))
        .collect();
    if wrong.is_empty() { Ok(()) } else { Err(Failure::trouble(wrong.join("; "))) }
}

/// Describes in one sentence how `program` ended.
pub(super) fn sentence(program: &Program, ended: &ProgramEnd) -> String {
    let name = &program.name;
    match ended {
        ProgramEnd::Code(code) => format!("`{name}` ended with status {code}"),
        ProgramEnd::Signal(signal) => format!("`{name}` was ended by signal {signal}"),
        ProgramEnd::Stopped => {
            format!("`{name}` still ran when the emulation ended, and was stopped")
        }
        ProgramEnd::NotStarted => format!("`{name}` was not started before the emulation ended"),
        ProgramEnd::Failed(why) => format!("`{name}` could not be started: {why}"),
    }
}

fn watch_signals(sender: SyncSender<Input>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::spawn(move || {
        for signal in signals.forever() {
            let input = if signal == SIGINT { Input::Interrupt } else { Input::End };
            // Sending fails only if this program is ending anyway.
            let _ = sender.send(input);
        }
    });
    Ok(())
}

fn read_lines(sender: &SyncSender<Input>) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        if sender.send(Input::Line(line)).is_err() {
            return;
        }
    }
    let _ = sender.send(Input::End);
}
