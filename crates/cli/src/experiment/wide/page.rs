//! Builds the HTML page with the results of the experiment `wide`.

use anabranch_experiment::wide::claims::rules;
use anabranch_pages::figures;
use maud::{Markup, PreEscaped, html};

use super::picture;
use super::words::{self, Subject};

/// Returns the whole page.
pub(super) fn page(subject: &Subject<'_>) -> String {
    anabranch_pages::page(
        "Multi-path designs in a large simulated network",
        &html! {
            header {
                h1 { "Multi-path designs in a large simulated network" }
                p.muted {
                    (words::description(subject))
                    ". The experiment repeats Figures 2 to 4 of \"Analysis of Multi-path Onion \
                     Routing\" (de la Cadena et al., DBSec 2019)."
                }
                p.muted { (words::reduced(subject)) }
            }
            main {
                (claims(subject))
                @for (file, picture) in picture::all(subject) {
                    section aria-label=(file) { (PreEscaped(picture)) }
                }
                (tables(subject))
            }
            footer {
                p {
                    "Made by " (anabranch_pages::GENERATOR) ", experiment wide, seed "
                    (subject.header["seed"]) "."
                }
            }
        },
    )
}

fn claims(subject: &Subject<'_>) -> Markup {
    let rows = words::claim_rows(subject.claims);
    html! {
        section aria-labelledby="claims" {
            h2 id="claims" { "The paper's claims" }
            p { (words::counts(subject.claims)) }
            (figures::table(
                "claims",
                "The paper's claims and our results",
                &words::CLAIM_HEAD,
                rows.iter().map(Vec::as_slice),
            ))
            details {
                summary { "The ratios" }
                ul {
                    @for (statement, rule) in rules(subject.claims) {
                        li { (statement) ": " (rule) "." }
                    }
                }
            }
        }
    }
}

fn tables(subject: &Subject<'_>) -> Markup {
    let (arms, growth) = (words::arm_rows(subject), words::growth_rows(subject));
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
