//! Bridges of a client, as the user configures them, and the programs that provide the bridges'
//! transports.

use std::path::Path;

use anabranch_multipath::schedule::Spec;
use anabranch_router::onion::bridge_routes::{BridgeRoutes, Transports};
use anabranch_router::pt::{
    Bridge, BridgeLine, Plugin, PluginLine, PluginPlace, PluginSettings, SCHEDULE, TRANSPORT,
    TransportThread,
};

use crate::failure::Failure;

/// Bridge lines and transport programs from the command line, before any program is started.
pub(super) struct Bridges {
    lines: Vec<BridgeLine>,
    plugins: Vec<PluginLine>,
}

/// Bridges of a client, and the running programs that provide the bridges' pluggable transports.
pub(super) struct BridgeEntrance {
    pub(super) routes: BridgeRoutes,
    /// The running external transport programs, and the thread of the built-in transport, if it is
    /// in use. All of them end when this value is dropped.
    _running: (Vec<Plugin>, Option<TransportThread>),
}

impl Bridges {
    /// Parses the lines of `--bridge` and `--pt`. Returns `None` if there are no lines.
    ///
    /// # Errors
    /// A line is invalid, or no program provides a bridge's transport.
    pub(super) fn read(bridges: &[String], pts: &[String]) -> Result<Option<Bridges>, Failure> {
        if bridges.is_empty() && !pts.is_empty() {
            return Err(Failure::misuse(
                "--pt needs --bridge: add the line of a bridge that uses this transport, or \
                 remove --pt",
            ));
        }
        let wrong = |option: &str, line: &str, why: &dyn std::fmt::Display| {
            Failure::misuse(format!("{option} '{}': {why}", line.escape_debug()))
        };
        let plugins =
            pts.iter().map(|line| PluginLine::parse(line).map_err(|why| wrong("--pt", line, &why)));
        let plugins = plugins.collect::<Result<Vec<_>, _>>()?;
        let parse = |line: &String| {
            let parsed = BridgeLine::parse(line).map_err(|why| wrong("--bridge", line, &why))?;
            match check(&parsed, &plugins) {
                Ok(()) => Ok(parsed),
                Err(why) => Err(wrong("--bridge", line, &why)),
            }
        };
        let lines = bridges.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        let bridges = Bridges { lines, plugins };
        let transports = Transports::new().map_err(Failure::trouble)?;
        BridgeRoutes::new(&bridges.lines, transports)
            .map_err(|why| Failure::misuse(format!("--bridge: {why}")))?;
        Ok((!bridges.lines.is_empty()).then_some(bridges))
    }

    /// Starts the programs for the transports that bridges use. The programs may write to folders
    /// below `data`.
    ///
    /// # Errors
    /// A program cannot be started.
    pub(super) fn start(self, data: &Path) -> Result<BridgeEntrance, Failure> {
        let transports = Transports::new().map_err(Failure::trouble)?;
        let is_used =
            |name: &String| self.lines.iter().any(|line| line.transport.as_deref() == Some(name));
        let mut programs = Vec::new();
        for plugin in &self.plugins {
            let used: Vec<String> =
                plugin.transports.iter().filter(|name| is_used(name)).cloned().collect();
            match &plugin.place {
                PluginPlace::Program(_) if used.is_empty() => {}
                PluginPlace::Program(program) => {
                    let (program, data) = (program.clone(), data.to_owned());
                    let settings = PluginSettings { program, transports: used, data, server: None };
                    let started = Plugin::start(settings, transports.clone());
                    programs.push(started.map_err(|why| Failure::misuse(format!("--pt: {why}")))?);
                }
                PluginPlace::Proxy(_, at) => {
                    used.iter().for_each(|name| transports.ready(name, *at))
                }
            }
        }
        let wants_ours = is_used(&TRANSPORT.to_owned()) && !has(&self.plugins, TRANSPORT);
        let ours = wants_ours.then(|| TransportThread::client(schedule(), transports.clone()));
        let ours = ours.transpose().map_err(Failure::trouble)?;
        let routes = BridgeRoutes::new(&self.lines, transports).map_err(Failure::misuse)?;
        Ok(BridgeEntrance { routes, _running: (programs, ours) })
    }
}

