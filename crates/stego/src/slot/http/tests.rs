//! Tests of requests and answers.

use super::*;
use crate::keys::BridgeKey;

const NOW: Time = Time::from_secs(7);

fn context() -> Arc<SharedContext> {
    let mut covers = crate::slot::Covers::default();
    covers.pictures.add(jpeg::tests::COLOUR).unwrap();
    let (host, wall) = ("media.example.net".to_owned(), 1_800_000_000);
    Arc::new(SharedContext::new(&BridgeKey([7; 32]), host, wall, covers))
}

fn ends(tier: Tier, most: Option<usize>) -> (ClientSlot, ServerSlot) {
    (ClientSlot::new(context(), tier, most), ServerSlot::new(context(), tier, most))
}

/// Passes `bytes` to an end of a connection in pieces of `piece` bytes. Returns the hidden bytes
/// that it extracts, and the number of times that it reports the end of the other end's part.
fn found(slot: &mut dyn Slot, bytes: &[u8], piece: usize) -> Result<(Vec<u8>, u32), NotCover> {
    let (mut hidden, mut ends) = (Vec::new(), 0);
    for piece in bytes.chunks(piece) {
        slot.receive(NOW, piece, &mut |one| match one {
            Hidden::Bytes(bytes) => hidden.extend_from_slice(bytes),
            Hidden::End => ends += 1,
        })?;
    }
    Ok((hidden, ends))
}

fn noise(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place ^ place >> 7).wrapping_mul(167) as u8).collect()
}

#[test]
fn what_is_hidden_is_found_however_messages_are_cut() {
    for tier in [Tier::Opaque, Tier::Text] {
        let (mut near, mut far) = ends(tier, None);
        for length in [1, 128, 704, 705, 768, 769, 30_000, MOST] {
            for piece in [1, 7, 1_000, usize::MAX] {
                let piece = if length > 1_000 { piece.max(100) } else { piece };
                let (mut request, mut answer) = (Vec::new(), Vec::new());
                assert!(near.begins());
                near.send(NOW, &noise(length), &mut request);
                assert_eq!(found(&mut far, &request, piece), Ok((noise(length), 1)));
                assert!(!near.begins() && far.due() == Some(NOW + HOLD));
                far.send(NOW, &noise(length), &mut answer);
                assert!(far.has_answered() && far.room(9_000) == 0);
                assert_eq!(found(&mut near, &answer, piece), Ok((noise(length), 1)));
                near.left.requests = REQUESTS;
                far.left.requests = REQUESTS;
            }
        }
    }
}

#[test]
fn answers_of_a_site_are_its_objects_and_say_what_comes_next() {
    let text = format!("[{}0]", format!("\"{}\",", "aB3_".repeat(90)).repeat(9));
    let head = |kind: &str| vec![("Content-Type".to_owned(), kind.to_owned())];
    let object = |path: &str, kind: &str, body: &[u8]| Object::new(path, head(kind), body);
    let mut covers = crate::slot::Covers::default();
    covers.site.add(vec![
        object("/a.jpg", "image/jpeg", jpeg::tests::COLOUR).unwrap(),
        object("/b", "application/json", text.as_bytes()).unwrap(),
    ]);
    let context = |covers| {
        let host = "media.example.net".to_owned();
        Arc::new(SharedContext::new(&BridgeKey([7; 32]), host, 1_800_000_000, covers))
    };
    let mut near = ClientSlot::new(context(crate::slot::Covers::default()), Tier::Site, None);
    let mut far = ServerSlot::new(context(covers), Tier::Site, None);
    let lengths = [jpeg::tests::COLOUR.len(), text.len(), jpeg::tests::COLOUR.len()];
    for (asked, length) in ["", "GET /b?", "GET /a.jpg?"].into_iter().zip(lengths) {
        let (mut request, mut answer) = (Vec::new(), Vec::new());
        near.send(NOW, &noise(256), &mut request);
        assert!(request.starts_with(asked.as_bytes()), "{asked}");
        assert_eq!(found(&mut far, &request, 7), Ok((noise(256), 1)));
        let room = far.room(9_000);
        assert!(far.fit(30) == room + RESERVE && far.fit(room) == room + RESERVE);
        far.send(NOW, &noise(room + RESERVE), &mut answer);
        assert!(answer.len().abs_diff(length) < 400, "{} {length}", answer.len());
        assert_eq!(found(&mut near, &answer, 100), Ok((noise(room + RESERVE), 1)));
    }
    near.send(NOW, &noise(300), &mut Vec::new());
    let foreign = b"HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\nContent-Length: 99\r\n\r\n";
    let foreign = [&foreign[..], &[0xa5; 99]].concat();
    assert_eq!(found(&mut near, &foreign, 100), Err(NotCover), "no note of ours");
}

