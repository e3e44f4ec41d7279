//! Results with their targets.

use crate::report::Series;
use serde_json::json;

/// Target for a median.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// No target: a baseline, or a number for comparison.
    None,
    /// Maximum.
    AtMost(f64),
    /// Minimum.
    AtLeast(f64),
}

impl Target {
    /// Returns whether `median` meets the target, or `None` if there is no target. A missing
    /// measurement never meets it.
    fn met(self, median: f64) -> Option<bool> {
        match self {
            Target::None => None,
            Target::AtMost(limit) => Some(median <= limit),
            Target::AtLeast(limit) => Some(median >= limit),
        }
    }

    fn text(self) -> String {
        match self {
            Target::None => String::new(),
            Target::AtMost(limit) => format!("≤ {limit}"),
            Target::AtLeast(limit) => format!("≥ {limit}"),
        }
    }
}

/// One line of the table.
struct Row {
    what: String,
    subject: String,
    unit: &'static str,
    series: Series,
    target: Target,
}

/// The table.
pub struct Table {
    json: bool,
    rows: Vec<Row>,
}

impl Table {
    /// Creates an empty table, to be printed as JSON or as text.
    pub fn new(json: bool) -> Table {
        Table { json, rows: Vec::new() }
    }

    /// Adds a line: the quantity `what`, measured for `subject`.
    pub fn add(
        &mut self,
        what: impl Into<String>,
        subject: impl Into<String>,
        unit: &'static str,
        series: Series,
        target: Target,
    ) {
        self.rows.push(Row { what: what.into(), subject: subject.into(), unit, series, target });
    }

    /// Returns the number of lines whose median misses the target.
    pub fn missed(&self) -> usize {
        self.rows.iter().filter(|row| row.target.met(row.series.median()) == Some(false)).count()
    }

    /// Prints all lines to standard output.
    pub fn print(&self) {
        if self.json {
            return self.rows.iter().for_each(|row| println!("{}", row.json()));
        }
        println!(
            "{:<34} {:<18} {:>10} {:>10} {:>10}   {:<9} {:<8} verdict",
            "measurement", "subject", "median", "min", "max", "unit", "target"
        );
        self.rows.iter().for_each(|row| println!("{}", row.text()));
        let missed = self.missed();
        if missed > 0 {
            println!("{missed} MISSED");
        }
    }
}

impl Row {
    fn verdict(&self) -> &'static str {
        match self.target.met(self.series.median()) {
            None => "",
            Some(true) => "ok",
            Some(false) => "MISSED",
        }
    }

    fn text(&self) -> String {
        let Row { what, subject, unit, series, target } = self;
        let number = |value: f64| match value.abs() {
            size if size >= 1000.0 => format!("{value:.0}"),
            size if size >= 10.0 => format!("{value:.1}"),
            _ => format!("{value:.3}"),
        };
        let [median, min, max] = [series.median(), series.min(), series.max()].map(number);
        let (target, verdict) = (target.text(), self.verdict());
        let numbers = format!("{median:>10} {min:>10} {max:>10}");
        let line = format!("{what:<34} {subject:<18} {numbers}   {unit:<9} {target:<8} {verdict}");
        line.trim_end().to_owned()
    }

    fn json(&self) -> serde_json::Value {
        let Row { what, subject, unit, series, target } = self;
        json!({
            "measurement": what, "subject": subject, "unit": unit, "target": target.text(),
            "median": series.median(), "min": series.min(), "max": series.max(),
            "runs": series.len(), "verdict": self.verdict(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(values: &[f64], target: Target) -> Table {
        let mut series = Series::default();
        values.iter().for_each(|&value| series.push(value));
        let mut table = Table::new(false);
        table.add("what", "whom", "µs", series, target);
        table
    }

    #[test]
    fn a_target_is_met_by_the_median() {
        assert_eq!(with(&[1.0, 2.0, 9.0], Target::AtMost(2.0)).missed(), 0);
        assert_eq!(with(&[1.0, 2.0, 9.0], Target::AtMost(1.9)).missed(), 1);
        assert_eq!(with(&[1.0, 2.0, 9.0], Target::AtLeast(2.1)).missed(), 1);
        assert_eq!(with(&[1.0], Target::None).missed(), 0);
    }

    #[test]
    fn what_was_not_measured_is_missed() {
        assert_eq!(with(&[], Target::AtMost(2.0)).missed(), 1);
        assert!(with(&[], Target::AtLeast(2.0)).rows[0].text().ends_with("MISSED"));
    }
}
