//! The captures of a run. One that fails is dropped; forwarding goes on.

use std::io;

use anabranch_multipath::Time;

use super::sockets::PathSocket;
use super::{Screen, Settings};
use crate::capture::{PcapTap, RowLabels, Seen, Tap, TraceFacts, TraceTap};
use crate::clock::Clock;
use crate::udp::Datagrams;

/// All captures of a run.
pub(super) struct Taps(Vec<Box<dyn Tap>>);

impl Taps {
    /// Begins the captures that the user asked for.
    pub(super) fn create(settings: &Settings, clock: &Clock) -> io::Result<Taps> {
        let names: Vec<String> = settings.specs.iter().map(|spec| spec.name.clone()).collect();
        let mut taps: Vec<Box<dyn Tap>> = Vec::new();
        if let Some(folder) = &settings.pcap {
            taps.push(Box::new(PcapTap::create(folder, &names, clock.wall_start())?));
        }
        if let Some(file) = &settings.trace {
            let facts = TraceFacts {
                paths: names,
                start: Some(clock.wall_start()),
                seed: Some(settings.core.seed),
                schedule: Some(format!(
                    "{} --every {}",
                    settings.core.schedule, settings.core.every
                )),
                ..TraceFacts::default()
            };
            taps.push(Box::new(TraceTap::create(file, &facts, RowLabels::default())?));
        }
        Ok(Taps(taps))
    }

    /// Shows datagrams that went out by (`outward`), or came in at, a path's socket.
    pub(super) fn see(
        &mut self,
        now: Time,
        socket: &PathSocket,
        outward: bool,
        datagrams: Datagrams<'_>,
        screen: &mut dyn Screen,
    ) {
        if self.0.is_empty() {
            return;
        }
        let seen = Seen {
            time: now,
            session: socket.session.0,
            path: socket.path.0,
            outward,
            client_end: socket.local,
            server: socket.server,
            ecn: datagrams.ecn,
            bytes: datagrams.bytes,
            stride: datagrams.stride,
        };
        self.0.retain_mut(|tap| match tap.seen(&seen) {
            Ok(()) => true,
            Err(error) => {
                screen.warn(&format!("a capture ends early and is discarded: {error}"));
                false
            }
        });
    }

    /// Completes all captures.
    pub(super) fn finish(self) -> io::Result<()> {
        self.0.into_iter().try_for_each(Tap::finish)
    }
}
