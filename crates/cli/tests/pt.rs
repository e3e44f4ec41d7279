//! Tests of `anabranch pt` without tor. Programs reach a server through both ends, and each
//! mistake is reported in one line.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod program;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use program::{PATIENCE, Program};
use tempfile::TempDir;

/// Starts an echo server, which closes each connection after its client has. Returns its port.
fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let mut writer = socket.try_clone().unwrap();
            let _ = std::io::copy(&mut { socket }, &mut writer);
            let _ = writer.shutdown(Shutdown::Write);
        }
    });
    port
}

fn said_and_heard(port: u16, words: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(words).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let mut received = Vec::new();
    socket.read_to_end(&mut received).unwrap();
    received
}

#[test]
fn a_program_reaches_a_server_and_the_key_is_kept() {
    let folder = TempDir::new().unwrap();
    let key = folder.path().join("bridge.key").display().to_string();
    let to = format!("127.0.0.1:{}", echo());
    let listen = "127.0.0.1:0";
    let server = ["pt", "server", "--json", "--listen", listen, "--to", &to, "--key", &key];
    let mut lines = Vec::new();
    for profile in [&[][..], &["--profile", "http-text", "--site", "127.0.0.1:9"]] {
        let mut far = Program::start(&[&server[..], profile].concat());
        let line = far.next("listening")["bridge"].as_str().unwrap().to_owned();
        let client = ["pt", "client", "--json", "--listen", listen, "--bridge", &line];
        let mut near = Program::start(&client);
        let at = near.next("listening")["listen"][0].as_str().unwrap().to_owned();
        let port = at.rsplit(':').next().unwrap().parse().unwrap();
        assert_eq!(said_and_heard(port, b"words"), b"words");
        near.next("link_up");
        assert_eq!(near.next("link_over")["how"], "done");
        lines.push(line);
        for program in [&mut near, &mut far] {
            program.signal("-TERM");
            let (status, errors) = program.ended();
            assert!(status.success() && errors.is_empty(), "{errors}");
        }
    }
    let key_of = |line: &str| line.split_once("key=").unwrap().1[..43].to_owned();
    assert_eq!(key_of(&lines[0]), key_of(&lines[1]));
    assert!(lines[1].contains("profile=http-text"), "{}", lines[1]);
}

