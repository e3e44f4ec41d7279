use super::*;

const LIKELY: Confidence = Confidence::Likely;
const CERTAIN: Confidence = Confidence::Certain;

fn finding(protocol: Protocol, confidence: Confidence) -> Option<Finding> {
    Some(Finding { protocol, confidence })
}

/// Returns the findings of a session whose client sends `datagrams`.
fn findings(datagrams: &[Vec<u8>]) -> Vec<(Protocol, Confidence)> {
    let mut recogniser = Recogniser::default();
    let new = datagrams.iter().filter_map(|datagram| recogniser.on_client(datagram));
    new.map(|finding| (finding.protocol, finding.confidence)).collect()
}

fn initiation() -> Vec<u8> {
    let mut bytes = vec![1, 0, 0, 0];
    bytes.resize(148, 9);
    bytes
}

fn data(counter: u8) -> Vec<u8> {
    let mut bytes = vec![4, 0, 0, 0, 7, 7, 7, 7, counter, 0, 0, 0, 0, 0, 0, 0];
    bytes.resize(96, 9);
    bytes
}

fn mosh(number: u8) -> Vec<u8> {
    [&[0, 0, 0, 0, 0, 0, 0, number][..], &[0x55; 60]].concat()
}

fn hello() -> Vec<u8> {
    [&[22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 41, 1][..], &[7; 40]].concat()
}

fn record(kind: u8, number: u8) -> Vec<u8> {
    [&[kind, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, number, 0, 30][..], &[7; 30]].concat()
}

#[test]
fn a_strong_mark_is_likely_until_a_second_datagram_agrees() {
    let known = [(Protocol::WireGuard, LIKELY), (Protocol::WireGuard, CERTAIN)];
    assert_eq!(findings(&[initiation(), data(0), data(1)]), known);
    let mut recogniser = Recogniser::default();
    recogniser.on_client(&initiation());
    assert!(recogniser.looks_at_servers());
    let mut response = vec![2, 0, 0, 0];
    response.resize(92, 9);
    assert_eq!(recogniser.on_server(&response), finding(Protocol::WireGuard, CERTAIN));
    assert!(!recogniser.looks_at_servers() && !recogniser.looks_at_clients());
}

#[test]
fn a_weak_mark_is_nothing_until_a_second_datagram_agrees() {
    assert_eq!(findings(&[data(3)]), []);
    assert_eq!(findings(&[data(3), data(4)]), [(Protocol::WireGuard, CERTAIN)]);
    assert_eq!(findings(&[mosh(0), mosh(1)]), [(Protocol::Mosh, CERTAIN)]);
}

#[test]
fn zeros_and_noise_are_not_taken_for_mosh() {
    let noise = |a: u8| [&[0; 6][..], &[a, 0x7c], &[a; 100]].concat();
    assert_eq!(findings(&[noise(1), noise(200), noise(90)]), [(Protocol::Other, LIKELY)]);
}

/// Returns a data packet of fastd, a mesh VPN. It begins with two bytes of zeros or flags, and a
/// 48-bit number that advances by 2. The client's numbers are odd, and the server's are even.
fn fastd(number: u8) -> Vec<u8> {
    [&[0, 0, 0, 0, 0, 0, 0, number][..], &[0x77 ^ number; 76]].concat()
}

#[test]
fn counters_of_other_protocols_are_not_taken_for_moshs() {
    let all: Vec<_> = (0..100).map(|number| fastd(2 * number + 1)).collect();
    assert_eq!(findings(&all), [(Protocol::Other, LIKELY)]);
    // A number that advances by 1, until the server's first answer.
    let mut recogniser = Recogniser::default();
    recogniser.on_client(&mosh(0));
    assert_eq!(recogniser.on_client(&mosh(1)), finding(Protocol::Mosh, CERTAIN));
    assert!(recogniser.looks_at_servers());
    assert_eq!(recogniser.on_server(&mosh(0)), finding(Protocol::Other, LIKELY));
    for number in 2..20 {
        assert_eq!(recogniser.on_client(&mosh(number)), None);
        assert_eq!(recogniser.on_server(&mosh(number)), None);
    }
}

