//! The nftables rules of a splitter, as text for `nft -f -`.
//!
//! One table holds all rules, so that one command replaces or removes them atomically. The table
//! has these chains:
//!
//! * `split` sets the interface's conntrack mark on flows that are split;
//! * `classify` sets a path's mark on each other flow, once;
//! * `back` sets the interface's mark on flows whose first datagram, as conntrack sees it, is from
//!   the server;
//! * `steer` copies the flow's mark to the packets that this machine (or the namespace) sends,
//!   before they are routed;
//! * `enter` copies the flow's mark to packets that arrive from the namespace over the veth pair;
//! * `ours` marks the splitter's own packets, and drops packets that the kernel itself sends in
//!   their flows;
//! * `answers` marks answers, for machines that check source addresses (strict `rp_filter`);
//! * `addresses` gives a pinned flow the address of its path as its source;
//! * `number` counts the flows that are pinned to each path; `sent` and `came` count the packets
//!   of these flows in each direction;
//! * `fence` lets packets of the namespace leave only over paths.
//!
//! A second table, the *guard*, drops packets that lack a mark of the first table. It takes effect
//! while another program's flush has removed the first table. The guard ends with the process, and
//! therefore cannot replace the first table.

use std::collections::BTreeMap;
use std::fmt::Write;

use anabranch_os::netlink::policy::Family;

use super::slot::{CABLES, MASK};
use super::sysctl::{AddedForwarding, ForwardingScope};
use super::{Exit, Ports, Slot, tally};

/// Match for WireGuard's first message on any port: 148 bytes after the UDP header of 8 bytes,
/// which begin with type 1 and three zeros.
const INITIATION: &str = "udp length 156 @th,64,32 0x01000000";

/// Parameters of the nftables rules.
pub(crate) struct RulesetParameters<'a> {
    pub(crate) slot: Slot,
    /// Name of the splitter's interface.
    pub(crate) tun: &'a str,
    pub(crate) ports: &'a Ports,
    /// Firewall mark of the splitter's own packets.
    pub(crate) own: u32,
    pub(crate) exits: &'a [Exit],
    /// Packet forwarding that is on only because of this program, and must not forward other
    /// traffic.
    pub(crate) added_forwarding: &'a AddedForwarding,
}

/// Returns the commands that remove the splitter's nftables table, whether or not it exists.
pub(crate) fn removal(slot: Slot) -> String {
    let name = slot.ruleset();
    format!("table inet {name}\ndelete table inet {name}\n")
}

/// Returns the nftables rules for splitting the traffic of the whole machine.
pub(crate) fn of_machine(parameters: &RulesetParameters<'_>) -> String {
    let RulesetParameters { slot, .. } = parameters;
    let (mask, base) = (MASK, slot.base());
    let body = format!(
        "{paths}{choices}{tally}{split}\
         chain classify {{\n{kept}\
         ct mark & {mask:#x} == {base:#x} goto number\n\
         meta nfproto ipv4 jump choose4\nmeta nfproto ipv6 jump choose6\ngoto number\n}}\n\
         chain steer {{\ntype route hook output priority mangle; policy accept;\n\
         {spared}{sessions}ct direction reply return\n\
         ct mark & {mask:#x} != {base:#x} jump classify\n{marked}}}\n\
         {answers}{addresses}",
        paths = paths(parameters.exits),
        choices = choices(*slot, parameters.exits),
        tally = tally::chains(*slot, parameters.exits),
        split = split(parameters),
        spared = spared(parameters),
        sessions = sessions(*slot),
        kept = kept(*slot, parameters.exits),
        marked = marked(*slot, parameters.exits),
        answers = answers(parameters),
        addresses = addresses(*slot, parameters.exits),
    );
    replacement(*slot, &body)
}

/// Returns the body of the guard for the whole machine, in one line. The guard is the nftables
/// table that blocks packets while another program has flushed the splitter's rules.
pub(crate) fn guard_of_machine(parameters: &RulesetParameters<'_>) -> String {
    let RulesetParameters { slot, ports, .. } = parameters;
    let (mask, base) = (MASK, slot.base());
    let body = format!(
        "{paths}chain guard {{\ntype filter hook output priority mangle + 1; policy accept;\n\
         meta mark & {mask:#x} == {base:#x} return\n{spared}\
         ct direction reply udp sport < 1024 return\n\
         udp dport {{ {ports} }} drop\n{INITIATION} drop\n\
         ct direction reply return\ndrop\n}}\n",
        paths = paths(parameters.exits),
        spared = spared(parameters),
    );
    in_one_line(&body)
}

