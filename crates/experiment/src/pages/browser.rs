//! An unaltered Chromium without a screen, told what to do over a pipe.
//!
//! The pipe speaks the Chrome DevTools Protocol, one JSON message after the other with a zero byte
//! between them (`--remote-debugging-pipe`). A library for it would bring an asynchronous runtime;
//! six commands do not need one.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::super::Programs;
use super::super::stage::{Stage, command};
use super::visit::Visit;
use anabranch_emulator::Member;

/// What it takes, and what gives it.
pub(super) const NEEDS: &[(&str, &str)] = &[("chromium", "package chromium")];

/// The browser reads commands from descriptor 3 and answers on 4. What it prints is of no interest.
const PIPES: &str = r#"exec 3<&0 4>&1 </dev/null >/dev/null 2>&1; exec "$@""#;

/// What a browser does of its own accord has no place in a trace. It has no other way out than the
/// tunnel either.
const OPTIONS: [&str; 17] = [
    "--headless=new",
    "--disable-gpu",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-pings",
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-client-side-phishing-detection",
    "--disable-component-extensions-with-background-pages",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-sync",
    "--disable-features=OptimizationHints,MediaRouter,DialMediaRouteProvider",
    "--window-size=1280,800",
    "--remote-debugging-pipe",
];

/// How long it may take to start, and to answer.
const READY: Duration = Duration::from_secs(60);
/// A wait looks up so often whether somebody said stop.
const GLANCE: Duration = Duration::from_millis(50);

/// A running browser with one empty page. Dropped, it is gone with its profile.
pub(super) struct Browser<'a> {
    process: Member<'a>,
    stage: &'a Stage,
    profile: String,
    pen: ChildStdin,
    inbox: Receiver<Value>,
    session: Option<String>,
    count: u64,
}

impl<'a> Browser<'a> {
    /// Starts it at the stage's client, with a new profile of the name and `options` of its own.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn start(
        stage: &'a Stage,
        programs: &Programs,
        profile: &str,
        options: &[String],
        stop: &AtomicBool,
    ) -> io::Result<Browser<'a>> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", PIPES, "sh"]).arg(command(programs, "chromium").get_program());
        shell.args(OPTIONS).args(["--no-sandbox", &format!("--user-data-dir=/run/{profile}")]);
        shell.args(options).arg("about:blank").env("HOME", "/run").env("TMPDIR", "/run");
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = stage.crew.start(stage.client(), &mut shell)?;
        let pen = process.stdin.take().expect("it was given a pipe");
        let out = process.stdout.take().expect("it was given a pipe");
        let (told, inbox) = mpsc::channel();
        thread::spawn(move || {
            for message in BufReader::new(out).split(0).map_while(Result::ok) {
                let parsed = serde_json::from_slice(&message);
                if parsed.is_ok_and(|message: Value| told.send(message).is_err()) {
                    return;
                }
            }
        });
        let profile = profile.to_owned();
        let mut browser = Browser { process, stage, profile, pen, inbox, session: None, count: 0 };
        browser.open_page(stop)?;
        Ok(browser)
    }

    fn open_page(&mut self, stop: &AtomicBool) -> io::Result<()> {
        let mut unheard = Visit::default();
        let mut call = |browser: &mut Browser<'_>, method, params| {
            browser.call(method, params, &mut unheard, (Instant::now(), READY), stop)
        };
        let target = call(self, "Target.createTarget", json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = call(self, "Target.attachToTarget", attach)?;
        self.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page.enable", "Network.enable", "Inspector.enable"] {
            call(self, domain, json!({}))?;
        }
        Ok(())
    }

    /// Opens `url` and waits until it is complete, at most `patience` until its load event. What
    /// the browser told, and when the visit began.
    ///
    /// # Errors
    /// It has no load event in time, the browser is gone, or somebody said stop.
    pub(super) fn visit(
        &mut self,
        url: &str,
        patience: Duration,
        stop: &AtomicBool,
    ) -> io::Result<(Visit, SystemTime)> {
        let (mut visit, begun, started) = (Visit::default(), Instant::now(), SystemTime::now());
        let limit = (begun, patience);
        let told = self.call("Page.navigate", json!({"url": url}), &mut visit, limit, stop)?;
        if let Some(why) = told["errorText"].as_str() {
            return Err(io::Error::other(format!("the page cannot be opened: {why}")));
        }
        while !visit.is_complete(begun.elapsed()) {
            if !visit.is_loaded() && begun.elapsed() > patience {
                let message =
                    format!("the page had no load event within {} s", patience.as_secs_f64());
                return Err(io::Error::other(message));
            }
            if let Some(message) = self.hear(stop)? {
                visit.take(begun.elapsed(), &message);
            }
        }
        Ok((visit, started))
    }

    /// One command and its result; what else is told meanwhile goes to `visit`, which began with
    /// the limit.
    fn call(
        &mut self,
        method: &str,
        params: Value,
        visit: &mut Visit,
        (begun, patience): (Instant, Duration),
        stop: &AtomicBool,
    ) -> io::Result<Value> {
        self.count += 1;
        let mut message = json!({"id": self.count, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.pen.write_all(&bytes).map_err(|e| gone(method, &e))?;
        while begun.elapsed() < patience {
            match self.hear(stop)? {
                Some(answer) if answer["id"] == self.count => return result(method, answer),
                Some(message) => visit.take(begun.elapsed(), &message),
                None => {}
            }
        }
        Err(io::Error::other(format!("the browser did not answer {method}")))
    }

    /// The next message, if one comes soon.
    fn hear(&mut self, stop: &AtomicBool) -> io::Result<Option<Value>> {
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("stopped"));
        }
        match self.inbox.recv_timeout(GLANCE) {
            Ok(message) => Ok(Some(message)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(gone("the page was complete", &"it ended")),
        }
    }
}

impl Drop for Browser<'_> {
    fn drop(&mut self) {
        // The main process takes all others with it; a profile that cannot be removed goes with the
        // crew.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let profile = &self.profile;
        let _ = self.stage.crew.among_files(|run| std::fs::remove_dir_all(run.join(profile)));
    }
}

fn result(method: &str, mut answer: Value) -> io::Result<Value> {
    match answer["error"]["message"].as_str() {
        Some(why) => Err(io::Error::other(format!("the browser refused {method}: {why}"))),
        None => Ok(answer["result"].take()),
    }
}

fn gone(method: &str, why: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("the browser exited before it answered {method}: {why}"))
}
