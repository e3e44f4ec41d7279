//! Tests of the whole page: its text, and its safety against a hostile trace.

use anabranch_capture::{Row, Summary, Trace, TraceFacts, TraceTimeSeries, TraceWriter};

use super::{MAX_ROWS, ReportData, page};

fn made(facts: &TraceFacts, rows: &[Row<'_>]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = TraceWriter::create(file.path(), facts).unwrap();
    rows.iter().for_each(|row| writer.push(row).unwrap());
    writer.finish().unwrap();
    let trace = Trace::open(file.path()).unwrap();
    let summary = Summary::of_trace(&trace).unwrap();
    let chosen: Vec<usize> = (0..summary.sessions.len()).collect();
    let time_series = TraceTimeSeries::of_trace(&trace, &summary, &chosen, MAX_ROWS).unwrap();
    let (facts, name) = (trace.facts(), "run.parquet");
    page(&ReportData { name, facts, summary: &summary, time_series: &time_series, chosen: &chosen })
}

fn named(paths: &[&str]) -> TraceFacts {
    let paths = paths.iter().map(|&name| name.to_owned()).collect();
    TraceFacts { paths, schedule: Some("round-robin --every 5p".into()), ..TraceFacts::default() }
}

fn row(load: i64, path: i16, ms: f64, size: i32) -> Row<'static> {
    Row { load, label: "", monitored: false, run: 0, path, time: ms / 1e3, size }
}

/// Returns 200 packets at intervals of 1 ms, three down for each one up. The path changes after
/// every 20 packets.
fn turns(load: i64, paths: i16) -> Vec<Row<'static>> {
    let of = |n: i16| row(load, n / 20 % paths, f64::from(n), if n % 4 == 0 { 100 } else { -1000 });
    (0..200).map(of).collect()
}

#[test]
fn a_split_session_is_told_in_plain_words() {
    let page = made(&named(&["wlan", "lte"]), &turns(0, 2));
    for wanted in [
        "One session was split over 2 paths: 200 packets (155 kB) in 199 ms.",
        "the paths take turns; the path changes after every 5 packets",
        "Nobody on a single path saw more than <b>50.0 %</b> of what the server sent",
        "What this page does not show",
        "From gaps in the numbers, the observer",
        "<bdi>wlan</bdi>",
    ] {
        assert!(page.contains(wanted), "{wanted}\n{page}");
    }
    assert_eq!(page.matches("<h1>").count(), 1);
}

#[test]
fn numbers_in_clear_are_told_above_the_figure_that_they_give_away() {
    let unknown = made(&named(&["wlan", "lte"]), &turns(0, 2));
    assert!(!unknown.contains("Not hidden:") && !unknown.contains("nobody on a single path"));
    let facts = TraceFacts { numbers: vec!["wireguard".into()], ..named(&["wlan", "lte"]) };
    let page = made(&facts, &turns(0, 2));
    let (warning, figure) =
        (page.find("Packets of WireGuard have unencrypted numbers"), page.find("grey area is"));
    assert!(warning.is_some() && warning < figure, "{page}");
    // Another session of the trace may be QUIC.
    assert!(page.contains("In these sessions every observer can therefore"), "{page}");
}

#[test]
fn loads_of_a_data_set_begin_together() {
    let of = |label: &'static str| {
        let late = |row: Row<'static>| Row { time: row.time + 60.0, ..row };
        let rows = turns(0, 2).into_iter().chain(turns(1, 2).into_iter().map(late));
        made(&named(&["wlan", "lte"]), &rows.map(|row| Row { label, ..row }).collect::<Vec<_>>())
    };
    let (sessions, loads) = (of(""), of("example.org"));
    let pictures = |page: &str| page.matches(r#"role="img""#).count();
    assert_eq!(pictures(&sessions), pictures(&loads));
    assert!(
        sessions.contains("2 sessions were split over 2 paths: 400 packets (310 kB) in 60.2 s")
    );
    let together = |page: &str| {
        let from = page.find(r#"<section id="all""#).unwrap();
        page[from..from + page[from..].find("</section>").unwrap()].to_owned()
    };
    for (page, lasts) in [(&sessions, "over 60.2 s"), (&loads, "over 199 ms")] {
        let all = together(page);
        // For each direction: the title and the rows of all paths together and of two paths.
        assert_eq!(all.matches(lasts).count(), 2 * 3, "{lasts}\n{all}");
    }
    for wanted in ["the longest took 199 ms", "loads of up to 199 ms", "means over all 2 loads"] {
        assert!(loads.contains(wanted) && !sessions.contains(wanted), "{wanted}\n{loads}");
    }
}

#[test]
fn rates_of_a_data_set_are_those_of_a_mean_load() {
    let labelled = |rows: Vec<Row<'static>>| -> Vec<_> {
        rows.iter().map(|row| Row { label: "example.org", ..*row }).collect()
    };
    let facts = named(&["wlan", "lte"]);
    let one = made(&facts, &labelled(turns(0, 2)));
    let two = made(&facts, &labelled([turns(0, 2), turns(1, 2)].concat()));
    let peak = |page: &str| {
        let from = page.find("all paths together: rate").unwrap();
        page[from..from + page[from..].find('<').unwrap()].to_owned()
    };
    assert_eq!(peak(&one), peak(&two));
}

