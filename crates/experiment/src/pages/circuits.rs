//! An onion network on the client's host. Splitters use its circuits as paths to the far end, the
//! program that puts the split traffic together again.

use std::io;
use std::path::Path;
use std::process::Command;

use super::super::stage::{CIRCUITS_READY, SERVER, Stage};
use super::{RTTS, far_end};
use anabranch_emulator::GroupProcess;
use tempfile::TempDir;

/// Address on which the onion network's client accepts SOCKS connections.
const SOCKS: &str = "127.0.0.1:9150";

/// A running onion network (`anabranch up`). Several splitters may use it, one after another. It
/// is stopped on drop.
pub(super) struct Circuits<'a> {
    _up: GroupProcess<'a>,
    _data: TempDir,
}

impl<'a> Circuits<'a> {
    /// Starts an onion network with the program `anabranch`, and waits for its first circuit. Its
    /// exits connect only to the far end, the program that puts split traffic together again.
    ///
    /// # Errors
    /// The program ends, or has no circuit in time.
    pub(super) fn open(stage: &'a Stage, program: &Path) -> io::Result<Circuits<'a>> {
        let data = TempDir::new()?;
        let mut command = Command::new(program);
        command.args(["up", "--json", "--listen", SOCKS, "--data"]).arg(data.path());
        command.args(["--exit", &format!("accept {SERVER}/32:{}", far_end::PORT)]);
        let ready = |event: &serde_json::Value| event["event"] == "circuit_built";
        let ready = (CIRCUITS_READY, ready);
        let up = stage.start("the onion network", stage.client(), &mut command, ready)?;
        Ok(Circuits { _up: up, _data: data })
    }

    /// Returns the command-line arguments with which a splitter uses one circuit for each path.
    pub(super) fn words() -> Vec<String> {
        let circuits = format!("o=onion:{}", RTTS.len());
        let far = format!("{SERVER}:{}", far_end::PORT);
        ["--path", &circuits, "--onion-socks", SOCKS, "--to-tcp", &far].map(str::to_owned).into()
    }
}
