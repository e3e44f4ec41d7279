//! Names of hosts.

/// A host name: printable ASCII of 1 to 255 letters, without what separates it from other things.
pub(crate) fn name(bytes: &[u8]) -> Option<String> {
    let plain = |byte: &u8| byte.is_ascii_graphic() && !b"/@?#[]".contains(byte);
    let sound = (1..=255).contains(&bytes.len()) && bytes.iter().all(plain);
    sound.then(|| String::from_utf8_lossy(bytes).into_owned())
}
