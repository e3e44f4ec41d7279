//! `--wg`: the server, the port and the mark out of a wg-quick file, and the changed file.

mod show;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anabranch_drive::split::{Target, free_loopback, may_mark};
use anabranch_drive::wg_quick::{FULL_TUNNEL_MARK, PeerChoice, WgQuick, Write};

use super::options::Options;
use super::values::Mark;
use crate::failure::Failure;
use show::Sink;
pub(super) use show::{Announcing, Tunnel};

/// Where to read a WireGuard tunnel from, and where to write it to.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct WgArgs {
    /// Split the tunnel of this wg-quick file: its Endpoint is the server, and what has to change in it
    /// is shown
    ///
    /// Listens on 127.0.0.1, at the Endpoint's port or a free one, unless --listen says otherwise.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["to", "tun"], help_heading = "WireGuard")]
    wg: Option<PathBuf>,

    /// Write the changed file, keys included, for its owner alone to read; - prints it
    #[arg(long, value_name = "FILE", requires = "wg", help_heading = "WireGuard")]
    write: Option<PathBuf>,

    /// Let --write replace a file
    #[arg(long, requires = "write", help_heading = "WireGuard")]
    overwrite: bool,

    /// The peer to split towards, by public key or place in the file, where several have an Endpoint
    #[arg(long, value_name = "KEY|N", requires = "wg", help_heading = "WireGuard")]
    peer: Option<PeerChoice>,
}

impl WgArgs {
    /// Reads the file, if one is named, and puts what it says into `options` where they say nothing.
    ///
    /// # Errors
    /// Misuse: the file, or where to write it, is not as it must be. Nothing is left behind.
    pub(super) fn begin(&self, options: &mut Options) -> Result<Option<Tunnel>, Failure> {
        let Some(source) = &self.wg else { return Ok(None) };
        let file = WgQuick::read(source).map_err(Failure::misuse)?;
        let peer = file.peer(self.peer.as_ref()).map_err(Failure::misuse)?.clone();
        let server = peer.endpoint.clone().expect("WgQuick::peer gives peers with an endpoint");
        let listen = listen(options.listen, &file, &server, source)?;
        options.listen = Some(listen);
        options.to = Some(server);
        let (mark, unmarked) = mark(options.fwmark, &file);
        options.fwmark = mark.filter(|_| !unmarked).map(Mark);
        let sink = self.sink(source, options)?;
        let source = source.clone();
        Ok(Some(Tunnel {
            source,
            file,
            peer,
            mark,
            unmarked,
            sink,
            json: options.json,
            quiet: options.quiet,
        }))
    }

    /// Where the whole file goes. Standard output is then kept free of all else.
    fn sink(&self, source: &Path, options: &mut Options) -> Result<Sink, Failure> {
        match &self.write {
            None => Ok(Sink::None),
            Some(target) if target == Path::new("-") => {
                if options.json {
                    return Err(Failure::misuse(
                        "--write -: the file and --json would share standard output",
                    ));
                }
                options.quiet = true;
                Ok(Sink::Stdout)
            }
            Some(target) => {
                let begun = Write::begin(target, source, self.overwrite);
                begun.map(Sink::File).map_err(|error| Failure::misuse(format!("--write: {error}")))
            }
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
            "--listen {listen}: the tunnel itself takes port {} (ListenPort in {}); choose another",
            listen.port(),
            source.display()
        )));
    }
    if server.literal() == Some(listen) {
        return Err(Failure::misuse(format!(
            "{}: its Endpoint {listen} is where the splitter itself would listen; if --write wrote \
             this file, name the one that it was made from",
            source.display()
        )));
    }
    Ok(listen)
}

/// The mark of the tunnel's packets and of ours that take their place, and whether ours have to go without
/// it: a mark that nobody asked for by flag is no reason to need root.
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
