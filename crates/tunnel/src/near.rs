//! The near end (the side of the programs that use the tunnel). It begins the handshakes with a
//! far end, and has one session.
//!
//! The first handshake is sent on the path on which an answer last arrived. If the timeout
//! [`HASTE`] passes without an answer, copies of the next handshake are sent on all paths that
//! this machine can use now, and each copy is disguised separately. The far end answers each copy
//! with the same keys. Thus a single working path among many dead ones establishes the session
//! after one retry.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_multipath::{PathId, Time};
use rand_core::CryptoRng;
use snow::HandshakeState;

use crate::disguise::Disguise;
use crate::epoch::{Epoch, id_of};
use crate::hello::{Cookie, Hello, LONGEST_LABEL, MOST_COPIES, Message, Welcome};
use crate::keys::{KeyPair, Psk, PublicKey};
use crate::noise;
use crate::piece::Piece;
use crate::session::{Session, UNCONFIRMED};

/// Age at which the keys are renewed (WireGuard: `REKEY_AFTER_TIME`).
const RENEW: Duration = Duration::from_secs(120);
/// Time without an answer after which another handshake begins (WireGuard: `REKEY_TIMEOUT`).
const RETRY: Duration = Duration::from_secs(5);
/// Timeouts of the first three handshakes, after which the next handshake begins. They are shorter
/// than [`RETRY`], because the path of a handshake may be down.
const HASTE: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// Age from which keys are no longer used if no later handshake has replaced them (WireGuard:
/// `REJECT_AFTER_TIME`). The other end may have forgotten them.
const REJECT: Duration = Duration::from_secs(180);

/// Pause before the next handshake after the far end has closed a session. The pause doubles each
/// time that the far end closes a session less than [`LASTING`] after its handshake.
const FAREWELL: Duration = Duration::from_millis(500);
/// Maximum number of doublings of [`FAREWELL`].
const EARLY_CLOSES: u32 = 6;
/// Minimum duration of a session that resets the pause before the next handshake to [`FAREWELL`].
const LASTING: Duration = Duration::from_secs(10);

/// State of a near end's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No far end has answered yet, or the far end has stopped answering.
    Trying {
        /// Number of handshakes begun since the last answer.
        tries: u32,
    },
    /// The session is established.
    Up,
}

/// The near end of a session: the side of the programs that use the tunnel, which begins the
/// handshake.
pub struct NearEnd<R> {
    own: KeyPair,
    far: PublicKey,
    psk: Psk,
    label: String,
    disguise: Disguise,
    rng: R,
    /// Random identifier that this near end has chosen at its start.
    run: [u8; 8],
    paths: u8,
    aes: bool,
    session: Session,
    generation: u32,
    /// The handshakes that wait for an answer, in order. Older handshakes are kept because their
    /// answers may still arrive on slow paths.
    pending: VecDeque<Attempt>,
    /// The paths on which a copy of the newest handshake is sent next.
    copies: VecDeque<PathId>,
    /// The cookie of each path. A cookie proves that this end receives packets at its address,
    /// which may differ from path to path.
    cookies: Vec<Cookie>,
    /// The timestamp in the last handshake, in milliseconds since 1970.
    stamp: u64,
    /// Time at which the next handshake is due.
    due: Time,
    tries: u32,
    /// Whether the far end has stopped answering: no path answers, and a handshake was not
    /// answered or cannot be sent. [`Session::is_up`] stays true then, because the session still
    /// has keys.
    is_lost: bool,
    agreed: Option<Time>,
    /// Number of consecutive sessions that the far end has closed less than [`LASTING`] after
    /// their handshakes, at most [`EARLY_CLOSES`].
    early_closes: u32,
    /// Random identifier that the far end has given to the session; `None` before the first
    /// answer, and after the far end has closed the session.
    theirs: Option<[u8; 8]>,
}

/// A handshake that waits for its answer.
struct Attempt {
    noise: HandshakeState,
    /// The first Noise message.
    message: Vec<u8>,
    /// Number of copies of the handshake that were sent.
    copies: usize,
}

/// Reason why [`NearEnd::new`] fails.
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

