//! Directory requests over one-hop circuits. Each request has its own circuit, with one stream to
//! the directory server of the relay at the circuit's end (BEGIN_DIR).

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_multipath::{Core as _, Time};
use anabranch_onion::circmgr::CircuitManager;
use anabranch_onion::client::{CircuitKey, Client, Hop, HopKey, Input, Output};
use anabranch_onion::directory::fetch::Failure;
use anabranch_onion::directory::http::ResponseReader;
use anabranch_onion::{LinkCore, StreamKey, StreamOutput};
use rand_chacha::ChaCha20Rng;

use crate::onion::dirclient::DirRequest;

/// Timeout for building the circuit of a directory request.
const PATIENCE: Duration = Duration::from_secs(15);
/// Time without progress after which a directory request fails, once its circuit is built.
const SILENCE: Duration = Duration::from_secs(30);
/// Minimum average rate of a directory's reply, in bytes per second. A request may take `PATIENCE`
/// plus `SILENCE`, plus the time in which the bytes received so far arrive at this rate. A slower
/// reply is abandoned, because it could take hours.
const SLOWEST: u64 = 1000;

/// State of the client that operations on directory requests use.
pub(super) struct DirRequestContext<'a> {
    pub(super) now: Time,
    /// Current time in seconds since 1970.
    pub(super) unix: u64,
    pub(super) core: &'a mut Client,
    pub(super) circmgr: &'a mut CircuitManager,
    pub(super) rng: &'a mut ChaCha20Rng,
}

/// Result of a directory request that has ended.
#[derive(Debug)]
pub(super) struct DirResponse {
    /// Identifier of the request, which the directory client has assigned.
    pub(super) number: u64,
    /// RSA identity of the relay that received the request; `None` if no relay received it.
    pub(super) relay: Option<[u8; 20]>,
    /// The reply, whose content has not been checked yet, or the failure.
    pub(super) outcome: Result<ResponseReader, Failure>,
}

/// Directory requests in progress. Each uses its own circuit, which is the key.
#[derive(Default)]
pub(super) struct DirRequests {
    out: BTreeMap<CircuitKey, PendingDirRequest>,
    streams: BTreeMap<StreamKey, CircuitKey>,
    done: Vec<DirResponse>,
}

/// A directory request in progress.
struct PendingDirRequest {
    dir_request: DirRequest,
    relay: [u8; 20],
    /// Number of bytes of the request that were written to the stream so far.
    written: usize,
    answer: ResponseReader,
    begun: Time,
    /// Number of bytes of the reply that were received so far.
    got: u64,
    /// Time at which the request fails if there is no progress until then.
    deadline: Time,
}

impl PendingDirRequest {
    /// Records progress at the time `now`: extends the deadline by `SILENCE`, up to the limit that
    /// `SLOWEST` sets for the whole request.
    fn moved(&mut self, now: Time) {
        let whole = PATIENCE + SILENCE + Duration::from_secs(self.got / SLOWEST);
        self.deadline = (now + SILENCE).min(self.begun + whole);
    }
}

impl DirRequests {
    /// Returns the results of requests that have ended since the last call.
    pub(super) fn done(&mut self) -> Vec<DirResponse> {
        std::mem::take(&mut self.done)
    }

    /// Starts `dir_request`. The request is sent to the authority or bridge that it specifies, or
    /// else to a guard.
    pub(super) fn begin(&mut self, at: &mut DirRequestContext<'_>, dir_request: DirRequest) {
        let whom = match &dir_request.to {
            Some(target) => {
                let hop = Hop { target: target.clone(), key: HopKey::Fast };
                Some((at.circmgr.key(), hop))
            }
            None => at.circmgr.cache(at.unix, at.rng),
        };
        let Some((circuit, hop)) = whom else {
            let (number, outcome) = (dir_request.number, Err(Failure::Unreachable));
            return self.done.push(DirResponse { number, relay: None, outcome });
        };
        let answer = ResponseReader::new(dir_request.limit);
        let (relay, deadline) = (hop.target.rsa, at.now + PATIENCE);
        let out = PendingDirRequest {
            dir_request,
            relay,
            written: 0,
            answer,
            begun: at.now,
            got: 0,
            deadline,
        };
        self.out.insert(circuit, out);
        at.core.handle(at.now, Input::Build { circuit, hops: vec![hop] });
    }

    /// Returns whether `output` belongs to a directory request.
    pub(super) fn concerns(&self, output: &Output) -> bool {
        match output {
            Output::Built { circuit, .. } | Output::CircuitClosed { circuit, .. } => {
                self.out.contains_key(circuit)
            }
            Output::Connected { stream } => self.streams.contains_key(stream),
            Output::Stream(output) => self.streams.contains_key(&stream_of(*output)),
            _ => false,
        }
    }

