//! Tests of the analysis from a consensus file to its results. The consensuses are made here,
//! because real ones cannot be distributed with the program.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use anabranch_anonymity::Workers;
use anabranch_anonymity::consensus::{ListedConsensus, read};
use anabranch_anonymity::paths::{PathSettings, paths};
use anabranch_anonymity::population::entries;
use anabranch_os::threads::share_out;

const TWO: Workers = Workers { threads: 2, run: share_out };

/// Returns a table of 600 relays of similar weights. A third are guards, a third are exits to the
/// web, and every tenth exit also allows mail. With `kin`, there are 20 families of 30 relays,
/// each in one /16 network.
fn table(kin: bool) -> String {
    let id = |place: usize| format!("{:040X}", 1 + place * 0x0123_4567_89AB);
    let weights = "Wgg=10000 Wgd=0 Wee=10000 Wed=10000 Wmm=10000 Wmg=0 Wme=0 Wmd=0";
    let mut text = format!(
        "# valid-after 2019-12-14 21:00:00\n# params guard-n-primary-guards-to-use=2\n\
         # bandwidth-weights {weights}\n#fp\t\n"
    );
    for place in 0..600usize {
        let exit = place % 3 == 1;
        let guard = place.is_multiple_of(2) && !exit;
        let flags = match (guard, exit) {
            (true, _) => "Fast Guard Running Stable V2Dir Valid",
            (_, true) => "Exit Fast Running Stable V2Dir Valid",
            _ => "Fast Running Stable V2Dir Valid",
        };
        let policy = match exit {
            true if place % 30 == 1 => "accept 25,80,443",
            true => "accept 80,443",
            false => "reject 1-65535",
        };
        let first = place / 30 * 30;
        let family: Vec<String> = (first..first + 30).map(|kin| format!("${}", id(kin))).collect();
        let family = if kin { family.join(" ") } else { String::new() };
        let net = if kin { place / 30 } else { place };
        let address = format!("{}.{}.{}.1", 1 + net / 250, net % 250, place % 250);
        let weight = 90 + place % 20;
        text += &format!(
            "{}\tr{place}\t{address}\t9001\t0\tSE\t{weight}\t0\t{flags}\t0.4.1.6\t{policy}\t\
             {family}\n",
            id(place)
        );
    }
    text
}

fn network(kin: bool) -> ListedConsensus {
    read(&table(kin)).unwrap()
}

#[test]
fn closed_form_and_drawn_circuits_agree_where_relays_are_many_and_unrelated() {
    let listed = network(false);
    let settings = PathSettings {
        entry_share: 0.2,
        exit_share: 0.2,
        circuits: 1000,
        workers: TWO,
        ..PathSettings::default()
    };
    let (holding, rows) = paths(&listed.network, &settings).unwrap();
    assert!((holding.entry - 0.2).abs() < 0.005 && (holding.exit - 0.2).abs() < 0.005);
    // The expected values are in footnote 14 of "Analysis of Multi-path Onion Routing".
    for (row, paper) in rows.iter().zip([0.04, 0.072, 0.0976]) {
        assert!((row.any.closed - paper).abs() < 0.004, "{row:?}");
        for chance in [row.any, row.all, row.merge_point, row.entries] {
            assert!((chance.drawn.value - chance.closed).abs() < 0.015, "{chance:?} of {row:?}");
        }
        assert!((row.hostile_entries.iter().sum::<f64>() - 1.0).abs() < 1e-9 && row.unbuilt == 0);
    }
    assert_eq!(rows.len(), 3);
    let one =
        paths(&listed.network, &PathSettings { workers: Workers::default(), ..settings }).unwrap();
    assert_eq!(one.1, rows, "the number of threads changes nothing");
}

#[test]
fn a_port_that_few_exits_allow_and_families_are_kept_to() {
    let listed = network(true);
    assert!(listed.has_families && listed.has_policies);
    let mail = PathSettings { port: 25, circuits: 200, draws: 5, ..PathSettings::default() };
    let (holding, rows) = paths(&listed.network, &mail).unwrap();
    assert!(holding.exit <= 0.1 && rows.iter().all(|row| row.unbuilt == 0));
    let telnet = PathSettings { port: 23, ..mail };
    let error = paths(&listed.network, &telnet).unwrap_err().to_string();
    assert_eq!(error, "no exit of the consensus allows port 23: choose another port");
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let listed = network(false);
    let few =
        read(&table(false).lines().take(6).fold(String::new(), |text, line| text + line + "\n"));
    assert_eq!(entries(&listed.network).len(), 200);
    for bad in [
        PathSettings { entry_share: 1.0, ..PathSettings::default() },
        PathSettings { exit_share: -0.1, ..PathSettings::default() },
        PathSettings { legs: 0, ..PathSettings::default() },
        PathSettings { legs: 9, ..PathSettings::default() },
        PathSettings { circuits: 0, ..PathSettings::default() },
        PathSettings { draws: 0, ..PathSettings::default() },
        PathSettings { port: 0, ..PathSettings::default() },
    ] {
        assert!(paths(&listed.network, &bad).is_err(), "{bad:?}");
    }
    let few = paths(&few.unwrap().network, &PathSettings::default()).unwrap_err();
    assert_eq!(
        few.to_string(),
        "a client would use 3 guards (entry relays), but the consensus has only 1: lower the \
         number of legs (circuits per stream) or of guards in use"
    );
}