impl<R: CryptoRng> NearEnd<R> {
    /// Returns a near end with `paths` paths that has sent nothing yet. `label` names the
    /// requested server at the far end. `sizes` are the lengths that packets may have (see
    /// [`Session::new`]).
    ///
    /// # Errors
    /// [`NearError`] if there are too few or too many paths, or if the label is too long.
    pub fn new(
        own: KeyPair,
        (far, psk): (PublicKey, Psk),
        label: &str,
        paths: u16,
        sizes: &[usize],
        mut rng: R,
    ) -> Result<NearEnd<R>, NearError> {
        let count = u8::try_from(paths).ok().filter(|&paths| paths > 0).ok_or(NearError::Paths)?;
        if label.len() > LONGEST_LABEL {
            return Err(NearError::Label);
        }
        let mut run = [0; 8];
        rng.fill_bytes(&mut run);
        Ok(NearEnd {
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
            pending: VecDeque::new(),
            copies: VecDeque::new(),
            cookies: vec![[0; 16]; count.into()],
            stamp: 0,
            due: Time::ZERO,
            tries: 0,
            is_lost: false,
            agreed: None,
            early_closes: 0,
            theirs: None,
        })
    }

    /// Sets whether AES is fast on this machine. If it is fast on both ends' machines, packets are
    /// encrypted with AES.
    pub fn prefer_aes(&mut self, aes: bool) {
        self.aes = aes;
    }

    /// Returns whether the session is established.
    #[must_use]
    pub fn state(&self) -> State {
        let is_lost = self.is_lost && self.session.is_deaf();
        match self.session.is_up() && !is_lost {
            true => State::Up,
            false => State::Trying { tries: self.tries },
        }
    }

    /// Returns the session, to inspect it and to take datagrams from it.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Encrypts a datagram, or a part of one, and appends the packet for `path` to `out`. The
    /// datagram belongs to a flow (one program at this end). Returns false, and appends nothing,
    /// if the end has no valid keys or no such path.
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

    /// Decrypts and processes a packet that arrived on `path`. Returns whether the far end has
    /// sent the packet.
    pub fn open(&mut self, now: Time, path: PathId, packet: &[u8]) -> bool {
        let id = id_of(&self.disguise, packet);
        let known = self.session.ids().find(|(one, ..)| Some(*one) == id);
        if known.is_some_and(|known| self.session.open(now, known, packet).is_some()) {
            self.after_early_close(now);
            return true;
        }
        self.answered(now, path, packet).is_some()
    }

    /// Schedules a new handshake if the far end has closed the session. A far end closes its
    /// sessions when it stops, and another one may soon start in its place.
    fn after_early_close(&mut self, now: Time) {
        let Some(agreed) = self.agreed.take_if(|_| self.session.is_closed()) else { return };
        if now.since(agreed) >= LASTING {
            self.early_closes = 0;
        }
        let pause = FAREWELL * (1 << self.early_closes);
        self.early_closes = (self.early_closes + 1).min(EARLY_CLOSES);
        (self.theirs, self.tries, self.due) = (None, 0, now + pause);
    }

    /// Processes an answer to a handshake. Returns `None` if `packet` is not a valid answer to a
    /// pending handshake.
    fn answered(&mut self, now: Time, path: PathId, packet: &[u8]) -> Option<()> {
        let message = self.disguise.find(packet)?;
        let noise = match Message::read(&message)? {
            Message::Answer { noise } => noise,
            Message::Cookie(cookie) => return self.prove(path, cookie),
            Message::Init { .. } => return None,
        };
        let mut payload = vec![0; noise.len()];
        let mut newest_first = self.pending.iter_mut().rev();
        let (pending, length) = newest_first.find_map(|pending| {
            let length = pending.noise.read_message(noise, &mut payload).ok()?;
            Some((pending, length))
        })?;
        let welcome = Welcome::read(&payload[..length]).filter(|one| self.aes || !one.aes)?;
        let (out, back) = pending.noise.dangerously_get_raw_split();
        let epoch = Epoch::new(&out, &back, welcome.paths.min(self.paths).into(), welcome.aes);
        if self.theirs != Some(welcome.run) {
            self.theirs = Some(welcome.run);
            self.session.begin_at(welcome.first);
        }
        self.generation += 1;
        self.session.renew(self.generation, epoch, true);
        self.session.ask_at(now);
        self.pending.clear();
        self.copies.clear();
        self.is_lost = false;
        (self.tries, self.agreed, self.due) = (0, Some(now), now + RENEW);
        Some(())
    }

    /// Sends the newest handshake again on `path`, with the `cookie` that proves our address on
    /// this path to the far end. Returns `None` if no handshake waits for an answer.
    fn prove(&mut self, path: PathId, cookie: Cookie) -> Option<()> {
        self.pending.back()?;
        let own = self.cookies.get_mut(path.index())?;
        if *own != cookie {
            *own = cookie;
            self.copy_by(path);
        }
        Some(())
    }

