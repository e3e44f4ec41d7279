//! Runs every target on every file of its corpus, with the stable compiler.

use std::fs;
use std::panic;
use std::path::{Path, PathBuf};

use anabranch_fuzz::TARGETS;

fn corpus(target: &str) -> PathBuf {
    Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default())
        .join("corpus")
        .join(target)
}

/// Returns the files of a folder, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.expect("a readable folder").path()).collect();
    files.sort();
    files
}

#[test]
fn every_committed_input_keeps_every_promise() {
    for (target, check) in TARGETS {
        let files = files(&corpus(target));
        assert!(!files.is_empty(), "{target} has no corpus");
        for file in files {
            // A failing check does not know the file of its input.
            let input = fs::read(&file).unwrap();
            let held = panic::catch_unwind(|| check(&input)).is_ok();
            assert!(held, "{target} fails on {}, see above", file.display());
        }
    }
}

#[test]
fn every_target_takes_nothing_and_noise() {
    let noise: Vec<u8> =
        (0..4096u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (_, check) in TARGETS {
        check(&[]);
        (1..64).for_each(|length| check(&noise[length..length * length]));
    }
}

#[test]
fn every_corpus_and_every_binary_has_a_target() {
    let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    let root = &std::path::PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap());
    for folder in ["corpus", "fuzz_targets"] {
        let found = files(&root.join(folder));
        let found: Vec<&str> =
            found.iter().map(|f| f.file_stem().unwrap().to_str().unwrap()).collect();
        assert_eq!(found, names, "{folder}");
    }
}
