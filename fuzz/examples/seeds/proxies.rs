//! Seeds of `proxy_clients`.

use super::Seeds;

/// Returns replies of proxies to a client that opens a stream.
pub(super) fn answers() -> Seeds {
    let says = |name, parts: &[&[u8]]| (name, [&[3][..], &parts.concat()].concat());
    let open = b"\x05\0\0\x01\0\0\0\0\0\0";
    vec![
        says("socks-open", &[b"\x05\0", open, b"\0\x19"]),
        says("socks-login", &[b"\x05\x02\x01\0", open]),
        says("socks-refused", &[b"\x05\0\x05\x05\0\x01\0\0\0\0\0\0"]),
        says("socks-by-name", &[b"\x05\0\x05\0\0\x03\x04name\0\x09"]),
        says("address", &[b"\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x01\xbb"]),
        says("http-open", &[b"HTTP/1.1 200 Connection established\r\n\r\n\0\x19"]),
        says("http-interim", &[b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 OK\r\nA: b\r\n\r\n"]),
        says("http-login", &[b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"]),
        says("http-refused", &[b"HTTP/1.1 403 Filtered\r\n\r\n"]),
        says("http-half", &[b"HTTP/1.1 200 Connection establ"]),
        says("banner", &[b"SSH-2.0-OpenSSH_9.2p1\r\n"]),
    ]
}
