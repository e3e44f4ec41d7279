//! Consensuses as files: documents of the directory protocol (dir-spec 3.4.1) of flavour `ns` or
//! `microdesc`, and tables with one relay per row.
//!
//! A table starts with lines `# KEYWORD REST`. They hold the header lines of a document
//! (`valid-after`, `params`, `bandwidth-weights`). A line that begins with `#fp` follows, and then
//! one row per relay.
//!
//! A row has twelve fields separated by tabs: fingerprint, nickname, IPv4 address, OR port,
//! directory port, country, weight, unmeasured, flags, version, exit policy (`accept 80,443`),
//! family (fingerprints). If the exit policy or the family is empty in all rows, it counts as
//! unknown.
//!
//! Signatures are not checked, because the certificates for a file from years ago are not
//! available.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};

use anabranch_onion::directory::civil::from_utc;
use anabranch_onion::directory::network::Network;
use anabranch_onion::wire::netdoc::{
    Consensus, Flags, RelayStatus, Subprotocols, parse_microdescs,
};
use anabranch_onion::wire::text::{hex, twenty};
use base64ct::{Base64Unpadded, Encoding};

/// Number of tab-separated fields in each relay's row of a consensus table.
const FIELDS: usize = 12;
/// Exit policy that relays with the flag Exit are assumed to have if the consensus file has no
/// exit policies.
const ANY_PORT: &str = "accept 1-65535";
/// Maximum size of a consensus file, in bytes.
pub const LONGEST: u64 = 64 << 20;
/// First bytes of files compressed with xz and with gzip, each with the name of the program that
/// decompresses them.
const PACKED: [(&[u8], &str); 2] = [(b"\xfd7zXZ", "xz"), (b"\x1f\x8b", "gzip")];
/// First character of the annotation lines that CollecTor and tor's cache put before a document.
/// The annotation that begins with [`TYPE`] names the document's type; [`TYPES`] are the accepted
/// types.
const ANNOTATION: char = '@';
/// Prefix of the annotation that names the document's type.
const TYPE: &str = "@type ";
/// Accepted document types in the annotation [`TYPE`], without the version number that follows
/// them.
const TYPES: [&str; 2] = ["network-status-consensus-3", "network-status-microdesc-consensus-3"];
/// Number of relays whose microdescriptors are parsed together in one call.
const BATCH: usize = 1000;

/// Error: a file is not accepted as a consensus. Contains the faulty line, if there is one, and
/// the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoConsensus {
    line: Option<usize>,
    what: String,
}

impl fmt::Display for NoConsensus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(out, "line {line}: {}", self.what),
            None => out.write_str(&self.what),
        }
    }
}

impl std::error::Error for NoConsensus {}

/// A consensus, and whether its file contains exit policies and families.
#[derive(Clone, Debug)]
pub struct ListedConsensus {
    /// The network of the relays in the consensus. Each relay has a microdescriptor made from the
    /// file.
    pub network: Network,
    /// Whether the file contains exit policies. If not, each relay with the flag Exit is assumed
    /// to allow all ports.
    pub has_policies: bool,
    /// Whether the file contains relay families. If not, relays are assumed to have no families.
    pub has_families: bool,
}

/// Minimum number of relays in a consensus table for [`is_cut`] to check whether the table is
/// complete. The check assumes uniformly distributed identity digests, so it needs a large sample.
const LARGE: usize = 1000;
/// Estimated number of missing relays above which [`is_cut`] considers a consensus table cut off.
/// The estimate comes from the table's last identity.
const MISSING: f64 = 40.0;

/// One relay's entry in a consensus document, or its row in a consensus table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    nickname: String,
    id: [u8; 20],
    address: Option<SocketAddr>,
    flags: Flags,
    weight: u32,
    policy: Option<String>,
    family: Vec<[u8; 20]>,
}

/// Lines of a consensus's header and footer that the analysis needs.
#[derive(Debug, Default)]
struct Header {
    valid_after: u64,
    params: BTreeMap<String, i32>,
    weights: BTreeMap<String, i32>,
}

/// Reads a consensus from the bytes of a file. The file is a document of Tor's directory protocol,
/// or a table with a row for each relay.
///
/// # Errors
/// The bytes are no consensus, are incomplete, or are compressed.
pub fn decode(bytes: &[u8]) -> Result<ListedConsensus, NoConsensus> {
    if bytes.len() as u64 > LONGEST {
        return Err(whole(&format!(
            "the file is longer than {} MiB, so it is not a consensus: choose another file",
            LONGEST >> 20
        )));
    }
    if let Some((_, with)) = PACKED.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Err(whole(&format!("the file is compressed: decompress it with {with} -d")));
    }
    read(std::str::from_utf8(bytes).map_err(|_| {
        whole("the file is not text, so it is not a consensus: choose another file")
    })?)
}

