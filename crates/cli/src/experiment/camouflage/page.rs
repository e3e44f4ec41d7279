//! Results of the experiment `camouflage` as one HTML page.

use anabranch_pages::figures;
use maud::{Markup, PreEscaped, html};

use super::super::common::origin;
use super::judged;
use super::words::{self, ReportData};

/// Caption of Figure 7 on the page.
const CURVES: &str = "Goodput in kB/s, from the request to the last byte, against the size of a \
                      download. Points are means of rounds. Aborted downloads count as 0. Dashed \
                      lines: the paper's values.";

/// Returns the whole HTML page, with Figures 6 and 7 as SVG.
pub(super) fn page(report_data: &ReportData<'_>, [figure_6, figure_7]: &[String; 2]) -> String {
    let (bars, claims) = (judged::bar_rows(report_data), judged::claim_rows(report_data));
    let table = words::table_rows(report_data);
    let [bars, claims, table] = [&bars, &claims, &table].map(|rows| rows.iter().map(Vec::as_slice));
    anabranch_pages::page(
        "What camouflage costs",
        &html! {
            header {
                h1 { "What camouflage costs" }
                p.muted {
                    (words::description())
                    ". The experiment repeats section 6 of \"StegoTorus\" (Weinberg et al., CCS \
                     2012)."
                }
                p { (words::how_often(report_data)) " " (words::machine(report_data)) }
            }
            main {
                section aria-labelledby="bars" {
                    h2 id="bars" { "What our profiles may cost" }
                    (figures::table("bars", "Limits of our profiles, and what was measured", &judged::BAR_HEAD, bars))
                    p { (judged::held()) }
                }
                section aria-labelledby="claims" {
                    h2 id="claims" { "The paper's claims" }
                    (figures::table("claims", "Does it hold here?", &judged::CLAIM_HEAD, claims))
                    p { (judged::judged()) }
                }
                section aria-labelledby="bytes" {
                    h2 id="bytes" { "Bytes (Table 3)" }
                    (figures::table("table-3", "Downloads of 1 MB", &words::TABLE_HEAD, table))
                    p { (words::table_3()) }
                }
                (figure("goodput", "Goodput (Figure 7)", CURVES, figure_7))
                (figures::numbers("Goodput", &words::curve_head(), &words::curve_rows(report_data)))
                (figure("streams", "Streams (Figure 6)", words::figure_6(), figure_6))
                (figures::numbers("Streams", &words::box_head(report_data), &words::box_rows(report_data)))
                section aria-labelledby="conditions" {
                    h2 id="conditions" { "How it was measured" }
                    p { (words::method()) }
                    p { (origin(report_data.header)) }
                }
            }
            footer {
                p {
                    "Made by " (anabranch_pages::GENERATOR) ", experiment camouflage, seed "
                    (report_data.header["seed"]) "."
                }
            }
        },
    )
}

fn figure(id: &str, title: &str, caption: &str, svg: &str) -> Markup {
    html! {
        section aria-labelledby=(id) {
            h2 id=(id) { (title) }
            figure {
                figcaption { p { (caption) } }
                div.scroll { (PreEscaped(svg)) }
            }
        }
    }
}
