//! The data sheet of a data set of page loads: how the data set was made, and its limits.

use std::fmt::Write as _;

use anabranch_experiment::Spread;
use anabranch_experiment::pages::summary::{Cell, Page};
use anabranch_experiment::pages::{RTTS, queue_of};

use super::super::common::{markdown_table, origin};
use super::super::numbers::between;
use super::words::{self, ReportData};

/// Returns the data sheet as a file of its own.
pub(super) fn text(report_data: &ReportData<'_>) -> String {
    format!("# Page loads, split and undefended: data sheet\n{}", sections(report_data, "##"))
}

/// Returns the data sheet without the file's title, for inclusion in another document.
pub(super) fn part(report_data: &ReportData<'_>) -> String {
    sections(report_data, "###")
}

fn sections(report_data: &ReportData<'_>, mark: &str) -> String {
    let mut text = String::new();
    let mut add = |heading: &str, body: &str| {
        write!(text, "\n{mark} {heading}\n\n{body}\n").expect("writing to a string does not fail");
    };
    add("What is here", &contents(report_data));
    add("Figures", &figures(report_data));
    add("How it was made", &made(report_data));
    let of_circuits = if report_data.has_circuits() { SEEN_OF_CIRCUITS } else { "" };
    add("What an observer sees here, and what not", &format!("{SEEN}{of_circuits}"));
    add("What it is not", NOT);
    add("Conditions", &words::machine(report_data.records));
    text
}

/// Describes in numbers the loads, their times, bytes and packets, and the failures by reason.
fn figures(report_data: &ReportData<'_>) -> String {
    let head = ["pages", "loads", "s until the load event", "kB", "packets"];
    let head: Vec<String> = std::iter::once("").chain(head).map(str::to_owned).collect();
    let mut rows = Vec::new();
    for (kind, monitored) in [("monitored", true), ("other", false)] {
        for (mode, of) in [("split", MODES[0]), ("undefended", MODES[1])] {
            let pages = report_data.pages.iter().filter(|page| page.monitored == monitored);
            let cells: Vec<&Cell> = pages.filter_map(of).collect();
            if let Some(row) = row(&cells) {
                rows.push([vec![format!("{kind}, {mode}")], row].concat());
            }
        }
    }
    let mut text = format!(
        "Each value is the median over all pages of the pages' own medians; the lowest and the \
         highest page are in brackets.\n\n{}\n{}\n",
        markdown_table(&head, rows.iter().map(Vec::as_slice)),
        words::plain(report_data)
    );
    for (why, count) in words::failures(report_data.records) {
        writeln!(text, "* {count} attempts failed: {}", anabranch_pages::legible(&why))
            .expect("writing to a string does not fail");
    }
    text.trim_end().to_owned()
}

/// Accessors for a page's loads: the loads with splitting, and the loads without it (undefended).
const MODES: [fn(&Page) -> Option<&Cell>; 2] =
    [|page| page.split.as_ref(), |page| page.undefended.as_ref()];

fn row(cells: &[&Cell]) -> Option<Vec<String>> {
    let of = |value: fn(&Cell) -> f64| Spread::of(cells.iter().map(|cell| value(cell)));
    let loads: usize = cells.iter().map(|cell| cell.seconds.count).sum();
    Some(vec![
        cells.len().to_string(),
        loads.to_string(),
        between(of(|cell| cell.seconds.median)?, 1.0, 2),
        between(of(|cell| cell.bytes.median)?, 1e-3, 0),
        between(of(|cell| cell.packets.median)?, 1.0, 0),
    ])
}

fn contents(report_data: &ReportData<'_>) -> String {
    let monitored = report_data.pages.iter().filter(|page| page.monitored).count();
    format!(
        "{monitored} monitored pages and {} others: {}.\n\n* `split.parquet`, \
         `undefended.parquet`: traces as in `docs/formats.md` (schema 1): one row per packet on \
         each path. `label` is the site, `run` the repetition; `load` is unique over both files; \
         `time` starts when the browser is asked to open the page.\n* `loads.parquet`: one row \
         per attempt, including failed ones, with page, protocol, seed, times, bytes per path and \
         how busy the machine was. The column `load` has the number of the page load in the \
         traces.\n* `pages.html`: the results as diagrams.\n* `units.jsonl`, `loads/`: the raw \
         data of all of the above. `anabranch experiment pages FOLDER` continues from \
         them.\n\nEach page load was either split or undefended; no split load was computed from \
         an undefended one.",
        report_data.pages.len() - monitored,
        words::loads(&report_data.counts()),
    )
}