/// Reads a consensus from the text of a file. The file is a document of Tor's directory protocol,
/// or a table with a row for each relay.
///
/// # Errors
/// The text is no consensus, or is incomplete.
pub fn read(text: &str) -> Result<ListedConsensus, NoConsensus> {
    if !text.ends_with('\n') {
        return Err(whole(
            "the file ends within a line: if it is a consensus, its end is missing; download it \
             again",
        ));
    }
    let (before, text) = without_annotations(text)?;
    let (header, rows) = match text.starts_with("network-status-version 3") {
        true => document(text, before)?,
        false => table(text, before)?,
    };
    if header.weights.is_empty() {
        return Err(whole(
            "the file has no line 'bandwidth-weights': if it is a consensus, a part is missing; \
             download it again",
        ));
    }
    if rows.is_empty() {
        return Err(whole("the file lists no relay: choose another file"));
    }
    listed(header, rows)
}

/// Returns the number of annotation lines before the document, and the document without them.
fn without_annotations(text: &str) -> Result<(usize, &str), NoConsensus> {
    let (mut lines, mut rest) = (0, text);
    while rest.starts_with(ANNOTATION) {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let kind = line.strip_prefix(TYPE).and_then(|kind| kind.split(' ').next());
        if let Some(other) = kind.filter(|kind| !TYPES.contains(kind)) {
            return Err(whole(&format!(
                "the file is of type {other}, but must be a consensus: choose another file"
            )));
        }
        (lines, rest) = (lines + 1, after);
    }
    Ok((lines, rest))
}

fn whole(what: &str) -> NoConsensus {
    NoConsensus { line: None, what: what.to_owned() }
}

/// Parses a document of the directory protocol of flavour `ns` or `microdesc`. `before` is the
/// number of lines that precede the document in the file, for the line numbers in error messages.
fn document(text: &str, before: usize) -> Result<(Header, Vec<Row>), NoConsensus> {
    let (mut header, mut rows, mut is_signed) = (Header::default(), Vec::<Row>::new(), false);
    let is_ns = !text.starts_with("network-status-version 3 microdesc");
    for (line, text) in (before + 1..).zip(text.lines()) {
        let (keyword, rest) = text.split_once(' ').unwrap_or((text, ""));
        let is_good = match keyword {
            "r" => routers_line(rest, is_ns).map(|row| rows.push(row)).is_some(),
            "s" | "w" | "p" => rows.last_mut().is_some_and(|row| row.take(keyword, rest)),
            _ => header.take(keyword, rest).is_some(),
        };
        if !is_good {
            return Err(bad(line, keyword));
        }
        is_signed |= keyword == "directory-signature";
    }
    match is_signed {
        true => Ok((header, rows)),
        false => Err(whole(
            "the file has no signature: if it is a consensus, its end is missing; download it \
             again",
        )),
    }
}

fn bad(line: usize, what: &str) -> NoConsensus {
    NoConsensus {
        line: Some(line),
        what: format!(
            "the consensus is malformed at {what}: download it again, or compare it with \
                       docs/formats.md, which describes the format"
        ),
    }
}

impl Row {
    /// Stores a line of the relay's entry other than its first line (`r`). Returns false if the
    /// line is malformed.
    fn take(&mut self, keyword: &str, rest: &str) -> bool {
        match keyword {
            "s" => self.flags = flags(rest),
            "w" => match weight(rest) {
                Some(weight) => self.weight = weight,
                None => return false,
            },
            _ => self.policy = Some(rest.to_owned()),
        }
        true
    }
}

/// Parses the fields of a line `r`: `NICKNAME IDENTITY [DIGEST] DATE TIME IP ORPORT DIRPORT`. The
/// digest is present in the flavour `ns`, which `is_ns` indicates.
fn routers_line(rest: &str, is_ns: bool) -> Option<Row> {
    let fields: Vec<&str> = rest.split(' ').collect();
    let address = if is_ns { 5 } else { 4 };
    let id = Base64Unpadded::decode_vec(fields.get(1)?).ok()?.try_into().ok()?;
    let address = socket(fields.get(address)?, fields.get(address + 1)?)?;
    Some(Row {
        nickname: (*fields.first()?).to_owned(),
        id,
        address: Some(address),
        ..Row::default()
    })
}

