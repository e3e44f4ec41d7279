//! Settings of a relay for tests of its neighbours' behaviour.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;

use anabranch_onion::directory::descriptor::Description;
use anabranch_router::onion::authorities::Authority;
use anabranch_router::onion::dirclient::{self, DirClient, unix};
use anabranch_router::onion::keyring::KeyRing;
use anabranch_router::onion::relay::Settings;

/// Returns the settings of a relay on loopback whose authority does not run.
pub(crate) fn settings(data: &Path) -> Settings {
    let id = "1".repeat(40);
    let nobody = format!("nobody orport=1 no-v2 v3ident={id} 127.0.0.1:1 {id}");
    let mut rng = anabranch_os::entropy::generator().unwrap();
    let ring = KeyRing::open(data, &mut rng, unix()).unwrap();
    let dirclient = dirclient::Settings {
        authorities: vec![Authority::parse(&nobody).unwrap()],
        data: data.to_owned(),
        share_subnets: false,
        keys: Some(ring.keys().clone()),
        cache: false,
        dir_requests: false,
        bridges: Vec::new(),
        unpublished: false,
    };
    let dirclient = DirClient::start(dirclient, rng).unwrap();
    let at = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9001);
    let description = Description::new("river".to_owned(), at, "Anabranch".to_owned());
    let listen = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
    Settings::new(listen, ring, dirclient, description)
}
