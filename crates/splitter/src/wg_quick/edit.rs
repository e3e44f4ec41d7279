//! Changes to a wg-quick configuration file.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::keys::Kind;
use super::parse::{Item, Line, WgQuick};
use super::peer::Peer;

/// Changes to a tunnel's configuration, so that its packets go to the splitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changes {
    /// Address of the splitter's listener. An unspecified address is replaced by loopback, because
    /// a peer needs a destination address.
    pub endpoint: SocketAddr,
    /// The interface's MTU; `None` leaves the MTU unchanged.
    pub mtu: Option<u32>,
    /// The mark of the tunnel's own packets; `None` leaves the mark unchanged.
    pub fwmark: Option<u32>,
}

/// One changed line of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Section of the line: `[Interface]` or `[Peer]`.
    pub section: &'static str,
    /// Key of the line: `Endpoint`, `MTU` or `FwMark`, so never a secret.
    pub key: &'static str,
    /// The value before the change; `None` if the file had no such line.
    pub before: Option<String>,
    /// The value after the change.
    pub after: String,
}

/// A changed configuration file.
#[derive(Clone, PartialEq, Eq)]
pub struct ChangedFile {
    /// The whole text of the file, including its secrets.
    pub text: String,
    /// The changed lines, beginning with the lines in `[Interface]`.
    pub changes: Vec<Change>,
}

impl WgQuick {
    /// Returns the file with `changes` for `peer`, which is one of the file's peers. Everything
    /// else stays unchanged, including comments, order, blanks and line breaks.
    pub fn changed(&self, peer: &Peer, changes: &Changes) -> ChangedFile {
        let mut lines = self.lines.clone();
        let mut edits = Vec::new();
        // A number that the file has in another notation, such as 0xca6c, is left unchanged.
        let number = |new: Option<u32>, own: Option<u32>| {
            new.filter(|_| new != own).map(|number| number.to_string())
        };
        let endpoint = Some(reachable(changes.endpoint).to_string());
        for (kind, key, value) in [
            (Kind::Interface, "MTU", number(changes.mtu, self.mtu())),
            (Kind::Interface, "FwMark", number(changes.fwmark, self.fwmark())),
            (Kind::Peer, "Endpoint", endpoint),
        ] {
            let Some(after) = value else { continue };
            let section = (kind == Kind::Peer).then_some(peer.section);
            let before = set(&mut lines, kind, section, key, &after);
            if before.as_ref() != Some(&after) {
                edits.push(Change { section: kind.header(), key, before, after });
            }
        }
        let text = lines.into_iter().map(|line| line.text).collect();
        ChangedFile { text, changes: edits }
    }
}

/// Returns `listen` as a destination, with loopback in place of an unspecified address.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// Sets the key `name` of the interface, or of the peer whose section has the number `section`.
/// Returns the previous value; `None` if a line was added.
fn set(
    lines: &mut Vec<Line>,
    kind: Kind,
    section: Option<usize>,
    name: &str,
    new: &str,
) -> Option<String> {
    let here = |item: &Item| match item {
        Item::Setting { kind: k, section: s, .. } => {
            *k == kind && section.is_none_or(|at| at == *s)
        }
        Item::Header { kind: k } => *k == kind && section.is_none(),
        Item::Nothing => false,
    };
    let named = |line: &Line| match &line.item {
        Item::Setting { key, value, .. } if key.name == name && here(&line.item) => {
            Some(value.clone())
        }
        _ => None,
    };
    let found = lines.iter().enumerate().find_map(|(index, line)| Some((index, named(line)?)));
    if let Some((index, place)) = found {
        let before = lines[index].text[place.clone()].to_owned();
        lines[index].text.replace_range(place, new);
        return Some(before);
    }
    let last = lines.iter().rposition(|line| here(&line.item));
    add(lines, last, kind, name, new);
    None
}

