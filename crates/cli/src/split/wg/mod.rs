//! `--wg`: takes the server, port and firewall mark from a wg-quick file, and shows or writes a
//! changed copy of the file.

mod show;

use std::net::SocketAddr;
use std::path::Path;

use anabranch_comps::{Guess, Protocol};
use anabranch_splitter::split::{Target, free_loopback, may_mark};
use anabranch_splitter::wg_quick::{FULL_TUNNEL_MARK, WgQuick, Write};

use super::options::Options;
use super::values::{Mark, Traffic};
use crate::failure::Failure;
use show::Sink;
pub(super) use show::{Tunnel, WgFileScreen};

/// Reads the WireGuard file, if `options` name one. Options that are not given get their values
/// from the file.
///
/// # Errors
/// Misuse (exit code 2): the file or the target of `--write` is invalid, and nothing was written.
pub(super) fn begin(options: &mut Options) -> Result<Option<Tunnel>, Failure> {
    check(options)?;
    let Some(source) = options.wg.clone() else { return Ok(None) };
    let file = WgQuick::read(&source).map_err(Failure::misuse)?;
    let peer = file.peer(options.peer.as_ref()).map_err(Failure::misuse)?.clone();
    let server = peer.endpoint.clone().expect("WgQuick::peer returns only peers with an endpoint");
    options.listen = Some(listen(options.listen, &file, &server, &source)?);
    // With a far end, the Endpoint in the file is the server that the far end reaches.
    options.to = options.to.take().or(Some(server));
    let (mark, unmarked) = mark(options.fwmark, &file);
    options.fwmark = mark.filter(|_| !unmarked).map(Mark);
    if file.is_obfuscated() && options.key.is_none() {
        // The packets of this tunnel are obfuscated, so they match no known protocol.
        let wireguard = Traffic(Guess::Is(Protocol::WireGuard));
        options.protocol.get_or_insert(wireguard);
    }
    let sink = sink(&source, options)?;
    let (name, json, quiet) = (options.name.clone(), options.json, options.quiet);
    Ok(Some(Tunnel { source, file, peer, mark, unmarked, sink, name, json, quiet }))
}

/// Returns an error if flags contradict each other or the WireGuard file.
fn check(options: &Options) -> Result<(), Failure> {
    let refuse = |text: &str| Err(Failure::misuse(text));
    match (&options.wg, &options.write) {
        (Some(_), _) if options.tun.is_some() => {
            refuse("--wg cannot be combined with --tun: remove one of the two")
        }
        (Some(_), _) if options.to.is_some() && options.key.is_none() => refuse(
            "--wg cannot be combined with --to, because the server is the Endpoint in the \
             WireGuard file: remove --to, or add --key if --to is a far end",
        ),
        (Some(_), _) if options.key.is_some() && options.to.is_none() => refuse(
            "--key: --to is missing: give the address of the far end in front of the WireGuard \
             server",
        ),
        (None, Some(_)) => refuse("--write needs a WireGuard file to copy: add --wg FILE"),
        (None, _) if options.peer.is_some() => {
            refuse("--peer needs a WireGuard file: add --wg FILE")
        }
        (_, None) if options.overwrite => {
            refuse("--overwrite needs the name of the file to write: add --write FILE")
        }
        _ => Ok(()),
    }
}

/// Returns the target of the changed WireGuard file; [`Sink::None`] without `--write`. If the
/// target is standard output, nothing else is printed there.
fn sink(source: &Path, options: &mut Options) -> Result<Sink, Failure> {
    match &options.write {
        None => Ok(Sink::None),
        Some(target) if target == Path::new("-") => {
            if options.json {
                return Err(Failure::misuse(
                    "the WireGuard file (--write -) and the events (--json) cannot both go to \
                     standard output: give --write a file name",
                ));
            }
            options.quiet = true;
            Ok(Sink::Stdout)
        }
        Some(target) => {
            let begun = Write::begin(target, source, options.overwrite);
            begun.map(Sink::File).map_err(|error| Failure::misuse(format!("--write: {error}")))
        }
    }
}

fn listen(
    given: Option<SocketAddr>,
    file: &WgQuick,
    server: &Target,
    source: &Path,
) -> Result<SocketAddr, Failure> {
    let own = file.listen_port();
    let listen = match given {
        Some(listen) => listen,
        None => free_loopback(server.port, own).map_err(Failure::trouble)?,
    };
    if own == Some(listen.port()) {
        return Err(Failure::misuse(format!(
            "--listen {listen}: the tunnel itself uses port {} (ListenPort in {}): choose \
             another port",
            listen.port(),
            source.display()
        )));
    }
    if server.literal() == Some(listen) {
        return Err(Failure::misuse(format!(
            "{}: the Endpoint {listen} is the splitter's own address, not the address of the \
             server. If --write wrote this file, give --wg the original file",
            source.display()
        )));
    }
    Ok(listen)
}

/// Returns the firewall mark that keeps the splitter's packets out of the tunnel. Also returns
/// whether the splitter cannot set this mark, because it lacks CAP_NET_ADMIN. A mark that a flag
/// requests counts as settable.
fn mark(given: Option<Mark>, file: &WgQuick) -> (Option<u32>, bool) {
    let full = file.is_full_tunnel().then_some(FULL_TUNNEL_MARK);
    match given {
        Some(Mark(mark)) => (Some(mark), false),
        None => {
            let mark = file.fwmark().or(full);
            (mark, mark.is_some_and(|mark| !may_mark(mark)))
        }
    }
}