fn made(report_data: &ReportData<'_>) -> String {
    let [first, second, third] = RTTS;
    format!(
        "* **Sites**: pages of documentation and front-end packages of Debian and npm, pinned by \
         a manifest (`scripts/web`); list: SHA-256 `{}`. Caddy serves them unmodified, over \
         HTTP/2 and HTTP/3, with gzip. Each site has its own address, name and certificate.\n* \
         **Browser**: Debian's Chromium, headless, a new process and profile for each load: \
         nothing is cached, no session is resumed. Window of 1280 by 800. The browser uses HTTP/3 \
         from the first packet with sites that have it (as with an HTTPS record in DNS), and \
         HTTP/2 with the others; a site always uses the same protocol. Protocols: {}.\n* **End of \
         a load**: half a second after the last request ended, but not before the load event. If \
         a page keeps making requests, the load ends ten seconds after the load event. The load \
         event must come within {} s.\n* **Tunnel**: WireGuard, wireguard-go at both ends, MTU \
         1420 (1407 with a far end, `anabranch merge`, for undefended loads too). It is connected \
         before the page is opened. WireGuard renews its keys on its usual schedule, also during \
         a load.\n* **Splitter**: `anabranch split`, a new process with its own seed for each \
         load. Schedule: {}. Undefended loads use the same program with the first path alone.\n* \
         **Far end**: {}.\n* **Network**: emulated (`anabranch emulate`): three paths of {} \
         Mbit/s, round-trip times of {first}, {second} and {third} ms, queues of {:.0} kB, no \
         loss. TCP in the tunnel: cubic.{}\n* **Order**: seeded (seed {}), one repetition after \
         another; split and undefended loads of all pages are interleaved.\n* **Failures**: a \
         failed attempt is recorded and repeated at the end, up to three attempts in all. An \
         attempt fails if there is no load event in time, no answer with status 200 over the \
         right protocol, an incomplete request, or if the browser, the tunnel or the splitter \
         exits.\n* {}",
        report_data.header["web"].as_str().unwrap_or_default(),
        report_data.header["http"].as_str().unwrap_or_default(),
        report_data.header["patience"],
        report_data.schedule(),
        report_data.far_end(),
        report_data.rate(),
        queue_of(report_data.rate()) / 1e3,
        report_data.circuits(),
        report_data.header["seed"],
        origin(report_data.header),
    )
}

const SEEN: &str = "Rows are the outer packets: WireGuard over UDP or, with a far end, packets in \
                    the format of `docs/spec/far-end.md`. Each row has the time, the size of the \
                    IP packet and the direction. Times are taken at the client, when the splitter \
                    sends or receives a packet. At this time a packet to the server has not yet \
                    crossed its path, and a packet from the server has.\n\n\
                    No DNS: the browser gets the one address that it needs as an option \
                    (`--host-resolver-rules`), and no other name resolves. A resolver in the tunnel \
                    would add two packets of nearly the same size to each load; a resolver outside \
                    it would reveal the name.\n\n\
                    No background traffic of the browser: component updates, safe browsing, \
                    synchronisation, metrics and the like are switched off by options, and the \
                    client's host has no route except to the sites. Apart from the page, observers \
                    still see its icon (`/favicon.ico`, which browsers request) and WireGuard's own \
                    handshakes and keepalives.";

const SEEN_OF_CIRCUITS: &str = "\n\nWith circuits, split rows are the segments of each circuit's stream \
     (`docs/formats.md`), as an observer of the circuit's exit sees them, but without the delay of \
     the circuit. The circuits of one client usually share a guard. An observer of the guard (the \
     lab's observer `merged`) sees all of them, as cells of 514 bytes in TLS. This data set does \
     not have these cells.";

