//! Results of the experiment `anonymity` as one HTML page.

use anabranch_anonymity::figures::Share;
use anabranch_experiment::anonymity::SHARES;
use anabranch_experiment::anonymity::summary::{FingerprintTable, PathTable, YearTable};
use anabranch_pages::figures::{self, axis, colour, drawing, figure_row, named, number};
use maud::{Markup, html};

use super::picture::{curves, top};
use super::words::{self, KINDS, Kind, ReportData};

/// Returns the whole HTML page with all results.
pub(super) fn page(report_data: &ReportData<'_>) -> String {
    anabranch_pages::page(
        "Anonymity of multi-path circuits",
        &html! {
            header {
                h1 { "Anonymity of multi-path circuits" }
                p.muted {
                    (words::description(report_data))
                    ". The analysis repeats section 6 of \"Analysis of Multi-path Onion Routing\" \
                     (de la Cadena et al., DBSec 2019)."
                }
            }
            main {
                (in_short(report_data))
                @if let Some(table) = report_data.summary.figure_5() { (year(table)) }
                (adversaries(report_data))
                (circuits(&report_data.summary.paths))
                (fingerprints(&report_data.summary.fingerprints))
                (conditions(report_data))
            }
            footer {
                p {
                    "Made by " (anabranch_pages::GENERATOR) ", experiment anonymity, seed "
                    (report_data.header["seed"]) "."
                }
            }
        },
    )
}

fn in_short(report_data: &ReportData<'_>) -> Markup {
    let rows = words::claim_rows(report_data.claims);
    html! {
        section aria-labelledby="short" {
            h2 id="short" { "The paper's claims" }
            (figures::table(
                "claims",
                "The paper's claims and our results",
                &words::CLAIM_HEAD,
                rows.iter().map(<[String; 4]>::as_slice),
            ))
            details {
                summary { "When a claim holds" }
                ul {
                    @for claim in report_data.claims {
                        li { (claim.statement) ": " (claim.rule) "." }
                    }
                }
            }
        }
    }
}

fn year(table: &YearTable) -> Markup {
    html! {
        section aria-labelledby="year" {
            h2 id="year" { "A year (Figure 5)" }
            p {
                "Consensus of "
                (table.listing.name) ", " (table.listing.entries)
                " possible entries (first relays). The adversary has random relays with a tenth \
                 of the selection weight of all entries. Lines are means over "
                (table.draws)
                " random choices (draws) of the adversary's relays. Bands contain nine tenths of \
                 the draws. COMB is the paper's mixture: 60 % of clients have one entry, 20 % \
                 two, 20 % three."
            }
            ul.legend {
                @for (row, place) in table.rows.iter().zip(0i16..) {
                    li { (named(place, &words::legend(row))) }
                }
            }
            div.ways { @for kind in &KINDS { (course(table, kind)) } }
            @for kind in &KINDS {
                @let rows = words::day_rows(table, kind);
                (figures::numbers(kind.name, &words::day_head(table), &rows))
            }
        }
    }
}

fn course(table: &YearTable, kind: &Kind) -> Markup {
    let last = table.days.last().copied().unwrap_or(1) as f64;
    let title = format!(
        "{}: share of clients that meet this condition, day by day; the vertical axis ends at {}",
        kind.name,
        number(top(table, kind))
    );
    let ticks = [0.0, 90.0, 180.0, 270.0, 365.0].map(|day| (day / last, number(day)));
    html! {
        figure.way {
            figcaption {
                h3 { (kind.name) }
                p.muted { "from 0 to " (figures::percent(top(table, kind))) " of clients, by day" }
            }
            @let shapes = curves(table, kind, (last, 100.0));
            (drawing("course", last, &title, &[90.0, 180.0, 270.0], &shapes))
            (axis(&ticks))
        }
    }
}

fn adversaries(report_data: &ReportData<'_>) -> Markup {
    let rows = words::last_rows(&report_data.summary.years);
    let variants = words::variant_rows();
    html! {
        section aria-labelledby="adversaries" {
            h2 id="adversaries" { "All adversaries and networks, after a year" }
            (figures::table(
                "targets",
                "Shares of clients with a hostile entry, or with all entries hostile at once, at \
                 some time in the year: mean (5th to 95th percentile of the draws)",
                &words::LAST_HEAD,
                rows.iter().map(Vec::as_slice),
            ))
            (figures::table(
                "numbers",
                "What the adversaries do",
                &["adversary", "what it does"],
                variants.iter().map(Vec::as_slice),
            ))
            p {
                "If hostile relays are added, or if only honest relays are replaced, each draw \
                 (simulation) has other random clients. The band then also contains the \
                 differences between these clients. If relays are added and none is replaced, \
                 draws differ only in their clients. The adversary with the heaviest relays needs \
                 only one draw, because these relays are always the same."
            }
        }
    }
}

fn circuits(tables: &[PathTable]) -> Markup {
    let most = tables.iter().filter_map(|table| table.rows.iter().map(|row| row.legs).max()).max();
    let rows = words::path_rows(tables);
    html! {
        section aria-labelledby="circuits" {
            h2 id="circuits" { "Circuits (section 6.1)" }
            p {
                "The probability that at least one entry and the exit are hostile. Each dot is \
                 the mean for one consensus, with its 95 % interval over the random choices \
                 (draws) of the adversary's relays. The tick is the value that a formula gives \
                 for the weights of these relays, as a mean over the draws."
            }
            ul.legend {
                @for ((share, _), place) in SHARES.iter().zip(0i16..) {
                    @let name = format!("{:.0} % of the entry relays and of the exit relays are \
                                         hostile", share * 100.0);
                    li { (named(place, &name)) }
                }
            }
            @for legs in 1..=most.unwrap_or(0) { (chances(tables, legs)) }
            (axis(&percents(MOST)))
            @let head = words::PATH_HEAD.map(str::to_owned);
            (figures::numbers("Circuits: probabilities by formula and by simulation", &head, &rows))
        }
    }
}

