//! The two sides of a soak test of the onion network (`bench/soak.py` starts the network itself
//! and judges the results):
//!
//! * `soak clients`: many complete clients in this process, each as in `anabranch client`:
//!   separate threads for an event loop and a directory client, a separate folder for guards and
//!   documents, and a separate SOCKS port.
//! * `soak load`: the programs of these clients and the server at the exits. They are a separate
//!   process, so that measurements of the clients' process do not include them.

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

/// The system's allocator with a counter of bytes in use. The kernel's numbers also include free
/// memory that the allocator has not returned.
#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// Run one of the two sides of a long test of the onion network under load. Each side prints JSON
/// lines.
#[derive(Parser)]
enum Arguments {
    /// Run many clients until SIGTERM; a second SIGTERM ends the process.
    Clients(clients::Arguments),
    /// Open streams through the clients and check the received data.
    Load(load::Arguments),
}

fn main() -> io::Result<()> {
    // Hundreds of clients need thousands of open files.
    files::raise_limit();
    match Arguments::parse() {
        Arguments::Clients(arguments) => clients::run(&arguments),
        Arguments::Load(arguments) => load::run(&arguments),
    }
}

/// Prints `event` as a line of JSON.
fn print_event(event: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_string(event)?;
    line.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.flush()
}
