//! Builds the HTML page with the results of the experiment `wide`.

use anabranch_experiment::wide::claims::rules;
use anabranch_pages::figures;
use maud::{Markup, PreEscaped, html};

use super::picture;
use super::words::{self, ReportData};

/// Returns the whole page.
pub(super) fn page(report_data: &ReportData<'_>) -> String {
    anabranch_pages::page(
        "Multi-path designs in a large simulated network",
        &html! {
            header {
                h1 { "Multi-path designs in a large simulated network" }
                p.muted {
                    (words::description(report_data))
                    ". The experiment repeats Figures 2 to 4 of \"Analysis of Multi-path Onion \
                     Routing\" (de la Cadena et al., DBSec 2019)."
                }
                p.muted { (words::reduced(report_data)) }
            }
            main {
                (claims(report_data))
                @for (file, picture) in picture::all(report_data) {
                    section aria-label=(file) { (PreEscaped(picture)) }
                }
                (tables(report_data))
            }
            footer {
                p {
                    "Made by " (anabranch_pages::GENERATOR) ", experiment wide, seed "
                    (report_data.header["seed"]) "."
                }
            }
        },
    )
}

fn claims(report_data: &ReportData<'_>) -> Markup {
    let rows = words::claim_rows(report_data.claims);
    html! {
        section aria-labelledby="claims" {
            h2 id="claims" { "The paper's claims" }
            p { (words::counts(report_data.claims)) }
            (figures::table(
                "claims",
                "The paper's claims and our results",
                &words::CLAIM_HEAD,
                rows.iter().map(Vec::as_slice),
            ))
            details {
                summary { "The ratios" }
                ul {
                    @for (statement, rule) in rules(report_data.claims) {
                        li { (statement) ": " (rule) "." }
                    }
                }
            }
        }
    }
}

fn tables(report_data: &ReportData<'_>) -> Markup {
    let (arms, growth) = (words::arm_rows(report_data), words::growth_rows(report_data));
    html! {
        section aria-labelledby="numbers" {
            h2 id="numbers" { "Numbers" }
            p {
                "A value of one simulation is the median over its downloads. The tables have the \
                 means over the random networks, with their 95 % intervals. A download that \
                 failed counts with the time after which its client gave up."
            }
            (figures::table(
                "numbers",
                "All designs",
                &words::arm_head("design"),
                arms.iter().map(Vec::as_slice),
            ))
            (figures::table(
                "numbers",
                "Growth",
                &words::arm_head("design, clients"),
                growth.iter().map(Vec::as_slice),
            ))
        }
    }
}
