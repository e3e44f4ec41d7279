//! Starts a transport's program as a client and prints where its SOCKS ports are.
//!
//! Usage: `cargo run --example manage -- PROGRAM TRANSPORT [ARGUMENT...]`

use std::io::Read;
use std::process::{Command, Stdio};

use anabranch_pt::Manager;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(program), Some(transport)) = (arguments.next(), arguments.next()) else {
        return Err("usage: manage PROGRAM TRANSPORT [ARGUMENT...]".into());
    };
    let state = std::env::temp_dir().join(format!("anabranch-pt-{}", std::process::id()));
    std::fs::create_dir_all(&state)?;
    let mut child = Command::new(program)
        .args(arguments)
        .env("TOR_PT_MANAGED_TRANSPORT_VER", "1")
        .env("TOR_PT_STATE_LOCATION", &state)
        .env("TOR_PT_CLIENT_TRANSPORTS", transport)
        .env("TOR_PT_EXIT_ON_STDIN_CLOSE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;

    let mut output = child.stdout.take().expect("its output is a pipe");
    let (mut manager, mut buffer) = (Manager::new(false), [0; 4096]);
    while !manager.is_ready() {
        match output.read(&mut buffer)? {
            0 => return Err("the transport ended before it was ready".into()),
            length => manager.take(&buffer[..length])?,
        }
    }
    for method in manager.methods() {
        println!("{}: {}", method.name, method.address);
    }
    for (name, reason) in manager.refused() {
        println!("{name}: refused: {reason}");
    }
    // The program exits when its standard input is closed.
    drop(child.stdin.take());
    child.wait()?;
    std::fs::remove_dir_all(state)?;
    Ok(())
}
