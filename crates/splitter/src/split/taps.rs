//! The packet captures of a running splitter. If a capture fails, it is closed, and forwarding
//! continues.

use std::io;

use anabranch_capture::{ObservedBatch, PcapTap, RowLabels, Tap, TraceFacts, TraceTap, Transport};
use anabranch_comps::Event;
use anabranch_multipath::{PathId, Time};
use anabranch_os::clock::Clock;
use anabranch_os::udp::Datagrams;

use super::sockets::PathSocket;
use super::streams::StreamBytes;
use super::tunnel::TUNNEL;
use super::{Screen, Settings};

/// A packet capture that is being written.
struct Capture {
    /// The option that requested the capture, as on the command line.
    name: String,
    tap: Box<dyn Tap>,
}

/// All captures of a running splitter.
pub(super) struct Taps {
    taps: Vec<Capture>,
    /// Errors of the captures that failed.
    failed: Vec<io::Error>,
    /// Names of the paths, by their index in the captures, which a reload does not change.
    names: Vec<String>,
    /// Each path's index in the captures, by the path's present index.
    numbers: Vec<u16>,
}

impl Taps {
    /// Begins the captures that the user requested.
    pub(super) fn create(settings: &Settings, clock: &Clock) -> io::Result<Taps> {
        let names = names(settings);
        let numbers = (0..).take(names.len()).collect();
        let mut taps = Vec::new();
        if let Some(folder) = &settings.pcap {
            let (start, limits) = (clock.wall_start(), settings.pcap_limits);
            let tap = Box::new(PcapTap::create(folder, &names, start, limits)?);
            taps.push(Capture { name: format!("--pcap {}", folder.display()), tap });
        }
        if let Some(file) = &settings.trace {
            let facts = TraceFacts {
                paths: names.clone(),
                start: Some(clock.wall_start()),
                seed: Some(settings.core.seed),
                schedule: Some(schedule(settings)),
                ..TraceFacts::default()
            };
            let tap = Box::new(TraceTap::create(file, &facts, RowLabels::default())?);
            taps.push(Capture { name: format!("--trace {}", file.display()), tap });
        }
        Ok(Taps { taps, failed: Vec::new(), names, numbers })
    }

    /// Checks that the captures, if there are any, can continue under `settings`.
    ///
    /// # Errors
    /// A path has a name that no path had when the captures began.
    pub(super) fn may_have(&self, settings: &Settings) -> Result<(), String> {
        let unknown = names(settings).into_iter().find(|name| !self.names.contains(name));
        match unknown.filter(|_| !self.taps.is_empty()) {
            Some(name) => Err(format!(
                "path '{name}' is new, but 'trace' and 'pcap' record only the paths that existed \
                 at the start: restart the splitter"
            )),
            None => Ok(()),
        }
    }

    /// Adopts the paths' new indices after a reload; their indices in the captures stay the same.
    pub(super) fn renumber(&mut self, settings: &Settings) {
        let number = |name| self.names.iter().position(|known| *known == name);
        // Without captures, the numbers of new paths are not used.
        let numbers =
            names(settings).into_iter().map(|name| number(name).unwrap_or_default() as u16);
        self.numbers = numbers.collect();
    }

    /// Returns the index of `path` in the captures, which stays the same after a reload.
    pub(super) fn number(&self, path: PathId) -> u16 {
        self.numbers[path.index()]
    }

    /// Passes datagrams to the captures. `outward` is true for datagrams sent by the path's
    /// socket, false for datagrams received on it.
    pub(super) fn see(
        &mut self,
        now: Time,
        socket: &PathSocket,
        outward: bool,
        datagrams: Datagrams<'_>,
        screen: &mut dyn Screen,
    ) {
        if self.taps.is_empty() {
            return;
        }
        let seen = ObservedBatch {
            time: now,
            // To an observer, everything sent to a far end is one session.
            session: if socket.session == TUNNEL { 0 } else { socket.session.0 },
            path: socket.removed.unwrap_or_else(|| self.number(socket.path)),
            transport: Transport::Udp,
            outward,
            client_end: socket.local,
            server: socket.server,
            ecn: datagrams.ecn,
            bytes: datagrams.bytes,
            stride: datagrams.stride,
        };
        self.each(screen, |tap| tap.seen(&seen));
    }

