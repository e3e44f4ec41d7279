//! The two sides of a soak of the onion network (`bench/soak.py`, which starts the network itself
//! and judges):
//!
//! * `soak clients`: many complete clients in this process, each as `anabranch client` runs one: an
//!   event loop and a directory client on threads of their own, guards and documents in a folder of
//!   its own, a SOCKS port of its own.
//! * `soak load`: the programs of these clients and the server behind the exits, apart, so that
//!   what is measured of the clients' process is theirs alone.

mod clients;
mod content;
mod failure;
mod load;
mod server;
mod socks;
mod stream;

use std::alloc::System;
use std::io::{self, Write};

use anabranch_os::files;
use cap::Cap;
use clap::Parser;
use serde::Serialize;

/// The system's allocator, with an account of what is in use: the kernel's tells also of what the
/// allocator keeps for later.
#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// The two sides of a soak of the onion network; each prints JSON lines.
#[derive(Parser)]
enum Arguments {
    /// Run many clients until SIGTERM; a second one ends the process
    Clients(clients::Arguments),
    /// Open streams through them and check what comes
    Load(load::Arguments),
}

fn main() -> io::Result<()> {
    // Hundreds of clients need thousands.
    files::raise_limit();
    match Arguments::parse() {
        Arguments::Clients(arguments) => clients::run(&arguments),
        Arguments::Load(arguments) => load::run(&arguments),
    }
}

/// Prints a line.
fn tell(event: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_string(event)?;
    line.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.flush()
}