#[test]
fn every_figure_has_a_title_and_every_table_a_caption() {
    let page = made(&named(&["wlan", "lte"]), &turns(0, 2));
    let count = |what: &str| page.matches(what).count();
    assert_eq!(
        count(r#"role="img""#),
        page.split(r#"role="img""#).skip(1).filter(|s| s.contains("<title>")).count()
    );
    // One sketch and two bars; for each direction, three rates, two detailed views and two
    // histograms.
    assert_eq!(count(r#"role="img""#), 1 + 2 + 2 * (3 + 2 + 2));
    assert_eq!(count("<table"), count("<caption>"));
    assert_eq!(count("<figure"), count("<figcaption>"));
}

#[test]
fn nothing_in_a_trace_becomes_part_of_the_page() {
    let evil = "</title></style><script>alert(1)</script><img src=x onerror=alert(1)>\"'&";
    let facts = TraceFacts { schedule: Some(evil.into()), ..named(&[evil, "\u{202e}etl\0"]) };
    let mut rows = turns(0, 2);
    rows.iter_mut().for_each(|row| row.label = evil);
    let page = made(&facts, &rows);
    for forbidden in ["<script", "<img", "</title></style>", "\u{202e}", "\0"] {
        assert!(!page.contains(forbidden), "{forbidden:?}");
    }
    assert!(page.contains("&lt;script&gt;") && page.contains("\\u{202e}etl"));
}

#[test]
fn the_page_needs_nothing_from_anywhere() {
    let page = made(&named(&["wlan", "lte"]), &turns(0, 2));
    for forbidden in ["http://", "https://", "//cdn", "src=", "@import", "url(", "<script", "<link"]
    {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn an_empty_trace_gives_a_page_that_says_so() {
    let page = made(&named(&["wlan"]), &[]);
    assert!(page.contains("The trace is empty: nothing was sent or received"), "{page}");
    assert!(!page.contains("NaN") && !page.contains("inf") && !page.contains("<figure"));
}

#[test]
fn one_path_is_no_split() {
    let page = made(&named(&["wlan"]), &turns(0, 1));
    assert!(page.contains("One session went over a single path: 200 packets"), "{page}");
    assert!(page.contains("There was one path only: its observer saw everything."));
    assert!(!page.contains("Nobody on a single path") && !page.contains("Switches"));
}

#[test]
fn a_direction_that_stays_on_one_path_is_named() {
    let mut rows = turns(0, 2);
    rows.iter_mut().filter(|row| row.size < 0).for_each(|row| row.path = 1);
    let page = made(&named(&["wlan", "lte"]), &rows);
    assert!(
        page.contains("The downlink was hardly split:</strong> one path carried 100 % of it."),
        "{page}"
    );
}

#[test]
fn several_sessions_are_shown_together_and_one_by_one() {
    let mut rows = turns(3, 2);
    rows.extend(turns(4, 2).into_iter().map(|row| Row {
        label: "b.example",
        time: row.time + 1.0,
        ..row
    }));
    let page = made(&named(&["wlan", "lte"]), &rows);
    assert!(page.contains("2 sessions were split over 2 paths"), "{page}");
    for wanted in ["All sessions together", "Session 3", "Session 4: b.example"] {
        assert_eq!(page.matches(&format!("<bdi>{wanted}</bdi>")).count(), 2, "{wanted}");
    }
}

#[test]
fn a_single_packet_and_a_recorded_whole_are_drawn_too() {
    for rows in [vec![row(0, 0, 0.0, 5)], vec![row(0, -1, 0.0, 5), row(0, -1, 3.0, -5)]] {
        let page = made(&named(&["wlan"]), &rows);
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    }
}

#[test]
fn runs_too_short_to_matter_share_a_bar() {
    // Runs of ten packets on one path, 10 ms apart, with occasional runs of a single packet
    // between them.
    let path = |n: i16| if n % 30 == 29 { 2 } else { n / 10 % 2 };
    let rows: Vec<_> = (0..300).map(|n| row(0, path(n), f64::from(n) * 10.0, 9)).collect();
    let facts = TraceFacts { schedule: Some("uniform --every 100ms".into()), ..named(&[]) };
    let page = made(&facts, &rows);
    assert!(page.contains("10 packets in runs of less than 10 ms"), "{page}");
    assert!(!page.contains("µs"), "{page}");
}

#[test]
fn more_paths_than_figures_take_are_still_counted() {
    let rows: Vec<_> = (0..300).map(|n| row(0, n, f64::from(n), 9)).collect();
    let page = made(&named(&[]), &rows);
    assert_eq!(page.matches("data-path").count(), 101);
    assert!(
        page.contains("200 more paths are left out") && page.contains("split over 300 paths"),
        "{page}"
    );
}