/// Adds the line `name = value` after the line at index `last`. If `last` is `None`, adds the line
/// in a new section at the front of the file.
fn add(lines: &mut Vec<Line>, last: Option<usize>, kind: Kind, name: &str, value: &str) {
    let end = match lines.first() {
        Some(line) if line.text.ends_with("\r\n") => "\r\n",
        _ => "\n",
    };
    let line = |text: String, item| Line { text, item };
    let place = match last {
        Some(last) => last,
        None => {
            lines.insert(0, line(format!("{}{end}", kind.header()), Item::Header { kind }));
            0
        }
    };
    if !lines[place].text.ends_with('\n') {
        lines[place].text += end;
    }
    let key = kind.key(name).expect("only keys of the section [Interface] are added");
    let start = name.len() + " = ".len();
    // No other line is looked up by this line's section.
    let item = Item::Setting { kind, section: usize::MAX, key, value: start..start + value.len() };
    lines.insert(place + 1, line(format!("{name} = {value}{end}"), item));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str, number: usize, changes: Changes) -> ChangedFile {
        let file = WgQuick::parse(text, "f.conf").unwrap();
        file.changed(&file.peers()[number - 1], &changes)
    }

    fn to(endpoint: &str) -> Changes {
        Changes { endpoint: endpoint.parse().unwrap(), mtu: None, fwmark: None }
    }

    #[test]
    fn only_the_values_meant_are_touched() {
        let text = "# mine\r\n[interface]\r\n  PRIVATEKEY=secret\r\nmtu =  1500  # wide\r\n\
                    PostUp = echo a=b\r\n\r\n[Peer] # one\r\nPublicKey = a\r\nEndpoint=h:1# x\r\n\
                    [peer]\r\nPublicKey = b\r\nEndpoint = h:2";
        let changes = Changes { mtu: Some(1400), fwmark: Some(51820), ..to("127.0.0.1:9") };
        let changed = changed(text, 1, changes);
        let wanted = text
            .replace("mtu =  1500  #", "mtu =  1400  #")
            .replace("a=b\r\n", "a=b\r\nFwMark = 51820\r\n")
            .replace("h:1#", "127.0.0.1:9#");
        assert_eq!(changed.text, wanted);
        let changes: Vec<_> =
            changed.changes.iter().map(|c| (c.key, c.before.as_deref())).collect();
        assert_eq!(changes, [("MTU", Some("1500")), ("FwMark", None), ("Endpoint", Some("h:1"))]);
    }

    #[test]
    fn the_peer_chosen_is_the_one_that_changes() {
        let text =
            "[Interface]\n[Peer]\nPublicKey=a\nEndpoint=h:1\n[Peer]\nPublicKey=b\nEndpoint=h:2\n";
        let second = changed(text, 2, to("[::1]:9"));
        assert_eq!(second.text, text.replace("h:2", "[::1]:9"));
        assert_eq!(changed(text, 1, to("0.0.0.0:9")).text, text.replace("h:1", "127.0.0.1:9"));
    }

    #[test]
    fn what_is_missing_is_added_to_the_interface() {
        let mtu = Changes { mtu: Some(1400), ..to("127.0.0.1:9") };
        let peer = "[Peer]\nPublicKey=a\nEndpoint=127.0.0.1:9\n";
        let text = |head: &str| format!("{head}{peer}");
        let cases = [
            (
                "[Interface]\nTable=7 # t\n\n# last\n",
                "[Interface]\nTable=7 # t\nMTU = 1400\n\n# last\n",
            ),
            ("[Interface]\n", "[Interface]\nMTU = 1400\n"),
            ("", "[Interface]\nMTU = 1400\n"),
        ];
        for (before, after) in cases {
            assert_eq!(changed(&text(before), 1, mtu).text, text(after));
        }
        let last = format!("{peer}[Interface]\nTable = 7");
        assert_eq!(changed(&last, 1, mtu).text, format!("{last}\nMTU = 1400\n"));
    }

    #[test]
    fn a_number_that_is_the_same_stays_as_it_is_written() {
        let text = "[Interface]\nFwMark = 0xCA6C\nMTU = 01400\n[Peer]\nPublicKey=a\nEndpoint=h:1\n";
        let changes = Changes { mtu: Some(1400), fwmark: Some(51820), ..to("127.0.0.1:9") };
        let changed = changed(text, 1, changes);
        assert_eq!(changed.text, text.replace("h:1", "127.0.0.1:9"));
        assert_eq!(changed.changes.len(), 1, "the endpoint alone");
    }

    #[test]
    fn a_byte_order_mark_is_left_out_as_wg_refuses_it() {
        let text = "[Interface]\n[Peer]\nPublicKey=a\nEndpoint=h:1\n";
        let marked = changed(&format!("\u{feff}{text}"), 1, to("127.0.0.1:9"));
        assert_eq!(marked.text, text.replace("h:1", "127.0.0.1:9"));
    }

    #[test]
    fn nothing_is_told_where_nothing_differs() {
        let text = "[Interface]\nMTU = 1400\n[Peer]\nPublicKey=a\nEndpoint=127.0.0.1:9\n";
        let same = changed(text, 1, Changes { mtu: Some(1400), ..to("127.0.0.1:9") });
        assert_eq!((same.text.as_str(), same.changes.len()), (text, 0));
    }
}
