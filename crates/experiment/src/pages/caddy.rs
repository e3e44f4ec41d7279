//! The web server of page loads: an unmodified Caddy, with the files of the sites.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::super::Programs;
use super::super::certificates::Certificates;
use super::super::stage::{Stage, command, wait_for};
use super::super::tunnel;
use super::Site;
use anabranch_emulator::GroupProcess;

/// The program Caddy, with the package that contains it.
pub(super) const NEEDS: &[(&str, &str)] = &[("caddy", "package caddy")];

/// Starts Caddy on the server's host, with an address in the tunnel for each site. Returns the
/// process, and the hash of the certificates' key, which makes a browser trust the certificates.
///
/// # Errors
/// Caddy cannot be started, or does not listen.
pub(super) fn serve<'a>(
    stage: &'a Stage,
    programs: &Programs,
    (web, sites): (&Path, &[Site]),
) -> io::Result<(GroupProcess<'a>, String)> {
    tunnel::add_addresses(stage, sites.iter().map(Site::address))?;
    let hosts: Vec<String> = sites.iter().map(Site::host).collect();
    let made = Certificates::new(&hosts).map_err(io::Error::other)?;
    let key = stage.processes.write("key.pem", made.key.as_bytes())?;
    let mut files = Vec::new();
    for (number, chain) in made.chains.iter().enumerate() {
        let chain = stage.processes.write(&format!("{number}.pem"), chain.as_bytes())?;
        files.push(json!({"certificate": chain, "key": key}));
    }
    stage.processes.among_files(|run| {
        std::fs::create_dir(run.join("web"))?;
        let mut all = hosts.iter().zip(sites);
        all.try_for_each(|(host, site)| symlink(web.join(&site.name), run.join("web").join(host)))
    })?;
    let config = config(sites, &files).to_string();
    let config = stage.processes.write("caddy.json", config.as_bytes())?;
    let mut caddy: Command = command(programs, "caddy");
    caddy.args(["run", "--config"]).arg(config).env("HOME", "/run");
    caddy.env("XDG_DATA_HOME", "/run/caddy").env("XDG_CONFIG_HOME", "/run/caddy");
    let mut caddy = stage.processes.start(stage.server(), &mut caddy)?;
    stage.wait_bound("caddy", &mut caddy, 443)?;
    // Caddy opens its addresses in order. Once the last one is open, all are open.
    let last = SocketAddr::from((tunnel::SERVER, 443));
    wait_for("caddy to listen at all addresses", || {
        stage.server().run(|| Ok(TcpStream::connect(last).is_ok()))
    })?;
    Ok((caddy, made.pin))
}

/// Returns Caddy's configuration. All sites are in one directory; the requested host name selects
/// the site. Text files are sent compressed, as on the public web. Each address has separate
/// sockets, because a shared UDP socket would answer from the tunnel's first address.
fn config(sites: &[Site], certificates: &[Value]) -> Value {
    let own = sites.iter().map(Site::address).chain([tunnel::SERVER]);
    let listen: Vec<String> = own.map(|address| format!("{address}:443")).collect();
    json!({
        "admin": {"disabled": true},
        "storage": {"module": "file_system", "root": "/run/caddy"},
        "logging": {"logs": {"default": {"level": "ERROR"}}},
        "apps": {
            "http": {"servers": {"web": {
                "listen": listen,
                "protocols": ["h1", "h2", "h3"],
                "automatic_https": {"disable": true},
                "tls_connection_policies": [{}],
                "routes": [{"handle": [
                    {"handler": "encode", "encodings": {"gzip": {}}, "prefer": ["gzip"]},
                    {"handler": "file_server", "root": "/run/web/{http.request.host}"},
                ]}],
            }}},
            "tls": {"certificates": {"load_files": certificates}},
        },
    })
}
