//! The directory documents of a simulated network. Keys, descriptors, votes and signatures are
//! valid, as in a real network. They are created only once, because this takes seconds.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use anabranch_multipath::seed::stream;
use anabranch_onion::authority::{About, Authority, First, Judgement, Room, Settings};
use anabranch_onion::channel::Credentials;
use anabranch_onion::directory::bandwidth::BandwidthHistory;
use anabranch_onion::directory::descriptor::Description;
use anabranch_onion::directory::network::{Network, RelayRestrictions};
use anabranch_onion::directory::policy::ExitPolicy;
use anabranch_onion::relay::protocols;
use anabranch_onion::wire::dirkeys::IdentityKey;
use anabranch_onion::wire::keys::RelayKeys;
use anabranch_onion::wire::netdoc::{Consensus, Unproven, parse_certs, parse_microdescs};

use super::sample::ListedRelay;

/// Time at which a simulation begins and its consensus becomes valid, in seconds since 1970.
pub const START: u64 = 1_800_000_000;
/// Port on which all relays accept links.
pub(super) const ORPORT: u16 = 9001;
/// Port of the TCP connections that simulate QUIC links.
pub(super) const QUIC_PORT: u16 = 9002;
/// Port of all web servers.
pub(super) const WEB_PORT: u16 = 80;
/// Time in seconds for which the consensus is valid.
const VALID: u64 = 24 * 3600;
/// Maximum number of relays. Each relay has a separate /16 network, because a circuit may not
/// contain two relays of the same /16 network.
pub const MAX_RELAYS: usize = 100 * 250;
/// Number of descriptors that the authority receives before it probes their relays. It refuses
/// more than 256 descriptors of unprobed relays, if their uploaders have no address.
const UNPROBED: usize = 200;

/// Maximum number of web servers, whose addresses are in 192.88.0.0/16.
pub const MAX_SERVERS: usize = 250 * 250;

/// Properties of a relay in its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayDescription {
    /// True if streams may leave the network at this relay.
    pub exit: bool,
    /// Weight of the relay in clients' choices of paths, in bytes per second.
    pub bandwidth: u64,
    /// True if the relay grants lossy circuits (circuits whose cells may get lost, for UDP-OR).
    pub lossy: bool,
}

/// Keys and certificates of a relay.
#[derive(Clone)]
pub(super) struct RelayDocuments {
    pub(super) credentials: Arc<Credentials>,
    pub(super) onion_secret: [u8; 32],
    pub(super) address: IpAddr,
    /// RSA identity of the relay.
    pub(super) identity: [u8; 20],
}

impl RelayDocuments {
    fn new(place: usize, keys: &RelayKeys) -> RelayDocuments {
        let mut rng = stream(0, place as u64, "relay certificates");
        let name = format!("the TLS certificate of relay {place}");
        let credentials = keys.credentials(&mut rng, name.as_bytes(), START);
        let credentials = credentials.expect("new keys can sign certificates");
        let (onion_secret, _) = keys.ntor();
        let address = IpAddr::V4(relay_address(place));
        let identity = keys.rsa_identity();
        RelayDocuments { credentials: Arc::new(credentials), onion_secret, address, identity }
    }
}

/// Long-term keys of relays, by index. Creating them takes seconds. They are the same in all
/// simulations: the seed determines the events, but not the relays' identities.
pub struct Keyring {
    keys: Vec<RelayKeys>,
}

impl Keyring {
    /// Creates the keys of the first `count` relays.
    pub fn new(count: usize) -> Keyring {
        Keyring { keys: (0..count).map(relay_keys).collect() }
    }

    /// Returns the number of relays.
    pub fn count(&self) -> usize {
        self.keys.len()
    }
}

/// The relays of a network, and the documents of its authority.
#[derive(Clone)]
pub struct NetworkDocuments {
    pub(super) network: Arc<Network>,
    pub(super) relays: Vec<RelayDocuments>,
    pub(super) descriptions: Vec<RelayDescription>,
}

