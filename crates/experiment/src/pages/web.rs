//! The local copy of web sites that `scripts/web` builds from packages.

use std::fmt;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anabranch_os::toml_keys;
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// Maximum number of sites, whose addresses begin at 10.8.1.0 and must be in 10.8.0.0/16.
const MOST: usize = 60_000;

/// A site of the local web: a directory of files, including the page to load.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// Name of the site's directory, which is also its label in the traces.
    pub name: String,
    /// True if the attacker monitors the site.
    pub monitored: bool,
    /// Path of the page to load, relative to the directory.
    pub page: String,
    /// Number of files in the site's directory.
    pub files: u64,
    /// Total size of the files in the site's directory, in bytes.
    pub bytes: u64,
    /// Package from which the site was built: registry, name, version, SHA-256. Empty if unknown.
    #[serde(default)]
    pub source: String,
    /// Index of the site among all sites, from 0.
    #[serde(skip)]
    pub number: u32,
}

/// All sites of a local web (web sites stored on this machine), in subdirectories of one
/// directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Web {
    /// Directory with a subdirectory for each site.
    pub folder: PathBuf,
    /// Sites in the order of the list file.
    pub sites: Vec<Site>,
    /// SHA-256 of the list file in hexadecimal, which identifies the local web.
    pub digest: String,
}

/// Reason why a directory contains no local web.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebError(String);

impl fmt::Display for WebError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; run `make web` in the source tree, which creates a local web (0.7 GB of \
             downloads)",
            self.0
        )
    }
}

impl std::error::Error for WebError {}

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    site: Vec<Site>,
}

impl Web {
    /// Reads the list of sites in `folder`, and checks that the page of each site exists.
    ///
    /// # Errors
    /// [`WebError`], which includes the remedy.
    pub fn read(folder: &Path) -> Result<Web, WebError> {
        let list = folder.join("sites.toml");
        let wrong = |why: &dyn fmt::Display| WebError(format!("{}: {why}", list.display()));
        let text = fs::read_to_string(&list).map_err(|error| wrong(&error))?;
        let file = list.display().to_string();
        let List { site: mut sites } =
            toml_keys::read(&text, &file, &[]).map_err(|error| WebError(error.to_string()))?;
        let folder = folder.canonicalize().map_err(|error| wrong(&error))?;
        if sites.len() > MOST {
            return Err(wrong(&format!(
                "the list has more than {MOST} sites, but an experiment can use at most {MOST}"
            )));
        }
        for (number, site) in (0..).zip(&mut sites) {
            site.number = number;
            if !folder.join(&site.name).join(&site.page).is_file() {
                return Err(wrong(&format!(
                    "the file of the site {} is missing: {}",
                    site.name, site.page
                )));
            }
        }
        let digest = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Web { folder, sites, digest })
    }

    /// Returns the first `monitored` monitored sites and the first `unmonitored` other sites.
    ///
    /// # Errors
    /// The local web has fewer sites than requested.
    pub fn choose(&self, monitored: usize, unmonitored: usize) -> Result<Vec<Site>, WebError> {
        let mut chosen = Vec::new();
        for (wanted, which, kind) in [(monitored, true, "monitored"), (unmonitored, false, "other")]
        {
            let all: Vec<_> = self.sites.iter().filter(|site| site.monitored == which).collect();
            if all.len() < wanted {
                let (place, has) = (self.folder.display(), all.len());
                return Err(WebError(format!(
                    "{place}: the folder has {has} {kind} sites, but {wanted} are needed: lower \
                     --monitored or --unmonitored"
                )));
            }
            chosen.extend(all.into_iter().take(wanted).cloned());
        }
        Ok(chosen)
    }
}

impl Site {
    /// Returns the host name that the browser requests for the site. It consists of the site's
    /// index and its directory's name, without characters that are not allowed in host names.
    pub fn host(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let text: String = self.name.chars().map(plain).collect();
        let short: String = text.trim_matches('-').chars().take(50).collect();
        format!("{}-{}.example", short.trim_end_matches('-'), self.number)
    }

    /// Returns the address of the site inside the tunnel.
    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(Ipv4Addr::new(10, 8, 1, 0).to_bits() + self.number)
    }

    /// Returns the URL of the site's page.
    pub fn url(&self) -> String {
        let mut path = String::new();
        for byte in self.page.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                    path.push(char::from(byte));
                }
                _ => path.push_str(&format!("%{byte:02X}")),
            }
        }
        format!("https://{}/{path}", self.host())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn site(number: u32, monitored: bool) -> Site {
        let name = format!("site-{number}");
        Site {
            name,
            monitored,
            page: "index.html".to_owned(),
            files: 1,
            bytes: 2,
            source: String::new(),
            number,
        }
    }

    fn folder(list: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a.js")).unwrap();
        fs::write(folder.path().join("a.js/index.html"), "x").unwrap();
        fs::write(folder.path().join("sites.toml"), list).unwrap();
        folder
    }

    const ONE: &str =
        "[[site]]\nname = 'a.js'\nmonitored = true\npage = 'index.html'\nfiles = 1\nbytes = 1\n";

    #[test]
    fn sites_are_read_and_chosen() {
        let folder = folder(ONE);
        let web = Web::read(folder.path()).unwrap();
        assert_eq!((web.sites.len(), web.digest.len()), (1, 64));
        assert_eq!(web.choose(1, 0).unwrap(), web.sites);
        let error = web.choose(1, 2).unwrap_err().to_string();
        assert!(error.contains("has 0 other sites, but 2 are needed"), "{error}");
    }

    #[test]
    fn what_is_no_web_is_refused_with_the_remedy() {
        let refused = |list: &str| Web::read(folder(list).path()).unwrap_err().to_string();
        assert!(refused("[[site]]\nname = 1\n").contains("sites.toml"));
        assert!(refused(&ONE.replace("index", "no")).contains("the site a.js is missing: no.html"));
        let error = Web::read(Path::new("/no/where")).unwrap_err().to_string();
        assert!(error.contains("/no/where/sites.toml") && error.contains("make web"), "{error}");
    }

    #[test]
    fn each_site_has_a_host_an_address_and_a_url_of_its_own() {
        let odd = Site { name: "@a/B+c".into(), page: "d e/é.html".into(), ..site(256, true) };
        assert_eq!(odd.url(), "https://a-b-c-256.example/d%20e/%C3%A9.html");
        assert_eq!(odd.address(), Ipv4Addr::new(10, 8, 2, 0));
    }
}
