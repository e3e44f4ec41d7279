//! Counters and gauges that are read when somebody asks, not kept.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// A counter for each value of a label.
pub(crate) fn counts(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    values: &[(&str, u64)],
) -> fmt::Result {
    let kind = ConstCounter::new(0u64).metric_type();
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (value, number) in values {
        ConstCounter::new(*number).encode(family.encode_family(&[(label, *value)])?)?;
    }
    Ok(())
}

/// A counter.
pub(crate) fn count(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: u64,
) -> fmt::Result {
    let counter = ConstCounter::new(value);
    counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)
}

/// A gauge.
pub(crate) fn level(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: usize,
) -> fmt::Result {
    let gauge = ConstGauge::new(value as i64);
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}
