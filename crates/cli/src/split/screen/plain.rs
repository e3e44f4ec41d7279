//! Lines for a log: a line for each event, a line every five seconds, and a table at the end.

use std::io;
use std::time::Duration;

use anabranch_comps::{Event, Snapshot};
use anabranch_multipath::Time;
use anabranch_pages::figures::scaled;
use anabranch_splitter::split::{ActiveSettings, FarEndNews, Screen};

use super::advice;
use super::model::{Model, Row, losses, settings};
use super::session_table::is_warning;
use crate::screen::folded;
use crate::screen::journal::{Journal, Priority};
use crate::screen::lines::Lines;
use crate::text::{millis, percent, table};

/// A screen (output for the user) that prints lines.
pub(super) struct PlainScreen {
    /// Output of events and counters; `None` if only warnings are wanted.
    out: Option<Lines>,
    /// Output of warnings: always standard error, whatever standard output is used for.
    warnings: Lines,
    journal: Journal,
    /// Whether the counters are printed every five seconds. These are 17,280 lines a day, so the
    /// systemd journal gets them only on request.
    counters: bool,
    /// Whether the splitter serves a login by Mosh. Then the line about the MTU of a tunnel is
    /// omitted.
    login: bool,
    model: Model,
}

impl PlainScreen {
    /// Creates a screen that prints to stdout and stderr. Lines begin with `name`, the value of
    /// `--name`, if there is one. With `quiet`, it prints only warnings, to stderr. The systemd
    /// journal gets counters only with `verbose`.
    ///
    /// # Errors
    /// The writer threads cannot be started.
    pub(super) fn new(quiet: bool, verbose: bool, name: Option<&str>) -> io::Result<PlainScreen> {
        let out = (!quiet).then(Lines::stdout).transpose()?;
        let journal = Journal::of_stdout().of_run(name);
        let counters = verbose || !journal.is_there();
        Ok(PlainScreen { journal, counters, ..PlainScreen::to(out, Lines::stderr()?) })
    }

    /// Creates a screen that prints to `out`, if there is one, and warnings to `warnings`.
    pub(super) fn to(out: Option<Lines>, warnings: Lines) -> PlainScreen {
        let model = Model::default();
        PlainScreen { out, warnings, journal: Journal::NONE, counters: true, login: false, model }
    }

    /// Returns this screen, changed for a login by Mosh: without the line about the MTU.
    pub(super) fn of_login(self) -> PlainScreen {
        PlainScreen { login: true, ..self }
    }

    /// Waits for a limited time until all lines are written. Returns whether all lines are
    /// written.
    pub(super) fn flush(&self) -> bool {
        self.out.as_ref().is_none_or(Lines::flush)
    }

    fn print(&mut self, text: &str) {
        if let Some(out) = &self.out {
            let text = self.journal.line(Priority::Information, text);
            out.print(&folded(&text, io::stdout()), lost);
        }
    }

    /// Prints the MTU that a WireGuard tunnel over these paths needs.
    fn say_mtu(&mut self, about: &ActiveSettings) {
        if !self.login {
            advice::mtu(about).into_iter().for_each(|line| self.print(&line));
        }
    }
}

impl Screen for PlainScreen {
    fn listening(&mut self, about: &ActiveSettings) {
        self.model.begin(about);
        let server = about.server.map_or_else(String::new, |server| format!(" for {server}"));
        let door = match (&about.listen, &about.tun) {
            (_, Some(plan)) => format!("interface {} is up", plan.request.tun),
            (listen, None) => listen.map_or_else(String::new, |at| format!("listening on {at}")),
        };
        self.print(&format!("{door}{server}: {}, seed {}", about.dealing(), about.seed));
        self.say_mtu(about);
        advice::warnings(about).iter().for_each(|text| self.warn(text));
    }

    fn reloaded(&mut self, now: Time, about: &ActiveSettings) {
        self.model.reloaded(now, about);
        self.print(&format!("{:9.3}  {}", now.secs_f64(), settings(about)));
        self.say_mtu(about);
    }

    fn event(&mut self, now: Time, event: &Event) {
        let Some(words) = self.model.event(now, event) else { return };
        if is_warning(event) {
            self.warn(&words);
        } else {
            self.print(&format!("{:9.3}  {words}", now.secs_f64()));
        }
    }

    fn snapshot(&mut self, now: Time, snapshot: &Snapshot) {
        self.model.snapshot(now, snapshot);
        if !self.counters {
            return;
        }
        let paths: Vec<_> = self.model.rows.iter().map(brief).collect();
        let (sessions, time) = (snapshot.sessions, now.secs_f64());
        let silent = snapshot.silent.map(|silent| format!("; {}", advice::silent(&silent)));
        let silent = silent.unwrap_or_default();
        self.print(&format!("{time:9.3}  sessions: {sessions}; {}{silent}", paths.join("; ")));
    }

