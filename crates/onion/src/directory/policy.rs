//! Exit policies: rules for the destinations of streams. The first matching rule applies
//! (dir-spec, "exit policy").

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Networks that the word `private` in a policy rule stands for, as in C tor.
const PRIVATE: [(IpAddr, u8); 10] = [
    (IpAddr::V4(Ipv4Addr::new(0, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16),
    (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(192, 168, 0, 0)), 16),
    (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(172, 16, 0, 0)), 12),
    (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 8),
    (IpAddr::V6(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0)), 7),
    (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
    (IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), 8),
];

/// An exit policy: an ordered list of rules. A destination that no rule matches is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitPolicy {
    rules: Vec<Rule>,
}

/// A rule, such as `accept 192.0.2.0/24:80-443`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    accept: bool,
    net: Net,
    /// First and last port.
    ports: (u16, u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Net {
    Any,
    /// All IPv4 addresses if true, or all IPv6 addresses if false.
    Family(bool),
    Prefix(IpAddr, u8),
}

/// A rule that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    rule: String,
    what: &'static str,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "exit rule '{}': {}", self.rule.escape_debug(), self.what)
    }
}

impl std::error::Error for PolicyError {}

impl ExitPolicy {
    /// Returns a policy that permits no streams.
    #[must_use]
    pub fn reject_all() -> ExitPolicy {
        ExitPolicy { rules: vec![Rule { accept: false, net: Net::Any, ports: (1, u16::MAX) }] }
    }

    /// Parses rules of the form `accept|reject ADDRESS:PORTS`. An address is `*`, `*4`, `*6`,
    /// `private`, an address or a prefix; IPv6 is in brackets. Ports are `*`, a number, or
    /// `FIRST-LAST`.
    ///
    /// # Errors
    /// Returns the first rule that cannot be parsed.
    pub fn parse<S: AsRef<str>>(rules: &[S]) -> Result<ExitPolicy, PolicyError> {
        let mut read = Vec::new();
        for rule in rules {
            let text = rule.as_ref().trim();
            let to_error = |what| PolicyError { rule: text.to_owned(), what };
            read.extend(parse_rule(text).map_err(to_error)?);
        }
        Ok(ExitPolicy { rules: read })
    }

    /// Returns whether a stream to this address and port is permitted.
    #[must_use]
    pub fn allows(&self, address: IpAddr, port: u16) -> bool {
        // An IPv4-mapped IPv6 address counts as IPv4, so that it cannot bypass a rule.
        let address = address.to_canonical();
        let matching = self.rules.iter().find(|rule| rule.matches(address, port));
        port != 0 && matching.is_some_and(|rule| rule.accept)
    }

    /// Returns whether the policy permits no streams at all.
    #[must_use]
    pub fn rejects_all(&self) -> bool {
        self.rules.iter().all(|rule| !rule.accept)
    }

    /// Returns a policy that first rejects private networks and the addresses `own`, then applies
    /// the rules of this policy.
    #[must_use]
    pub fn refusing_private(&self, own: &[IpAddr]) -> ExitPolicy {
        let own = own.iter().map(|&ip| (ip, if ip.is_ipv4() { 32 } else { 128 }));
        let nets = PRIVATE.into_iter().chain(own).map(|(net, length)| Net::Prefix(net, length));
        self.refusing(nets)
    }

    /// Returns a policy that first rejects IPv6, then applies the rules of this policy.
    #[must_use]
    pub fn refusing_v6(&self) -> ExitPolicy {
        self.refusing([Net::Family(false)])
    }

    fn refusing(&self, nets: impl IntoIterator<Item = Net>) -> ExitPolicy {
        let refused = nets.into_iter().map(|net| Rule { accept: false, net, ports: (1, u16::MAX) });
        ExitPolicy { rules: refused.chain(self.rules.iter().cloned()).collect() }
    }

    /// Returns whether a rule accepts IPv6 explicitly: by `*6`, or by an IPv6 prefix.
    #[must_use]
    pub fn names_v6(&self) -> bool {
        let names = |net| matches!(net, Net::Family(false) | Net::Prefix(IpAddr::V6(_), _));
        self.rules.iter().any(|rule| rule.accept && names(rule.net))
    }

