//! Results of `anabranch anonymity` as tables and as JSON.

use std::fmt::Write as _;

use anabranch_anonymity::consensus::ListedConsensus;
use anabranch_anonymity::figures::Band;
use anabranch_anonymity::fingerprints::{FingerprintRow, FingerprintSettings, Sharing};
use anabranch_anonymity::hostile::Spread;
use anabranch_anonymity::paths::{Chance, Holding, PathRow, PathSettings};
use anabranch_anonymity::population::entries;
use anabranch_anonymity::year::{Adversary, CompromisedShares, YearRow, YearSettings};
use anabranch_onion::directory::civil::utc;
use serde_json::{Value, json};

/// Function that selects one of the columns of a result row: the probability of one kind of
/// compromise.
type OfRow = fn(&PathRow) -> Chance;

/// Returns the heading of the tables, which describes the consensus and its network.
fn head(listed: &ListedConsensus) -> String {
    let network = &listed.network;
    let (relays, guards) = (network.relays().count(), entries(network).len());
    let unknown = match (listed.has_policies, listed.has_families) {
        (true, true) => "",
        (true, false) => "; the file does not list relay families",
        (false, true) => {
            "; the file does not list exit policies, so relays with the flag Exit count as exits \
             to all ports"
        }
        (false, false) => {
            "; the file lists neither relay families nor exit policies, so relays with the flag \
             Exit count as exits to all ports"
        }
    };
    let after = utc(network.consensus().valid_after);
    format!(
        "consensus of {after}: {relays} relays, {guards} of them possible entries (first \
         relays){unknown}\n"
    )
}

fn consensus_json(listed: &ListedConsensus) -> Value {
    json!({
        "valid_after": listed.network.consensus().valid_after,
        "relays": listed.network.relays().count(),
        "entries": entries(&listed.network).len(),
        "has_policies": listed.has_policies,
        "has_families": listed.has_families,
    })
}

pub(super) fn paths_text(
    listed: &ListedConsensus,
    settings: &PathSettings,
    holding: &Holding,
    rows: &[PathRow],
) -> String {
    let Holding { entry, exit, middle, relays } = holding;
    let mut text = head(listed);
    let _ = writeln!(
        text,
        "the adversary runs {relays:.0} relays. A client chooses one of them as entry with \
         probability {entry:.4}, as exit to port {} with {exit:.4}, and as middle relay with \
         {middle:.4}.\nEach row of the table is about a stream over several circuits, and names \
         some of its relays. The\nvalues are the probability that all these relays are hostile: \
         computed by a formula, and simulated\nwith {} random sets of circuits. The joining \
         middle is the middle relay where the circuits join.\n",
        settings.port,
        settings.circuits * settings.draws,
    );
    let kinds: [(&str, OfRow); 4] = [
        ("one entry and the exit", |row| row.any),
        ("all entries and the exit", |row| row.all),
        ("one entry and the joining middle", |row| row.merge_point),
        ("all entries, which see all bytes", |row| row.entries),
    ];
    let _ = writeln!(text, "{:<32} circuits  computed  simulated  95 % interval", "hostile relays");
    for (name, chance) in kinds {
        for row in rows {
            let Chance { closed, drawn } = chance(row);
            let _ = writeln!(
                text,
                "{name:<32} {:>8}  {closed:>8.4}  {:>9.4}  {:.4} to {:.4}",
                row.legs, drawn.value, drawn.low, drawn.high
            );
        }
    }
    text += "\nprobability that 0, 1 or more of a stream's circuits have a hostile entry (each \
             entry sees the same\nshare of the stream's bytes if the bytes are spread evenly)\n";
    for row in rows {
        let _ =
            write!(text, "{} {}:", row.legs, if row.legs == 1 { "circuit" } else { "circuits" });
        for (entries, share) in row.hostile_entries.iter().enumerate() {
            let _ = write!(text, "  {entries}: {share:.4}");
        }
        let _ = writeln!(
            text,
            "  hostile entries see a share of {:.4} of the bytes on average",
            row.bytes
        );
        if row.unbuilt > 0 {
            let _ = writeln!(
                text,
                "  {} circuits could not be built, because no allowed relay was left",
                row.unbuilt
            );
        }
    }
    text
}

