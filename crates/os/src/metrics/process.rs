//! Metrics of the process, with the names that Prometheus' own clients and dashboards use.

use std::fmt;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::samples::level;
use crate::files;

/// A collector of this process's metrics.
#[derive(Debug)]
pub(super) struct Process {
    /// Time at which this collector was created, in seconds since the Unix epoch. It is reported
    /// as the start of the process, which is a few milliseconds earlier.
    started: f64,
}

impl Process {
    /// Creates the collector. It should be created at the start of the process.
    pub(super) fn new() -> Process {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Process { started: since.map_or(0.0, |since| since.as_secs_f64()) }
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        cpu(encoder)?;
        let help = "Start time of the process since the Unix epoch";
        amount(encoder, "process_start_time", help, &Unit::Seconds, self.started)?;
        level(encoder, "process_max_fds", "Limit of open files", clamped(files::limit()))?;
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // One of the open files is this directory itself.
            let open = open.count().saturating_sub(1);
            level(encoder, "process_open_fds", "Open files", open)?;
        }
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        for (name, field, help) in [
            ("process_resident_memory", "VmRSS", "Resident memory, as the kernel counts it"),
            ("process_virtual_memory", "VmSize", "Virtual memory"),
        ] {
            if let Some(kib) = number(&status, field) {
                amount(encoder, name, help, &Unit::Bytes, (kib * 1024) as f64)?;
            }
        }
        match number(&status, "Threads") {
            Some(threads) => level(encoder, "process_threads", "Threads", clamped(threads)),
            None => Ok(()),
        }
    }
}

fn cpu(encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ProcessCPUTime);
    let used = ConstCounter::new(tv_sec as f64 + tv_nsec as f64 * 1e-9);
    let help = "CPU time, user and kernel";
    let kind = used.metric_type();
    used.encode(encoder.encode_descriptor("process_cpu", help, Some(&Unit::Seconds), kind)?)
}

fn amount(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: &Unit,
    value: f64,
) -> fmt::Result {
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, Some(unit), gauge.metric_type())?)
}

fn clamped(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Returns the number in the field `field` of `status`, the content of `/proc/self/status`
/// (proc(5)). An example of a field is `VmRSS:    5132 kB`. Returns `None` if the field is absent
/// or has no number.
fn number(status: &str, field: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    value.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn a_process_is_told_by_the_names_of_prometheus_clients() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process::new()));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
            line.unwrap_or_else(|| panic!("{name}: {text}")).parse().unwrap()
        };
        assert!(value("process_cpu_seconds_total") > 0.0);
        let memory = value("process_resident_memory_bytes");
        assert!(memory > 1e5 && memory <= value("process_virtual_memory_bytes"));
        assert!(value("process_threads") >= 2.0, "the harness has one for each test");
        let open = value("process_open_fds");
        assert!((3.0..=value("process_max_fds")).contains(&open), "{open}");
        assert!(value("process_start_time_seconds") > 1.7e9);
    }

    #[test]
    fn a_field_that_is_not_there_has_no_number() {
        let status = "VmRSSX:\t1 kB\nVmRSS:\t    5132 kB\nThreads:\tmany\n";
        let numbers = ["VmRSS", "VmSize", "Threads"].map(|field| number(status, field));
        assert_eq!(numbers, [Some(5132), None, None]);
    }
}
