//! The fields of a descriptor whose signatures are already verified.

use super::summary;
use crate::directory::extra::ExtraDigests;
use crate::directory::policy::ExitPolicy;

/// The descriptor fields from which the authority generates its documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ParsedDescriptor {
    pub(super) nickname: String,
    /// The unencrypted directory port; 0 if there is none.
    pub(super) dir_port: u16,
    /// The value of `platform` before ` on …`, such as `Tor 0.4.9.1`; `None` if the descriptor has
    /// no `platform` line.
    pub(super) version: Option<String>,
    pub(super) protocols: Option<String>,
    /// Bandwidth in kilobytes (1,000 bytes) per second: the minimum of the configured rate, the
    /// configured burst and the observed bandwidth.
    pub(super) bandwidth: u32,
    pub(super) hibernating: bool,
    /// True if the relay answers directory requests over its links.
    pub(super) directory: bool,
    /// True if the relay stores descriptors of onion services.
    pub(super) hsdir: bool,
    /// The TAP key, a PEM object as it appears in the descriptor; `None` if the descriptor has
    /// none.
    pub(super) onion_key: Option<String>,
    /// The members of the relay's declared family, in alphabetical order.
    pub(super) family: Vec<String>,
    /// Summary of the ports that the relay's exit policy permits, such as `accept 80,443`.
    pub(super) policy: String,
    /// Summary of the ports that the policy permits over IPv6; `None` if it permits none.
    pub(super) policy_v6: Option<String>,
    /// True if the exit policy permits port 80 to at least one /8 network, and port 443 to at
    /// least one /8 network.
    pub(super) exits: bool,
    /// The digests of the relay's extra-info document; `None` if the descriptor names none.
    pub(super) extra: Option<ExtraDigests>,
}

/// Parses a descriptor whose signatures are already verified.
pub(super) fn read(text: &str) -> ParsedDescriptor {
    let find = |keyword: &str| lines(text).find_map(|line| after(line, keyword));
    let router: Vec<&str> = find("router").unwrap_or_default().split(' ').collect();
    let rules: Vec<&str> = lines(text).filter(|line| is_rule(line)).collect();
    let policy = ExitPolicy::parse(&rules).unwrap_or_else(|_| ExitPolicy::reject_all());
    ParsedDescriptor {
        nickname: router.first().unwrap_or(&"Unnamed").to_string(),
        dir_port: router.get(4).and_then(|port| port.parse().ok()).unwrap_or(0),
        version: find("platform").map(version),
        protocols: find("proto").map(str::to_owned),
        bandwidth: find("bandwidth").map_or(0, bandwidth),
        hibernating: find("hibernating") == Some("1"),
        directory: lines(text).any(|line| line == "tunnelled-dir-server"),
        hsdir: lines(text).any(|line| line == "hidden-service-dir"),
        onion_key: object_after(text, "onion-key"),
        family: find("family").map(family).unwrap_or_default(),
        policy: policy.summary(),
        policy_v6: find("ipv6-policy").map(str::to_owned).filter(|text| text != "reject 1-65535"),
        exits: summary::exits(&policy),
        extra: find("extra-info-digest").and_then(ExtraDigests::named),
    }
}

/// Returns the lines of a descriptor that are outside PEM objects.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.lines().filter(move |line| {
        let begins = line.starts_with("-----BEGIN ");
        let outside = !inside && !begins;
        inside = (inside || begins) && !line.starts_with("-----END ");
        outside
    })
}

fn after<'a>(line: &'a str, keyword: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(keyword)?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix(' ') }
}

fn is_rule(line: &str) -> bool {
    line.starts_with("accept ") || line.starts_with("reject ")
}

fn version(platform: &str) -> String {
    platform.split(" on ").next().unwrap_or(platform).to_owned()
}

