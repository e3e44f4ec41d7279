//! Translation of source addresses (NAT) in a host, with the program `nft`.

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Finds `nft` in PATH, or where Debian installs it (which is not in the PATH of ordinary users).
///
/// # Errors
/// `NotFound`; the message names the package to install.
pub(super) fn find() -> io::Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let missing =
        || io::Error::new(io::ErrorKind::NotFound, "there is no program `nft`; install nftables");
    folders.map(|folder| folder.join("nft")).find(|file| file.is_file()).ok_or_else(missing)
}

/// Sets up source address translation in the calling thread's namespace. Packets that leave by one
/// of `interfaces` get that interface's address as their source. The addresses of replies are
/// translated back.
///
/// # Errors
/// The first line of `nft`'s error message.
pub(super) fn masquerade(interfaces: &[&str]) -> io::Result<()> {
    let mut nft = Command::new(find()?);
    nft.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut nft = nft.spawn()?;
    let mut input = nft.stdin.take().expect("the standard input of nft is a pipe");
    // If `nft` stops before it has read all of its input, its error message has the reason.
    let _ = input.write_all(rules(interfaces).as_bytes());
    drop(input);
    let output = nft.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let first = errors.lines().next().unwrap_or("the program gave no reason");
    Err(io::Error::other(format!("nft: {first}")))
}

/// Returns the text of the nft rules for IPv4 and IPv6. Interface names must not contain
/// characters with a special meaning for nft.
fn rules(interfaces: &[&str]) -> String {
    let rule = |name: &&str| format!("oifname \"{name}\" masquerade\n");
    let rules: String = interfaces.iter().map(rule).collect();
    format!(
        "table inet anabranch {{\nchain postrouting {{\n\
         type nat hook postrouting priority srcnat\n{rules}}}\n}}\n"
    )
}
