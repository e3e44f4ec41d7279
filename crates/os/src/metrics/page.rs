//! The metrics page: a collector's metrics, the program's version, and metrics of the process
//! itself.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode, encode_registry};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::process::Process;

/// The metrics of the process, as a page.
#[derive(Debug)]
pub struct Page {
    ours: Registry,
    /// Registry of the metrics about the process itself. Unlike the collector's metrics, their
    /// names have no prefix.
    process: Registry,
}

impl Page {
    /// Creates a page with the metrics of `collector` and the program's version.
    pub fn new(collector: Box<dyn Collector>, version: &'static str) -> Page {
        let mut ours = Registry::with_prefix("anabranch");
        let build = Info::new([("version", version)]);
        ours.register("build", "Program that serves these metrics", build);
        ours.register_collector(collector);
        let mut process = Registry::default();
        process.register_collector(Box::new(Process::new()));
        Page { ours, process }
    }

    /// Returns the page in the OpenMetrics format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let never = "writing to a string never fails";
        encode_registry(&mut text, &self.ours).expect(never);
        encode(&mut text, &self.process).expect(never);
        text
    }
}