    /// Passes the bytes that a path's stream has sent and received to the captures. The captures
    /// assign them to session 0, because all paths to a far end carry one session.
    pub(super) fn see_stream(&mut self, now: Time, seen: &StreamBytes, screen: &mut dyn Screen) {
        if self.taps.is_empty() {
            return;
        }
        let parts = [(true, &seen.passed.outward), (false, &seen.passed.inward)];
        for (outward, bytes) in parts.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
            let batch = ObservedBatch {
                time: now,
                session: 0,
                path: self.number(seen.path),
                transport: Transport::Tcp,
                outward,
                client_end: seen.ends.0,
                server: seen.ends.1,
                ecn: 0,
                bytes,
                stride: seen.segment,
            };
            self.each(screen, |tap| tap.seen(&batch));
        }
    }

    /// Writes all data captured before `now`, so that a crash does not lose it.
    pub(super) fn flush(&mut self, now: Time, screen: &mut dyn Screen) {
        self.each(screen, |tap| tap.flush(now));
    }

    /// Calls `work` with each capture. If `work` fails for a capture, shows the error, and ends
    /// this capture.
    fn each(&mut self, screen: &mut dyn Screen, work: impl Fn(&mut dyn Tap) -> io::Result<()>) {
        let failed = &mut self.failed;
        self.taps.retain_mut(|Capture { name, tap }| match work(&mut **tap) {
            Ok(()) => true,
            Err(error) => {
                let error = stopped(name, &error);
                screen.warn(&error.to_string());
                failed.push(error);
                false
            }
        });
    }

    /// Records in the captures that packets of a protocol carry packet numbers in clear text, if
    /// `event` is [`Event::NumbersInClear`].
    pub(super) fn note(&mut self, event: &Event) {
        if let Event::NumbersInClear { protocol, .. } = event {
            self.taps.iter_mut().for_each(|capture| capture.tap.numbered(protocol.name()));
        }
    }

    /// Completes all captures, even if some fail.
    ///
    /// # Errors
    /// All errors, including earlier ones, because a full disk can end several captures.
    pub(super) fn finish(self) -> io::Result<()> {
        let end = |Capture { name, tap }| tap.finish().err().map(|error| stopped(&name, &error));
        let mut failed = self.failed;
        failed.extend(self.taps.into_iter().filter_map(end));
        let Some(first) = failed.first() else { return Ok(()) };
        let texts: Vec<String> = failed.iter().map(io::Error::to_string).collect();
        Err(io::Error::new(first.kind(), texts.join("; ")))
    }
}

/// Returns the error to report about the capture `name`, which ended because of `error`.
fn stopped(name: &str, error: &io::Error) -> io::Error {
    let text = format!("recording for {name} stopped ({error}); packets recorded before are kept");
    io::Error::new(error.kind(), text)
}

/// Returns the settings of the path schedule in the notation of the command line.
fn schedule(settings: &Settings) -> String {
    let core = &settings.core;
    let redraw = core.redraw.map_or_else(String::new, |silence| format!(" --redraw {silence}"));
    let jitter = core.jitter.map_or_else(String::new, |jitter| format!(" --jitter {jitter}"));
    let decoys = settings.decoys().map_or_else(String::new, |budget| format!(" --decoys {budget}"));
    format!("{} --every {}{redraw}{jitter}{decoys}", core.schedule, core.every)
}

fn names(settings: &Settings) -> Vec<String> {
    settings.specs.iter().map(|spec| spec.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A capture that fails when it is completed, with the text in the field; `None` if it
    /// succeeds.
    struct FailingCapture(Option<&'static str>);

    impl Tap for FailingCapture {
        fn seen(&mut self, _: &ObservedBatch<'_>) -> io::Result<()> {
            Ok(())
        }

        fn flush(&mut self, _: Time) -> io::Result<()> {
            Ok(())
        }

        fn finish(self: Box<Self>) -> io::Result<()> {
            self.0.map_or(Ok(()), |why| Err(io::Error::new(io::ErrorKind::StorageFull, why)))
        }
    }

    fn taps(failed: Vec<io::Error>, all: &[(&str, Option<&'static str>)]) -> Taps {
        let capture = |&(name, why): &(&str, Option<&'static str>)| Capture {
            name: name.to_owned(),
            tap: Box::new(FailingCapture(why)),
        };
        let taps = all.iter().map(capture).collect();
        Taps { taps, failed, names: Vec::new(), numbers: Vec::new() }
    }

    #[test]
    fn every_capture_that_failed_is_named_at_the_end() {
        let before = vec![stopped("--pcap c", &io::ErrorKind::StorageFull.into())];
        let error = taps(before, &[("--trace t", Some("full")), ("--pcap d", None)]).finish();
        let text = error.unwrap_err().to_string();
        assert!(text.starts_with("recording for --pcap c stopped ("), "{text}");
        assert!(text.ends_with(
            "; recording for --trace t stopped (full); packets recorded before are kept"
        ));
        assert!(!text.contains("--pcap d"), "{text}");
        taps(Vec::new(), &[("--trace t", None)]).finish().unwrap();
    }
}