    /// Returns the rules for IPv4, as a descriptor lists them (dir-spec, "accept"). Rules for IPv6
    /// are left out, because authorities reject descriptors with such rules. The last rule matches
    /// everything.
    pub fn rules(&self) -> impl Iterator<Item = String> {
        let is_v4 =
            |rule: &&Rule| !matches!(rule.net, Net::Family(false) | Net::Prefix(IpAddr::V6(_), _));
        let any = |rule: &Rule| match rule.net {
            Net::Family(true) => Rule { net: Net::Any, ..rule.clone() },
            _ => rule.clone(),
        };
        let rules: Vec<Rule> = self.rules.iter().filter(is_v4).map(any).collect();
        let ends = rules.last().is_some_and(|rule| rule.net == Net::Any && rule.all_ports());
        let last = (!ends).then(|| "reject *:*".to_owned());
        rules.into_iter().map(|rule| rule.to_string()).chain(last)
    }

    /// Returns the ports that are open to nearly all of IPv4, as a microdescriptor lists them:
    /// `accept 80,443`. A port is not open if a rule rejects it for a /7 or a larger network
    /// before another rule accepts it. Rejections of smaller networks are ignored. C tor instead
    /// adds up the rejected addresses, and ignores them if their total is at most a /7.
    #[must_use]
    pub fn summary(&self) -> String {
        self.summary_of(true)
    }

    /// Returns the ports that are open to nearly all of IPv6, as `ipv6-policy` lists them
    /// (dir-spec). A port is not open if a rule rejects it for a /16 or a larger network before
    /// another rule accepts it. Rejections of private networks do not count.
    #[must_use]
    pub fn summary_v6(&self) -> String {
        self.summary_of(false)
    }

    fn summary_of(&self, v4: bool) -> String {
        let open: Vec<bool> =
            (0..=u16::MAX).map(|port| port != 0 && self.mostly_open(v4, port)).collect();
        let listed = |wanted: bool| {
            let mut ranges: Vec<(usize, usize)> = Vec::new();
            for port in (1..=usize::from(u16::MAX)).filter(|&port| open[port] == wanted) {
                match ranges.last_mut() {
                    Some((_, last)) if *last + 1 == port => *last = port,
                    _ => ranges.push((port, port)),
                }
            }
            let text = |&(first, last): &(usize, usize)| {
                if first == last { format!("{first}") } else { format!("{first}-{last}") }
            };
            ranges.iter().map(text).collect::<Vec<_>>().join(",")
        };
        let (accepted, rejected) = (listed(true), listed(false));
        match (accepted.is_empty(), rejected.is_empty()) {
            (true, _) => "reject 1-65535".to_owned(),
            (_, true) => "accept 1-65535".to_owned(),
            _ if accepted.len() <= rejected.len() => format!("accept {accepted}"),
            _ => format!("reject {rejected}"),
        }
    }

    fn mostly_open(&self, v4: bool, port: u16) -> bool {
        for rule in &self.rules {
            if !(rule.ports.0..=rule.ports.1).contains(&port) {
                continue;
            }
            let large = match rule.net {
                Net::Any => true,
                Net::Family(of_v4) => of_v4 == v4,
                Net::Prefix(net, _) if net.is_ipv4() != v4 => false,
                Net::Prefix(_, 0) => true,
                // If a rule accepts only a part, the following rules decide about the rest.
                Net::Prefix(..) if rule.accept => false,
                Net::Prefix(IpAddr::V4(_), length) => length < 8,
                Net::Prefix(net, length) => length <= 16 && !PRIVATE.contains(&(net, length)),
            };
            if large {
                return rule.accept;
            }
        }
        false
    }
}

impl Rule {
    fn matches(&self, address: IpAddr, port: u16) -> bool {
        let ports = self.ports.0..=self.ports.1;
        let there = match self.net {
            Net::Any => true,
            Net::Family(v4) => address.is_ipv4() == v4,
            Net::Prefix(net, length) => within(net, length, address),
        };
        there && ports.contains(&port)
    }

