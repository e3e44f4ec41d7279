//! The folder of `--data`: only one process uses it at a time, and no other user can read it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ports;
mod program;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ports::free_ports;
use program::{NOBODY, Program};

const CLIENT: &str = "client --listen 127.0.0.1:0";

/// Returns the options of a relay, including a port, which it needs.
fn relay() -> String {
    let [port] = free_ports();
    format!("relay --nickname river --address 127.0.0.1 --listen 127.0.0.1:{port} --allow-private")
}

fn start(words: &str, data: &Path) -> Program {
    let words: Vec<&str> = words.split(' ').collect();
    let more = ["--json", "--authority", NOBODY, "--data", data.to_str().unwrap()];
    Program::start(&[&words[..], &more].concat())
}

#[test]
fn a_second_process_on_a_folder_is_refused_in_one_line_and_a_killed_one_holds_nothing() {
    for words in [&relay(), CLIENT] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("state");
        let mut first = start(words, &data);
        first.next("listening");
        let (status, error) = start(words, &data).ended();
        assert_eq!(status.code(), Some(2), "{error}");
        let message = format!("another process {} uses this folder", first.child.id());
        assert!(error.contains(&message) && error.lines().count() == 1, "{error}");
        first.signal("-KILL");
        first.ended();
        start(words, &data).next("listening");
    }
}

#[test]
fn a_folder_that_others_could_look_into_is_closed_to_them_and_that_is_said() {
    for words in [&relay(), CLIENT] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("state");
        fs::create_dir(&data).unwrap();
        fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();
        let mut program = start(words, &data);
        let trouble = program.next("trouble")["what"].as_str().unwrap().to_owned();
        assert!(
            trouble.contains("(mode 755)") && trouble.contains("its mode is 700 now"),
            "{trouble}"
        );
        program.next("listening");
        assert_eq!(fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
