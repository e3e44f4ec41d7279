//! An unmodified headless Chromium that this program controls over a pipe.
//!
//! The pipe carries the Chrome DevTools Protocol: JSON messages separated by a zero byte
//! (`--remote-debugging-pipe`). A library for this protocol would need an asynchronous runtime,
//! which is too much for six commands.

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
use anabranch_emulator::GroupProcess;

/// Programs that page loads need, each with the package that contains it.
pub(super) const NEEDS: &[(&str, &str)] = &[("chromium", "package chromium")];

/// Shell script that starts the browser with its standard input and output as descriptors 3 and 4.
/// The browser reads commands from descriptor 3 and answers on descriptor 4. Its other output is
/// discarded.
const PIPES: &str = r#"exec 3<&0 4>&1 </dev/null >/dev/null 2>&1; exec "$@""#;

/// Command-line options that disable the browser's own traffic (such as updates), which must not
/// be in a trace. If any such traffic remains, it can leave only through the tunnel.
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

/// Timeout for the browser's start, and for each of the browser's answers to a command.
const READY: Duration = Duration::from_secs(60);
/// Interval at which a wait for the browser checks whether the experiment is to stop.
const GLANCE: Duration = Duration::from_millis(50);

/// A running browser with one empty page. It is stopped on drop, and its profile is deleted.
pub(super) struct Browser<'a> {
    process: GroupProcess<'a>,
    stage: &'a Stage,
    profile: String,
    pen: ChildStdin,
    inbox: Receiver<Value>,
    session: Option<String>,
    count: u64,
}

impl<'a> Browser<'a> {
    /// Starts the browser on the client's host with `options` and a new profile in the directory
    /// `profile`.
    ///
    /// # Errors
    /// The browser does not start.
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
        let mut process = stage.processes.start(stage.client(), &mut shell)?;
        let pen = process.stdin.take().expect("the program's input and output are pipes");
        let out = process.stdout.take().expect("the program's input and output are pipes");
        let (sender, inbox) = mpsc::channel();
        thread::spawn(move || {
            for message in BufReader::new(out).split(0).map_while(Result::ok) {
                let parsed = serde_json::from_slice(&message);
                if parsed.is_ok_and(|message: Value| sender.send(message).is_err()) {
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

    /// Opens `url`. Waits at most `patience` for the page's load event, and then until the page is
    /// complete. Returns the browser's report and the start time of the load.
    ///
    /// # Errors
    /// The load event does not occur in time, the browser has ended, or the experiment is stopped.
    pub(super) fn visit(
        &mut self,
        url: &str,
        patience: Duration,
        stop: &AtomicBool,
    ) -> io::Result<(Visit, SystemTime)> {
        let (mut visit, begun, started) = (Visit::default(), Instant::now(), SystemTime::now());
        let limit = (begun, patience);
        let answer = self.call("Page.navigate", json!({"url": url}), &mut visit, limit, stop)?;
        if let Some(why) = answer["errorText"].as_str() {
            return Err(io::Error::other(format!("the page cannot be opened: {why}")));
        }
        while !visit.is_complete(begun.elapsed()) {
            if !visit.is_loaded() && begun.elapsed() > patience {
                let message =
                    format!("the page had no load event within {} s", patience.as_secs_f64());
                return Err(io::Error::other(message));
            }
            if let Some(message) = self.next_message(stop)? {
                visit.take(begun.elapsed(), &message);
            }
        }
        Ok((visit, started))
    }

    /// Sends one command to the browser and returns its result. Other messages that arrive
    /// meanwhile are passed to `visit`, with the time since `begun`.
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
            match self.next_message(stop)? {
                Some(answer) if answer["id"] == self.count => return result(method, answer),
                Some(message) => visit.take(begun.elapsed(), &message),
                None => {}
            }
        }
        Err(io::Error::other(format!("the browser did not answer the command {method} in time")))
    }

    /// Returns the next message of the browser; `None` if none arrives within [`GLANCE`].
    fn next_message(&mut self, stop: &AtomicBool) -> io::Result<Option<Value>> {
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
        // When the main process ends, the browser's other processes end, too. A profile that
        // cannot be deleted now disappears with the emulated network.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let profile = &self.profile;
        let _ = self.stage.processes.among_files(|run| std::fs::remove_dir_all(run.join(profile)));
    }
}

fn result(method: &str, mut answer: Value) -> io::Result<Value> {
    match answer["error"]["message"].as_str() {
        Some(why) => Err(io::Error::other(format!("the browser refused {method}: {why}"))),
        None => Ok(answer["result"].take()),
    }
}

fn gone(method: &str, why: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("the browser exited before it answered the command {method}: {why}"))
}
