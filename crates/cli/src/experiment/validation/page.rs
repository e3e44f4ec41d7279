//! Results of the experiment `validation` as one HTML page.

use anabranch_pages::figures;
use maud::html;

use super::super::common::origin;
use super::words::{self, ReportData};

/// Returns the whole HTML page with all results.
pub(super) fn page(report_data: &ReportData<'_>) -> String {
    let title = "A wide network, measured and simulated";
    let table = |title: &str, head: &[&str], rows: &[Vec<String>]| {
        figures::table("numbers", title, head, rows.iter().map(Vec::as_slice))
    };
    anabranch_pages::page(
        title,
        &html! {
            header {
                h1 { (title) }
                p.muted { (words::description(report_data)) "." }
            }
            main {
                section aria-labelledby="summary" {
                    h2 id="summary" { "Measured and simulated times" }
                    p { (words::counts(report_data)) }
                }
                (table("Values within 15 %", &words::COUNT_HEAD, &words::count_rows(report_data)))
                (table("Times in ms", &words::TIME_HEAD, &words::time_rows(report_data, "no")))
                (table("Downloads and lines", &words::LOAD_HEAD, &words::load_rows(report_data)))
                p { (words::LOAD_NOTE) }
                (table("CPU times", &words::CPU_HEAD, &words::cpu_rows(report_data)))
                p { (words::CPU_NOTE) }
                p { (words::machine(report_data)) }
                p { (origin(report_data.header)) }
            }
            footer {
                p {
                    "Made by " (anabranch_pages::GENERATOR) ", experiment validation, seed "
                    (report_data.header["seed"]) "."
                }
            }
        },
    )
}