fn bandwidth(rest: &str) -> u32 {
    let numbers = rest.split(' ').filter_map(|number| number.parse::<u64>().ok());
    let least = numbers.take(3).min().unwrap_or(0) / 1000;
    u32::try_from(least).unwrap_or(u32::MAX)
}

/// Returns the members of a family as a microdescriptor lists them: fingerprints in upper case,
/// nicknames in lower case, without duplicates (dir-spec, "family").
fn family(rest: &str) -> Vec<String> {
    let mut members: Vec<String> = rest
        .split(' ')
        .filter(|member| !member.is_empty())
        .map(|member| match member.strip_prefix('$') {
            // A nickname may follow the fingerprint. It is dropped, because it proves nothing.
            Some(id) => format!("${}", id.split(['~', '=']).next().unwrap_or(id).to_uppercase()),
            None => member.to_lowercase(),
        })
        .collect();
    members.sort_unstable();
    members.dedup();
    members
}

/// Returns the PEM object after a line with `keyword`, with its `BEGIN` and `END` lines. Returns
/// `None` if there is no such object.
fn object_after(text: &str, keyword: &str) -> Option<String> {
    let start = format!("\n{keyword}\n-----BEGIN ");
    let begin = text.find(&start)? + keyword.len() + 2;
    let end = begin + text[begin..].find("-----END ")?;
    let stop = end + text[end..].find('\n')? + 1;
    Some(text[begin..stop].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "router one 192.0.2.1 9001 0 9030\nidentity-ed25519\n-----BEGIN ED25519 CERT-----\nbandwidth 1 1 1\n\
        -----END ED25519 CERT-----\nplatform Tor 0.4.9.11 on Linux\nproto Link=4-5\nbandwidth 9000000 8000000 7000999\n\
        onion-key\n-----BEGIN RSA PUBLIC KEY-----\nMIGJ\n-----END RSA PUBLIC KEY-----\nhibernating 1\n\
        family $bbbb~x $AAAA zoe Adam $AAAA\nextra-info-digest ABCDABCDABCDABCDABCDABCDABCDABCDABCDABCD base64\nreject 0.0.0.0/8:*\naccept *:80\n\
        accept *:443\nreject *:*\nhidden-service-dir\ntunnelled-dir-server\nipv6-policy accept 443\n";

    #[test]
    fn lines_are_read_and_those_inside_objects_are_not() {
        let descriptor = read(TEXT);
        assert_eq!(
            (&descriptor.nickname[..], descriptor.dir_port, descriptor.bandwidth),
            ("one", 9030, 7000)
        );
        assert_eq!(descriptor.version.as_deref(), Some("Tor 0.4.9.11"));
        assert_eq!(descriptor.family, ["$AAAA", "$BBBB", "adam", "zoe"]);
        assert_eq!(descriptor.policy, "accept 80,443");
        assert_eq!(descriptor.policy_v6.as_deref(), Some("accept 443"));
        assert!(
            descriptor.exits && descriptor.hibernating && descriptor.directory && descriptor.hsdir
        );
        let key = "-----BEGIN RSA PUBLIC KEY-----\nMIGJ\n-----END RSA PUBLIC KEY-----\n";
        assert_eq!(descriptor.onion_key.as_deref(), Some(key));
        assert_eq!(
            descriptor.extra,
            Some(ExtraDigests {
                sha1: [[0xab, 0xcd]; 10].concat().try_into().unwrap(),
                sha256: None
            })
        );
    }

    #[test]
    fn what_is_not_said_is_missing() {
        let descriptor = read("router two 192.0.2.1 9001 0 0\nreject *:*\n");
        assert_eq!(
            (descriptor.bandwidth, descriptor.directory, descriptor.exits),
            (0, false, false)
        );
        assert!(!descriptor.hsdir);
        assert_eq!(descriptor.policy, "reject 1-65535");
        assert!(
            descriptor.version.is_none()
                && descriptor.onion_key.is_none()
                && descriptor.family.is_empty()
        );
    }
}