    /// Appends the next packet that carries no datagram of a program: a handshake, or a control
    /// message of the session. Returns its path; `None` if there is no such packet. `unix_millis`
    /// is the time of day, which orders the handshakes of one key at the far end.
    pub fn poll_transmit(
        &mut self,
        now: Time,
        unix_millis: u64,
        out: &mut Vec<u8>,
    ) -> Option<PathId> {
        // Paths that were silent before a handshake need a round trip after the handshake to
        // answer again.
        let settled = self.agreed.is_some_and(|agreed| now.since(agreed) >= RETRY);
        let forgotten = self.tries == 0 && settled && self.session.is_deaf();
        if (now >= self.due || forgotten) && self.may_greet() {
            self.greet(now, unix_millis);
        }
        let may_be_lost = self.is_lost || self.tries > 0 || !self.may_greet();
        self.is_lost = may_be_lost && self.session.is_deaf();
        if let Some(path) = self.write_copy(out) {
            return Some(path);
        }
        self.session.poll_transmit(now, &self.disguise, out)
    }

    /// Sets whether this machine can send on `path` now. If `carries` is false, for example
    /// because a stream has no connection, no handshakes and probes are sent on the path. When
    /// `carries` becomes true again, the path is treated as in [`NearEnd::on_path`].
    pub fn set_carries(&mut self, now: Time, path: PathId, carries: bool) {
        let before = self.session.set_carries(path, carries);
        if carries && before == Some(false) {
            self.on_path(now, path);
        }
    }

    /// Reports that `path` leads to the far end again, or that its route has changed. The
    /// round-trip time of `path` is measured again. In an established session, all paths are
    /// probed at once. Otherwise a handshake is sent on `path` at once, if this machine can send
    /// on `path`.
    pub fn on_path(&mut self, now: Time, path: PathId) {
        self.session.forget_round_trip(path);
        if self.state() == State::Up {
            return self.session.ask_at(now);
        }
        if !self.session.carries(path) {
            return;
        }
        if self.pending.is_empty() {
            self.due = self.due.min(now);
        }
        self.copy_by(path);
    }

    /// Returns whether a handshake can be sent now, because this machine can send on some path.
    fn may_greet(&self) -> bool {
        (0..self.paths).any(|path| self.session.carries(PathId(path.into())))
    }

    /// Schedules a copy of the latest handshake message, which is sent over `path`.
    fn copy_by(&mut self, path: PathId) {
        if !self.copies.contains(&path) {
            self.copies.push_back(path);
        }
    }

    /// Begins a handshake on the path on which an answer last arrived. If the last handshake got
    /// no answer, begins it on all paths that this machine can send on.
    fn greet(&mut self, now: Time, unix_millis: u64) {
        let paths = (0..self.paths).map(|path| PathId(path.into()));
        let mut by: Vec<PathId> = paths.filter(|path| self.session.carries(*path)).collect();
        if self.tries == 0 {
            by.sort_by_key(|path| std::cmp::Reverse(self.session.last_arrival(*path)));
            by.truncate(1);
        }
        by.into_iter().for_each(|path| self.copy_by(path));
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
        message.truncate(
            length.expect("the buffer has room for the bytes that the Noise pattern adds"),
        );
        self.pending.push_back(Attempt { noise, message, copies: 0 });
        if self.pending.len() > UNCONFIRMED {
            self.pending.pop_front();
        }
    }

    /// Appends the next scheduled copy of the newest handshake. Returns its path; `None` if no
    /// copy is scheduled.
    fn write_copy(&mut self, out: &mut Vec<u8>) -> Option<PathId> {
        let newest = self.pending.back_mut()?;
        let path = loop {
            let path = self.copies.pop_front()?;
            if self.session.carries(path) && newest.copies < MOST_COPIES {
                break path;
            }
        };
        newest.copies += 1;
        let cookie = self.cookies.get(path.index()).copied().unwrap_or_default();
        let init = Message::Init { cookie, noise: &newest.message }.write();
        out.extend_from_slice(&self.disguise.hide(&init, &mut self.rng));
        Some(path)
    }

    /// Encrypts any `frame` as a packet, after skipping `skip` packet numbers, and appends the
    /// packet. With this function, callers can send frames of unknown kinds, which the other end
    /// drops. Returns false if this end has no keys, or if the session has no such path.
    pub fn seal_frame(&mut self, path: PathId, skip: u64, frame: &[u8], out: &mut Vec<u8>) -> bool {
        self.session.seal_frame(&self.disguise, path, skip, &[frame], out)
    }

    /// Returns the time at which the caller has to call [`NearEnd::poll_transmit`] again, even if
    /// no packet arrives.
    #[must_use]
    pub fn next_timeout(&self) -> Time {
        let greets = match self.pending.is_empty() || self.copies.is_empty() {
            true => self.may_greet().then_some(self.due),
            false => Some(Time::ZERO),
        };
        [self.session.next_timeout(), greets].into_iter().flatten().min().unwrap_or(Time::MAX)
    }
}
