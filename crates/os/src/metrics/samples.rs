//! Encoders of counters and gauges whose values are read when Prometheus requests the page.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// Encodes a counter with the label `label`. Each pair in `values` contains a value of the label,
/// and the count for it.
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

/// Encodes a counter with several sets of labels. Each pair in `values` contains a set of labels,
/// and the count for it.
pub fn counter_family<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: &[(L, u64)],
) -> fmt::Result {
    let kind = ConstCounter::new(0u64).metric_type();
    let (name, unit) = with_unit(name);
    let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
    for (labels, number) in values {
        ConstCounter::new(*number).encode(family.encode_family(labels)?)?;
    }
    Ok(())
}

/// Encodes a gauge with several sets of labels. Each pair in `values` contains a set of labels,
/// and the gauge's value for it.
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

/// Encodes a counter without labels.
pub fn count(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: u64,
) -> fmt::Result {
    let counter = ConstCounter::new(value);
    let (name, unit) = with_unit(name);
    counter.encode(encoder.encode_descriptor(name, help, unit.as_ref(), counter.metric_type())?)
}

/// Encodes a gauge without labels.
pub fn level(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: usize,
) -> fmt::Result {
    // Even the limit of open files fits into a gauge of integers.
    let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
    let (name, unit) = with_unit(name);
    gauge.encode(encoder.encode_descriptor(name, help, unit.as_ref(), gauge.metric_type())?)
}

/// Splits `name` into the name without its unit, and the unit; `None` if `name` ends with no known
/// unit. The encoder of OpenMetrics appends the unit to the name again, and also writes it into
/// the `# UNIT` line.
fn with_unit(name: &str) -> (&str, Option<Unit>) {
    let units = [("_bytes", Unit::Bytes), ("_seconds", Unit::Seconds)];
    let of_name = units.into_iter().find_map(|(end, unit)| Some((name.strip_suffix(end)?, unit)));
    of_name.map_or((name, None), |(name, unit)| (name, Some(unit)))
}
