//! Trace files: refused, or read to the end with every row as the schema requires.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{Seek, Write};

use anabranch_capture::{Row, SummaryBuilder, Trace, TraceTimeSeries};
use tempfile::NamedTempFile;

/// Maximum rows read: a damaged file may claim any number of rows in a few bytes.
const ROWS: u64 = 1 << 20;

/// Checks that a file of these bytes is a trace that follows the schema, or is refused.
pub fn check(bytes: &[u8]) {
    thread_local! {
        static FILE: RefCell<NamedTempFile> =
            RefCell::new(NamedTempFile::new().expect("a temporary file can be made"));
    }
    FILE.with_borrow_mut(|file| {
        let inner = file.as_file_mut();
        inner.set_len(0).expect("a temporary file can be cut");
        inner.rewind().expect("a temporary file can be rewound");
        inner.write_all(bytes).expect("a temporary file takes a few bytes");
        read(file.path());
    });
}

fn read(path: &std::path::Path) {
    let Ok(trace) = Trace::open(path) else { return };
    let claimed = trace.rows();
    if claimed > ROWS {
        return;
    }
    let (mut times, mut summary, mut rows) = (BTreeMap::new(), SummaryBuilder::default(), 0);
    let result = trace.for_each(|row| {
        keeps_the_rules(row, &mut times);
        summary.push(row);
        rows += 1;
    });
    if result.is_ok() {
        let summary = summary.finish();
        assert_eq!(summary.datagrams, rows);
        let chosen: Vec<usize> = (0..summary.sessions.len().min(3)).collect();
        let time_series =
            TraceTimeSeries::of_trace(&trace, &summary, &chosen, 3).expect("it was read before");
        assert_eq!(time_series.chosen.len(), chosen.len());
    }
    let text = result.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(!text.contains('\n'), "one line: {text:?}");
}

fn keeps_the_rules(row: &Row<'_>, times: &mut BTreeMap<(i64, i32), f64>) {
    assert!(row.size != 0 && row.path >= -1, "{row:?}");
    assert!(row.time.is_finite() && row.time >= 0.0, "{row:?}");
    let before = times.insert((row.load, row.run), row.time);
    assert!(before.is_none_or(|before| before <= row.time), "{row:?} after {before:?}");
}
