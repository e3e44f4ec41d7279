//! The near end: it begins handshakes, and has one session.

use std::time::Duration;

use anabranch_multipath::{PathId, Time};
use rand_core::CryptoRng;
use snow::HandshakeState;

use crate::disguise::Disguise;
use crate::epoch::{Epoch, id_of};
use crate::hello::{Cookie, Hello, LONGEST_LABEL, Message, Welcome};
use crate::keys::{KeyPair, Psk, PublicKey};
use crate::noise;
use crate::piece::Piece;
use crate::session::Session;

/// Age at which the keys are renewed (WireGuard: `REKEY_AFTER_TIME`).
const RENEW: Duration = Duration::from_secs(120);
/// Time without an answer after which another handshake begins (WireGuard: `REKEY_TIMEOUT`), by
/// the next path.
const RETRY: Duration = Duration::from_secs(5);
/// Times without an answer after which the first three handshakes are repeated. They are shorter
/// than [`RETRY`], because a path may be cut.
const HASTE: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// Age at which keys without a completed renewal are no longer used (WireGuard:
/// `REJECT_AFTER_TIME`). The other end may have forgotten them.
const REJECT: Duration = Duration::from_secs(180);

/// Pause between the far end's farewell and the next handshake. Each further farewell that follows
/// soon doubles it.
const FAREWELL: Duration = Duration::from_millis(500);
/// Most doublings of the pause.
const FAREWELLS: u32 = 6;
/// Length of a session after which its farewell does not count as following soon.
const LASTING: Duration = Duration::from_secs(10);

/// The progress of a near end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No far end has answered yet, or the far end has stopped answering.
    Trying {
        /// Handshakes begun since the last answer.
        tries: u32,
    },
    /// The session is established.
    Up,
}

/// The near end of a session.
pub struct Near<R> {
    own: KeyPair,
    far: PublicKey,
    psk: Psk,
    label: String,
    disguise: Disguise,
    rng: R,
    /// The random name of this run.
    run: [u8; 8],
    paths: u8,
    aes: bool,
    session: Session,
    generation: u32,
    /// The handshake that waits for its answer.
    pending: Option<HandshakeState>,
    cookie: Cookie,
    /// The stamp of the last handshake.
    stamp: u64,
    /// Time at which the next handshake begins.
    due: Time,
    tries: u32,
    /// Handshakes since the last answer that took the paths in turn.
    turn: u32,
    /// The path of the next handshake, if one is preferred.
    first: Option<PathId>,
    /// Bit mask of the paths for which a handshake began early since the last answer. A path that
    /// appears again and again, and leads nowhere, takes no turn from others.
    hastened: u64,
    agreed: Option<Time>,
    /// Farewells of the far end in a row, each soon after it had answered.
    farewells: u32,
    /// The random name of the far end's part of the session.
    theirs: Option<[u8; 8]>,
}

/// Error of [`Near::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NearError {
    /// The number of paths is not 1 to 255.
    Paths,
    /// The label is longer than [`LONGEST_LABEL`] bytes.
    Label,
}

impl std::fmt::Display for NearError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NearError::Paths => f.write_str("a session has 1 to 255 paths"),
            NearError::Label => write!(
                f,
                "the name of the server that is requested from the far end is too long: at most \
                 {LONGEST_LABEL} bytes are allowed"
            ),
        }
    }
}

impl std::error::Error for NearError {}

impl<R: CryptoRng> Near<R> {
    /// Returns an end with `paths` paths that has sent nothing yet. `label` names the requested
    /// server at the far end. `sizes` are the lengths that packets may have (see
    /// [`Session::new`]).
    ///
    /// # Errors
    /// [`NearError`]
    pub fn new(
        own: KeyPair,
        (far, psk): (PublicKey, Psk),
        label: &str,
        paths: u16,
        sizes: &[usize],
        mut rng: R,
    ) -> Result<Near<R>, NearError> {
        let count = u8::try_from(paths).ok().filter(|&paths| paths > 0).ok_or(NearError::Paths)?;
        if label.len() > LONGEST_LABEL {
            return Err(NearError::Label);
        }
        let mut run = [0; 8];
        rng.fill_bytes(&mut run);
        Ok(Near {
            own,
            psk,
            label: label.to_owned(),
            disguise: Disguise::of(&far),
            far,
            rng,
            run,
            paths: count,
            aes: false,
            session: Session::new(paths, true, sizes),
            generation: 0,
            pending: None,
            cookie: [0; 16],
            stamp: 0,
            due: Time::ZERO,
            tries: 0,
            turn: 0,
            first: None,
            hastened: 0,
            agreed: None,
            farewells: 0,
            theirs: None,
        })
    }

    /// Sets whether AES is fast on this machine. If it is on both, packets are sealed with AES.
    pub fn prefer_aes(&mut self, aes: bool) {
        self.aes = aes;
    }

    /// Returns the progress.
    #[must_use]
    pub fn state(&self) -> State {
        // A far end that is gone leaves keys that no packet answers.
        let is_lost = self.tries > 0 && self.session.is_deaf();
        match self.session.is_up() && !is_lost {
            true => State::Up,
            false => State::Trying { tries: self.tries },
        }
    }

    /// Returns the session, to inspect it and to take datagrams from it.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Appends the packet that carries a datagram of a flow, or a part of one, by `path`; see
    /// [`Session`]. Returns false if it has to wait.
    pub fn seal<'p>(
        &mut self,
        now: Time,
        path: PathId,
        (flow, piece): (u16, impl Into<Piece<'p>>),
        out: &mut Vec<u8>,
    ) -> bool {
        let sound = self.agreed.is_some_and(|agreed| now.since(agreed) < REJECT);
        sound && self.session.seal(now, &self.disguise, path, (flow, piece.into()), out)
    }

