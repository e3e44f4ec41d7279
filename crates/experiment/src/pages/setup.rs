//! Data that all page loads share: programs, sites and settings.

use std::path::PathBuf;

use super::super::{Programs, runner};
use super::{LoadResult, Settings, Unit, Web};

/// Data that all page loads share: programs, sites and settings.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) programs: Programs,
    pub(super) splitter: PathBuf,
    pub(super) web: Web,
    pub(super) settings: Settings,
    /// Directory for the trace of each single page load.
    pub(super) traces: PathBuf,
    /// Number of browsers that load pages at the same time.
    pub(super) browsers: u32,
}

impl Setup {
    /// Returns a record for an attempt at the page load `unit`, with the settings but without
    /// results.
    pub(super) fn blank(&self, unit: &Unit, attempt: u32) -> LoadResult {
        LoadResult {
            unit: runner::Unit::id(unit),
            site: unit.site.name.clone(),
            page: unit.site.url(),
            monitored: unit.site.monitored,
            mode: unit.mode,
            repetition: unit.repetition,
            attempt,
            seed: unit.seed(self.settings.seed),
            http: if self.settings.is_http3(&unit.site) { "h3" } else { "h2" }.to_owned(),
            started: 0.0,
            seconds: 0.0,
            elapsed: 0.0,
            requests: 0,
            refused: 0,
            up_packets: Vec::new(),
            up: Vec::new(),
            down_packets: Vec::new(),
            down: Vec::new(),
            browsers: self.browsers,
            error: String::new(),
            machine: super::super::Disturbance::default(),
        }
    }
}
