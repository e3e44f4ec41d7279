//! `anabranch experiment`: measurements on emulated networks that take hours, and continue where
//! they were stopped.

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
mod view;
mod wide;

use clap::{Args, Subcommand};

use crate::failure::Failure;

/// Repeat the measurements of the papers: on emulated networks with unmodified software, or on Tor
/// consensuses (lists of all relays).
///
/// An experiment is a folder. It has the measurements so far, and the results as Parquet and as one
/// HTML page. The same command continues an experiment that was stopped; at most the current
/// measurement is lost.
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
}

impl ExperimentArgs {
    /// Runs the experiment to its end, or until a signal stops it.
    ///
    /// # Errors
    /// Misuse if the machine lacks something (then nothing was created), trouble if not all could
    /// be measured.
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
        }
    }
}
