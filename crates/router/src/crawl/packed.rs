//! Compressed input files. A gzip file is decompressed while it is read; other compression formats
//! are reported as errors.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

use super::LARGEST;

const GZIP: &[u8] = b"\x1f\x8b";
/// First bytes of files in compression formats other than gzip, each with the name of the format
/// and the programs that unpack it.
const OTHERS: [(&[u8], &str, &str); 4] = [
    (b"PK\x03\x04", "a zip archive", "unzip"),
    (b"\xfd7zXZ", "packed with xz", "xz -d"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd", "zstd -d"),
    (b"BZh", "packed with bzip2", "bzip2 -d"),
];

/// Returns a reader of `source`. The reader decompresses gzip.
///
/// # Errors
/// The source cannot be read, or is compressed in another format. The error is one line.
pub(super) fn unpacked<'a>(mut source: impl BufRead + 'a) -> Result<Box<dyn BufRead + 'a>, String> {
    let begin = source.fill_buf().map_err(|error| error.to_string())?;
    if let Some((_, what, with)) = OTHERS.iter().find(|(magic, ..)| begin.starts_with(magic)) {
        return Err(format!("the file is {what}: unpack it first ({with})"));
    }
    if !begin.starts_with(GZIP) {
        return Ok(Box::new(source));
    }
    let bounded = Bounded { source: MultiGzDecoder::new(source), left: LARGEST };
    Ok(Box::new(BufReader::new(bounded)))
}

/// Reader that limits the length of decompressed data. It fails after `source` has yielded more
/// than `left` bytes.
struct Bounded<R> {
    source: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(into)?;
        self.left = self
            .left
            .checked_sub(count as u64)
            .ok_or_else(|| io::Error::other("the unpacked file is larger than 512 MiB"))?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write as _;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn gzip_is_unpacked_and_others_are_named() {
        let read = |bytes: &[u8]| -> Result<Vec<u8>, String> {
            let mut all = Vec::new();
            let read = unpacked(bytes)?.read_to_end(&mut all);
            read.map(|_| all).map_err(|error| error.to_string())
        };
        assert_eq!(read(b"{}").unwrap(), b"{}");
        assert_eq!(read(b"").unwrap(), b"");
        assert_eq!(read(&[gzip(b"one, "), gzip(b"two")].concat()).unwrap(), b"one, two");
        assert!(read(&gzip(b"cut")[..15]).is_err());
        assert_eq!(
            read(b"PK\x03\x04and more").unwrap_err(),
            "the file is a zip archive: unpack it first (unzip)"
        );
        assert!(read(b"\xfd7zXZ\0").unwrap_err().contains("xz -d"));
    }

    #[test]
    fn nothing_unpacked_is_too_large_for_memory() {
        let mut bounded = Bounded { source: io::repeat(7), left: 100 };
        let why = bounded.read_to_end(&mut Vec::new()).unwrap_err().to_string();
        assert!(why.contains("larger than 512 MiB"), "{why}");
    }
}