#[test]
fn moshs_answer_keeps_what_its_client_showed() {
    let mut recogniser = Recogniser::default();
    recogniser.on_client(&mosh(0));
    recogniser.on_client(&mosh(1));
    let answer = [&[0x80, 0, 0, 0, 0, 0, 0, 3][..], &[0x55; 60]].concat();
    assert_eq!(recogniser.on_server(&answer), None);
    assert!(!recogniser.looks_at_servers());
    assert_eq!(recogniser.finding(), finding(Protocol::Mosh, CERTAIN));
}

#[test]
fn what_a_second_datagram_or_an_answer_contradicts_is_other() {
    let fallen = [(Protocol::Dtls, LIKELY), (Protocol::Other, LIKELY)];
    assert_eq!(findings(&[hello(), vec![0x55; 40]]), fallen);
    let mut recogniser = Recogniser::default();
    recogniser.on_client(&hello());
    assert_eq!(recogniser.on_server(&[0x99; 80]), finding(Protocol::Other, LIKELY));
    assert_eq!(recogniser.on_client(&initiation()), finding(Protocol::WireGuard, LIKELY));
}

#[test]
fn dtls_turns_out_to_have_connection_ids_by_the_first_record_that_bears_one() {
    let all = findings(&[hello(), record(22, 1), record(25, 1), record(25, 2)]);
    let dtls = [(Protocol::Dtls, LIKELY), (Protocol::Dtls, CERTAIN)];
    assert_eq!(all, [&dtls[..], &[(Protocol::DtlsCid, CERTAIN)]].concat());
    assert_eq!(findings(&[record(25, 5), record(25, 6)]), [(Protocol::DtlsCid, CERTAIN)]);
}

#[test]
fn the_search_for_a_mark_ends() {
    let other: Vec<_> = (0..=LOOKS).map(|_| vec![0x55; 40]).chain([initiation()]).collect();
    assert_eq!(findings(&other), [(Protocol::Other, LIKELY)]);
}

#[test]
fn numbers_are_told_once_and_of_wireguard_when_it_is_certain() {
    let mut recogniser = Recogniser::default();
    let mut count = 0;
    for datagram in [initiation(), data(0), data(1), data(2)] {
        recogniser.on_client(&datagram);
        count += u32::from(recogniser.finds_numbers(&datagram));
        assert!(count == 0 || recogniser.finding() == finding(Protocol::WireGuard, CERTAIN));
    }
    assert_eq!(count, 1);
    assert!(!recogniser.looks_for_numbers());
}

/// Returns a data message of AmneziaWG: padding (S4), a type from its configured range (H4), the
/// receiver index and the counter `number`.
fn amnezia(number: u8) -> Vec<u8> {
    let padding = [number.wrapping_mul(83); 17];
    let head = [number.wrapping_mul(41), 0x35, 0x48, 0, 0xec, 0xf3, 0x37, 3];
    [&padding[..], &head, &[number, 0, 0, 0, 0, 0, 0, 0], &[number ^ 0x5a; 90]].concat()
}

#[test]
fn a_counter_is_found_in_what_is_not_recognised() {
    let mut recogniser = Recogniser::default();
    let mut finds = |datagram: Vec<u8>| {
        recogniser.on_client(&datagram);
        recogniser.finds_numbers(&datagram)
    };
    for junk in [43, 85, 53, 163] {
        assert!(!finds(vec![junk; usize::from(junk)]));
    }
    assert_eq!((0..20).position(|number| finds(amnezia(number))), Some(7));
    assert_eq!(recogniser.finding(), finding(Protocol::Other, LIKELY));
}
