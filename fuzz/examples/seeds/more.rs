//! Seeds of `more_packets`.

use anabranch_more::wire::{Flow, ForwardContent, ReplyContent, put_target};
use anabranch_tcp::{Flags, Segment, Seq};

use super::Seeds;

/// Returns contents of packets, and scripts for an exit. The target defines the bytes.
pub(super) fn seeds() -> Seeds {
    let segment = Segment {
        source: 1,
        destination: 1,
        seq: Seq(7),
        flags: Flags::SYN,
        payload: b"data".to_vec(),
        ..Segment::default()
    };
    let segment = Some(segment);
    let blocks = Vec::new();
    let forward =
        ForwardContent { flow: Flow([1; 8]), number: 3, blocks, segment: segment.clone() };
    let reply = ReplyContent { serial: 1, seen: 2, wanted: -3, segment };
    let target = put_target(([192, 0, 2, 1], 80).into());
    // Time, source, kind, flow, number, count of reply blocks, their content, whether there is a
    // segment, its sequence numbers, flags, window and payload.
    let head = |flags: u8, seq: u8| vec![1, 1, 3, 1, 0, 1, 9, 1, 0, seq, 0, 0, flags, 4, 0];
    let mut payload = target.clone();
    payload.resize(64, b'x');
    let syn = [head(2, 7), payload.clone(), vec![1]].concat();
    let data = [head(16, 8), payload].concat();
    vec![
        ("forward", forward.write()),
        ("reply", reply.write()),
        ("target", target),
        ("stream", [syn.clone(), data.clone()].concat()),
        ("twice", [syn.clone(), syn].concat()),
        ("unknown", data),
        ("garbage", [&[0, 1, 1][..], &[5; 400], &[0, 5, 0], &[6; 100]].concat()),
    ]
}