impl NetworkDocuments {
    /// Creates keys and descriptors for `relays`, uploads them to an authority, and parses the
    /// authority's consensus as a client does. `params` are the consensus parameters.
    ///
    /// # Panics
    /// If there are more than [`MAX_RELAYS`] relays.
    pub fn new(relays: &[RelayDescription], params: &BTreeMap<String, i32>) -> NetworkDocuments {
        NetworkDocuments::with_keys(&Keyring::new(relays.len()), relays, params)
    }

    /// Creates the documents as [`NetworkDocuments::new`] does, but with existing keys.
    ///
    /// # Panics
    /// If there are more than [`MAX_RELAYS`] relays, or more than in the keyring.
    pub fn with_keys(
        keys: &Keyring,
        relays: &[RelayDescription],
        params: &BTreeMap<String, i32>,
    ) -> NetworkDocuments {
        let rules = |place: usize| {
            let rule = if relays[place].exit { "accept *:*" } else { "reject *:*" };
            vec![rule.to_owned()]
        };
        NetworkDocuments::made(keys, (relays, &rules), params, |_| {})
    }

    /// Creates the documents of relays that were sampled from a consensus, with existing keys. The
    /// relays have the flags and exit policies of that consensus, and `weights` are its bandwidth
    /// weights (`Wgg`, ...). If `lossy` is true, the relays grant lossy circuits (circuits whose
    /// cells may get lost, for UDP-OR).
    ///
    /// # Panics
    /// Under the same conditions as [`NetworkDocuments::with_keys`].
    pub(super) fn of_sample(
        keys: &Keyring,
        relays: &[&ListedRelay],
        weights: &BTreeMap<String, i32>,
        params: &BTreeMap<String, i32>,
        lossy: bool,
    ) -> NetworkDocuments {
        let describe = |relay: &&ListedRelay| RelayDescription {
            exit: relay.permits_streams(),
            bandwidth: u64::from(relay.weight) * 1000,
            lossy,
        };
        let described: Vec<RelayDescription> = relays.iter().map(describe).collect();
        let identities = keys.keys.iter().map(RelayKeys::rsa_identity);
        let listed: BTreeMap<[u8; 20], &ListedRelay> =
            identities.zip(relays.iter().copied()).collect();
        let rules = |place: usize| relays[place].rules();
        NetworkDocuments::made(keys, (&described, &rules), params, |consensus| {
            for relay in &mut consensus.relays {
                relay.flags = listed[&relay.rsa_identity].flags;
            }
            consensus.weights.clone_from(weights);
        })
    }

    /// Creates the documents of `relays`. `rules` returns the exit policy of a relay, given its
    /// index. `amend` is called with the consensus after its signature was verified, and may
    /// change it.
    fn made(
        keys: &Keyring,
        (relays, rules): (&[RelayDescription], &dyn Fn(usize) -> Vec<String>),
        params: &BTreeMap<String, i32>,
        amend: impl FnOnce(&mut Consensus),
    ) -> NetworkDocuments {
        assert!(relays.len() <= MAX_RELAYS, "{} relays", relays.len());
        let keys = &keys.keys[..relays.len()];
        let network = network((relays, rules), keys, params, amend);
        let papers = keys.iter().enumerate().map(|(place, keys)| RelayDocuments::new(place, keys));
        NetworkDocuments {
            network: Arc::new(network),
            relays: papers.collect(),
            descriptions: relays.to_vec(),
        }
    }

    /// Returns the restrictions of a client that uses only the relays in `pins`, which contains
    /// the indexes of the permitted first, middle and last hops. If `pins` is `None`, all relays
    /// are permitted.
    pub(super) fn restrictions(&self, pins: Option<&[Vec<usize>; 3]>) -> RelayRestrictions {
        let identities =
            |places: &Vec<usize>| places.iter().map(|&place| self.relays[place].identity).collect();
        match pins.map(|pins| pins.each_ref().map(identities)) {
            Some([entry, middle, exit]) => {
                RelayRestrictions { entry, middle, exit, ..RelayRestrictions::default() }
            }
            None => RelayRestrictions::default(),
        }
    }

    /// Returns the network as clients know it from the consensus.
    pub fn network(&self) -> &Arc<Network> {
        &self.network
    }
}