/// Returns the rules that exempt packets from splitting: packets sent by any splitter, and packets
/// to this machine, to directly connected networks and to multicast groups. Also exempt are
/// packets that already leave through the splitter's interface, or through a WireGuard interface
/// that is not a path's.
fn spared(parameters: &RulesetParameters<'_>) -> String {
    let RulesetParameters { tun, own, .. } = parameters;
    let (of_any, all) = Slot::OWN_OF_ANY;
    format!(
        "meta mark {own:#x} return\nmeta mark & {all:#x} == {of_any:#x} return\n\
         oifname {{ \"lo\", \"{tun}\" }} return\n\
         meta oifkind \"wireguard\" oifname != @paths return\n{NEAR}"
    )
}

fn in_one_line(body: &str) -> String {
    body.trim_end().replace("{\n", "{ ").replace('\n', "; ")
}

/// Returns the nftables rules inside the namespace: packets to be split go into the interface, all
/// others into the virtual Ethernet pair that leads to the machine.
pub(crate) fn of_namespace(parameters: &RulesetParameters<'_>) -> String {
    let body = format!(
        "{split}\
         chain steer {{\ntype route hook output priority mangle; policy accept;\n\
         oifname \"lo\" return\n{near}{sessions}}}\n",
        split = split(parameters),
        near = NEAR,
        sessions = sessions(parameters.slot),
    );
    replacement(parameters.slot, &body)
}

/// Returns the machine's rules for packets from the namespace's virtual Ethernet pair.
pub(crate) fn of_cable(parameters: &RulesetParameters<'_>) -> String {
    let RulesetParameters { slot, .. } = parameters;
    let (mask, base, cable) = (MASK, slot.base(), slot.cable());
    let body = format!(
        "{paths}{choices}{tally}\
         chain classify {{\nmeta nfproto ipv4 jump choose4\nmeta nfproto ipv6 jump choose6\n\
         goto number\n}}\n\
         chain enter {{\ntype filter hook prerouting priority mangle; policy accept;\n\
         iifname != \"{cable}\" return\n{NEAR}\
         ct mark & {mask:#x} != {base:#x} jump classify\n{marked}}}\n\
         {fence}{answers}{addresses}",
        paths = paths(parameters.exits),
        choices = choices(*slot, parameters.exits),
        tally = tally::chains(*slot, parameters.exits),
        marked = marked(*slot, parameters.exits),
        fence = fence(parameters, "filter"),
        answers = answers(parameters),
        addresses = addresses(*slot, parameters.exits),
    );
    replacement(*slot, &body)
}

/// Returns the body of the guard for the namespace's virtual Ethernet pair, in one line. The guard
/// is the nftables table that blocks packets while another program has flushed the splitter's
/// rules. While the rules are missing, answers to the namespace have this machine's address,
/// because the chain `addresses` no longer translates it. The machine would refuse these answers,
/// so the guard drops them.
pub(crate) fn guard_of_cable(parameters: &RulesetParameters<'_>) -> String {
    let RulesetParameters { slot, exits, .. } = parameters;
    let marks: Vec<_> = exits.iter().map(|exit| format!("{:#x}", slot.path(exit.index))).collect();
    let body = format!(
        "{paths}{fence}chain answers {{\ntype filter hook input priority filter; policy accept;\n\
         ct direction reply ct mark {{ {marks} }} drop\n}}\n",
        paths = paths(exits),
        fence = fence(parameters, "filter + 1"),
        marks = marks.join(", "),
    );
    in_one_line(&body)
}

