//! Results of the experiment `overhead` as Markdown.

use std::fmt::Write as _;

use anabranch_experiment::overhead::summary::{Cell, find};
use anabranch_experiment::overhead::{EVERY, Net, System, claims};

use super::super::common::{and_splitter, markdown_table, origin};
use super::words::{self, ReportData};

/// Returns all results as Markdown: verdicts, tables, and the measurements that are missing.
pub(super) fn text(report_data: &ReportData<'_>) -> String {
    let ReportData { header, records, cells } = report_data;
    let mut text = format!(
        "{} measurements of {}; repetitions interleaved, seed {}{}.\n\n{}\n\n{}\n\n",
        records.len(),
        words::limit(header),
        header["seed"],
        and_splitter(header),
        words::machine(records),
        origin(header)
    );
    text += &format!("### Targets\n\n{}. {}.\n\n", words::TARGET, words::COUNTS);
    let head = words::VERDICT_HEAD.map(str::to_owned);
    text += &markdown_table(&head, words::verdict_rows(cells).iter().map(<[String; 5]>::as_slice));
    for net in Net::ALL {
        for paths in [3, 2] {
            text += &part(cells, net, paths);
        }
    }
    text += "\n### Claims of the paper\n\n";
    for claim in claims() {
        text += &format!("* {:?}: {}\n", claim.kind, claim.words);
    }
    let missing = words::not_run(cells);
    if !missing.is_empty() {
        text += "\n### Not measured yet\n\n";
        missing.iter().for_each(|each| text += &format!("* {each}\n"));
    }
    text
}

/// Returns a table with a row for each switching interval and a column for each system. The text
/// is empty if nothing was measured for `net` and `paths`.
fn part(cells: &[Cell], net: Net, paths: usize) -> String {
    let has =
        |system: &System| EVERY.iter().any(|&ms| find(cells, *system, net, paths, ms).is_some());
    let systems: Vec<_> = System::ALL.into_iter().filter(has).collect();
    if systems.is_empty() {
        return String::new();
    }
    let mut text = format!("\n### {paths} paths, {}\n\n", words::network(net));
    text += "Each cell has the goodput in Mbit/s, as median (lowest–highest), and its share of the \
             median without splitting. *n/m* means that only n of m downloads count; the share \
             then uses only these.\n\n";
    let names = systems.iter().map(|&system| words::title(system).to_owned());
    let head: Vec<String> = [String::from("switching")].into_iter().chain(names).collect();
    let mut every: Vec<u32> = cells
        .iter()
        .filter(|cell| cell.net == net && cell.paths == paths)
        .map(|cell| cell.every)
        .collect();
    every.sort_unstable_by_key(|ms| ms.wrapping_sub(1));
    every.dedup();
    let row = |&ms: &u32| -> Vec<String> {
        let of = |&system: &System| find(cells, system, net, paths, ms).map_or("–".into(), entry);
        [words::every(ms)].into_iter().chain(systems.iter().map(of)).collect()
    };
    let rows: Vec<_> = every.iter().map(row).collect();
    text + &markdown_table(&head, rows.iter().map(Vec::as_slice))
}

fn entry(cell: &Cell) -> String {
    let mut text = words::mbits(cell.goodput);
    if cell.every != 0 {
        write!(text, ", {}", words::kept(cell)).expect("writing to a string does not fail");
    }
    let counted = cell.counted.map_or(0, |spread| spread.count);
    if counted < cell.goodput.count {
        text += &format!(", *{counted}/{}*", cell.goodput.count);
    }
    if cell.broken > 0 {
        text += &format!(", {} aborted", cell.broken);
    }
    text
}
