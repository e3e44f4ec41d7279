//! Prints the share of each path for every schedule of the splitter, for one session of 10,000
//! datagrams.

use anabranch_comps::{Batch, Config, Core, Input, Output};
use anabranch_multipath::schedule::without_windows;
use anabranch_multipath::{Core as _, Time};

/// Number of paths of the session.
const PATHS: usize = 3;
/// Number of datagrams that the client sends, at one per millisecond.
const DATAGRAMS: u64 = 10_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for family in without_windows() {
        let Ok(schedule) = family.name.parse() else {
            println!("{:12} left out, because it needs an argument", family.name);
            continue;
        };
        match Core::new(Config { schedule, ..Config::of(PATHS) }) {
            Ok(core) => println!("{:12} {:?} datagrams on the paths", family.name, shares(core)),
            Err(error) => println!("{:12} {error}", family.name),
        }
    }
    Ok(())
}

/// Returns the number of datagrams that each path carried.
fn shares(mut core: Core) -> [u64; PATHS] {
    let client = ([127, 0, 0, 1], 5000).into();
    let mut shares = [0; PATHS];
    for number in 0..DATAGRAMS {
        let now = Time::from_millis(number);
        let datagram = [0x40; 200];
        let batch = Batch::single(&datagram, 0);
        core.handle(now, Input::Client { client, server: None, local: None, batch });
        while let Some(output) = core.poll(now) {
            match output {
                Output::Send { path, .. } => shares[path.index()] += 1,
                Output::Resolve { session, .. } => {
                    core.handle(now, Input::Resolved { session, found: true, barred: &[] });
                }
                Output::SendToClient { .. } | Output::Close { .. } | Output::Event(_) => {}
            }
        }
    }
    shares
}