    fn all_ports(&self) -> bool {
        self.ports == (1, u16::MAX)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.accept { "accept " } else { "reject " })?;
        match self.net {
            Net::Any => out.write_str("*"),
            Net::Family(v4) => out.write_str(if v4 { "*4" } else { "*6" }),
            Net::Prefix(IpAddr::V4(net), length) => write!(out, "{net}/{length}"),
            Net::Prefix(IpAddr::V6(net), length) => write!(out, "[{net}]/{length}"),
        }?;
        match self.ports {
            _ if self.all_ports() => out.write_str(":*"),
            (first, last) if first == last => write!(out, ":{first}"),
            (first, last) => write!(out, ":{first}-{last}"),
        }
    }
}

fn parse_rule(text: &str) -> Result<Vec<Rule>, &'static str> {
    let (word, rest) = text
        .split_once(char::is_whitespace)
        .ok_or("an exit rule must begin with accept or reject")?;
    let accept = match word {
        "accept" => true,
        "reject" => false,
        _ => return Err("an exit rule must begin with accept or reject"),
    };
    let (address, ports) = rest.trim().rsplit_once(':').ok_or("ADDRESS:PORTS is missing")?;
    let ports = parse_ports(ports)?;
    let nets = parse_nets(address)?;
    Ok(nets.into_iter().map(|net| Rule { accept, net, ports }).collect())
}

fn parse_nets(text: &str) -> Result<Vec<Net>, &'static str> {
    Ok(match text {
        "*" => vec![Net::Any],
        "*4" => vec![Net::Family(true)],
        "*6" => vec![Net::Family(false)],
        "private" => PRIVATE.iter().map(|&(net, length)| Net::Prefix(net, length)).collect(),
        _ => vec![parse_prefix(text)?],
    })
}

fn parse_prefix(text: &str) -> Result<Net, &'static str> {
    const WHAT: &str = "write the address as *, private, 192.0.2.0/24 or [2001:db8::]/32";
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address: IpAddr = match bare {
        Some(v6) => IpAddr::V6(Ipv6Addr::from_str(v6).map_err(|_| WHAT)?),
        None => IpAddr::V4(Ipv4Addr::from_str(address).map_err(|_| WHAT)?),
    };
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let length = match length.map(u8::from_str) {
        None => longest,
        Some(Ok(length)) if length <= longest => length,
        Some(_) => {
            return Err("the prefix length must be a number, at most 32 for IPv4 and 128 for IPv6");
        }
    };
    Ok(Net::Prefix(address, length))
}

fn parse_ports(text: &str) -> Result<(u16, u16), &'static str> {
    const WHAT: &str = "write the ports as *, 80 or 80-443";
    let port = |text: &str| text.parse::<u16>().ok().filter(|&port| port != 0).ok_or(WHAT);
    let (first, last) = match text.split_once('-') {
        _ if text == "*" => (1, u16::MAX),
        Some((first, last)) => (port(first)?, port(last)?),
        None => (port(text)?, port(text)?),
    };
    if first > last {
        Err("the first port of the range is above the last: write the lower port first")
    } else {
        Ok((first, last))
    }
}

