//! Counters and gauges that are read when somebody asks, not kept.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// A counter for each value of a label.
pub fn counts(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    values: &[(&str, u64)],
) -> fmt::Result {
    let labelled = values.iter().map(|(value, number)| ([(label, *value)], *number));
    counter_family(encoder, name, help, &labelled.collect::<Vec<_>>())
}

/// A counter for each set of labels.
pub fn counter_family<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: &[(L, u64)],
) -> fmt::Result {
    let kind = ConstCounter::new(0u64).metric_type();
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, number) in values {
        ConstCounter::new(*number).encode(family.encode_family(labels)?)?;
    }
    Ok(())
}

/// A gauge for each set of labels.
pub fn levels<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    values: &[(L, f64)],
) -> fmt::Result {
    let kind = ConstGauge::new(0f64).metric_type();
    let mut family = encoder.encode_descriptor(name, help, unit, kind)?;
    for (labels, value) in values {
        ConstGauge::new(*value).encode(family.encode_family(labels)?)?;
    }
    Ok(())
}

/// A counter.
pub fn count(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: u64,
) -> fmt::Result {
    let counter = ConstCounter::new(value);
    counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)
}

/// A gauge.
pub fn level(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: usize,
) -> fmt::Result {
    // No limit of files is more than a gauge of whole numbers holds.
    let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}
