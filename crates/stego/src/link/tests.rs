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
