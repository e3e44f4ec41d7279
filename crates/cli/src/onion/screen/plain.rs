//! A client's lines for a log: milestones of the running client on standard output, and warnings
//! on standard error.

use std::io;
use std::time::{Duration, Instant};

use anabranch_router::onion::client::ClientEvent;
use anabranch_router::onion::dirclient::FetchReport;
use anabranch_router::onion::reload::in_words;

use crate::screen::folded;
use crate::screen::journal::{Journal, Priority};
use crate::screen::lines::Lines;

/// A screen (output for the user) that prints lines.
pub(super) struct PlainScreen {
    /// Output for milestones; `None` if only warnings are wanted.
    out: Option<Lines>,
    /// Output for warnings on standard error, whatever standard output is used for.
    warnings: Lines,
    journal: Journal,
    /// Message about the last refused request of a program, and the time when it was printed. A
    /// web page can cause many identical refusals, which are printed only once in [`AGAIN`].
    refused: Option<(String, Instant)>,
}

/// Minimum interval between identical refusal messages.
const AGAIN: Duration = Duration::from_secs(60);

impl PlainScreen {
    /// Creates a screen that prints to standard output and standard error. `name` is the name that
    /// the user has given to the running program. If `quiet`, only warnings are printed.
    ///
    /// # Errors
    /// The writer threads cannot be started.
    pub(super) fn new(quiet: bool, name: Option<&str>) -> io::Result<PlainScreen> {
        let out = (!quiet).then(Lines::stdout).transpose()?;
        let journal = Journal::of_stdout().of_run(name);
        Ok(PlainScreen { out, warnings: Lines::stderr()?, journal, refused: None })
    }

    /// Waits for a limited time until all lines are written. Returns whether all lines are
    /// written.
    pub(super) fn flush(&self) -> bool {
        self.out.as_ref().is_none_or(Lines::flush)
    }

    /// Prints a line, unless only warnings are wanted.
    pub(super) fn print(&self, text: &str) {
        if let Some(out) = &self.out {
            let text = self.journal.line(Priority::Information, text);
            out.print(&folded(&text, io::stdout()), lost);
        }
    }

    /// Prints a warning.
    pub(super) fn warn(&self, text: &str) {
        let text = self.journal.line(Priority::Warning, &format!("anabranch: {text}"));
        self.warnings.print(&folded(&text, io::stderr()), lost);
    }

    /// Prints the line for `event`, if there is a line for events of this kind.
    pub(super) fn report(&mut self, event: &ClientEvent) {
        if let Some(text) = warning(event) {
            if matches!(event, ClientEvent::Refused(_)) && !self.is_new(&text, Instant::now()) {
                return;
            }
            self.warn(&text);
        } else if let Some(text) = milestone(event) {
            self.print(&text);
        }
    }

    /// Returns whether to print the refusal `text` at `now`. If so, stores it as the refusal that
    /// was printed last.
    fn is_new(&mut self, text: &str, now: Instant) -> bool {
        let refused = self.refused.as_ref();
        let is_new = refused.is_none_or(|(last, at)| last != text || now >= *at + AGAIN);
        if is_new {
            self.refused = Some((text.to_owned(), now));
        }
        is_new
    }
}

fn lost(lines: u64) -> String {
    format!("{lines} lines dropped: output was blocked")
}

/// Returns the warning for `event`; `None` if the event is no warning.
pub(super) fn warning(event: &ClientEvent) -> Option<String> {
    match event {
        ClientEvent::Trouble(text) => Some(text.clone()),
        ClientEvent::Reloaded(outcome @ Err(_)) => Some(in_words(outcome)),
        ClientEvent::Clock(skew) if skew.is_trouble() => Some(skew.to_string()),
        ClientEvent::Refused(refused) => Some(refused.to_string()),
        ClientEvent::Violation(name, violation) => {
            Some(format!("{name} violated the Tor protocol: {violation}"))
        }
        ClientEvent::OutOfMemory => {
            let text = "queued data reached the limit of --memory, so the client closed a \
                        circuit: allow more memory if this happens often";
            Some(text.to_owned())
        }
        _ => None,
    }
}