    fn finish(&mut self, now: Time, snapshot: &Snapshot) {
        self.model.snapshot(now, snapshot);
        let Some(out) = &self.out else { return };
        let mut text = format!("ended after {:.1} s\n", now.secs_f64()) + &summary(&self.model);
        text.extend(self.model.pinned().map(|line| format!("\n{line}")));
        text.extend(advice::never_split(snapshot).map(|line| format!("\n{line}")));
        text.extend(losses(snapshot).map(|line| format!("\n{line}")));
        text.extend(snapshot.far_end.map(|far| format!("\n{}", advice::far_end_counters(&far))));
        out.last(&self.journal.line(Priority::Information, &text), lost);
    }

    fn far_end(&mut self, now: Time, news: &FarEndNews) {
        let words = self.model.far_end(now, news);
        match news {
            FarEndNews::Up => self.print(&format!("{:9.3}  {words}", now.secs_f64())),
            _ => self.warn(&words),
        }
    }

    fn warn(&mut self, text: &str) {
        let lost = |lines| format!("warning: {}", lost(lines));
        let text = self.journal.line(Priority::Warning, &format!("warning: {text}"));
        self.warnings.print(&folded(&text, io::stderr()), lost);
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(5)
    }
}

fn lost(lines: u64) -> String {
    format!("{lines} lines dropped: output was blocked")
}

fn brief(row: &Row) -> String {
    format!(
        "{} {}: up {} ({}), down {} ({})",
        row.name,
        row.state(),
        scaled(row.up.rate, "bit/s"),
        percent(row.up.share),
        scaled(row.down.rate, "bit/s"),
        percent(row.down.share)
    )
}

/// Returns the table of the paths' traffic, with uplink and downlink separate.
fn summary(model: &Model) -> String {
    const HEAD: [&str; 10] = [
        "path",
        "packets up",
        "bytes up",
        "share",
        "packets down",
        "bytes down",
        "share",
        "switches",
        "dropped",
        "RTT",
    ];
    let head = HEAD.map(str::to_owned).to_vec();
    let removed = model.removed();
    let body = model.rows.iter().chain(&removed).map(|row| {
        let counters = &row.counters;
        vec![
            row.label(),
            counters.up.datagrams.to_string(),
            counters.up.bytes.to_string(),
            percent(row.up.share),
            counters.down.datagrams.to_string(),
            counters.down.bytes.to_string(),
            percent(row.down.share),
            counters.switches.to_string(),
            row.dropped().to_string(),
            millis(counters.rtt),
        ]
    });
    table(&std::iter::once(head).chain(body).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use anabranch_comps::SessionId;

    use super::*;
    use crate::screen::lines::tests::printed as printed_lines;
    use crate::split::screen::model::tests::snapshot;

    fn printed(quiet: bool) -> String {
        printed_lines(|out| {
            let (out, warnings) = ((!quiet).then_some(out), Lines::stderr().unwrap());
            let mut screen = PlainScreen::to(out, warnings);
            let (session, client) = (SessionId(0), "127.0.0.1:9".parse().unwrap());
            screen.event(Time::from_millis(1500), &Event::Opened { session, client, server: None });
            screen.snapshot(Time::from_secs(2), &snapshot(&[(1000, 3000), (3000, 1000)]));
            screen.finish(Time::from_secs(4), &snapshot(&[(1000, 3000), (3000, 1000)]));
        })
    }

    #[test]
    fn events_rates_and_a_summary_are_told_in_lines() {
        let text = printed(false);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "    1.500  session 0: opened by 127.0.0.1:9");
        assert!(lines[1].contains("0 up: up 4.0 kbit/s (25 %), down 12.0 kbit/s (75 %)"), "{text}");
        assert!(lines[3].starts_with("path") && lines.len() == 6, "{text}");
    }

    #[test]
    fn each_line_begins_with_the_name_of_the_run() {
        let text = printed_lines(|out| {
            let plain = PlainScreen::to(Some(out), Lines::stderr().unwrap());
            let mut screen = PlainScreen { journal: Journal::NONE.of_run(Some("home")), ..plain };
            let (session, client) = (SessionId(0), "127.0.0.1:9".parse().unwrap());
            screen.event(Time::from_millis(1500), &Event::Opened { session, client, server: None });
            screen.finish(Time::from_secs(4), &snapshot(&[(1000, 3000)]));
        });
        assert!(text.starts_with("[home]     1.500  session 0: opened by 127.0.0.1:9\n"), "{text}");
        assert!(text.lines().all(|line| line.starts_with("[home] ")), "{text}");
    }

    #[test]
    fn quiet_says_nothing_where_nothing_is_wrong() {
        assert_eq!(printed(true), "");
    }
}
