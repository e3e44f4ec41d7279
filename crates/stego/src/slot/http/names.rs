//! The words in URLs and JSON bodies. They are derived from each bridge's key, so that a censor
//! finds no word that is common to all bridges.

use aws_lc_rs::digest::{SHA256, digest};

use super::Tier;
use crate::keys::BridgeKey;

/// Words from which the first part (folder) of URL paths is chosen.
const FOLDERS: [&str; 16] = [
    "media", "video", "content", "assets", "stream", "files", "live", "vod", "static", "cdn",
    "data", "play", "hls", "dash", "av", "store",
];
/// Words from which the beginning of media file names is chosen. A segment number follows in the
/// name.
const PARTS: [&str; 8] = ["seg", "chunk", "part", "frag", "s", "video", "media", "v"];
/// Suffixes from which the suffix of media file names is chosen.
const ENDINGS: [&str; 4] = ["m4s", "ts", "mp4", "m4v"];
/// Words from which the name of the JSON member that hides bytes is chosen.
const LISTS: [&str; 8] =
    ["items", "events", "messages", "feed", "updates", "records", "entries", "rows"];
/// Words from which the name of the query parameter that hides bytes is chosen.
const QUERIES: [&str; 8] = ["token", "t", "sig", "auth", "st", "key", "cursor", "s"];
/// Words from which the last part of the URL path of uploads (POST) is chosen.
const UPLOADS: [&str; 8] =
    ["upload", "sync", "collect", "submit", "report", "put", "backup", "save"];

/// The words that the URLs and JSON bodies of one bridge contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    folder: &'static str,
    part: &'static str,
    ending: &'static str,
    list: &'static str,
    query: &'static str,
    upload: String,
}

impl Names {
    /// Chooses the words in the URLs and JSON bodies of a bridge, by a hash of the bridge's key.
    pub(crate) fn of(key: &BridgeKey) -> Names {
        let drawn = digest(&SHA256, &[b"anabranch stego names", &key.0[..]].concat());
        let mut drawn = drawn.as_ref().iter().map(|&byte| usize::from(byte));
        let mut pick = |words: &[&'static str]| words[drawn.next().unwrap_or(0) % words.len()];
        let (folder, part, ending) = (pick(&FOLDERS), pick(&PARTS), pick(&ENDINGS));
        let (list, query) = (pick(&LISTS), pick(&QUERIES));
        let upload = format!("/{}/{}", pick(&FOLDERS), pick(&UPLOADS));
        Names { folder, part, ending, list, query, upload }
    }

    /// Builds the URL path of a GET. `number` is the number of the requested segment of a media
    /// stream; [`Tier::Text`] ignores it.
    pub(super) fn media(&self, tier: Tier, number: u64) -> String {
        match tier {
            Tier::Opaque => format!("/{}/{}-{number}.{}", self.folder, self.part, self.ending),
            Tier::Text => format!("/{}/{}", self.folder, self.list),
            Tier::Image | Tier::Site => format!("/{}/{}-{number}.jpg", self.folder, self.part),
        }
    }

    /// Returns whether `path` has the form that [`Names::media`] builds.
    pub(super) fn is_media(&self, tier: Tier, path: &str) -> bool {
        let ending = if matches!(tier, Tier::Image | Tier::Site) { "jpg" } else { self.ending };
        let digits = || {
            let rest = path.strip_prefix('/')?.strip_prefix(self.folder)?.strip_prefix('/')?;
            let rest = rest.strip_prefix(self.part)?.strip_prefix('-')?;
            rest.strip_suffix(ending)?.strip_suffix('.')
        };
        match tier {
            Tier::Opaque | Tier::Image | Tier::Site => digits().is_some_and(|digits| {
                let numbers = digits.bytes().all(|byte| byte.is_ascii_digit());
                numbers && (1..=10).contains(&digits.len())
            }),
            Tier::Text => path == self.media(tier, 0),
        }
    }

    /// Returns the number of the media segment in the URL path of a GET; `None` if the path has
    /// none.
    pub(super) fn number(path: &str) -> Option<u64> {
        let (_, rest) = path.rsplit_once('-')?;
        rest.split_once('.')?.0.parse().ok()
    }

    /// Returns the URL path of a POST.
    pub(super) fn upload(&self) -> &str {
        &self.upload
    }

    /// Returns the name of a GET's query parameter.
    pub(super) fn query(&self) -> &'static str {
        self.query
    }

    /// Returns the name of the JSON member whose strings hide bytes.
    pub(super) fn list(&self) -> &'static str {
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bridges_have_words_of_their_own_and_know_them_again() {
        let all: Vec<Names> = (0..40).map(|key| Names::of(&BridgeKey([key; 32]))).collect();
        assert!(all.iter().filter(|names| **names == all[0]).count() == 1);
        for names in &all {
            let path = names.media(Tier::Opaque, 1_234_567);
            assert!(names.is_media(Tier::Opaque, &path), "{path}");
            assert_eq!(Names::number(&path), Some(1_234_567));
            assert_eq!(Names::number(&names.media(Tier::Text, 9)), None);
            assert!(names.is_media(Tier::Text, &names.media(Tier::Text, 9)));
            for wrong in ["/", "", &path[1..], &path.replace("12345", "x"), &format!("{path}/")] {
                assert!(!names.is_media(Tier::Opaque, wrong), "{wrong}");
            }
        }
    }
}