#[test]
fn pictures_bring_as_much_as_they_hide() {
    let (mut near, mut far) = ends(Tier::Image, None);
    for (turn, hidden) in
        [1, 30, 60, far.heads.pictures().room(3) - RESERVE].into_iter().enumerate()
    {
        let (mut request, mut answer) = (Vec::new(), Vec::new());
        near.send(NOW, &noise(500), &mut request);
        assert_eq!(found(&mut far, &request, 9), Ok((noise(500), 1)));
        assert!(far.room(9_000) + RESERVE == far.heads.pictures().room(turn));
        let length = far.fit(hidden);
        assert!(length >= hidden + RESERVE || length == hidden);
        far.send(NOW, &noise(length), &mut answer);
        assert_eq!(found(&mut near, &answer, 100), Ok((noise(length), 1)));
    }
}

#[test]
fn each_picture_in_its_turn_is_filled() {
    let pictures = Pictures::of(&[(7_000, 22_000), (12_000, 45_000), (9_000, 36_000)]);
    let covers = crate::slot::Covers { pictures, ..Default::default() };
    let context =
        SharedContext::new(&BridgeKey([7; 32]), "media.example.net".to_owned(), 0, covers);
    let mut far = Answers::of(Tier::Image);
    let heads = Heads::new(Arc::new(context), Tier::Image);
    let filled: Vec<usize> = (0..4).map(|_| far.fit(&heads, far.room(&heads, 9_000))).collect();
    assert_eq!(filled, [7_000, 12_000, 9_000, 7_000]);
}

#[test]
fn messages_keep_within_what_the_socket_takes() {
    for tier in [Tier::Opaque, Tier::Text] {
        let (mut near, mut far) = ends(tier, None);
        for socket in [1_200, 5_000, 32 << 10, 200_000] {
            let (mut request, mut answer) = (Vec::new(), Vec::new());
            let hidden = noise(near.room(socket));
            near.send(NOW, &hidden, &mut request);
            assert!(hidden.len() > 200 && request.len() <= socket, "{tier:?} {socket}");
            found(&mut far, &request, usize::MAX).unwrap();
            let hidden = noise(far.room(socket));
            far.send(NOW, &hidden, &mut answer);
            assert!(answer.len() <= socket && answer.len() < 130 << 10, "{tier:?} {socket}");
            found(&mut near, &answer, usize::MAX).unwrap();
        }
    }
}

#[test]
fn small_requests_have_few_sizes_and_large_ones_are_posts() {
    let (mut near, _) = ends(Tier::Opaque, None);
    let sizes = [39, 112, 113, 160, 161, 192, 225, 417].map(|one| near.fit(one));
    assert_eq!(sizes, [39, 112, 192, 192, 256, 192, 448, 704]);
    assert_eq!((near.fit(673), near.fit(5_000)), (673, 5_000));
    for (length, method) in [(704, &b"GET /"[..]), (705, b"POST /")] {
        let (mut near, _) = ends(Tier::Text, None);
        let mut request = Vec::new();
        near.send(NOW, &noise(length), &mut request);
        assert!(request.starts_with(method));
        assert!(length > 704 || request.iter().all(|&byte| byte < 0x7f));
    }
}

#[test]
fn a_request_with_little_to_say_is_no_longer_than_a_browsers() {
    for tier in [Tier::Opaque, Tier::Text, Tier::Image] {
        // The first number is a token and a path. The second also includes an acknowledgement for
        // 16 connections.
        for hidden in [39, 100] {
            let ((mut near, _), mut request) = (ends(tier, None), Vec::new());
            let hidden = noise(near.fit(hidden));
            near.send(NOW, &hidden, &mut request);
            assert!((350..=460).contains(&request.len()), "{tier:?}: {}", request.len());
        }
    }
}

/// Returns the head of the first answer to a request with `hidden` hidden bytes.
fn answered(tier: Tier, hidden: usize) -> String {
    let ((mut near, mut far), mut request, mut answer) = (ends(tier, None), Vec::new(), Vec::new());
    near.send(NOW, &noise(hidden), &mut request);
    found(&mut far, &request, usize::MAX).unwrap();
    let length = far.fit(300);
    far.send(NOW, &noise(length), &mut answer);
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    String::from_utf8(answer[..end].to_vec()).unwrap()
}

