//! Lines for a log: a line for each event, a line every five seconds, and a table at the end.

use std::io;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_pages::figures::scaled;
use anabranch_splitter::far_end::{Inner, secret_text};
use anabranch_splitter::merge::{ActiveSettings, News, Screen, Snapshot};

use super::model::{Model, Row, from};
use super::{is_warning, words};
use crate::screen::journal::{Journal, Priority};
use crate::screen::lines::Lines;
use crate::text::table;

/// A screen (output for the user) that prints lines.
pub(super) struct PlainScreen {
    /// Output of events and counters; `None` if only warnings are wanted.
    out: Option<Lines>,
    warnings: Lines,
    journal: Journal,
    /// Whether the counters are printed every five seconds.
    counters: bool,
    model: Model,
}

impl PlainScreen {
    /// Creates a screen that prints to stdout and stderr for the running program called `name`.
    /// With `quiet` it prints only warnings, to stderr. The systemd journal gets counters only
    /// with `verbose`.
    ///
    /// # Errors
    /// The writer threads cannot be started.
    pub(super) fn new(quiet: bool, verbose: bool, name: Option<&str>) -> io::Result<PlainScreen> {
        let out = (!quiet).then(Lines::stdout).transpose()?;
        let journal = Journal::of_stdout().of_run(name);
        let (counters, model) = (verbose || !journal.is_there(), Model::default());
        Ok(PlainScreen { out, warnings: Lines::stderr()?, journal, counters, model })
    }

    /// Waits for a limited time until all lines are written. Returns whether all lines are
    /// written.
    pub(super) fn flush(&self) -> bool {
        self.out.as_ref().is_none_or(Lines::flush)
    }

    fn print(&self, text: &str) {
        if let Some(out) = &self.out {
            out.print(&self.journal.line(Priority::Information, text), lost);
        }
    }
}

fn lost(lines: u64) -> String {
    format!("{lines} lines dropped: output was blocked")
}

/// Describes the settings in force, after SIGHUP made the far end read them again.
pub(super) fn reloaded(of: &ActiveSettings) -> String {
    format!("settings read again: {}", about(of).join("; "))
}

/// Describes the addresses at which clients can connect.
pub(super) fn about(about: &ActiveSettings) -> Vec<String> {
    let servers = about.servers.iter().map(|(name, at)| match name.is_empty() {
        true => at.to_string(),
        false => format!("{name}={at}"),
    });
    let interface = about.tun.iter();
    let interface = interface.map(|(name, Inner { four, six })| format!("{name} ({four}, {six})"));
    let servers = servers.chain(interface).collect::<Vec<_>>().join(", ");
    let ActiveSettings { listen, seed, .. } = about;
    let tcp = about.listen_tcp.map(|tcp| format!(" and {tcp} (TCP)")).unwrap_or_default();
    let tls = about.listen_tls.as_ref();
    let tls_at = tls.map(|(at, _)| format!(" and {at} (TLS)")).unwrap_or_default();
    let dealing = about.dealing();
    let public = secret_text(&about.public);
    let mut lines = vec![
        format!("listening on {listen}{tcp}{tls_at} for {servers}: {dealing}, seed {seed}"),
        format!("public key {public}; accepts the clients {}", about.clients.join(", ")),
    ];
    lines.extend(tls.map(|(_, sum)| format!("TLS certificate: --tls-fingerprint {sum}")));
    let web = about.web_server.as_ref();
    lines.extend(web.map(|web| {
        format!(
            "TCP and TLS connections that are not from a splitter are forwarded to the web server \
             {web}"
        )
    }));
    lines
}

impl Screen for PlainScreen {
    fn listening(&mut self, about: &ActiveSettings) {
        self::about(about).iter().for_each(|line| self.print(line));
    }

    fn reloaded(&mut self, now: Time, about: &ActiveSettings) {
        self.print(&format!("{:9.3}  {}", now.secs_f64(), reloaded(about)));
    }

    fn news(&mut self, now: Time, news: &News) {
        let words = words(news);
        if is_warning(news) {
            self.warn(&words);
        } else {
            self.print(&format!("{:9.3}  {words}", now.secs_f64()));
        }
    }

    fn snapshot(&mut self, now: Time, snapshot: &Snapshot) {
        self.model.snapshot(now, snapshot);
        if self.counters && !self.model.rows.is_empty() {
            let rows: Vec<_> = self.model.rows.iter().map(brief).collect();
            self.print(&format!("{:9.3}  {}", now.secs_f64(), rows.join("; ")));
        }
    }

    fn finish(&mut self, now: Time, snapshot: &Snapshot) {
        self.model.snapshot(now, snapshot);
        let Some(out) = &self.out else { return };
        let mut text = format!("ended after {:.1} s\n", now.secs_f64()) + &summary(snapshot);
        text.extend(self.model.losses().map(|losses| format!("\n{losses}")));
        text.extend(self.model.decoys().map(|decoys| format!("\n{decoys}")));
        out.last(&self.journal.line(Priority::Information, &text), lost);
    }

    fn warn(&mut self, text: &str) {
        let lost = |lines| format!("warning: {}", lost(lines));
        self.warnings
            .print(&self.journal.line(Priority::Warning, &format!("warning: {text}")), lost);
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(5)
    }
}

fn brief(row: &Row) -> String {
    let state = if row.counters.up { "" } else { " (down)" };
    let [inward, outward] = row.rates.map(|rate| scaled(rate, "bit/s"));
    format!("{} {}{state}: in {inward}, out {outward}", row.client, row.path)
}

/// Returns a table of the traffic of each client's paths.
fn summary(snapshot: &Snapshot) -> String {
    const HEAD: [&str; 7] =
        ["client", "path", "from", "packets in", "bytes in", "packets out", "bytes out"];
    let rows = snapshot.clients.iter().flat_map(|client| {
        client.paths.iter().enumerate().map(|(place, path)| {
            vec![
                client.name.clone(),
                place.to_string(),
                from(path),
                path.inward.datagrams.to_string(),
                path.inward.bytes.to_string(),
                path.outward.datagrams.to_string(),
                path.outward.bytes.to_string(),
            ]
        })
    });
    table(&std::iter::once(HEAD.map(str::to_owned).to_vec()).chain(rows).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::snapshot;
    use super::*;
    use crate::screen::lines::tests::printed;

    #[test]
    fn news_rates_and_a_summary_are_told_in_lines() {
        let text = printed(|out| {
            let (warnings, journal) = (Lines::stderr().unwrap(), Journal::NONE);
            let model = Model::default();
            let (out, counters) = (Some(out), true);
            let mut screen = PlainScreen { out, warnings, journal, counters, model };
            screen.news(Time::from_millis(1500), &News::Ended { client: "home".into() });
            screen.snapshot(Time::from_secs(1), &snapshot([0, 0]));
            screen.snapshot(Time::from_secs(2), &snapshot([1000, 0]));
            screen.finish(Time::from_secs(4), &snapshot([1000, 0]));
        });
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "    1.500  client 'home' disconnected");
        assert!(lines[2].contains("home 0: in 8.0 kbit/s, out 0 bit/s; home 1: "), "{text}");
        assert!(lines[4].starts_with("client  path") && lines.len() == 8, "{text}");
    }
}
