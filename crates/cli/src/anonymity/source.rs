//! Sources of a consensus: a file or standard input, either plain or compressed, or a file in an
//! archive.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use anabranch_anonymity::consensus::LONGEST;
use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use tar::{Archive, Entry};

/// Size of a tar header in bytes (POSIX ustar).
const TAR_HEADER: u64 = 512;
/// Offset in a tar header, in bytes, and the magic number at this offset (POSIX ustar).
const TAR_NAME: (usize, &[u8]) = (257, b"ustar");
/// Number of bytes at the beginning of a consensus that are searched for the `valid-after` line.
const BEGIN: u64 = 4096;

/// The consensus that the user has chosen from an archive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice<'a> {
    /// Hour from which the consensus is valid, such as `2024-05-17T17`; `None` if the file has
    /// only one consensus.
    pub(crate) hour: Option<&'a str>,
    /// Text that precedes `hour` on the command line, such as `--valid-after `. Error messages
    /// repeat it with the hour.
    pub(crate) written: &'static str,
}

/// Reads the bytes of a consensus from `file`, as [`read`] does.
///
/// # Errors
/// The file cannot be read, or it has no consensus that `choice` selects. The error is one line
/// without the file's name.
pub(crate) fn read_file(file: &Path, choice: Choice<'_>) -> Result<Vec<u8>, String> {
    let file = File::open(file).map_err(|error| error.to_string())?;
    read(file, choice)
}

/// Reads the bytes of a consensus from `source`. If `source` is an archive, such as the archive of
/// a month from CollecTor, reads the consensus that `choice` selects. At most one document is held
/// in memory.
///
/// # Errors
/// The source cannot be read, or it has no consensus that `choice` selects. The error is one line.
pub(crate) fn read(source: impl Read, choice: Choice<'_>) -> Result<Vec<u8>, String> {
    let mut source = unpacked(BufReader::new(source)).map_err(to_error)?;
    let mut begin = Vec::new();
    source.by_ref().take(TAR_HEADER).read_to_end(&mut begin).map_err(to_error)?;
    let is_archive = begin.get(TAR_NAME.0..).is_some_and(|rest| rest.starts_with(TAR_NAME.1));
    let whole = Cursor::new(begin).chain(source);
    match (is_archive, choice.hour) {
        (true, _) => of_archive(whole, choice),
        (false, None) => all_of(whole),
        (false, Some(hour)) => Err(format!(
            "the file is a single consensus, not an archive to choose from: leave out {}{hour}",
            choice.written
        )),
    }
}

fn to_error(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::IsADirectory => "this is a directory: give a file that is a consensus or \
                                        an archive of consensuses"
            .to_owned(),
        io::ErrorKind::UnexpectedEof => {
            "the consensus file is incomplete: its end is missing; download it again".to_owned()
        }
        _ => format!(
            "the consensus file cannot be read, or its end is missing: {error}; download it again"
        ),
    }
}

fn unpacked<'a>(mut source: impl BufRead + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let begin = source.fill_buf()?;
    Ok(match begin {
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Box::new(XzReader::new(source, true)),
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(source)),
        _ => Box::new(source),
    })
}

/// Reads all of `source`, but at most `LONGEST + 1` bytes. With more than `LONGEST` bytes, the
/// result is one byte too long, so that the parser refuses it.
fn all_of(source: impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    source.take(LONGEST + 1).read_to_end(&mut bytes).map_err(to_error)?;
    Ok(bytes)
}

/// Number and validity times of the consensuses (lists of Tor relays) that were read so far from
/// an archive.
#[derive(Default)]
struct ArchiveProgress {
    documents: usize,
    first: Option<String>,
    last: Option<String>,
}

impl ArchiveProgress {
    fn add(&mut self, time: String) {
        self.documents += 1;
        self.first = self.first.take().into_iter().chain([time.clone()]).min();
        self.last = self.last.take().into_iter().chain([time]).max();
    }
}

fn of_archive(source: impl Read, choice: Choice<'_>) -> Result<Vec<u8>, String> {
    let wanted = choice.hour.map(|hour| time(hour, choice.written)).transpose()?;
    let (mut passed, mut only) = (ArchiveProgress::default(), None);
    let mut archive = Archive::new(source);
    for entry in archive.entries().map_err(to_error)? {
        let entry = entry.map_err(to_error)?;
        let Some((valid_after, document)) = dated(entry)? else { continue };
        match &wanted {
            Some(wanted) if valid_after.starts_with(wanted) => return all_of(document),
            None if only.is_some() => return Err(several(&passed, &valid_after, choice.written)),
            None => only = Some(all_of(document)?),
            Some(_) => {}
        }
        passed.add(valid_after);
    }
    let ArchiveProgress { documents, first, last } = passed;
    match (only, wanted, first.zip(last)) {
        (Some(bytes), ..) => Ok(bytes),
        (_, Some(wanted), Some((first, last))) => Err(format!(
            "none of the archive's {documents} consensuses, from {first} to {last}, has the \
             valid-after time {wanted}; choose another --valid-after"
        )),
        _ => {
            Err("the archive contains no consensus: give a consensus or an archive of consensuses"
                .to_owned())
        }
    }
}

fn several(passed: &ArchiveProgress, next: &str, written: &str) -> String {
    let first = passed.first.as_deref().unwrap_or(next);
    let example = first.get(..13).unwrap_or(first).replace(' ', "T");
    format!(
        "the file is an archive of several consensuses, for example of {first} and {next}: choose \
         one by its hour, such as {written}{example}"
    )
}

