//! The page: what a collector has, the program's version, and the process's own numbers.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode, encode_registry};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::process::Process;

/// The metrics of a run.
#[derive(Debug)]
pub struct Page {
    ours: Registry,
    /// The process, by names that bear no prefix.
    process: Registry,
}

impl Page {
    /// What a collector has, and which program it is.
    pub fn new(collector: Box<dyn Collector>, version: &'static str) -> Page {
        let mut ours = Registry::with_prefix("anabranch");
        let build = Info::new([("version", version)]);
        ours.register("build", "Program that serves these metrics", build);
        ours.register_collector(collector);
        let mut process = Registry::default();
        process.register_collector(Box::new(Process::new()));
        Page { ours, process }
    }

    /// The page as OpenMetrics writes it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let never = "writing to a string never fails";
        encode_registry(&mut text, &self.ours).expect(never);
        encode(&mut text, &self.process).expect(never);
        text
    }
}