/// Returns the rules for packet forwarding. They let packets leave the namespace only over paths,
/// in connections that are kept on one path. If forwarding is on only because of this program,
/// packets of other interfaces are forwarded only to the virtual Ethernet pairs of splitters.
fn fence(parameters: &RulesetParameters<'_>, priority: &str) -> String {
    let RulesetParameters { slot, ports, added_forwarding, .. } = parameters;
    let (mask, base, cable) = (MASK, slot.base(), slot.cable());
    let strangers =
        not_lent("ipv4", &added_forwarding.four) + &not_lent("ipv6", &added_forwarding.six);
    format!(
        "chain fence {{\ntype filter hook forward priority {priority}; policy accept;\n\
         iifname \"{cable}\" udp dport {{ {ports} }} drop\n\
         iifname \"{cable}\" meta mark & {mask:#x} != {base:#x} drop\n\
         iifname \"{cable}\" oifname != @paths reject with icmpx admin-prohibited\n\
         oifname \"{cable}\" ct direction original drop\n{strangers}}}\n"
    )
}

fn not_lent(family: &str, lending: &ForwardingScope) -> String {
    let by = match lending {
        ForwardingScope::Nothing => return String::new(),
        ForwardingScope::By(devices) => {
            let names: Vec<_> = devices.iter().map(|device| format!("\"{device}\"")).collect();
            format!("iifname {{ {} }}", names.join(", "))
        }
        ForwardingScope::All => format!("iifname != \"{CABLES}*\""),
    };
    format!("meta nfproto {family} {by} oifname != \"{CABLES}*\" drop\n")
}

/// Returns the nftables commands that update the assignment of connections to paths, after paths
/// were added or removed.
pub(crate) fn rechoice(slot: Slot, exits: &[Exit]) -> String {
    let name = slot.ruleset();
    let mut text = String::new();
    for family in Family::BOTH {
        let chain = chooser(family);
        let _ = writeln!(text, "flush chain inet {name} {chain}");
        if let Some(choice) = choice(slot, exits, family) {
            let _ = writeln!(text, "add rule inet {name} {chain} {choice}");
        }
    }
    text
}

/// Rules that exempt packets to this machine, to the networks of its interfaces, and to multicast
/// groups.
const NEAR: &str = "fib daddr type { local, broadcast, multicast, anycast } return\n\
                    ip daddr 169.254.0.0/16 return\nip6 daddr fe80::/10 return\n\
                    icmpv6 type { 133, 134, 135, 136, 137 } return\n";

fn replacement(slot: Slot, body: &str) -> String {
    format!("{}table inet {} {{\n{body}}}\n", removal(slot), slot.ruleset())
}

/// Returns the set of the interfaces of the paths, in the notation of `nft`.
fn paths(exits: &[Exit]) -> String {
    let mut names: Vec<_> = exits.iter().map(|exit| format!("\"{}\"", exit.device)).collect();
    names.sort_unstable();
    names.dedup();
    format!("set paths {{ type ifname; elements = {{ {} }}; }}\n", names.join(", "))
}

fn choices(slot: Slot, exits: &[Exit]) -> String {
    let chain = |family| {
        let choice = choice(slot, exits, family).map_or_else(String::new, |choice| choice + "\n");
        format!("chain {} {{\n{choice}}}\n", chooser(family))
    };
    Family::BOTH.map(chain).concat()
}

fn chooser(family: Family) -> &'static str {
    match family {
        Family::Four => "choose4",
        Family::Six => "choose6",
    }
}

/// Returns the rule that assigns new flows of `family` to the paths with an exit (interface and
/// source address for this IP version), in rotation; `None` if no path has an exit.
fn choice(slot: Slot, exits: &[Exit], family: Family) -> Option<String> {
    let open = exits.iter().filter(|exit| exit.way(family).is_some());
    let marks: Vec<_> = open.map(|exit| slot.path(exit.index)).collect();
    let numbered = marks.iter().enumerate().map(|(number, mark)| format!("{number} : {mark:#x}"));
    let map = numbered.collect::<Vec<_>>().join(", ");
    match marks.as_slice() {
        [] => None,
        [one] => Some(format!("ct mark set {one:#x}")),
        _ => Some(format!("ct mark set numgen inc mod {} map {{ {map} }}", marks.len())),
    }
}

