//! Tests of completions and man pages with the shells and with man.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

fn generate(arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    program.arg("generate").args(arguments).output().unwrap()
}

fn completions(shell: &str, folder: &Path) -> PathBuf {
    let made = generate(&["completions", shell]);
    assert!(made.status.success(), "{made:?}");
    let file = folder.join(shell);
    fs::write(&file, made.stdout).unwrap();
    file
}

/// Returns the output of `command`. Returns `None`, and prints a message, if the command is not
/// installed.
fn run(command: &mut Command) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(error) => {
            println!("skipped: {:?}: {error}", command.get_program());
            None
        }
    }
}

/// Returns the completions that bash offers after the words of `line`; `None` without bash.
fn offered(script: &Path, line: &str) -> Option<Vec<String>> {
    // The script does what bash does when the user presses Tab. It calls the function that
    // `complete` names with the command, the current word and the word before it.
    let query =
        "source \"$1\"; read -ra COMP_WORDS <<< \"$2\"; [[ $2 == *' ' ]] && COMP_WORDS+=('')
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$2 COMP_POINT=${#2}
        name=$(complete -p anabranch | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        \"$name\" anabranch \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", query, "bash"]).arg(script).arg(line);
    let output = run(&mut bash)?;
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

#[test]
fn bash_offers_what_the_command_line_has() {
    let folder = TempDir::new().unwrap();
    let script = completions("bash", folder.path());
    let offered = |line| offered(&script, line);
    let Some(first) = offered("anabranch ") else { return };
    assert!(first.contains(&"split".to_owned()), "{first:?}");
    assert_eq!(offered("anabranch spl").unwrap(), ["split"]);
    assert_eq!(offered("anabranch split --sche").unwrap(), ["--schedule", "--scheduled"]);
    assert_eq!(offered("anabranch generate completions fi").unwrap(), ["fish"]);
    assert_eq!(offered("anabranch split --nothing-such"), Some(Vec::new()));
    let schedules = offered("anabranch split --schedule ").unwrap();
    assert!(schedules.contains(&"round-robin".to_owned()), "{schedules:?}");
    assert_eq!(offered("anabranch split --schedule wei").unwrap(), ["weighted", "weights"]);
    assert_eq!(offered("anabranch split --protocol wire").unwrap(), ["wireguard"]);
    assert_eq!(offered("anabranch split --path au").unwrap(), ["auto"]);
    assert_eq!(offered("anabranch mosh there --path a=so").unwrap(), ["a=socks5:"]);
    let devices = fs::read_dir("/sys/class/net").unwrap().map(|entry| entry.unwrap().file_name());
    for device in devices.map(|name| name.into_string().unwrap()).filter(|name| name != "lo") {
        let paths = offered("anabranch split --path a=if:").unwrap();
        assert!(paths.contains(&format!("a=if:{device}")), "{device}: {paths:?}");
    }
}

#[test]
fn zsh_and_fish_take_their_scripts() {
    let folder = TempDir::new().unwrap();
    for shell in ["zsh", "fish"] {
        let script = completions(shell, folder.path());
        let Some(output) = run(Command::new(shell).arg("-n").arg(&script)) else { continue };
        assert!(output.status.success() && output.stderr.is_empty(), "{shell}: {output:?}");
    }
}

#[test]
fn each_sub_command_has_a_man_page_that_groff_sets_without_a_warning() {
    let folder = TempDir::new().unwrap();
    let made = generate(&["man", folder.path().to_str().unwrap()]);
    assert!(made.status.success() && made.stdout.is_empty(), "{made:?}");
    for name in ["", "-split", "-emulate", "-emulate-check", "-report", "-generate"] {
        let page = folder.path().join(format!("anabranch{name}.1"));
        assert!(page.is_file(), "{page:?}");
        let mut groff = Command::new("groff");
        groff.args(["-man", "-ww", "-Kutf8", "-Tutf8", "-P-cbuo"]).arg(&page);
        let Some(output) = run(&mut groff) else { continue };
        assert!(output.status.success() && output.stderr.is_empty(), "{name}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.contains("--schedule"), name == "-split", "{text}");
        assert_eq!(text.contains("EXIT CODES"), name == "-split", "{text}");
    }
}

#[test]
fn each_kind_of_file_has_a_man_page_with_its_keys_and_its_example() {
    let folder = TempDir::new().unwrap();
    assert!(generate(&["man", folder.path().to_str().unwrap()]).status.success());
    for (kind, words) in [
        ("split", ["quic-tuples = N", "password-file", "name = \"wlan\""]),
        ("client", ["share-subnets = true", "exclude = [", "authorities = \"network.txt\""]),
        ("relay", ["nickname = NICKNAME", "exit = [RULE, ...]", "accept *:443"]),
        ("authority", ["per-address = ", "valid-intervals", "dam"]),
        ("emulate", ["[[link]]", "rate_back", "jitter"]),
    ] {
        let page = folder.path().join(format!("anabranch-{kind}.toml.5"));
        let mut groff = Command::new("groff");
        groff.args(["-man", "-ww", "-Kutf8", "-Tutf8", "-P-cbuo", "-rLL=200n"]).arg(&page);
        let Some(output) = run(&mut groff) else { continue };
        assert!(output.status.success() && output.stderr.is_empty(), "{kind}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        for word in words {
            assert!(text.contains(word), "{kind}: no {word:?} in\n{text}");
        }
    }
}

#[test]
fn a_page_says_which_values_options_take_and_where_to_read_on() {
    let folder = TempDir::new().unwrap();
    assert!(generate(&["man", folder.path().to_str().unwrap()]).status.success());
    for name in ["split", "client", "relay", "authority"] {
        let mut groff = Command::new("groff");
        groff.args(["-man", "-Kutf8", "-Tutf8", "-P-cbuo", "-rLL=2000n"]);
        groff.arg(folder.path().join(format!("anabranch-{name}.1")));
        let Some(output) = run(&mut groff) else { return };
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("[--listen ADDRESS:PORT]"), "{text}");
        for section in ["EXAMPLES", "ENVIRONMENT", "FILES", "SEE ALSO"] {
            assert!(text.contains(section), "{name} has no {section}");
        }
        assert!(text.contains(&format!("anabranch-{name}.toml(5)")), "{text}");
    }
}

#[test]
fn pages_are_not_written_to_where_no_directory_is() {
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("none");
    let refused = generate(&["man", missing.to_str().unwrap()]);
    let message = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{message}");
    assert!(message.contains("there is no directory") && message.lines().count() == 1, "{message}");
    assert!(!missing.exists());
}
