//! `anabranch experiment`: long measurements, most of them on emulated networks. A stopped
//! experiment can be continued.

mod allowed;
mod anonymity;
mod bar;
mod camouflage;
mod circuits;
mod circumvention;
pub(crate) mod common;
mod frame;
mod marks;
mod numbers;
mod overhead;
mod pages;
pub(crate) mod reporter;
mod unordered;
mod validation;
mod view;
mod wide;

use clap::{Args, Subcommand};

use crate::failure::Failure;

/// Repeat the measurements of research papers, on emulated networks with unmodified software, or on
/// Tor consensuses (lists of all relays).
///
/// Each experiment writes its measurements and its results into a folder, as Parquet tables and
/// one HTML page. Run the same command again to continue an experiment that was stopped; at most
/// the measurement that was interrupted is lost.
#[derive(Args)]
pub(crate) struct ExperimentArgs {
    #[command(subcommand)]
    which: ExperimentCommand,
}

#[derive(Subcommand)]
enum ExperimentCommand {
    Overhead(Box<overhead::OverheadArgs>),
    Pages(Box<pages::PagesArgs>),
    Circumvention(Box<circumvention::CircumventionArgs>),
    Circuits(Box<circuits::CircuitsArgs>),
    Unordered(Box<unordered::UnorderedArgs>),
    Camouflage(Box<camouflage::CamouflageArgs>),
    Anonymity(Box<anonymity::AnonymityArgs>),
    Wide(Box<wide::WideArgs>),
    Validation(Box<validation::ValidationArgs>),
}

impl ExperimentArgs {
    /// Runs the experiment to its end, or until a signal stops it.
    ///
    /// # Errors
    /// Misuse (exit code 2): the machine lacks something, and nothing was created. Trouble (exit
    /// code 1): some measurements could not be made.
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.which {
            ExperimentCommand::Overhead(args) => frame::run(&*args),
            ExperimentCommand::Pages(args) => frame::run(&*args),
            ExperimentCommand::Circumvention(args) => frame::run(&*args),
            ExperimentCommand::Circuits(args) => frame::run(&*args),
            ExperimentCommand::Unordered(args) => frame::run(&*args),
            ExperimentCommand::Camouflage(args) => frame::run(&*args),
            ExperimentCommand::Anonymity(args) => frame::run(&*args),
            ExperimentCommand::Wide(args) => frame::run(&*args),
            ExperimentCommand::Validation(args) => frame::run(&*args),
        }
    }
}