fn relay_keys(place: usize) -> RelayKeys {
    let mut rng = stream(0, place as u64, "relay keys");
    RelayKeys::generate(&mut rng, START).expect("the random number generator can make keys")
}

fn relay_address(place: usize) -> Ipv4Addr {
    Ipv4Addr::new(20 + (place / 250) as u8, (place % 250) as u8, 0, 1)
}

/// Returns the address of the web server with the index `place`.
pub(super) fn web_address(place: usize) -> Ipv4Addr {
    Ipv4Addr::new(192, 88, (place / 250) as u8, (place % 250) as u8)
}

fn network(
    (relays, rules): (&[RelayDescription], &dyn Fn(usize) -> Vec<String>),
    keys: &[RelayKeys],
    params: &BTreeMap<String, i32>,
    amend: impl FnOnce(&mut Consensus),
) -> Network {
    let mut rng = stream(0, 0, "authority keys");
    let identity =
        IdentityKey::generate(&mut rng).expect("the random number generator can make keys");
    let signing = identity.certify(&mut rng, START - 100, START + 2 * VALID);
    let signing = signing.expect("the random number generator can make keys");
    let (certs, _) =
        parse_certs(signing.certificate()).expect("the document was just written by this program");
    let about = About {
        nickname: "authority".to_owned(),
        identity: identity.identity(),
        // No relay of the network has this identity.
        relay: [0xaa; 20],
        address: Ipv4Addr::new(192, 88, 255, 1),
        dir_port: 9030,
        or_port: ORPORT,
        contact: "simulated".to_owned(),
    };
    let settings = Settings {
        interval: VALID / 3,
        judgement: Judgement { young: true, ..Judgement::default() },
        first: First::default(),
        params: params.clone(),
        measured: measured(relays, keys),
        ..Settings::default()
    };
    let mut authority = Authority::new(about, settings, signing);
    let room = Room { running: relays.len(), others: relays.len() };
    let all: Vec<_> = relays.iter().zip(keys).enumerate().collect();
    for batch in all.chunks(UNPROBED) {
        for (place, (relay, keys)) in batch {
            let description = description(*place, relay, &rules(*place));
            let text = description.sign(keys, START).expect("the descriptor's fields are valid");
            authority.upload(START, &text, None).expect("the authority accepts every relay");
        }
        for probe in authority.probes(START, room) {
            authority.probed(START, &probe.target, true);
        }
    }
    let documents = authority.publish(START).expect("the authority's keys are valid");
    let consensus = Unproven::parse(&documents.microdesc)
        .expect("the document was just written by this program");
    let consensus = consensus.prove(&[identity.identity()], &certs, START + 1);
    let mut consensus = consensus.expect("the consensus was just signed");
    amend(&mut consensus);
    let mut network = Network::new(consensus);
    for (text, _) in documents.microdescs.values() {
        let (microdescs, _) =
            parse_microdescs(text).expect("the document was just written by this program");
        for (microdesc, _) in microdescs {
            network.learn(microdesc);
        }
    }
    network
}

/// Returns the measured bandwidths of the relays in kilobytes per second, by identity.
fn measured(relays: &[RelayDescription], keys: &[RelayKeys]) -> BTreeMap<[u8; 20], u32> {
    let kilobytes =
        |relay: &RelayDescription| u32::try_from(relay.bandwidth / 1000).unwrap_or(u32::MAX).max(1);
    keys.iter().zip(relays).map(|(keys, relay)| (keys.rsa_identity(), kilobytes(relay))).collect()
}

fn description(place: usize, relay: &RelayDescription, rules: &[String]) -> Description {
    Description {
        nickname: format!("relay{place}"),
        address: relay_address(place),
        orport: ORPORT,
        dir_port: 0,
        v6: None,
        platform: "Anabranch in simulation".to_owned(),
        protocols: protocols(relay.lossy),
        bandwidth: [relay.bandwidth; 3],
        history: BandwidthHistory::default(),
        uptime: 30 * 24 * 3600,
        contact: None,
        family: Vec::new(),
        family_keys: Vec::new(),
        policy: ExitPolicy::parse(rules).expect("a list of ports makes valid exit rules"),
        directory_cache: true,
        bridge: None,
    }
}
