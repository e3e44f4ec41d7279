//! The transport webtunnel, set up as its authors run it: nginx receives the TLS connections, and
//! forwards requests for one URL path to webtunnel's server.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

use anabranch_emulator::GroupProcess;

use super::super::Programs;
use super::super::certificates::Certificates;
use super::super::stage::command;
use super::test_network::{PORT, TestNetwork};

/// webtunnel's client and server programs, each with its source.
pub(super) const PROGRAMS: [(&str, &str); 2] = [
    ("webtunnel-client", "tests/interop/setup --area pt"),
    ("webtunnel-server", "tests/interop/setup --area pt"),
];
/// The program nginx, and the package that contains it.
pub(super) const NGINX: (&str, &str) = ("nginx", "package nginx-light");
/// Address on which webtunnel's server receives the requests that nginx forwards.
pub(super) const BEHIND: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 15_000);
/// Secret URL path; nginx forwards the requests for this path to webtunnel's server.
const SECRET: &str = "/8d1Tn0Yw2eRfKq7uVbXcJ5hLs";
/// The program `env`, which sets `SSL_CERT_FILE`, the file of certificates that webtunnel's client
/// trusts. The program is needed because tor cannot set the environment of a transport.
const ENV: &str = "/usr/bin/env";

/// A running nginx that receives the connections for webtunnel. It is stopped on drop.
pub(super) struct Front<'a> {
    _nginx: GroupProcess<'a>,
    pub(super) tunnel: Tunnel,
}

/// Parameters of webtunnel for its client and its server.
pub(super) struct Tunnel {
    /// URL that webtunnel's client requests, with the secret path.
    pub(super) url: String,
    /// Path of the file with the certificates that webtunnel's client trusts. The file is in the
    /// in-memory `/run` that only the started programs see.
    pub(super) trust: PathBuf,
}

impl<'a> Front<'a> {
    /// Starts nginx at the address `ip`, and waits until it listens.
    ///
    /// # Errors
    /// nginx ends, or takes too long to listen.
    pub(super) fn start(
        test_network: &'a TestNetwork,
        programs: &Programs,
        ip: Ipv4Addr,
    ) -> io::Result<Front<'a>> {
        let (stage, url) = (&test_network.stage, format!("https://{ip}:{PORT}{SECRET}"));
        let made = Certificates::new(&[ip.to_string()]).map_err(io::Error::other)?;
        let key = stage.processes.write("webtunnel.key", made.key.as_bytes())?;
        let trust = stage.processes.write("webtunnel.pem", made.chains[0].as_bytes())?;
        let folder = stage.processes.among_files(|files| {
            let folder = files.join("nginx");
            std::fs::create_dir_all(&folder)?;
            Ok(folder)
        })?;
        let config = config(ip, [&folder, &key, &trust]);
        let config = stage.processes.write("nginx.conf", config.as_bytes())?;
        let mut nginx = command(programs, NGINX.0);
        nginx.args(["-e", "/dev/null", "-p"]).arg(&folder).arg("-c").arg(config);
        let mut nginx = stage.processes.start(stage.server(), &mut nginx)?;
        stage.wait_listens("nginx", &mut nginx, PORT)?;
        Ok(Front { _nginx: nginx, tunnel: Tunnel { url, trust } })
    }
}

impl Tunnel {
    /// Returns the command in `torrc` that starts webtunnel's client, which trusts nginx's
    /// certificate.
    pub(super) fn client(&self, programs: &Programs) -> String {
        let program = programs.path(PROGRAMS[0].0);
        format!("{ENV} SSL_CERT_FILE={} {}", self.trust.display(), program.display())
    }

    /// Returns the command in `torrc` that starts webtunnel's server.
    pub(super) fn server(&self, programs: &Programs) -> String {
        programs.path(PROGRAMS[1].0).display().to_string()
    }

    /// Returns webtunnel's option `url`, which is the same for client and server.
    pub(super) fn option(&self) -> String {
        format!("url={}", self.url)
    }
}

/// Returns a configuration for nginx as a single process that keeps all of its files in `folder`.
fn config(ip: Ipv4Addr, [folder, key, chain]: [&Path; 3]) -> String {
    let [folder, key, chain] = [folder, key, chain].map(|path| path.display().to_string());
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let folders = kinds.map(|kind| format!("{kind}_temp_path {folder}/{kind};\n")).concat();
    format!(
        "daemon off;\nmaster_process off;\npid {folder}/pid;\nevents {{}}\nhttp {{\n{folders}\
         access_log off;\nserver {{\nlisten {ip}:{PORT} ssl;\nssl_certificate {chain};\n\
         ssl_certificate_key {key};\nlocation = {SECRET} {{\nproxy_pass http://{BEHIND};\n\
         proxy_http_version 1.1;\nproxy_set_header Upgrade $http_upgrade;\n\
         proxy_set_header Connection upgrade;\nproxy_buffering off;\nproxy_read_timeout 1h;\n\
         proxy_send_timeout 1h;\n}}\n}}\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nginx_hands_on_one_path_and_keeps_its_files_together() {
        let paths = ["/run/n", "/run/k.pem", "/run/c.pem"].map(Path::new);
        let config = config(Ipv4Addr::new(10, 100, 0, 1), paths);
        assert!(config.contains("listen 10.100.0.1:443 ssl;"), "{config}");
        assert_eq!(config.matches("_temp_path /run/n/").count(), 5);
        assert_eq!(config.matches('{').count(), config.matches('}').count());
        assert!(config.contains(&format!("location = {SECRET} {{")));
    }
}
