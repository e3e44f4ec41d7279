//! Validation of host names.

use std::net::Ipv6Addr;

/// Returns the host name in `bytes` if it is valid, else `None`. A valid name has 1 to 255
/// characters of printable ASCII, without the separators of URLs.
///
/// For an IPv6 address in brackets, as in URLs, returns the address without them. C tor also
/// accepts this form.
pub(crate) fn name(bytes: &[u8]) -> Option<String> {
    if let [b'[', inner @ .., b']'] = bytes {
        let address: Ipv6Addr = std::str::from_utf8(inner).ok()?.parse().ok()?;
        return Some(address.to_string());
    }
    let plain = |byte: &u8| byte.is_ascii_graphic() && !b"/@?#[]".contains(byte);
    let sound = (1..=255).contains(&bytes.len()) && bytes.iter().all(plain);
    sound.then(|| String::from_utf8_lossy(bytes).into_owned())
}