#[test]
fn a_site_is_made_covers_by_which_a_program_reaches_a_server() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::create_dir(at("www")).unwrap();
    let list = format!("[{}1]", format!("\"{}\",", "aB3_".repeat(90)).repeat(60));
    fs::write(at("www/list.json"), &list).unwrap();
    fs::write(at("www/broken.jpg"), "no picture").unwrap();
    let (www, covers, key) = (at("www"), at("covers"), at("key"));
    let mut crawl = Program::start(&["pt", "crawl", &www, "--out", &covers, "--json"]);
    let made = crawl.next("covers");
    assert_eq!((made["objects"].as_u64(), made["kept"].as_u64()), (Some(2), Some(1)), "{made}");
    let (status, errors) = crawl.ended();
    assert!(status.success() && errors.is_empty(), "{errors}");
    let to = format!("127.0.0.1:{}", echo());
    let server = ["pt", "server", "--json", "--listen", "127.0.0.1:0", "--to", &to, "--key", &key];
    let site = ["--profile", "http-site", "--covers", &covers, "--site", "127.0.0.1:9"];
    let mut far = Program::start(&[&server[..], &site].concat());
    let line = far.next("listening")["bridge"].as_str().unwrap().to_owned();
    let mut near =
        Program::start(&["pt", "client", "--json", "--listen", "127.0.0.1:0", "--bridge", &line]);
    let listen = near.next("listening")["listen"][0].as_str().unwrap().to_owned();
    let port = listen.rsplit(':').next().unwrap().parse().unwrap();
    assert_eq!(said_and_heard(port, list.as_bytes()), list.as_bytes());
    // Nothing is read or requested if the result cannot be written.
    let again = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["pt", "crawl", "/nowhere", "--out", &covers, "--browser", "/nowhere"])
        .output()
        .unwrap();
    let stderr = String::from_utf8(again.stderr).unwrap();
    assert_eq!(again.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("already exists") && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn pictures_that_hide_nothing_are_told_of() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::create_dir(at("own")).unwrap();
    let picture = include_bytes!("../../stego/testdata/colour.jpg");
    fs::write(at("own/good.jpg"), picture).unwrap();
    fs::write(at("own/half.jpg"), &picture[..picture.len() / 2]).unwrap();
    fs::write(at("own/notes.txt"), "no picture").unwrap();
    let (own, key) = (at("own"), at("key"));
    let server = ["pt", "server", "--json", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9"];
    let image = ["--profile", "http-image", "--site", "127.0.0.1:9"];
    let rest = ["--key", &key, "--pictures", &own];
    let mut far = Program::start(&[&server[..], &image, &rest].concat());
    assert_eq!(far.next("pictures")["refused"], 2);
    far.next("listening");
    far.signal("-TERM");
    let (status, errors) = far.ended();
    assert!(status.success() && errors.is_empty(), "{errors}");
}

#[test]
fn mistakes_are_told_in_a_line() {
    let folder = TempDir::new().unwrap();
    let server = ["server", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9", "--key", "k"];
    fs::create_dir_all(folder.path().join("empty")).unwrap();
    fs::write(folder.path().join("half.har"), "{\"log\":").unwrap();
    fs::write(folder.path().join("own.shapes"), "shape a\nup 9 0\n").unwrap();
    let crawl = ["crawl", "--out", "new"];
    let near = ["client", "--listen", "127.0.0.1:0", "--bridge"];
    let key = format!("key={}E", "A".repeat(42));
    let misspelt = format!("anabranch 192.0.2.1:4 {key} profil=http-opaque");
    let doubled = format!("anabranch 192.0.2.1:4 {key} {key}");
    let cases: [(Vec<&str>, &str); 19] = [
        (vec!["client"], "--socks, or --listen and --bridge"),
        (vec!["server"], "add --listen, --to and --key"),
        (vec!["client", "--listen", "127.0.0.1:0"], "--bridge"),
        (vec!["client", "--listen", "127.0.0.1:0", "--bridge", "obfs4 192.0.2.1:4"], "'obfs4'"),
        ([&near[..], &[&misspelt]].concat(), "unknown key `profil`; did you mean `profile`?"),
        ([&near[..], &[&doubled]].concat(), "key= is given twice"),
        ([&near[..], &["anabranch 192.0.2.1:4"]].concat(), "lacks key="),
        ([&near[..], &["anabranch 192.0.2.1:4 key=AAAA"]].concat(), "is not a bridge's key"),
        ([&server[..], &["--links", "0"]].concat(), "--links"),
        (vec!["client", "--socks", "127.0.0.1:0", "--schedule", "x"], "'x'"),
        ([&server[..], &["--profile", "http-opaque"]].concat(), "needs a web server"),
        ([&server[..], &["--profile", "nostag"]].concat(), "there is no profile 'nostag'"),
        ([&server[..], &["--covers", "empty"]].concat(), "covers.json"),
        ([&server[..], &["--shapes", "own.shapes"]].concat(), "the first step must go"),
        ([&crawl[..], &["gone"]].concat(), "gone: No such file"),
        ([&crawl[..], &["half.har"]].concat(), "half.har: the file is not a HAR file"),
        ([&crawl[..], &["--shape", "half.har"]].concat(), "the file is not a capture"),
        (
            [&crawl[..], &["empty", "empty"]].concat(),
            "covers (web files that hide data) are made from one SOURCE",
        ),
        ([&crawl[..], &["empty", "--shape", "--browser", "x"]].concat(), "cannot be used with"),
    ];
    for (words, wanted) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        command.arg("pt").args(&words).current_dir(folder.path());
        let output = command.env_remove("TOR_PT_MANAGED_TRANSPORT_VER").output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {stderr}");
        assert!(stderr.contains(wanted) && stderr.lines().count() == 1, "{words:?}: {stderr}");
    }
}