pub(super) fn paths_json(
    listed: &ListedConsensus,
    settings: &PathSettings,
    holding: &Holding,
    rows: &[PathRow],
) -> Value {
    let chance = |chance: &Chance| {
        let Chance { closed, drawn } = chance;
        json!({"closed": closed, "drawn": drawn.value, "low": drawn.low, "high": drawn.high})
    };
    let row = |row: &PathRow| {
        json!({
            "legs": row.legs, "any": chance(&row.any), "all": chance(&row.all),
            "merge": chance(&row.merge_point), "entries": chance(&row.entries),
            "seen": row.hostile_entries, "bytes": row.bytes, "unbuilt": row.unbuilt,
        })
    };
    json!({
        "consensus": consensus_json(listed), "port": settings.port, "seed": settings.seed,
        "circuits": settings.circuits, "draws": settings.draws,
        "holds": {
            "entries": holding.entry, "exits": holding.exit, "middles": holding.middle,
            "relays": holding.relays,
        },
        "rows": rows.iter().map(row).collect::<Vec<Value>>(),
    })
}

fn legs(row: &YearRow) -> String {
    row.legs.map_or("COMB".to_owned(), |legs| legs.to_string())
}

/// JSON key and table heading for each of the four definitions of a compromised client.
const COMPROMISED: [(&str, &str); 4] = [
    ("any_ever", "clients that had a hostile entry by this day"),
    ("all_ever", "clients whose entries were all hostile at some time by this day"),
    ("any_now", "clients that have a hostile entry on this day"),
    ("all_now", "clients whose entries are all hostile on this day"),
];

fn bands(row: &YearRow, kind: usize) -> Vec<Band> {
    let of = |at: &CompromisedShares| [at.any_ever, at.all_ever, at.any_now, at.all_now][kind];
    row.at.iter().map(of).collect()
}

pub(super) fn year_text(
    listed: &ListedConsensus,
    settings: &YearSettings,
    rows: &[YearRow],
) -> String {
    let mut text = head(listed);
    let whose = match settings.adversary {
        Adversary::Replaces(_) => "runs some relays of the consensus".to_owned(),
        Adversary::Adds(relays) => format!("adds {relays} relays"),
    };
    let stay = match settings.churn {
        None => "relays are never replaced".to_owned(),
        Some(days) if settings.hostile_churn => {
            format!(
                "each relay, honest or hostile, stays in the network for {days} days on average, \
                 then a new one replaces it"
            )
        }
        Some(days) => format!(
            "an honest relay stays in the network for {days} days on average, then a new one \
             replaces it"
        ),
    };
    let _ = writeln!(
        text,
        "{} clients, {} random simulations (draws). The adversary {whose}, which have a share of \
         {} of\nthe selection weight of all entries (first relays). During the year {stay}.\nEach \
         value is a share of clients: mean over the draws (5th to 95th percentile). \
         Columns:\nlegs = circuits per stream, each with its own entry (row COMB: a mixture, 60 % \
         of clients have 1, 20 % 2, 20 % 3);\nin use = guards (entry relays) of a client at a \
         time; guards = mean number of guards of a client in the year\n",
        settings.clients, settings.draws, settings.share
    );
    for (kind, (_, name)) in COMPROMISED.iter().enumerate() {
        let _ = write!(text, "{name}\nlegs  in use  guards");
        settings.days.iter().for_each(|day| {
            let _ = write!(text, "   day {day:<16}");
        });
        text += "\n";
        for row in rows {
            let in_use = row.in_use.map_or("-".to_owned(), |guards| guards.to_string());
            let _ = write!(text, "{:>4} {in_use:>7} {:>7.1}", legs(row), row.guards);
            for Band { mean, low, high } in bands(row, kind) {
                let _ = write!(text, "   {mean:.4} ({low:.3}-{high:.3})");
            }
            text += "\n";
        }
        text += "\n";
    }
    text
}

