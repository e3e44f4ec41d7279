//! Tests of the files that `packaging/install` or `make install` puts below a prefix.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

fn root() -> PathBuf {
    Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap())
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn installed(folder: &Path) -> PathBuf {
    let mut install = Command::new(root().join("packaging/install"));
    install.arg(env!("CARGO_BIN_EXE_anabranch")).arg("/usr").env("DESTDIR", folder);
    let output = install.output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{stdout} {:?}", output.stderr);
    assert!(stdout.starts_with("installed "), "{stdout}");
    folder.join("usr")
}

/// Returns the documents that `text` names by their path in the repository or on an installed
/// system.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| c.is_whitespace() || "()[]\"'`,;".contains(c));
    let plain = words.map(|word| word.replace("\\-", "-").trim_end_matches('.').to_owned());
    let local = plain.map(|word| word.replace("/usr/share/doc/anabranch/", ""));
    let is_one = |word: &String| {
        (word.starts_with("docs/") || word.starts_with("examples/")) && word.contains('.')
    };
    local.filter(is_one).collect()
}

#[test]
fn all_that_help_and_man_pages_name_is_installed() {
    let folder = TempDir::new().unwrap();
    let usr = installed(folder.path());
    let version = Command::new(usr.join("bin/anabranch")).arg("--version").output().unwrap();
    assert!(String::from_utf8(version.stdout).unwrap().starts_with("anabranch "));
    let documents = usr.join("share/doc/anabranch");
    let pages = ["man1", "man5"].map(|section| usr.join("share/man").join(section));
    let pages = pages.iter().flat_map(|section| fs::read_dir(section).unwrap());
    let mut count = 0;
    for page in pages.map(|entry| entry.unwrap().path()) {
        for name in named(&fs::read_to_string(&page).unwrap()) {
            assert!(documents.join(&name).is_file(), "{page:?} names {name}");
            count += 1;
        }
    }
    assert!(count > 8, "only {count} names were found");
    for file in ["README.md", "THIRD-PARTY.txt", "LICENSE-MIT", "docs/README.md"] {
        assert!(documents.join(file).is_file(), "{file}");
    }
    let notices = fs::read_to_string(documents.join("THIRD-PARTY.txt")).unwrap();
    assert!(notices.contains("\nrustls ") && notices.contains("Permission is hereby granted"));
}

#[test]
fn links_of_readme_and_documents_lead_somewhere() {
    let mut files = vec![root().join("README.md"), root().join("docs/README.md")];
    files.extend(
        fs::read_dir(root().join("docs/guide")).unwrap().map(|entry| entry.unwrap().path()),
    );
    let mut count = 0;
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for part in text.split("](").skip(1) {
            let target = part.split(')').next().unwrap().replace('\n', "");
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            if path.starts_with("http") {
                continue;
            }
            let place = if path.is_empty() { file.clone() } else { file.with_file_name(path) };
            assert!(place.exists(), "{file:?} leads to {target}");
            if !anchor.is_empty() {
                let headings = fs::read_to_string(&place).unwrap();
                let known = headings.lines().filter(|line| line.starts_with('#')).any(|line| {
                    let plain = line.trim_start_matches(['#', ' ']).to_lowercase();
                    let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
                    plain.chars().filter(kept).collect::<String>().replace(' ', "-") == anchor
                });
                assert!(known, "{file:?} leads to {target}");
            }
            count += 1;
        }
    }
    assert!(count > 40, "only {count} links were found");
}