/// Returns the rules that recognise flows to split. They match both directions of conntrack (the
/// kernel's table of flows). Conntrack forgets a silent flow before the session ends, and does not
/// know flows older than the rules. So the server may be the first sender that conntrack sees.
/// Answers of a service of this machine (from a port below 1,024) are exempt.
fn split(parameters: &RulesetParameters<'_>) -> String {
    let RulesetParameters { slot, tun, ports, .. } = parameters;
    let mark = slot.tun();
    format!(
        "chain split {{\n{INITIATION} ct mark set {mark:#x} return\n\
         ct direction reply udp sport < 1024 return\n\
         udp dport {{ {ports} }} ct mark set {mark:#x}\n}}\n\
         chain back {{\ntype filter hook prerouting priority mangle; policy accept;\n\
         iifname \"{tun}\" ct direction original ct mark set {mark:#x}\n}}\n"
    )
}

/// Returns the rules that route connections to split into the interface, before any other rule.
/// They apply to new and to known connections.
fn sessions(slot: Slot) -> String {
    let (mask, base, tun) = (MASK, slot.base(), slot.tun());
    format!(
        "ct mark & {mask:#x} != {base:#x} jump split\n\
         ct mark {tun:#x} meta mark set ct mark return\n"
    )
}

/// Returns the rule for TCP connections that began before the rules were set. The rule keeps each
/// of these connections on its present interface.
fn kept(slot: Slot, exits: &[Exit]) -> String {
    let mut marks = BTreeMap::new();
    for exit in exits {
        marks.entry(&exit.device).or_insert(slot.path(exit.index));
    }
    let pairs = marks.iter().map(|(device, mark)| format!("\"{device}\" : {mark:#x}"));
    let map = pairs.collect::<Vec<_>>().join(", ");
    format!("tcp flags & (syn | rst) == 0 ct mark set meta oifname map {{ {map} }}\n")
}

/// Returns the rules that copy a flow's mark to its packets. Packets get the mark for unreachable
/// packets if their flow has no path, or if its path belonged to an earlier splitter and is
/// missing now.
fn marked(slot: Slot, exits: &[Exit]) -> String {
    let paths = exits.iter().map(|exit| slot.path(exit.index));
    let known = paths.chain([slot.tun(), slot.own()]).map(|mark| format!("{mark:#x}"));
    let (known, nowhere) = (known.collect::<Vec<_>>().join(", "), slot.nowhere());
    format!("ct mark {{ {known} }} meta mark set ct mark return\nmeta mark set {nowhere:#x}\n")
}

/// Returns the rules that mark answers with their flow's mark. Answers to the splitter's own
/// sockets get the mark of the path that uses their interface.
fn answers(parameters: &RulesetParameters<'_>) -> String {
    let RulesetParameters { slot, own, exits, .. } = parameters;
    let (mask, base, ours) = (MASK, slot.base(), slot.own());
    // Other packets in the splitter's flows are sent by the kernel, which reports closed ports to
    // servers over the default route.
    let mut text = format!(
        "chain ours {{\ntype filter hook output priority mangle; policy accept;\n\
         meta mark {own:#x} ct mark set {ours:#x} return\nct mark {ours:#x} drop\n}}\n\
         chain answers {{\ntype filter hook prerouting priority mangle; policy accept;\n"
    );
    for exit in *exits {
        let (mark, device) = (slot.path(exit.index), &exit.device);
        let _ =
            writeln!(text, "iifname \"{device}\" ct mark {ours:#x} meta mark set {mark:#x} return");
    }
    let _ = writeln!(
        text,
        "iifname @paths ct direction reply ct mark & {mask:#x} == {base:#x} meta mark set ct mark\n}}"
    );
    text
}

fn addresses(slot: Slot, exits: &[Exit]) -> String {
    let mut text = String::from(
        "chain addresses {\ntype nat hook postrouting priority srcnat; policy accept;\n",
    );
    // The splitter's own sockets have already chosen their addresses.
    let _ = writeln!(text, "ct mark {:#x} return", slot.own());
    for exit in exits {
        let (mark, device) = (slot.path(exit.index), &exit.device);
        for source in exit.sources() {
            let family = if source.is_ipv4() { "ip" } else { "ip6" };
            let _ =
                writeln!(text, "ct mark {mark:#x} oifname \"{device}\" snat {family} to {source}");
        }
    }
    // This also concerns neighbours on a path's own network, because the route leads directly to
    // them, regardless of the flow's path.
    let (mask, base) = (MASK, slot.base());
    let _ = writeln!(text, "ct mark & {mask:#x} == {base:#x} oifname @paths masquerade\n}}");
    text
}