/// Checks that a program provides the transport of the bridge line `line`, and that the line is
/// valid for that transport.
fn check(line: &BridgeLine, plugins: &[PluginLine]) -> Result<(), String> {
    let Some(name) = &line.transport else { return Ok(()) };
    if has(plugins, name) {
        return Ok(());
    }
    if name == TRANSPORT {
        return Bridge::of(line.address, &line.args).map(drop).map_err(|why| why.to_string());
    }
    Err(format!("no program provides transport {name}: add --pt '{name} exec PROGRAM'"))
}

fn has(plugins: &[PluginLine], name: &str) -> bool {
    plugins.iter().any(|plugin| plugin.transports.iter().any(|one| one == name))
}

fn schedule() -> Spec {
    Spec::over_windows(SCHEDULE).expect("the default schedule exists")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789ABCDEF0123456789ABCDEF01234567";

    fn read(bridges: &[&str], pts: &[&str]) -> Result<Option<Bridges>, String> {
        let owned = |all: &[&str]| all.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        Bridges::read(&owned(bridges), &owned(pts)).map_err(|failure| failure.to_string())
    }

    #[test]
    fn every_mistake_is_one_line_that_names_the_option() {
        let wrong = |bridges: &[&str], pts: &[&str]| read(bridges, pts).map(drop).unwrap_err();
        let obfs4 = format!("obfs4 192.0.2.1:443 {ID} cert=x");
        let cases = [
            (wrong(&[], &["obfs4 exec x"]), "--pt needs --bridge: "),
            (wrong(&["192.0.2.1"], &[]), "--bridge '192.0.2.1': '192.0.2.1' is not ADDRESS:PORT"),
            (wrong(&["a\nb"], &[]), "--bridge 'a\\nb': 'b' is not ADDRESS:PORT"),
            (
                wrong(&[&obfs4], &[]),
                &*format!("--bridge '{obfs4}': no program provides transport obfs4"),
            ),
            (wrong(&[&obfs4], &["obfs4 run x"]), "--pt 'obfs4 run x': 'run' is not a way"),
            (wrong(&["anabranch 192.0.2.1:443 key=x"], &[]), "--bridge 'anabranch 192.0.2.1:443 k"),
            (wrong(&["192.0.2.1:1", "192.0.2.1:1"], &[]), "--bridge: two bridges have the address"),
        ];
        for (message, wanted) in cases {
            assert!(message.starts_with(wanted) && !message.contains('\n'), "{message}");
        }
        assert!(read(&[&obfs4], &["obfs3,obfs4 exec x"]).unwrap().is_some());
        assert!(read(&[], &[]).unwrap().is_none());
    }

    #[test]
    fn who_runs_already_is_ready_at_once_and_ours_needs_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let key = "A".repeat(42) + "E";
        let ours = format!("anabranch 192.0.2.2:443 key={key}");
        let bridges = read(&["x 192.0.2.1:443", &ours], &["x,y socks5 127.0.0.1:9"]);
        let entrance = bridges.unwrap().unwrap().start(folder.path()).unwrap();
        let transports = entrance.routes.transports();
        assert_eq!(transports.at("x"), "127.0.0.1:9".parse().ok());
        assert_eq!(transports.at("y"), None);
        assert!(transports.at(TRANSPORT).is_some_and(|at| at.ip().is_loopback()));
        let lost = read(&["x 192.0.2.1:443"], &["x exec /no/such/program"]).unwrap().unwrap();
        let message = lost.start(folder.path()).map(drop).unwrap_err().to_string();
        assert!(message.starts_with("--pt: '/no/such/program' cannot be started: "), "{message}");
    }
}
