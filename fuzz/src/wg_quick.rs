//! wg-quick files: unchanged except for the intended lines, and their secrets not revealed.

use anabranch_splitter::wg_quick::{Change, Changes, ConfError, WgQuick};

/// Checks that a parsed file is displayed unchanged, that a change affects only its own lines, and
/// that repeating the change has no effect. No message contains a key.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match WgQuick::parse(text, "f.conf") {
        Ok(file) => {
            assert_eq!(file.to_string(), text, "a file is kept as it is");
            change(text, &file);
            _ = file.peer(None).map_err(|error| check_message(&error, text));
        }
        Err(error) => check_message(&error, text),
    }
}

fn change(text: &str, file: &WgQuick) {
    let endpoint = "127.0.0.1:9".parse().expect("an address and a port");
    let changes = Changes { endpoint, mtu: Some(1300), fwmark: Some(51820) };
    for peer in file.peers().iter().filter(|peer| peer.endpoint.is_some()) {
        let changed = file.changed(peer, &changes);
        let again = WgQuick::parse(&changed.text, "g.conf").expect("a changed file is a good one");
        let same = again.peers().iter().find(|other| other.number == peer.number);
        let same = same.expect("no peer is added before another");
        assert_eq!(same.endpoint.as_ref().map(ToString::to_string).as_deref(), Some("127.0.0.1:9"));
        assert_eq!((again.mtu(), again.fwmark()), (Some(1300), Some(51820)));
        assert_eq!(again.changed(same, &changes).text, changed.text, "twice is once");
        assert_eq!(again.changed(same, &changes).changes, [], "and is told as nothing");
        only_these(text, &changed.text, &changed.changes);
    }
}

/// Checks that the lines that differ are exactly those that `changes` reports, except for added
/// lines.
fn only_these(before: &str, after: &str, changes: &[Change]) {
    let (replaced, added): (Vec<&Change>, Vec<_>) =
        changes.iter().partition(|change| change.before.is_some());
    let mut added: Vec<_> =
        added.iter().map(|change| format!("{} = {}", change.key, change.after)).collect();
    let header = |line: &str| line.trim().to_ascii_lowercase().starts_with("[interface]");
    if !added.is_empty() && !before.lines().any(header) {
        added.push("[Interface]".to_owned());
    }
    let kept = after.lines().filter(|line| match added.iter().position(|new| new == line) {
        Some(place) => added.swap_remove(place).is_empty(),
        None => true,
    });
    let kept: Vec<_> = kept.map(str::trim_end).collect();
    let old: Vec<_> = before.lines().map(str::trim_end).collect();
    assert_eq!(kept.len(), old.len(), "{before:?} became {after:?}");
    let differ = old.iter().zip(&kept).filter(|(old, kept)| old != kept).count();
    assert_eq!(differ, replaced.len(), "{before:?} became {after:?}");
}

/// Checks that an error is one printable line, with a line number of the file, and without values
/// of keys.
fn check_message(error: &ConfError, text: &str) {
    let lines = 1 + text.bytes().filter(|&byte| byte == b'\n').count();
    assert!(error.line.is_none_or(|line| (1..=lines).contains(&line)), "{error}");
    let message = error.to_string();
    assert!(!message.contains(char::is_control), "not one plain line: {message:?}");
    let secret = |line: &str| {
        let (key, value) = line.split_once('=')?;
        let key = key.trim().to_ascii_lowercase();
        (key == "privatekey" || key == "presharedkey").then(|| value.trim().to_owned())
    };
    // A secret that also occurs elsewhere, for example as a public key, may be shown from there.
    let once = |secret: &String| secret.len() >= 40 && text.matches(secret.as_str()).count() == 1;
    for secret in text.lines().filter_map(secret).filter(once) {
        assert!(!message.contains(&secret), "a secret is told: {message:?}");
    }
}
