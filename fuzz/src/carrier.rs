//! Packets on a byte stream. A peer's stream is split in the same way for all chunks, memory stays
//! bounded, and the other end reads the packets that a queue sends.

use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_tunnel::carrier::{
    LONGEST, LONGEST_FIRST, LengthError, PREFIX, PacketQueue, SHORTEST, Unframer,
};

use crate::input::Input;

/// Checks an input. The first byte is the length of the chunks, the second selects the check; the
/// rest is a stream, or the choices of a sender.
pub fn check(bytes: &[u8]) {
    let [piece, kind, rest @ ..] = bytes else { return };
    match kind % 2 {
        0 => cut(rest, usize::from(*piece) + 1),
        _ => there(rest),
    }
}

/// Checks the stream of a stranger.
fn cut(bytes: &[u8], piece: usize) {
    for longest in [LONGEST, LONGEST_FIRST] {
        let whole = read(bytes, bytes.len().max(1), longest);
        assert_eq!(whole, read(bytes, piece, longest));
        let (packets, fault) = whole;
        assert!(packets.iter().all(|packet| (SHORTEST..=longest).contains(&packet.len())));
        let outside = |fault: LengthError| {
            let length = usize::from(fault.length);
            !(SHORTEST..=longest).contains(&length)
        };
        assert!(fault.is_none_or(outside), "a good length was refused: {fault:?}");
    }
}

fn read(bytes: &[u8], piece: usize, longest: usize) -> (Vec<Vec<u8>>, Option<LengthError>) {
    let (mut unframer, mut packets) = (Unframer::new(longest), Vec::new());
    for piece in bytes.chunks(piece) {
        let taken = unframer.take(piece, |packet| packets.push(packet.to_vec()));
        assert!(unframer.held() < PREFIX + longest);
        if let Err(fault) = taken {
            assert_eq!(unframer.held(), 0);
            return (packets, Some(fault));
        }
    }
    (packets, None)
}

/// Checks packets through a queue to the other end, with any pauses and any room.
fn there(bytes: &[u8]) {
    let most = 4_096;
    let (mut queue, mut input) =
        (PacketQueue::new(Duration::from_millis(50), most), Input::new(bytes));
    let (mut unframer, mut sent, mut read) = (Unframer::default(), Vec::new(), Vec::new());
    let mut now = Time::from_secs(1);
    while !input.is_empty() {
        now += Duration::from_millis(input.byte().into());
        let length = input.below(256) * 8;
        if queue.push(now, &vec![input.byte(); length]) {
            sent.push(length);
        }
        queue.drop_aged(now);
        let room = input.below(256) * 16;
        pass(&mut queue, room, &mut unframer, &mut read);
        assert!(queue.bytes() <= most);
    }
    pass(&mut queue, most, &mut unframer, &mut read);
    let count = queue.count();
    assert_eq!(count.sent, read.len() as u64);
    assert_eq!(count.sent + count.aged, sent.len() as u64);
    let mut rest = sent.iter();
    assert!(read.iter().all(|length| rest.any(|sent| sent == length)), "order was lost");
}

fn pass(queue: &mut PacketQueue, room: usize, unframer: &mut Unframer, read: &mut Vec<usize>) {
    let bytes: Vec<u8> = queue.chunks().flatten().copied().take(room).collect();
    queue.advance(bytes.len());
    let taken = unframer.take(&bytes, |packet| read.push(packet.len()));
    taken.expect("a queue announces good lengths");
}