fn within(net: IpAddr, length: u8, address: IpAddr) -> bool {
    let same = |a: u128, b: u128, bits: u32| {
        let drop = bits - u32::from(length);
        a.checked_shr(drop).unwrap_or(0) == b.checked_shr(drop).unwrap_or(0)
    };
    match (net, address) {
        (IpAddr::V4(net), IpAddr::V4(at)) => same(net.to_bits().into(), at.to_bits().into(), 32),
        (IpAddr::V6(net), IpAddr::V6(at)) => same(net.to_bits(), at.to_bits(), 128),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(rules: &[&str]) -> ExitPolicy {
        ExitPolicy::parse(rules).unwrap()
    }

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_first_rule_that_matches_counts() {
        let web = policy(&["reject private:*", "reject 192.0.2.0/24:80", "accept *:80-443"]);
        assert!(web.allows(at("198.51.100.1"), 80));
        assert!(web.allows(at("192.0.2.1"), 443));
        assert!(!web.allows(at("192.0.2.1"), 80));
        assert!(!web.allows(at("198.51.100.1"), 25));
        assert!(web.allows(at("2001:db8::1"), 443));
        assert!(!web.allows(at("198.51.100.1"), 0));
    }

    #[test]
    fn private_networks_are_not_reached_in_other_clothes() {
        let all = policy(&["reject private:*", "accept *:*"]);
        for inside in ["127.0.0.1", "10.2.3.4", "::ffff:127.0.0.1", "fe80::1", "::1", "172.31.0.1"]
        {
            assert!(!all.allows(at(inside), 80), "{inside}");
        }
        assert!(all.allows(at("172.32.0.1"), 80) && all.allows(at("2001:db8::1"), 80));
    }

    #[test]
    fn what_is_written_reads_back() {
        let rules = ["accept 192.0.2.0/24:80", "reject [2001:db8::]/32:1-1023", "accept *4:443"];
        let one = policy(&rules);
        let written: Vec<String> = one.rules().collect();
        assert_eq!(written, ["accept 192.0.2.0/24:80", "accept *:443", "reject *:*"]);
        let rules = ["accept 192.0.2.0/24:80", "reject 198.51.100.0/24:1-1023", "accept *:443"];
        let one = policy(&rules);
        let written: Vec<String> = one.rules().collect();
        assert_eq!((&written[..3], &written[3][..]), (&rules.map(str::to_owned)[..], "reject *:*"));
        assert_eq!(ExitPolicy::parse(&written[..3]), Ok(one));
    }

    #[test]
    fn ipv6_has_a_summary_of_its_own() {
        let summary = |rules: &[&str]| policy(rules).summary_v6();
        assert_eq!(summary(&["accept *:*"]), "accept 1-65535");
        assert_eq!(summary(&["accept *6:443", "accept *4:*"]), "accept 443");
        assert_eq!(summary(&["reject private:*", "accept *:80"]), "accept 80");
        assert_eq!(summary(&["accept 192.0.2.0/24:*", "reject *4:*"]), "reject 1-65535");
        assert_eq!(summary(&["reject [2000::]/16:25", "accept *:*"]), "reject 25");
        assert_eq!(summary(&["reject [2001:db8::]/32:25", "accept [::]/0:*"]), "accept 1-65535");
        assert_eq!(policy(&["accept *:*"]).refusing_v6().summary_v6(), "reject 1-65535");
        assert_eq!(policy(&["accept *:*"]).refusing_v6().summary(), "accept 1-65535");
        assert!(policy(&["accept *6:80"]).names_v6() && policy(&["accept [::]/0:80"]).names_v6());
        assert!(!policy(&["reject *6:80", "accept *:*"]).names_v6());
    }

    #[test]
    fn a_relays_own_machine_and_network_are_refused_whatever_is_accepted() {
        let own = [at("198.51.100.7"), at("2001:db8::7")];
        let guarded = policy(&["accept *:*"]).refusing_private(&own);
        for inside in ["127.0.0.1", "10.0.0.1", "::1", "fd00::1", "198.51.100.7", "2001:db8::7"] {
            assert!(!guarded.allows(at(inside), 80), "{inside}");
        }
        assert!(guarded.allows(at("198.51.100.8"), 80) && guarded.allows(at("2001:db8::8"), 80));
        assert_eq!((guarded.summary(), guarded.summary_v6()).0, "accept 1-65535");
        assert_eq!(guarded.summary_v6(), "accept 1-65535");
    }

    #[test]
    fn a_summary_lists_what_is_open_to_everywhere() {
        let summary = |rules: &[&str]| policy(rules).summary();
        assert_eq!(ExitPolicy::reject_all().summary(), "reject 1-65535");
        assert!(ExitPolicy::reject_all().rejects_all());
        assert_eq!(summary(&["accept *:*"]), "accept 1-65535");
        assert_eq!(summary(&["reject private:*", "accept *:80", "accept *:443"]), "accept 80,443");
        assert_eq!(summary(&["reject *:25", "accept *:*"]), "reject 25");
        assert_eq!(summary(&["accept 127.0.0.0/8:*"]), "reject 1-65535");
        assert_eq!(summary(&["reject 0.0.0.0/1:80", "accept *:80-81"]), "accept 81");
    }

    #[test]
    fn bad_rules_are_told_with_their_text() {
        let bad = [
            "allow *:*",
            "accept",
            "accept *",
            "accept *:0",
            "accept *:90-80",
            "accept 1.2.3:80",
            "accept 192.0.2.0/33:80",
            "reject 2001:db8::1:80",
            "accept *:65536",
        ];
        for rule in bad {
            let error = ExitPolicy::parse(&[rule]).unwrap_err().to_string();
            assert!(error.contains(rule), "{error}");
        }
    }
}
