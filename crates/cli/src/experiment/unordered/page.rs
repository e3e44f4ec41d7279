//! Results of the experiment `unordered` as one HTML page.

use anabranch_pages::figures;
use maud::{PreEscaped, html};

use super::super::common::origin;
use super::super::numbers::owned;
use super::picture;
use super::words::{self, ReportData};

/// Returns the whole HTML page with all results.
pub(super) fn page(report_data: &ReportData<'_>) -> String {
    let (pairs, claims) = (words::pair_rows(report_data), words::claim_rows(report_data));
    anabranch_pages::page(
        "Unordered links",
        &html! {
            header {
                h1 { "Unordered links" }
                p.muted {
                    (words::description(report_data))
                    ". The experiment repeats section 6 of \"Reducing Latency in Tor Circuits \
                     with Unordered Delivery\" (Nowlan, Wolinsky and Ford, FOCI 2013)."
                }
            }
            main {
                section aria-labelledby="figure" {
                    h2 id="figure" { "Completed downloads over time" }
                    figure {
                        figcaption { p { "Share of all downloads that are complete, against time \
                                          in seconds, as in the paper's Figure 3. Dashed lines: \
                                          the paper's shares at 5 % loss after 5 s. They are \
                                          under 30 % with links in order, and over 50 % with \
                                          unordered links." } }
                        div.scroll { (PreEscaped(picture::figure(report_data))) }
                    }
                }
                (figures::numbers("The downloads", &owned(&words::CURVE_HEAD), &words::curve_rows(report_data)))
                section aria-labelledby="pairs" {
                    h2 id="pairs" { "Comparison of the variants" }
                    (figures::table("pairings", "Round by round", &words::PAIR_HEAD, pairs.iter().map(Vec::as_slice)))
                    p { (words::compared()) }
                }
                section aria-labelledby="claims" {
                    h2 id="claims" { "The paper's claims" }
                    (figures::table("verdicts", "Does it hold here?", &words::CLAIM_HEAD, claims.iter().map(Vec::as_slice)))
                    p { (words::judged()) }
                }
                (figures::numbers("A link alone", &owned(&words::LINK_HEAD), &words::link_rows(report_data)))
                section aria-labelledby="conditions" {
                    h2 id="conditions" { "How it was measured" }
                    p { (words::readings(report_data)) }
                    p { (words::alone(report_data)) }
                    p { (words::machine(report_data)) }
                    p { (origin(report_data.header)) }
                }
            }
            footer { p { "Made by " (anabranch_pages::GENERATOR) ", experiment unordered, seed " (report_data.header["seed"]) "." } }
        },
    )
}