fn socket(address: &str, port: &str) -> Option<SocketAddr> {
    Some(SocketAddr::from((address.parse::<Ipv4Addr>().ok()?, port.parse().ok()?)))
}

fn weight(rest: &str) -> Option<u32> {
    rest.split(' ').find_map(|item| item.strip_prefix("Bandwidth="))?.parse().ok()
}

fn flags(text: &str) -> Flags {
    let has = |name: &str| text.split(' ').any(|flag| flag == name);
    Flags {
        authority: has("Authority"),
        bad_exit: has("BadExit"),
        exit: has("Exit"),
        fast: has("Fast"),
        guard: has("Guard"),
        middle_only: has("MiddleOnly"),
        stable: has("Stable"),
        v2dir: has("V2Dir"),
    }
}

impl Header {
    /// Stores a line of the consensus's header or footer if the analysis needs it, and ignores
    /// other lines. Returns `None` if a needed line is malformed.
    fn take(&mut self, keyword: &str, rest: &str) -> Option<()> {
        match keyword {
            "valid-after" => self.valid_after = from_utc(rest)?,
            "params" => self.params = values(rest)?,
            "bandwidth-weights" => self.weights = values(rest)?,
            _ => {}
        }
        Some(())
    }
}

fn values(text: &str) -> Option<BTreeMap<String, i32>> {
    let pair = |item: &str| {
        let (name, value) = item.split_once('=')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    text.split_whitespace().map(pair).collect()
}

/// Parses a table with a row for each relay. `before` is the number of lines that precede the
/// table in the file, for the line numbers in error messages.
fn table(text: &str, before: usize) -> Result<(Header, Vec<Row>), NoConsensus> {
    let (mut header, mut rows, mut is_table) = (Header::default(), Vec::new(), false);
    for (line, text) in (before + 1..).zip(text.lines()) {
        if let Some(comment) = text.strip_prefix("# ") {
            let (keyword, rest) = comment.split_once(' ').unwrap_or((comment, ""));
            header.take(keyword, rest).ok_or_else(|| bad(line, keyword))?;
        } else if text.starts_with("#fp\t") {
            is_table = true;
        } else if is_table {
            rows.push(table_row(text).ok_or_else(|| bad(line, "the row"))?);
        } else {
            let what = "the file is neither a consensus of Tor's directory protocol nor a table of \
                        relays (docs/formats.md): choose another file";
            return Err(whole(what));
        }
    }
    match is_cut(&rows) {
        true => Err(whole(
            "the table lacks the relays with the highest fingerprints, so its end is missing: copy \
             or make it again",
        )),
        false => Ok((header, rows)),
    }
}

/// Returns whether the last rows of a consensus table are missing, for example because of an
/// incomplete download. A table is sorted by relay identity and has no end mark. Identities are
/// digests and therefore uniformly distributed. So the last row's identity and the number of rows
/// determine how many relays are expected after the last row. For a complete table, this number
/// exceeds `MISSING` only with probability `exp(-MISSING)`.
///
/// Returns false for a table with fewer than `LARGE` rows, or for a table that is not sorted.
fn is_cut(rows: &[Row]) -> bool {
    let is_large = rows.len() >= LARGE && rows.is_sorted_by_key(|row| row.id);
    rows.last().filter(|_| is_large).is_some_and(|last| {
        let place = u32::from_be_bytes([last.id[0], last.id[1], last.id[2], last.id[3]]);
        let before = (f64::from(place) + 1.0) / 2f64.powi(32);
        rows.len() as f64 * (1.0 - before) / before > MISSING
    })
}

fn table_row(text: &str) -> Option<Row> {
    let fields: Vec<&str> = text.split('\t').collect();
    if fields.len() != FIELDS {
        return None;
    }
    let family = fields[11].split_whitespace();
    // Families that name relays by nickname are ignored, because nicknames prove nothing. Tor has
    // ignored such names since 2017.
    let family = family.filter_map(|name| twenty(name.trim_start_matches('$').get(..40)?));
    Some(Row {
        nickname: fields[1].to_owned(),
        id: twenty(fields[0])?,
        address: Some(socket(fields[2], fields[3])?),
        flags: flags(fields[8]),
        weight: fields[6].parse().ok()?,
        policy: Some(fields[10].to_owned()).filter(|policy| !policy.is_empty()),
        family: family.collect(),
    })
}

fn listed(header: Header, mut rows: Vec<Row>) -> Result<ListedConsensus, NoConsensus> {
    rows.sort_by_key(|row| row.id);
    if rows.windows(2).any(|pair| pair[0].id == pair[1].id) {
        return Err(whole(
            "the file lists a relay twice: remove one of the entries, or download the file again",
        ));
    }
    let has_policies = rows.iter().any(|row| row.policy.is_some());
    let has_families = rows.iter().any(|row| !row.family.is_empty());
    let mut microdescs = Vec::with_capacity(rows.len());
    for batch in rows.chunks(BATCH) {
        let text: String = batch.iter().map(|row| description(row, has_policies)).collect();
        let (parsed, _) = parse_microdescs(&text).map_err(|error| whole(&error.to_string()))?;
        microdescs.extend(parsed.into_iter().map(|(microdesc, _)| microdesc));
    }
    if microdescs.len() != rows.len() {
        let count = rows.len() - microdescs.len();
        return Err(whole(&format!(
            "the exit policies of {count} relays cannot be read: the file is damaged, so download \
             it again"
        )));
    }
    let relays = rows.into_iter().zip(&microdescs).map(|(row, one)| status(row, one.digest));
    let mut network = Network::new(Consensus {
        valid_after: header.valid_after,
        fresh_until: header.valid_after + 3600,
        valid_until: header.valid_after + 3 * 3600,
        relays: relays.collect(),
        params: header.params,
        weights: header.weights,
    });
    microdescs.into_iter().for_each(|microdesc| {
        network.learn(microdesc);
    });
    Ok(ListedConsensus { network, has_policies, has_families })
}

/// Returns a microdescriptor of the relay in `row`, with the fields that path selection needs. Its
/// keys are placeholders made from the identity, because the analysis builds no circuits.
fn description(row: &Row, has_policies: bool) -> String {
    let unknown = (!has_policies && row.flags.exit).then_some(ANY_PORT);
    let mut key = [0; 32];
    key[..20].copy_from_slice(&row.id);
    let key = Base64Unpadded::encode_string(&key);
    let mut text = format!("onion-key\nntor-onion-key {key}\n");
    if !row.family.is_empty() {
        text += "family";
        row.family.iter().for_each(|id| {
            let _ = write!(text, " ${}", hex(id));
        });
        text += "\n";
    }
    if let Some(policy) = row.policy.as_deref().or(unknown) {
        text += &format!("p {policy}\n");
    }
    text + &format!("id ed25519 {key}\n")
}

fn status(row: Row, microdesc: [u8; 32]) -> RelayStatus {
    RelayStatus {
        nickname: row.nickname,
        rsa_identity: row.id,
        microdesc,
        addresses: row.address.into_iter().collect(),
        flags: row.flags,
        bandwidth: row.weight,
        subprotocols: Subprotocols::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# valid-after 2015-10-10 02:00:00\n# params NumEntryGuards=1\n\
        # bandwidth-weights Wgg=6146 Wgd=0 Wee=10000\n#fp\tnick\tip\n";

    fn row(place: u8, rest: &str) -> String {
        let id = hex(&[place; 20]);
        let at = format!("10.{place}.0.1\t9001\t0");
        format!("{id}\tr{place}\t{at}\tSE\t50\t0\tExit Fast Guard\t0.4\t{rest}\n")
    }

    #[test]
    fn a_table_gives_relays_with_policies_and_families() {
        let kin = format!("accept 80,443\t${} nickname", hex(&[2; 20]));
        let text = HEAD.to_owned() + &row(2, "\t") + &row(1, &kin);
        let listed = read(&text).unwrap();
        assert!(listed.has_policies && listed.has_families);
        let relays: Vec<_> = listed.network.relays().collect();
        assert_eq!(relays.len(), 2);
        assert!(
            relays[0].microdesc.exits_to(443, false) && !relays[0].microdesc.exits_to(25, false)
        );
        assert_eq!(relays[0].microdesc.family, [[2; 20]]);
        assert!(!relays[1].microdesc.exits(), "policies are known, and this one has none");
        assert_eq!(listed.network.consensus().weights["Wgg"], 6146);
        assert_eq!(listed.network.consensus().valid_after, 1_444_442_400);
    }

    #[test]
    fn a_table_of_an_earlier_program_is_read() {
        let text = include_str!("../../../tests/formats/0e0b824b/consensus.txt");
        let listed = read(text).unwrap();
        assert!(listed.has_policies && listed.has_families);
        let relays: Vec<_> = listed.network.relays().collect();
        assert_eq!(relays.len(), 1);
        assert_eq!(relays[0].microdesc.family, [[2; 20]]);
        assert!(relays[0].microdesc.exits_to(443, false));
        assert_eq!(listed.network.consensus().valid_after, 1_444_442_400);
    }

    #[test]
    fn a_large_table_that_was_cut_between_two_lines_is_refused() {
        let row = |place: u32| {
            let mut id = [0; 20];
            id[..4].copy_from_slice(&(place * (u32::MAX / 2000)).to_be_bytes());
            let at = format!("10.{}.{}.1\t9001\t0", place / 256, place % 256);
            format!("{}\tr{place}\t{at}\tSE\t50\t0\tFast Guard\t0.4\t\t\n", hex(&id))
        };
        let of = |rows: u32| HEAD.to_owned() + &(0..rows).map(row).collect::<String>();
        assert!(read(&of(2000)).is_ok());
        assert!(read(&of(1970)).is_ok(), "so few may be missing by chance");
        for rows in [1940, 1000] {
            assert!(read(&of(rows)).unwrap_err().what.contains("its end is missing"), "{rows}");
        }
    }

    #[test]
    fn where_no_policy_is_known_the_flag_says_who_is_an_exit() {
        let listed = read(&(HEAD.to_owned() + &row(1, "\t"))).unwrap();
        assert!(!listed.has_policies && !listed.has_families);
        assert!(listed.network.relays().all(|relay| relay.microdesc.exits_to(25, false)));
    }

    #[test]
    fn documents_of_both_flavours_say_the_same() {
        let footer =
            "directory-footer\nbandwidth-weights Wgg=6146\ndirectory-signature sha256 A B\n";
        let of = |flavour: &str, digest: &str, policy: &str| {
            format!(
                "network-status-version 3{flavour}\nvalid-after 2022-11-19 10:00:00\nparams a=1\n\
                 r seele AAoQ1DAR6kkoo19hBAX5K0QztNw {digest}2022-11-19 03:58:26 \
                 104.53.221.159 9001 0\n\
                 s Fast Guard Running\nw Bandwidth=270 Unmeasured=1\n{policy}{footer}"
            )
        };
        let ns = read(&of("", "FF26jNpQfRpYdz65WYv+O9pFPtY ", "p accept 80\n")).unwrap();
        let microdesc = read(&of(" microdesc", "", "m AAAA\n")).unwrap();
        let only = |listed: &ListedConsensus| {
            let status = listed.network.consensus().relays[0].clone();
            RelayStatus { microdesc: [0; 32], ..status }
        };
        assert_eq!(only(&ns), only(&microdesc));
        assert_eq!((only(&ns).bandwidth, only(&ns).flags.guard), (270, true));
        assert!(ns.has_policies && !microdesc.has_policies);
    }

    #[test]
    fn annotations_of_archives_and_caches_are_passed_over() {
        let good = HEAD.to_owned() + &row(1, "accept 80\t") + &row(2, "accept 80\t");
        let cache = "@downloaded-at 2024-05-17 17:02:11\n@source \"192.0.2.1\"\n";
        for before in ["@type network-status-consensus-3 1.0\n", cache] {
            let listed = read(&(before.to_owned() + &good)).unwrap();
            assert_eq!(listed.network.relays().count(), 2);
        }
        let why = read(&format!("{cache}{}", good.replace("\t50\t", "\t-50\t"))).unwrap_err();
        assert_eq!(why.line, Some(7), "lines count from the file's first");
        let why = read("@type server-descriptor 1.0\nrouter a\n").unwrap_err().to_string();
        assert_eq!(
            why,
            "the file is of type server-descriptor, but must be a consensus: choose another file"
        );
    }

    #[test]
    fn what_is_no_whole_consensus_is_refused_in_one_line() {
        let good = HEAD.to_owned() + &row(1, "accept 80\t") + &row(2, "accept 80\t");
        let half = &good[..good.len() - 40];
        let document = "network-status-version 3\nvalid-after 2022-11-19 10:00:00\n";
        let cases: [(&str, &str); 10] = [
            ("", "within a line"),
            ("hello\n", "neither"),
            (half, "within a line"),
            (&format!("{half}\n"), "line 6"),
            (HEAD, "lists no relay"),
            (&good.replace("# bandwidth-weights", "# weights"), "bandwidth-weights"),
            (&good.replace("accept 80\t\n", "accept eighty\t\n"), "exit policies of 2"),
            (&good.replace("\t50\t", "\t-50\t"), "line 5"),
            (&(good.clone() + &row(1, "\t")), "twice"),
            (document, "no signature"),
        ];
        for (text, says) in cases {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains('\n'), "{error}: not {says}");
        }
    }
}