    /// Processes an `output` that belongs to a directory request.
    pub(super) fn take(&mut self, at: &mut DirRequestContext<'_>, output: Output) {
        match output {
            Output::Built { circuit, .. } => self.built(at, circuit),
            Output::CircuitClosed { circuit, hops, .. } => {
                if hops == 0 {
                    at.circmgr.cache_failed(at.unix, circuit);
                }
                self.finish(at, circuit, Some(Failure::Unreachable));
            }
            Output::Stream(StreamOutput::Readable { stream }) => self.read(at, stream),
            Output::Stream(StreamOutput::Room { stream }) => self.write_more(at, stream),
            Output::Stream(StreamOutput::Ended { stream, .. }) => {
                // `ResponseReader` decides whether the answer is complete.
                if let Some(circuit) = self.streams.get(&stream).copied() {
                    self.finish(at, circuit, None);
                }
            }
            _ => {}
        }
    }

    /// Fails the directory requests whose deadline has passed.
    pub(super) fn expire(&mut self, at: &mut DirRequestContext<'_>) {
        let over = self.out.iter().filter(|(_, out)| out.deadline <= at.now);
        let over: Vec<CircuitKey> = over.map(|(circuit, _)| *circuit).collect();
        for circuit in over {
            // If the circuit was built, the relay is reachable.
            let failure = match self.streams.values().any(|other| *other == circuit) {
                true => Failure::Silent,
                false => {
                    at.circmgr.cache_failed(at.unix, circuit);
                    Failure::Unreachable
                }
            };
            self.finish(at, circuit, Some(failure));
        }
    }

    fn built(&mut self, at: &mut DirRequestContext<'_>, circuit: CircuitKey) {
        at.circmgr.cache_reached(at.unix, circuit, at.rng);
        match at.core.begin_directory(at.now, circuit) {
            Ok(stream) => {
                self.streams.insert(stream, circuit);
                self.write_more(at, stream);
            }
            Err(_) => self.finish(at, circuit, Some(Failure::Unreachable)),
        }
    }

    /// Writes more of the directory request to `stream`, as many bytes as the stream accepts now.
    fn write_more(&mut self, at: &mut DirRequestContext<'_>, stream: StreamKey) {
        let circuit = self.streams.get(&stream);
        let Some(out) = circuit.and_then(|circuit| self.out.get_mut(circuit)) else { return };
        out.written += at.core.write(at.now, stream, &out.dir_request.request[out.written..]);
        out.moved(at.now);
    }

    fn read(&mut self, at: &mut DirRequestContext<'_>, stream: StreamKey) {
        let Some(&circuit) = self.streams.get(&stream) else { return };
        let Some(out) = self.out.get_mut(&circuit) else { return };
        let (first, second) = at.core.read(stream);
        let taken = out.answer.push(first).and_then(|()| out.answer.push(second));
        let bytes = first.len() + second.len();
        at.core.consume(at.now, stream, bytes);
        out.got += bytes as u64;
        out.moved(at.now);
        if let Err(error) = taken {
            self.finish(at, circuit, Some(Failure::Http(error)));
        }
    }

    /// Ends the directory request on `circuit`. `failure` is `None` if the request was successful.
    fn finish(
        &mut self,
        at: &mut DirRequestContext<'_>,
        circuit: CircuitKey,
        failure: Option<Failure>,
    ) {
        let Some(out) = self.out.remove(&circuit) else { return };
        self.streams.retain(|_, other| *other != circuit);
        at.circmgr.cache_left(circuit);
        let outcome = failure.map_or(Ok(out.answer), Err);
        self.done.push(DirResponse {
            number: out.dir_request.number,
            relay: Some(out.relay),
            outcome,
        });
        at.core.handle(at.now, Input::Destroy { circuit });
    }
}

fn stream_of(output: StreamOutput) -> StreamKey {
    match output {
        StreamOutput::Readable { stream }
        | StreamOutput::Room { stream }
        | StreamOutput::Ended { stream, .. } => stream,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of seconds after which a directory request was abandoned, at most 1,000.
    /// `bytes` bytes of its answer arrive every 20 s.
    fn lasts(bytes: u64) -> u64 {
        let dir_request = DirRequest { number: 1, to: None, request: Vec::new(), limit: 1 << 20 };
        let (answer, begun) = (ResponseReader::new(dir_request.limit), Time::from_secs(7));
        let deadline = begun + PATIENCE;
        let mut out = PendingDirRequest {
            dir_request,
            relay: [1; 20],
            written: 0,
            answer,
            begun,
            got: 0,
            deadline,
        };
        (0..1000)
            .step_by(20)
            .find(|&after| {
                let now = begun + Duration::from_secs(after);
                let over = out.deadline <= now;
                out.got += bytes;
                out.moved(now);
                over
            })
            .unwrap_or(1000)
    }

    #[test]
    fn a_directory_that_drips_is_given_up_and_a_slow_one_is_not() {
        assert_eq!(lasts(1), 60);
        assert_eq!(lasts(10_000), 100);
        assert_eq!(lasts(25_000), 1000);
    }
}