pub(super) fn year_json(
    listed: &ListedConsensus,
    settings: &YearSettings,
    rows: &[YearRow],
) -> Value {
    let row = |row: &YearRow| {
        let kinds = COMPROMISED.iter().enumerate().map(|(kind, (name, _))| {
            ((*name).to_owned(), bands(row, kind).iter().map(band_json).collect::<Value>())
        });
        let mut object: serde_json::Map<String, Value> = kinds.collect();
        object.insert("legs".into(), json!(row.legs));
        object.insert("in_use".into(), json!(row.in_use));
        object.insert("guards".into(), json!(row.guards));
        Value::Object(object)
    };
    let (adds, heaviest) = match settings.adversary {
        Adversary::Adds(relays) => (Some(relays), false),
        Adversary::Replaces(spread) => (None, spread == Spread::Heaviest),
    };
    json!({
        "consensus": consensus_json(listed), "clients": settings.clients, "draws": settings.draws,
        "share": settings.share, "churn": settings.churn, "hostile_churn": settings.hostile_churn,
        "adds": adds, "heaviest": heaviest,
        "days": settings.days, "seed": settings.seed,
        "rows": rows.iter().map(row).collect::<Vec<Value>>(),
    })
}

fn band_json(band: &Band) -> Value {
    json!({"mean": band.mean, "low": band.low, "high": band.high})
}

fn measures(sharing: &Sharing) -> [(&'static str, Band); 6] {
    [
        ("over_sets", sharing.over_sets),
        ("over_clients", sharing.over_clients),
        ("median", sharing.median),
        ("unique", sharing.unique),
        ("largest", sharing.largest),
        ("effective", sharing.effective),
    ]
}

pub(super) fn fingerprints_text(
    listed: &ListedConsensus,
    settings: &FingerprintSettings,
    rows: &[FingerprintRow],
) -> String {
    let mut text = head(listed);
    let _ = writeln!(
        text,
        "number of clients with the same set of guards (first relays), among {} clients: means of \
         {} simulations.\nRows: drawn = each client chooses its guards at random; in fixed sets = \
         the guards are divided into\nsets, and each client gets one set at random.\nColumns: \
         legs = circuits per stream; in use = guards of a client; formula = clients per set if \
         all sets are\nequally likely; over sets = mean over all sets in use; over clients, \
         median = mean and median, over\nall clients, of the number of clients with the same set; \
         unique = share of clients whose set nobody else\nhas; largest = clients with the most \
         common set; effective = N / 2^H, with N clients and the\nentropy H of the sets\n\n{:<26} \
         {:>9} {:>10} {:>12} {:>8} {:>8} {:>8} {:>10}",
        settings.clients,
        settings.draws,
        "legs in use",
        "formula",
        "over sets",
        "over clients",
        "median",
        "unique",
        "largest",
        "effective"
    );
    for row in rows {
        for (name, sharing) in [("drawn", &row.own), ("in fixed sets", &row.fixed)] {
            let _ = write!(text, "{:<4} {:>6}  {name:<13}", row.legs, row.in_use);
            let _ = write!(text, " {:>9.4}", row.formula);
            let [sets, clients, median, unique, largest, effective] =
                measures(sharing).map(|(_, band)| band.mean);
            let _ = writeln!(
                text,
                " {sets:>10.2} {clients:>12.1} {median:>8.1} {unique:>8.4} {largest:>8.1} \
                 {effective:>10.2}"
            );
        }
    }
    text
}

pub(super) fn fingerprints_json(
    listed: &ListedConsensus,
    settings: &FingerprintSettings,
    rows: &[FingerprintRow],
) -> Value {
    let sharing = |sharing: &Sharing| -> Value {
        let all = measures(sharing).map(|(name, band)| (name.to_owned(), band_json(&band)));
        Value::Object(all.into_iter().collect())
    };
    let row = |row: &FingerprintRow| {
        json!({
            "legs": row.legs, "in_use": row.in_use, "formula": row.formula,
            "drawn": sharing(&row.own), "fixed": sharing(&row.fixed),
        })
    };
    json!({
        "consensus": consensus_json(listed), "clients": settings.clients, "draws": settings.draws,
        "seed": settings.seed, "rows": rows.iter().map(row).collect::<Vec<Value>>(),
    })
}
