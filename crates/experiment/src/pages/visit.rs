//! Progress of a page load, derived from the browser's messages. This module reads no clock.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

/// Time without pending requests after which a loaded page counts as complete.
const QUIET: Duration = Duration::from_millis(500);
/// Time after a page's load event from which the page counts as complete, even if requests are
/// pending.
const SETTLE: Duration = Duration::from_secs(10);
/// Names of the browser's errors for requests that fail in every load of a page, because of the
/// page's content. Third parties have no address in this network, and a page may request files
/// that its site does not have.
const ITS_OWN: [&str; 9] = [
    "net::ERR_ABORTED",
    "net::ERR_ACCESS_DENIED",
    "net::ERR_BLOCKED_BY",
    "net::ERR_DISALLOWED_URL_SCHEME",
    "net::ERR_FAILED",
    "net::ERR_FILE_NOT_FOUND",
    "net::ERR_INVALID_URL",
    "net::ERR_NAME_NOT_RESOLVED",
    "net::ERR_UNKNOWN_URL_SCHEME",
];

/// State of a page load, derived from the browser's messages so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Visit {
    /// Number of requests to servers, including failed requests.
    pub(super) requests: u32,
    /// Number of requests that failed because of the page's content ([`ITS_OWN`]).
    pub(super) refused: u32,
    /// HTTP status and protocol of the response with the page itself; `None` before it arrives.
    pub(super) answer: Option<(i64, String)>,
    /// Protocols of all responses, as the browser names them.
    pub(super) protocols: BTreeSet<String>,
    /// Time from the first request to the page's load event, in seconds by the browser's clock;
    /// `None` before this event.
    pub(super) seconds: Option<f64>,
    /// Failure of this page load that another attempt may avoid; `None` if there was none so far.
    pub(super) trouble: Option<String>,
    open: BTreeSet<String>,
    first: Option<f64>,
    loaded: Option<Duration>,
    latest: Duration,
}

impl Visit {
    /// Processes `message`, which arrived from the browser at `now` (Chrome DevTools Protocol).
    pub(super) fn take(&mut self, now: Duration, message: &Value) {
        let about = &message["params"];
        let id = about["requestId"].as_str().unwrap_or_default();
        match message["method"].as_str().unwrap_or_default() {
            "Network.requestWillBeSent" => self.asked(about, id),
            "Network.responseReceived" => self.answered(about),
            "Network.loadingFinished" => drop(self.open.remove(id)),
            "Network.loadingFailed" => self.failed(about, id),
            "Page.loadEventFired" => {
                self.loaded = Some(now);
                self.seconds = self.first.zip(about["timestamp"].as_f64()).map(|(t0, t)| t - t0);
            }
            "Inspector.targetCrashed" => self.trouble = Some("the page crashed".to_owned()),
            _ => return,
        }
        self.latest = now;
    }

    /// Returns whether the page counts as complete at `now`.
    pub(super) fn is_complete(&self, now: Duration) -> bool {
        let rests = self.open.is_empty() && now.saturating_sub(self.latest) >= QUIET;
        self.loaded.is_some_and(|at| rests || now.saturating_sub(at) >= SETTLE)
    }

    /// Returns whether the page's load event has occurred.
    pub(super) fn is_loaded(&self) -> bool {
        self.loaded.is_some()
    }

    /// Returns the reason why this page load is invalid: a failure, or a protocol other than
    /// `protocol`. Returns `None` if it is valid.
    pub(super) fn fault(&self, protocol: &str) -> Option<String> {
        match (&self.trouble, &self.answer) {
            (Some(trouble), _) => Some(trouble.clone()),
            (None, None) => Some("the server did not answer the request for the page".to_owned()),
            (None, Some((200, spoken))) if spoken == protocol => None,
            (None, Some((200, spoken))) => {
                Some(format!("the page was loaded over {spoken} instead of {protocol}"))
            }
            (None, Some((status, _))) => Some(format!(
                "the server answered the request for the page with HTTP status {status}"
            )),
        }
    }

    fn asked(&mut self, about: &Value, id: &str) {
        let url = about["request"]["url"].as_str().unwrap_or_default();
        if !url.starts_with("http") {
            return;
        }
        self.requests += 1;
        self.open.insert(id.to_owned());
        self.first = self.first.or(about["timestamp"].as_f64());
    }

