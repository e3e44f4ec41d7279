//! Output of the changed WireGuard file: to a file, to standard output, or only the changed lines.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anabranch_comps::{Event, Snapshot};
use anabranch_multipath::Time;
use anabranch_splitter::split::{ActiveSettings, FarEndNews, Screen};
use anabranch_splitter::wg_quick::{
    ChangedFile, Changes, Peer, WgQuick, Write, interface_name, invocation,
};
use serde_json::json;
use signal_hook::consts::SIGTERM;
use signal_hook::low_level::raise;

use crate::failure::Failure;

/// Destination of the whole changed WireGuard file.
pub(super) enum Sink {
    None,
    Stdout,
    File(Write),
}

/// A WireGuard file that was read and not changed yet, and the splitter's settings that came from
/// it.
pub(in crate::split) struct Tunnel {
    pub(super) source: PathBuf,
    pub(super) file: WgQuick,
    pub(super) peer: Peer,
    /// Firewall mark of the packets of WireGuard and of the splitter; `None` without a mark.
    pub(super) mark: Option<u32>,
    /// Whether the splitter's packets lack the firewall mark, because the process lacks
    /// CAP_NET_ADMIN.
    pub(super) unmarked: bool,
    pub(super) sink: Sink,
    /// Name that the user has given to this running program (`--name`); `None` if there is none.
    pub(super) name: Option<String>,
    pub(super) json: bool,
    pub(super) quiet: bool,
}

impl Tunnel {
    /// Shows the changes to the WireGuard file that the splitter needs; `about` has its local
    /// address. Writes the changed file if the user has given `--write`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(in crate::split) fn show(self, about: &ActiveSettings) -> Result<(), Failure> {
        let changed = self.changed(about);
        let written = match self.sink {
            Sink::Stdout => {
                print(&changed.text)?;
                return Ok(());
            }
            Sink::None => None,
            Sink::File(write) => {
                let target = write.target().to_owned();
                write.finish(&changed.text).map_err(Failure::misuse)?;
                Some(target)
            }
        };
        let summary = Summary {
            source: &self.source,
            program: if self.file.is_obfuscated() { "awg-quick" } else { "wg-quick" },
            peer: &self.peer,
            changed: &changed,
            written: &written,
        };
        match (self.json, self.quiet) {
            (true, _) => {
                let mut object = summary.json();
                if let Some(name) = self.name {
                    object["name"] = json!(name);
                }
                print(&format!("{object}\n"))
            }
            (false, true) => Ok(()),
            (false, false) => print(&summary.text()),
        }
    }

    /// For `--check`: shows the changes and writes the file as [`Tunnel::show`] does. Also prints
    /// a warning if the splitter cannot set the firewall mark. Returns whether the file was
    /// written to standard output.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(in crate::split) fn check(self, about: &ActiveSettings) -> Result<bool, Failure> {
        let alone = matches!(self.sink, Sink::Stdout);
        if let Some(warning) = self.warning() {
            // A failure means that standard error is closed, so nobody reads the line.
            let _ = writeln!(io::stderr(), "warning: {warning}");
        }
        self.show(about).map(|()| alone)
    }

    fn changed(&self, about: &ActiveSettings) -> ChangedFile {
        // A smaller MTU in the file is kept, because there is a reason for it on the server's
        // side.
        let mtu = about.tunnel_mtu.map(|mtu| mtu.saturating_sub(self.file.padding()));
        let mtu = mtu.map(|mtu| self.file.mtu().map_or(mtu, |own| own.min(mtu)));
        let marked = self.file.is_full_tunnel() || self.file.fwmark().is_some();
        let fwmark = self.mark.filter(|_| marked);
        let endpoint = about.listen.expect("--wg and --tun exclude each other");
        self.file.changed(&self.peer, &Changes { endpoint, mtu, fwmark })
    }

    fn warning(&self) -> Option<String> {
        let mark = self.mark.filter(|_| self.unmarked)?;
        Some(format!(
            "the splitter cannot set the firewall mark {mark} on its packets, because it lacks \
             CAP_NET_ADMIN. If a firewall (a kill switch) blocks packets without the mark, run \
             the splitter as root"
        ))
    }
}

/// Changed lines of the WireGuard file, as text or, with `--json`, as JSON. They contain no key of
/// the file except the peer's public key.
struct Summary<'t> {
    source: &'t Path,
    /// Program that starts the tunnel: `wg-quick`, or `awg-quick` for AmneziaWG.
    program: &'static str,
    peer: &'t Peer,
    changed: &'t ChangedFile,
    written: &'t Option<PathBuf>,
}