/// Returns the positions and labels of five ticks of an axis from 0 to `most`.
fn percents(most: f64) -> [(f64, String); 5] {
    [0.0, 0.25, 0.5, 0.75, 1.0].map(|at| (at, format!("{} %", number(at * most * 100.0))))
}

/// Upper end of the axis of probabilities.
const MOST: f64 = 0.12;

fn chances(tables: &[PathTable], legs: usize) -> Markup {
    let rows = tables.iter().flat_map(|table| {
        table.rows.iter().filter(|row| row.legs == legs).map(|row| (table.share, row))
    });
    let rows: Vec<_> = rows.collect();
    let shapes = rows.iter().enumerate().map(|(place, (share, row))| {
        let y = (place as f64 + 0.5) * 100.0 / rows.len() as f64;
        interval(colour_of(*share), row.any.drawn, y)
            + &format!(
                r#"<path class="unsplit" d="M{} {}V{}"/>"#,
                x(row.any.closed),
                number(y - 3.0),
                number(y + 3.0)
            )
    });
    let shapes: String = shapes.collect();
    let name = if legs == 1 { "one circuit".to_owned() } else { format!("{legs} circuits") };
    let title = format!(
        "{name}: chance that an entry relay and the exit relay are both hostile, for each consensus"
    );
    figure_row(-1, &name, "", &drawing("course", 100.0, &title, &[25.0, 50.0, 75.0], &shapes))
}

fn x(share: f64) -> String {
    number(100.0 * (share / MOST).min(1.0))
}

/// Returns the colour for an adversary with `share` of the relays' weight: the page's first colour
/// if `share` is at least `SHARES[0]`, otherwise its second colour.
fn colour_of(share: f64) -> String {
    colour(i16::from(share < SHARES[0].0))
}

fn interval(class: String, drawn: Share, y: f64) -> String {
    let y = number(y);
    format!(
        r#"<path class="line {class}" d="M{} {y}H{}"/><path class="dot {class}" d="M{} {y}h0"/>"#,
        x(drawn.low),
        x(drawn.high),
        x(drawn.value)
    )
}

fn fingerprints(tables: &[FingerprintTable]) -> Markup {
    let own = words::sharing_rows(tables, |row| &row.own);
    let fixed = words::sharing_rows(tables, |row| &row.fixed);
    let head = words::SHARING_HEAD.map(str::to_owned);
    html! {
        section aria-labelledby="fingerprints" {
            h2 id="fingerprints" { "Guard fingerprints (section 6.2)" }
            p {
                "Share of clients whose set of guards no other client has. Each dot is a \
                 consensus in which a client with one circuit per stream uses one guard."
            }
            @for legs in 1..=3 { (unique(tables, legs)) }
            (axis(&percents(1.0)))
            (figures::numbers("Each client chooses its guards at random", &head, &own))
            @let given = "Fixed sets: guards are divided into random sets, and each client gets \
                          one set, chosen at random by weight";
            (figures::numbers(given, &head, &fixed))
            p {
                "Formula: number of clients divided by the number of possible sets, C(guards, in \
                 use). Over sets: mean number of clients per used set. Over clients: mean number \
                 of clients with a client's set, itself included (Σn²/N). Effective: N / 2^H, \
                 where H is the entropy of sets. N is the number of clients, and n the number of \
                 clients that use a set. Values are means over simulated populations of clients \
                 (5th to 95th percentile)."
            }
        }
    }
}

fn unique(tables: &[FingerprintTable], legs: usize) -> Markup {
    let alone = tables.iter().filter(|table| table.in_use == 1);
    let rows = alone.flat_map(|table| table.rows.iter().filter(|row| row.legs == legs));
    let class = colour(2);
    let dot = |(place, share): (usize, f64)| {
        let y = 15 + place * 14 % 70;
        format!(r#"<path class="dot {class}" d="M{} {y}h0"/>"#, number(share * 100.0))
    };
    let shapes: String = rows.map(|row| row.own.unique.mean).enumerate().map(dot).collect();
    let name = if legs == 1 { "one entry".to_owned() } else { format!("{legs} entries") };
    let title = format!("{name}: share of clients with a set of guards that no other client has");
    figure_row(2, &name, "", &drawing("first", 100.0, &title, &[25.0, 50.0, 75.0], &shapes))
}

fn conditions(report_data: &ReportData<'_>) -> Markup {
    html! {
        section aria-labelledby="conditions" {
            h2 id="conditions" { "How it was computed" }
            p {
                "Clients choose guards and paths with this program's own code. A client that \
                 splits streams over m legs (circuits) uses the first m primary guards, or more \
                 if the consensus demands it ("
                code { "guard-n-primary-guards-to-use" }
                ": 2 since 2022). Such consensuses also have rows for one guard in use, as in the \
                 paper. All clients start on the same day and build circuits all the time; no \
                 guard is ever unreachable."
            }
            p {
                "Exit policies and families are used if the consensus file has them. Otherwise \
                 only weights and /16 networks count, and relays with the flag Exit count as exits \
                 to all ports; the tables mark this. The curves over a year and the fingerprints \
                 of guards use only weights. Hostile relays are random relays and keep their \
                 families and /16 networks. The design MORE, which changes paths with each packet, \
                 is not simulated."
            }
            p { (words::origin(report_data.header)) }
        }
    }
}
