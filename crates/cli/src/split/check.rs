//! `--check`: prints the interface, source address and route of each path.

use std::io::{self, Write};

use anabranch_splitter::paths::Egress;
use anabranch_splitter::split::{ActiveSettings, Entrance, Target};
use anabranch_splitter::steer::Plan;

use anabranch_multipath::Time;

use super::options::Options;
use super::screen::{about_json, advice};
use crate::failure::Failure;
use crate::text::table;

/// Prints which paths and local address a splitter with `options` would use. `about` has these
/// settings after all checks. A reader that closes the pipe early is not a failure.
pub(super) fn print(
    entrance: &Entrance,
    about: &ActiveSettings,
    options: &Options,
) -> Result<(), Failure> {
    let text = match options.json {
        true => about_json("check", options.name.as_deref(), Time::ZERO, about),
        false => describe(entrance, about),
    };
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::trouble(error)),
        _ => Ok(()),
    }
}

fn describe(entrance: &Entrance, about: &ActiveSettings) -> String {
    let mut lines = match entrance {
        Entrance::Port { listen, to } => {
            vec![format!("listen    {listen}"), format!("server    {}", server(to, about))]
        }
        Entrance::Tun(_) => about.tun.iter().flat_map(Plan::describe).collect(),
        Entrance::Packets { to, .. } => {
            let far_end = format!("far end   {}", server(to, about));
            about.tun.iter().flat_map(Plan::describe).chain([far_end]).collect()
        }
    };
    lines.extend([
        format!("schedule  {}, seed {}", about.dealing(), about.seed),
        String::new(),
        table(&rows(about)),
    ]);
    lines.extend(advice::warnings(about).into_iter().map(|text| format!("note: {text}")));
    lines.extend(advice::mtu(about));
    lines.join("\n")
}

fn server(to: &Target, about: &ActiveSettings) -> String {
    let name = to.to_string();
    match about.server.map(|server| server.to_string()) {
        Some(address) if address != name => format!("{name} ({address})"),
        _ => name,
    }
}

/// Returns the rows of the table of routes. The column of proxies is omitted if all paths send UDP
/// without a proxy.
fn rows(about: &ActiveSettings) -> Vec<Vec<String>> {
    let head = ["path", "interface", "source", "gateway", "MTU", "ports"].map(str::to_owned);
    let mut rows: Vec<_> = std::iter::once(head.to_vec()).chain(ways(about).map(row)).collect();
    if ways(about).any(|egress| egress.proxy.is_some() || egress.stream.is_some()) {
        let cells = std::iter::once("proxy".to_owned()).chain(ways(about).map(proxy));
        rows.iter_mut().zip(cells).for_each(|(row, cell)| row.push(cell));
    }
    rows
}

/// Returns the egresses of all paths. An egress is the interface, source address and route of
/// outgoing datagrams. A path with an interface has one egress for each address family.
fn ways(about: &ActiveSettings) -> impl Iterator<Item = &Egress> {
    about.egresses.iter().chain(&about.others)
}

/// Describes the proxy of a path, and the number of bytes that the proxy adds to each datagram.
fn proxy(egress: &Egress) -> String {
    match (&egress.stream, egress.proxy) {
        (Some(Some(by)), _) => return format!("{by} (TCP)"),
        (Some(None), Some(to)) => return format!("tcp:{to}"),
        _ => {}
    }
    egress.proxy.map_or_else(
        || "-".to_owned(),
        |proxy| format!("{proxy} (SOCKS5, adds {} bytes to each datagram)", egress.overhead()),
    )
}

fn row(egress: &Egress) -> Vec<String> {
    let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let source = egress.sends_as.map(|ip| match egress.source {
        Some(_) => ip.to_string(),
        None => format!("{ip} (the kernel's choice)"),
    });
    vec![
        egress.name.clone(),
        egress.device.clone().unwrap_or_else(|| "(this machine)".to_owned()),
        text(source),
        text(egress.gateway.map(|ip| ip.to_string())),
        text(egress.mtu.map(|mtu| mtu.to_string())),
        egress.ports.to_string(),
    ]
}