impl Summary<'_> {
    fn text(&self) -> String {
        let source = self.source.display();
        let endpoint = self.peer.endpoint.as_ref().map_or(String::new(), |end| format!(" ({end})"));
        let head = match self.written {
            Some(target) => {
                format!("wrote {}: {source} with these lines changed", target.display())
            }
            None => format!(
                "{source}, peer {}{endpoint}: change these lines, or add --write FILE to get a \
                 changed copy",
                self.peer.number
            ),
        };
        let mut lines = vec![head];
        let mut section = "";
        for change in &self.changed.changes {
            if change.section != section {
                section = change.section;
                lines.push(format!("  {section}"));
            }
            lines.extend(change.before.iter().map(|before| format!("- {} = {before}", change.key)));
            lines.push(format!("+ {} = {}", change.key, change.after));
        }
        lines.extend(self.written.as_deref().map(|target| next_step(self.program, target)));
        lines.join("\n") + "\n"
    }

    fn json(&self) -> serde_json::Value {
        let changes = self.changed.changes.iter().map(|change| {
            json!({
                "section": change.section.trim_matches(['[', ']']),
                "key": change.key,
                "before": change.before,
                "after": change.after,
            })
        });
        json!({
            "event": "wireguard",
            "time": 0.0,
            "file": self.source.display().to_string(),
            "peer": self.peer.public_key,
            "endpoint": self.peer.endpoint.as_ref().map(ToString::to_string),
            "changes": changes.collect::<Vec<_>>(),
            "written": self.written.as_ref().map(|path| path.display().to_string()),
        })
    }
}

fn next_step(program: &str, target: &Path) -> String {
    match interface_name(target) {
        Some(_) => format!("start the tunnel: {program} up {}", invocation(target)),
        None => {
            format!(
                "rename the file before you start the tunnel: {program} needs a name like \
                 wg0.conf, with at most 15 letters before the dot"
            )
        }
    }
}

/// Prints `text`. If the reader closes the pipe early, that is not a failure.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::trouble(error)),
        _ => Ok(()),
    }
}

/// A screen (output for the user) that shows the changed WireGuard file before any other output.
/// It waits until the splitter listens, because only then the local port is certain.
pub(in crate::split) struct WgFileScreen<'s> {
    inner: &'s mut dyn Screen,
    tunnel: Option<Tunnel>,
    failure: Option<Failure>,
}

impl<'s> WgFileScreen<'s> {
    pub(in crate::split) fn new(inner: &'s mut dyn Screen, tunnel: Tunnel) -> WgFileScreen<'s> {
        WgFileScreen { inner, tunnel: Some(tunnel), failure: None }
    }

    /// Returns an error if the changed file could not be written. The caller must check this after
    /// the splitter has ended. Such an error stops the splitter by SIGTERM, which without this
    /// check would look like a success.
    pub(in crate::split) fn failure(self) -> Result<(), Failure> {
        self.failure.map_or(Ok(()), Err)
    }
}

impl Screen for WgFileScreen<'_> {
    fn listening(&mut self, about: &ActiveSettings) {
        let tunnel = self.tunnel.take();
        let warning = tunnel.as_ref().and_then(Tunnel::warning);
        self.failure = tunnel.and_then(|tunnel| tunnel.show(about).err());
        if self.failure.is_some() {
            // `raise` only fails for a signal that does not exist.
            let _ = raise(SIGTERM);
            return;
        }
        self.inner.listening(about);
        warning.into_iter().for_each(|warning| self.inner.warn(&warning));
    }

    fn event(&mut self, now: Time, event: &Event) {
        self.inner.event(now, event);
    }

    fn snapshot(&mut self, now: Time, snapshot: &Snapshot) {
        self.inner.snapshot(now, snapshot);
    }

    fn finish(&mut self, now: Time, snapshot: &Snapshot) {
        if self.failure.is_none() {
            self.inner.finish(now, snapshot);
        }
    }

    fn reloaded(&mut self, now: Time, about: &ActiveSettings) {
        self.inner.reloaded(now, about);
    }

    fn far_end(&mut self, now: Time, news: &FarEndNews) {
        self.inner.far_end(now, news);
    }

    fn warn(&mut self, text: &str) {
        self.inner.warn(text);
    }

    fn interval(&self) -> std::time::Duration {
        self.inner.interval()
    }
}