/// Returns the line for `event` if the event is a milestone, such as the first usable circuit;
/// `None` otherwise.
pub(super) fn milestone(event: &ClientEvent) -> Option<String> {
    match event {
        ClientEvent::Listening(at) => {
            let at: Vec<String> = at.iter().map(ToString::to_string).collect();
            Some(format!("SOCKS and HTTP CONNECT proxy on {}", at.join(", ")))
        }
        ClientEvent::Ready(relays) => Some(format!("ready: {relays} relays known")),
        ClientEvent::Reloaded(outcome @ Ok(_)) => Some(in_words(outcome)),
        ClientEvent::Clock(skew) => Some(skew.to_string()),
        _ => None,
    }
}

/// Returns the line for `event` in the list of latest events of the live view: a built or closed
/// circuit, a milestone or a warning. Returns `None` for other events.
pub(super) fn news(event: &ClientEvent) -> Option<String> {
    match event {
        ClientEvent::Built(circuit, path, _) => {
            Some(format!("circuit {circuit} built: {}", path.join(", ")))
        }
        ClientEvent::Linked(circuit, design, _) => Some(format!(
            "circuit {circuit} now carries streams that are split over several circuits ({design})"
        )),
        ClientEvent::Closed(circuit, path, cause) => {
            Some(format!("circuit {circuit} ({}) closed: {cause}", path.join(", ")))
        }
        ClientEvent::Fetched(FetchReport { what, from: Some(from), by_circuit, is_good: true }) => {
            let way = if *by_circuit { "over a circuit" } else { "over its directory port" };
            Some(format!("{what}: fetched from {from} {way}"))
        }
        ClientEvent::LinkOpen(name) => Some(format!("link to {name} opened")),
        other => milestone(other).or_else(|| warning(other)),
    }
}

#[cfg(test)]
mod tests {
    use anabranch_onion::LinkFault;

    use super::*;

    fn fetched(by_circuit: bool, is_good: bool) -> ClientEvent {
        let from = Some("river1".to_owned());
        ClientEvent::Fetched(FetchReport { what: "consensus", from, by_circuit, is_good })
    }

    #[test]
    fn a_log_has_milestones_and_warnings_and_a_view_has_news_as_well() {
        let built = ClientEvent::Built(7, vec!["a".to_owned(), "b".to_owned()], false);
        assert_eq!((milestone(&built), warning(&built)), (None, None));
        assert_eq!(news(&built).as_deref(), Some("circuit 7 built: a, b"));
        let closed =
            ClientEvent::Closed(7, vec!["a".to_owned(), "b".to_owned()], "late".to_owned());
        assert_eq!(news(&closed).as_deref(), Some("circuit 7 (a, b) closed: late"));
        let violation = LinkFault::HandshakeTimeout.into();
        let violation = ClientEvent::Violation("river1".to_owned(), violation);
        assert!(warning(&violation).unwrap().starts_with("river1 violated the Tor protocol: "));
        let trouble = ClientEvent::Trouble("no consensus".to_owned());
        assert_eq!(warning(&trouble), news(&trouble));
        assert_eq!(milestone(&ClientEvent::Ready(9)).as_deref(), Some("ready: 9 relays known"));
    }

    #[test]
    fn the_same_refusal_again_is_told_once_a_minute() {
        let mut plain = PlainScreen::new(true, None).unwrap();
        let now = Instant::now();
        let cases = [("a", 0), ("a", 59), ("b", 59), ("b", 118), ("b", 119), ("a", 119)];
        let are_new =
            cases.map(|(text, after)| plain.is_new(text, now + Duration::from_secs(after)));
        assert_eq!(are_new, [true, false, true, false, true, true]);
    }

    #[test]
    fn a_directory_request_is_news_once_it_was_of_use() {
        let text = news(&fetched(true, true)).unwrap();
        assert_eq!(text, "consensus: fetched from river1 over a circuit");
        assert!(news(&fetched(false, true)).unwrap().ends_with("over its directory port"));
        assert_eq!(news(&fetched(true, false)), None);
    }
}