    fn answered(&mut self, about: &Value) {
        let answer = &about["response"];
        let protocol = answer["protocol"].as_str().unwrap_or_default();
        if answer["url"].as_str().is_some_and(|url| url.starts_with("http")) {
            self.protocols.insert(protocol.to_owned());
        }
        if about["type"] == "Document" && self.answer.is_none() {
            self.answer = Some((answer["status"].as_i64().unwrap_or(0), protocol.to_owned()));
        }
    }

    fn failed(&mut self, about: &Value, id: &str) {
        let asked = self.open.remove(id);
        let why = about["errorText"].as_str().unwrap_or_default();
        // If the browser itself blocks a request, the message has a reason instead of an error
        // name. Examples are an http address in a page loaded over https, and a file of a foreign
        // origin.
        let refused = !about["blockedReason"].is_null() || !about["corsErrorStatus"].is_null();
        let listed = ITS_OWN.iter().any(|start| why.starts_with(start));
        let own = refused || listed || about["canceled"] == true;
        match (asked, own) {
            (true, true) => self.refused += 1,
            (true, false) => self.trouble = Some(format!("a request of the page failed: {why}")),
            (false, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MS: Duration = Duration::from_millis(1);

    fn browser_message(method: &str, params: Value) -> Value {
        json!({"method": method, "params": params})
    }

    fn asked(id: &str, url: &str) -> Value {
        let params = json!({"requestId": id, "timestamp": 7.0, "request": {"url": url}});
        browser_message("Network.requestWillBeSent", params)
    }

    fn document(status: i64) -> Value {
        let response = json!({"url": "https://a/", "status": status, "protocol": "h3"});
        browser_message(
            "Network.responseReceived",
            json!({"requestId": "1", "type": "Document", "response": response}),
        )
    }

    fn finished(id: &str) -> Value {
        browser_message("Network.loadingFinished", json!({"requestId": id}))
    }

    fn page() -> Visit {
        let mut visit = Visit::default();
        visit.take(MS, &asked("1", "https://a/"));
        visit.take(2 * MS, &document(200));
        visit.take(3 * MS, &asked("2", "https://a/x.js"));
        visit.take(4 * MS, &finished("1"));
        visit.take(5 * MS, &browser_message("Page.loadEventFired", json!({"timestamp": 7.25})));
        visit
    }

    #[test]
    fn a_page_is_complete_when_it_rests_after_its_load_event() {
        let mut visit = page();
        assert_eq!((visit.seconds, visit.requests), (Some(0.25), 2));
        assert!(!visit.is_complete(900 * MS), "a request is under way");
        visit.take(1000 * MS, &finished("2"));
        assert!(!visit.is_complete(1499 * MS));
        assert!(visit.is_complete(1500 * MS));
        assert_eq!(visit.fault("h3"), None);
        assert_eq!(visit.fault("h2").unwrap(), "the page was loaded over h3 instead of h2");
    }

    #[test]
    fn a_page_that_never_rests_is_taken_after_a_while() {
        assert!(page().is_complete(10_005 * MS));
        let mut early = Visit::default();
        early.take(MS, &asked("1", "https://a/"));
        assert!(!early.is_complete(60_000 * MS), "no load event came");
    }

    #[test]
    fn third_parties_are_the_pages_own_and_a_broken_connection_is_not() {
        let mut visit = page();
        let failed = |why: &str| {
            browser_message("Network.loadingFailed", json!({"requestId": "2", "errorText": why}))
        };
        visit.take(6 * MS, &failed("net::ERR_NAME_NOT_RESOLVED"));
        assert_eq!((visit.refused, visit.fault("h3")), (1, None));
        let mut visit = page();
        let blocked = json!({"requestId": "2", "errorText": "", "blockedReason": "mixed-content"});
        visit.take(6 * MS, &browser_message("Network.loadingFailed", blocked));
        assert_eq!((visit.refused, visit.fault("h3")), (1, None), "http in a page by https");
        let mut visit = page();
        visit.take(6 * MS, &failed("net::ERR_QUIC_PROTOCOL_ERROR"));
        let fault = visit.fault("h3").unwrap();
        assert_eq!(fault, "a request of the page failed: net::ERR_QUIC_PROTOCOL_ERROR");
    }

    #[test]
    fn a_page_that_is_not_there_is_a_fault() {
        let mut visit = Visit::default();
        visit.take(MS, &document(404));
        assert_eq!(
            visit.fault("h3").unwrap(),
            "the server answered the request for the page with HTTP status 404"
        );
        assert_eq!(
            Visit::default().fault("h3").unwrap(),
            "the server did not answer the request for the page"
        );
    }
}
