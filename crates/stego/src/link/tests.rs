//! Tests of single links.

use anabranch_multipath::seed::stream;

use super::*;

const NOW: Time = Time::from_secs(1);

fn link(side: Side) -> Link {
    let secrets = LinkSecrets { up: [1; 32], down: [2; 32], tokens: [3; 32], aes: true };
    let schedule = Spec::over_windows("pull").unwrap();
    let mut rng = stream(1, 1, "link");
    Link::new(&secrets, side, 2, "embed".parse().unwrap(), &schedule, &mut rng)
}

#[test]
fn a_message_of_a_lost_connection_has_no_padding() {
    let mut link = link(Side::Client);
    link.open(NOW, 0, 1, Opening::Asks(Duration::ZERO), &[7; 16]);
    assert_eq!(link.take(NOW, 0, 300).len(), 300);
    link.lost(NOW, 0);
    assert_eq!(link.take(NOW, 0, 300), []);
}

#[test]
fn only_a_client_numbers_its_connections() {
    let (mut client, mut server) = (link(Side::Client), link(Side::Server));
    let mut seat = |from: Side, expected| {
        for link in [&mut client, &mut server] {
            link.open(NOW, 0, 1, Opening::Asks(Duration::ZERO), &[]);
        }
        let (near, far) = match from {
            Side::Client => (&mut client, &mut server),
            Side::Server => (&mut server, &mut client),
        };
        near.deal(NOW, std::iter::once((0, Room { bytes: 1_000, reserved: 0 })));
        let block = near.take(NOW, 0, 0);
        assert_eq!(far.receive(NOW, 0, &block), expected);
    };
    seat(Side::Client, Ok(1));
    seat(Side::Server, Err(LinkViolation));
}

#[test]
fn a_new_connection_on_an_evicted_path_is_not_closed() {
    let mut server = link(Side::Server);
    server.open(NOW, 0, 1, Opening::Waits, &[]);
    server.open(NOW, 1, 2, Opening::Waits, &[]);
    assert_eq!(server.connections.set_seat(0, 5), None);
    assert_eq!(server.connections.set_seat(1, 5), Some(0));
    server.open(NOW, 0, 3, Opening::Waits, &[]);
    assert_eq!(server.evicted(), []);
}