#[test]
fn a_file_has_the_head_that_nginx_gives_it_and_an_upload_has_none_of_it() {
    for tier in [Tier::Opaque, Tier::Text, Tier::Image] {
        let head = answered(tier, 60);
        let lines: Vec<(&str, &str)> =
            head.lines().skip(1).map(|line| line.split_once(": ").unwrap()).collect();
        let names: Vec<&str> = lines.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            names,
            [
                "Server",
                "Date",
                "Content-Type",
                "Content-Length",
                "Last-Modified",
                "Connection",
                "ETag",
                "Accept-Ranges"
            ]
        );
        let length: usize = lines[3].1.parse().unwrap();
        assert_eq!(lines[1].1, "Fri, 15 Jan 2027 08:00:07 GMT");
        assert_eq!(lines[4].1, "Fri, 15 Jan 2027 08:00:04 GMT");
        assert_eq!(lines[6].1, format!("\"{:x}-{length:x}\"", 1_800_000_004));
    }
    let head = answered(Tier::Opaque, 800);
    assert!(head.ends_with("Connection: keep-alive\r\nCache-Control: no-store"), "{head}");
}

#[test]
fn no_file_is_of_a_time_to_come_whatever_the_clients_clock_says() {
    let (_, far) = ends(Tier::Opaque, None);
    let unix = 1_800_000_007;
    for (number, at) in [(unix / 4 - 900, unix - 3 - 3_600), (unix / 4 + 900, unix)] {
        let path = context().names.media(Tier::Opaque, number);
        assert_eq!(far.heads.modified(NOW, &path), at, "{path}");
    }
}

#[test]
fn a_connection_has_its_share_and_says_that_it_closes() {
    let (mut near, mut far) = ends(Tier::Opaque, Some(12_000));
    let (mut up, mut down, mut exchanges) = (0, 0, 0);
    while near.begins() {
        let (mut request, mut answer) = (Vec::new(), Vec::new());
        let length = near.fit(100);
        near.send(NOW, &noise(length), &mut request);
        found(&mut far, &request, usize::MAX).unwrap();
        let hidden = noise(far.room(5_000));
        far.send(NOW, &hidden, &mut answer);
        assert_eq!(far.is_spent(), answer.windows(7).any(|part| part == b": close"));
        found(&mut near, &answer, usize::MAX).unwrap();
        (up, down, exchanges) = (up + request.len(), down + answer.len(), exchanges + 1);
    }
    assert!(near.is_spent() && far.is_spent() && exchanges > 1);
    assert!(up <= 12_000 && (9_000..=12_000).contains(&down), "{up} {down}");
}

#[test]
fn what_is_no_message_of_ours_is_no_cover() {
    let context = context();
    let path = context.names.media(Tier::Opaque, 3);
    let upload = context.names.upload();
    let query = context.names.query();
    let wrong = [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        format!("HEAD {path}?{query}=AAAA HTTP/1.1\r\nHost: a\r\n\r\n"),
        format!("GET {path}?{query}=AAAA HTTP/1.0\r\nHost: a\r\n\r\n"),
        format!("GET {path}?{query}=AAAA HTTP/1.1\r\n\r\n"),
        format!("GET {path}?{query}=AAAA HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
        format!("GET {path}?{query}=A HTTP/1.1\r\nHost: a\r\n\r\n"),
        format!("GET {path}?{query}= HTTP/1.1\r\nHost: a\r\n\r\n"),
        format!("GET {path}?{query}=AA+A HTTP/1.1\r\nHost: a\r\n\r\n"),
        format!("GET {path}x?{query}=AAAA HTTP/1.1\r\nHost: a\r\n\r\n"),
        format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"),
        format!("POST {upload} HTTP/1.1\r\nHost: a\r\n\r\n"),
        format!("POST {upload} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"),
        format!("POST {upload} HTTP/1.1\r\nHost: a\r\nContent-Length: 999999\r\n\r\n"),
        format!("POST {upload} HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nabcde"),
        format!(
            "POST {upload} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n"
        ),
        format!("POST {upload} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("GET {path}?{query}=AAAA HTTP/1.1\r\nHost: a\r\n\r\nmore"),
        "\u{16}\u{3}\u{1}".to_owned(),
        "x".repeat(9_000),
    ];
    for request in wrong {
        let (_, mut far) = ends(Tier::Opaque, None);
        assert_eq!(found(&mut far, request.as_bytes(), usize::MAX), Err(NotCover), "{request}");
    }
    for answer in [
        "HTTP/1.1 404 Not Found\r\nContent-Type: video/mp4\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\nContent-Length: 5\r\n\r\nhello!",
    ] {
        let (mut near, _) = ends(Tier::Opaque, None);
        near.send(NOW, &noise(128), &mut Vec::new());
        assert!(found(&mut near, answer.as_bytes(), usize::MAX).is_err(), "{answer}");
    }
}