    /// Processes a packet that arrived. Returns whether the far end sent it.
    pub fn open(&mut self, now: Time, packet: &[u8]) -> bool {
        let id = id_of(&self.disguise, packet);
        let known = self.session.ids().find(|(one, ..)| Some(*one) == id);
        if known.is_some_and(|known| self.session.open(now, known, packet).is_some()) {
            self.follow_farewell(now);
            return true;
        }
        self.answered(now, packet).is_some()
    }

    /// Plans a new handshake if the far end has ended the session. A far end that is stopped does
    /// so, and another may soon start in its place.
    fn follow_farewell(&mut self, now: Time) {
        let Some(agreed) = self.agreed.take_if(|_| self.session.is_closed()) else { return };
        if now.since(agreed) >= LASTING {
            self.farewells = 0;
        }
        let pause = FAREWELL * (1 << self.farewells);
        self.farewells = (self.farewells + 1).min(FAREWELLS);
        (self.theirs, self.tries, self.due) = (None, 0, now + pause);
        (self.turn, self.hastened) = (0, 0);
    }

    /// Processes an answer to a handshake.
    fn answered(&mut self, now: Time, packet: &[u8]) -> Option<()> {
        let message = self.disguise.find(packet)?;
        let noise = match Message::read(&message)? {
            Message::Answer { noise } => noise,
            Message::Cookie(cookie) => {
                // The far end asks for proof of our address.
                self.pending.as_ref()?;
                (self.cookie, self.due) = (cookie, now);
                return Some(());
            }
            Message::Init { .. } => return None,
        };
        let pending = self.pending.as_mut()?;
        let mut payload = vec![0; noise.len()];
        let length = pending.read_message(noise, &mut payload).ok()?;
        let welcome = Welcome::read(&payload[..length]).filter(|one| self.aes || !one.aes)?;
        let (out, back) = pending.dangerously_get_raw_split();
        let epoch = Epoch::new(&out, &back, welcome.paths.min(self.paths).into(), welcome.aes);
        if self.theirs != Some(welcome.run) {
            self.theirs = Some(welcome.run);
            self.session.begin_at(welcome.first);
        }
        self.generation += 1;
        self.session.renew(self.generation, epoch, true);
        self.session.ask_at(now);
        (self.pending, self.tries, self.agreed) = (None, 0, Some(now));
        (self.turn, self.hastened) = (0, 0);
        self.due = now + RENEW;
        Some(())
    }

    /// Appends the next packet that this end sends on its own: a handshake, or a control message
    /// of the session. Returns its path. `unix_millis` is the wall clock, which orders the
    /// handshakes of one key.
    pub fn say(&mut self, now: Time, unix_millis: u64, out: &mut Vec<u8>) -> Option<PathId> {
        // Paths that were silent before a handshake need a round trip after it to answer again.
        let settled = self.agreed.is_some_and(|agreed| now.since(agreed) >= RETRY);
        let forgotten = self.tries == 0 && settled && self.session.is_deaf();
        if now >= self.due || forgotten {
            return Some(self.greet(now, unix_millis, out));
        }
        self.session.say(now, &self.disguise, out)
    }

    /// Notes that `path` now leads to the far end and did not before, or leads there by another
    /// route, so that its round-trip time is measured again. With a session, all paths are probed
    /// at once. Without one, a handshake begins at once by this path, the first time that the path
    /// appears.
    pub fn on_path(&mut self, now: Time, path: PathId) {
        self.session.forget_round_trip(path);
        if self.state() == State::Up {
            return self.session.ask_at(now);
        }
        let is_one = path.index() < usize::from(self.paths).min(64);
        let bit = if is_one { 1 << path.index() } else { 0 };
        if bit & !self.hastened != 0 {
            self.hastened |= bit;
            (self.first, self.due) = (Some(path), self.due.min(now));
        }
    }

    fn greet(&mut self, now: Time, unix_millis: u64, out: &mut Vec<u8>) -> PathId {
        let path = self.first.take().unwrap_or_else(|| {
            self.turn += 1;
            PathId::at((self.turn - 1) as usize % usize::from(self.paths))
        });
        let pause = HASTE.get(self.tries as usize).copied().unwrap_or(RETRY);
        (self.tries, self.due) = (self.tries.saturating_add(1), now + pause);
        // A wall clock may be set back.
        self.stamp = unix_millis.max(self.stamp + 1);
        let hello = Hello {
            run: self.run,
            first: self.session.next_number(),
            stamp: self.stamp,
            paths: self.paths,
            aes: self.aes,
            label: self.label.clone(),
        };
        let hello = hello.write(&mut self.rng);
        let mut noise = noise::initiator(&self.own, &self.far, &self.psk, &mut self.rng);
        let mut message = vec![0; hello.len() + 256];
        let length = noise.write_message(&hello, &mut message);
        message.truncate(length.expect("there is room for what the pattern adds"));
        let init = Message::Init { cookie: self.cookie, noise: &message }.write();
        out.extend_from_slice(&self.disguise.hide(&init, &mut self.rng));
        self.pending = Some(noise);
        path
    }

    /// Appends a packet with `frame`, whatever its content, after skipping `skip` numbers. It is
    /// for frames that this crate does not know, which the other end drops. Returns false without
    /// a session or such a path.
    pub fn seal_frame(&mut self, path: PathId, skip: u64, frame: &[u8], out: &mut Vec<u8>) -> bool {
        self.session.seal_frame(&self.disguise, path, skip, &[frame], out)
    }

    /// Returns when this end has to be polled again.
    #[must_use]
    pub fn next_timeout(&self) -> Time {
        self.session.next_timeout().map_or(self.due, |other| other.min(self.due))
    }
}