const NOT: &str = "* **No real network**: one machine, user-space links, no cross traffic, no \
                   loss. Packets that the kernel delivered in one system call have the same time \
                   stamp.\n\
* **No third parties, no advertisements, no consent dialogues, no trackers**: requests to other hosts fail at once without a packet (their \
number is `refused` in `loads.parquet`).\n\
* **No variety over time**: pages are the same files in each load. What differs between loads of a page is timing.\n\
* **No users**: no scrolling, no second page, no other traffic in the tunnel.\n\
* **Small static sites**: documentation and demonstration pages, no video, and each visitor gets the same content.\n\
* One browser, one window size, one place; certificates by an authority of the experiment's own, shorter chains than on the web.";

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_experiment::pages::LoadResult;
    use serde_json::json;

    fn load(down: [u64; 3]) -> LoadResult {
        let machine = json!({"steal": 0.0, "pressure": 0.5, "load": 1.0, "late": 0.1});
        let load = json!({
            "unit": "split/a/0", "site": "a", "page": "https://a.example/", "monitored": true, "mode": "split",
            "repetition": 0, "attempt": 1, "seed": 1, "http": "h3", "started": 1.7e9, "seconds": 0.3,
            "took": 3.0, "requests": 7, "refused": 1, "up_packets": [1, 1, 1], "up": [100, 100, 100],
            "down_packets": [1, 1, 1], "down": down, "browsers": 1, "error": "", "machine": machine,
        });
        serde_json::from_value(load).unwrap()
    }

    #[test]
    fn the_sheet_says_how_unevenly_the_paths_share_single_loads() {
        let records = [load([0, 50, 0]), load([60, 40, 0]), load([50, 30, 20])];
        let report_data = ReportData { header: &json!({}), records: &records, pages: &[] };
        let text = text(&report_data);
        for part in [
            "carried any of their bytes: 1 over 1, 1 over 2, 1 over 3.",
            "60.0 % of the load's downlink bytes (median over loads; quartiles 55.0 % and 80.0 %)",
            "In 1 of 3 loads the busiest path carried 95 % or more",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(
            crate::experiment::pages::page::page(&report_data)
                .contains("1 over 1, 1 over 2, 1 over 3.")
        );
    }

    #[test]
    fn the_sheet_says_what_it_is_made_of_and_what_it_is_not() {
        let header = json!({
            "seed": 7, "web": "abc", "http": "both", "splitter": ["--every", "50p"], "default": "weighted:4 --every 100ms",
            "patience": 30.0,
        });
        let report_data = ReportData { header: &header, records: &[], pages: &[] };
        let text = text(&report_data);
        assert!(part(&report_data).contains("\n### What it is not"));
        for part in [
            "`abc`",
            "seed 7",
            "--every 50p; for all else the splitter's default, weighted:4",
            "20, 35 and 60 ms",
            "No third parties",
            "**Far end**: none: the tunnel's server is unmodified, and answers on the path",
        ] {
            assert!(text.contains(part), "{part}");
        }
        assert!(text.contains("three paths of 100 Mbit/s"), "{text}");
        assert!(text.contains("queues of 250 kB"), "{text}");
        let mut header = header;
        header["rate"] = json!(0.5);
        let slow = super::text(&ReportData { header: &header, records: &[], pages: &[] });
        assert!(slow.contains("three paths of 0.5 Mbit/s") && slow.contains("queues of 32 kB"));
        assert!(!slow.contains("circuit"), "{slow}");
        header["onion"] = json!(true);
        let onion = super::text(&ReportData { header: &header, records: &[], pages: &[] });
        assert!(onion.contains("use three circuits") && onion.contains("observer `merged`"));
        header["far_end"] = json!(["--every", "20ms"]);
        let text = super::text(&ReportData { header: &header, records: &[], pages: &[] });
        assert!(
            text.contains("in split loads, `anabranch merge --every 20ms` runs in front"),
            "{text}"
        );
    }
}