/// Returns the valid-after time and the content of `entry`, an entry of an archive. Returns `None`
/// if `entry` is not a file or contains no such time.
fn dated<R: Read>(
    mut entry: Entry<'_, R>,
) -> Result<Option<(String, impl Read + use<'_, R>)>, String> {
    if !entry.header().entry_type().is_file() {
        return Ok(None);
    }
    let mut begin = Vec::new();
    entry.by_ref().take(BEGIN).read_to_end(&mut begin).map_err(to_error)?;
    let text = String::from_utf8_lossy(&begin);
    let valid_after = text
        .lines()
        .find_map(|line| line.strip_prefix("valid-after ").or(line.strip_prefix("# valid-after ")));
    let valid_after = valid_after.map(str::to_owned);
    Ok(valid_after.map(|time| (time, Cursor::new(begin).chain(entry))))
}

/// Converts an hour such as `2024-05-17T17` to the notation of consensus documents: `2024-05-17
/// 17`.
fn time(text: &str, written: &str) -> Result<String, String> {
    let plain = text.trim_end_matches('Z').replacen('T', " ", 1);
    let form = "0000-00-00 00:00:00";
    let is_digit = |letter: char| if letter.is_ascii_digit() { '0' } else { letter };
    let shape: String = plain.chars().map(is_digit).collect();
    match shape.len() >= 13 && form.starts_with(&shape) {
        true => Ok(plain),
        false => {
            Err(format!("{written}{text}: expected a date and an hour, such as 2024-05-17T17"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write as _;

    fn read(source: impl Read, hour: Option<&str>) -> Result<Vec<u8>, String> {
        super::read(source, Choice { hour, written: "--valid-after " })
    }

    fn document(hour: u32) -> String {
        format!(
            "@type network-status-consensus-3 1.0\nnetwork-status-version 3\n\
             valid-after 2024-05-17 {hour:02}:00:00\n{}",
            "r\n".repeat(9_000)
        )
    }

    fn archive(hours: &[u32]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let mut add = |name: &str, text: &[u8]| {
            let mut header = tar::Header::new_ustar();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, name, text).unwrap();
        };
        add("README", b"what this is");
        for hour in hours {
            add(&format!("month/17/{hour}-consensus"), document(*hour).as_bytes());
        }
        builder.into_inner().unwrap()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn an_archive_gives_the_document_of_an_hour() {
        let month = archive(&[0, 1, 17]);
        for packed in [month.clone(), gzip(&month)] {
            for wanted in ["2024-05-17T17", "2024-05-17 17:00", "2024-05-17T17:00:00Z"] {
                let bytes = read(&*packed, Some(wanted)).unwrap();
                assert_eq!(bytes, document(17).into_bytes(), "{wanted}");
            }
        }
        assert_eq!(read(&*archive(&[3]), None).unwrap(), document(3).into_bytes());
    }

    #[test]
    fn which_document_is_meant_has_to_be_said() {
        let says = |source: &[u8], wanted: Option<&str>, what: &str| {
            let why = read(source, wanted).unwrap_err();
            assert!(why.contains(what) && !why.contains('\n'), "{why}: not {what}");
        };
        let month = archive(&[0, 1, 17]);
        says(&month, None, "such as --valid-after 2024-05-17T00");
        says(
            &month,
            Some("2024-05-18T00"),
            "none of the archive's 3 consensuses, from 2024-05-17 00:",
        );
        says(&month, Some("May"), "expected a date and an hour");
        says(&archive(&[]), None, "contains no consensus");
        says(
            document(1).as_bytes(),
            Some("2024-05-17T01"),
            "archive to choose from: leave out --valid-after 2024-05-17T01",
        );
        let packed = gzip(&month);
        says(
            &packed[..packed.len() / 2],
            Some("2024-05-18T00"),
            "the consensus file is incomplete: its end is missing; download it again",
        );
    }

    #[test]
    fn a_folder_is_no_download_that_failed() {
        let folder = tempfile::TempDir::new().unwrap();
        let choice = Choice { hour: None, written: "--valid-after " };
        assert_eq!(
            read_file(folder.path(), choice).unwrap_err(),
            "this is a directory: give a file that is a consensus or an archive of consensuses"
        );
    }

    #[test]
    fn a_file_is_read_as_it_is_or_unpacked() {
        // The text "valid-after\n", compressed by `xz`.
        let packed: &[u8] = &[
            0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x04, 0xe6, 0xd6, 0xb4, 0x46, 0x02, 0x00,
            0x21, 0x01, 0x16, 0x00, 0x00, 0x00, 0x74, 0x2f, 0xe5, 0xa3, 0x01, 0x00, 0x0b, 0x76,
            0x61, 0x6c, 0x69, 0x64, 0x2d, 0x61, 0x66, 0x74, 0x65, 0x72, 0x0a, 0x00, 0xe6, 0xa1,
            0x8c, 0xb6, 0xb2, 0x5f, 0xc1, 0x9b, 0x00, 0x01, 0x24, 0x0c, 0xa6, 0x18, 0xd8, 0xd8,
            0x1f, 0xb6, 0xf3, 0x7d, 0x01, 0x00, 0x00, 0x00, 0x00, 0x04, 0x59, 0x5a,
        ];
        assert_eq!(read(packed, None).unwrap(), b"valid-after\n");
        assert_eq!(read(&*gzip(b"text\n"), None).unwrap(), b"text\n");
        assert_eq!(read(&b"short\n"[..], None).unwrap(), b"short\n");
        assert!(read(&packed[..20], None).is_err());
    }
}
