//! Writers for lines and objects, the elements of all of Tor's directory documents (dir-spec 1.2).

use base64ct::{Base64, Encoding};

/// Appends a line to the directory document `text`.
pub(crate) fn line(text: &mut String, content: &str) {
    text.push_str(content);
    text.push('\n');
}

/// Appends an object to the directory document `text`: base64 in lines of 64 characters, between a
/// begin and an end line.
pub(crate) fn object(text: &mut String, kind: &str, content: &[u8]) {
    line(text, &format!("-----BEGIN {kind}-----"));
    let encoded = Base64::encode_string(content);
    for start in (0..encoded.len()).step_by(64) {
        line(text, &encoded[start..encoded.len().min(start + 64)]);
    }
    line(text, &format!("-----END {kind}-----"));
}
