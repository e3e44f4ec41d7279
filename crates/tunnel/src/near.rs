//! The end at home: it begins handshakes, and has one session.

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

/// The keys are renewed after this time (WireGuard: REKEY_AFTER_TIME).
const RENEW: Duration = Duration::from_secs(120);
/// A handshake that is not answered is begun anew after this time (WireGuard: REKEY_TIMEOUT), by
/// the next path.
const RETRY: Duration = Duration::from_secs(5);
/// The first ones sooner: a path may be cut.
const HASTE: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// Keys whose renewal was not answered for so long are not used any more (WireGuard:
/// REJECT_AFTER_TIME): the other end may have forgotten them.
const REJECT: Duration = Duration::from_secs(180);

/// After the far end's farewell a handshake is begun anew; after each further one that follows
/// soon, twice as late, as often as this.
const FAREWELL: Duration = Duration::from_millis(500);
const FAREWELLS: u32 = 6;
/// A session that lasted so long was one.
const LASTING: Duration = Duration::from_secs(10);

/// How far a near end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No far end has answered yet, or any more, after so many handshakes.
    Trying {
        /// Handshakes that were begun.
        tries: u32,
    },
    /// There is a session.
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
    /// The name of this run.
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
    /// When a handshake is to be begun.
    due: Time,
    tries: u32,
    /// Handshakes in a row that went by the paths in turn.
    turn: u32,
    /// The path of the next handshake, where one is preferred.
    first: Option<PathId>,
    /// Paths, by their bits, for which a handshake was begun early since the last answer. A path
    /// that appears again and again, and leads nowhere, takes no turn from others.
    hastened: u64,
    agreed: Option<Time>,
    /// How often the far end said farewell, each time soon after it had answered.
    farewells: u32,
    /// The far end's part of the session.
    theirs: Option<[u8; 8]>,
}

/// Why a near end cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NearError {
    /// A session has 1 to 255 paths.
    Paths,
    /// The label is longer than [`LONGEST_LABEL`] bytes.
    Label,
}

impl std::fmt::Display for NearError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NearError::Paths => f.write_str("a session has 1 to 255 paths"),
            NearError::Label => write!(f, "a label has at most {LONGEST_LABEL} bytes"),
        }
    }
}

impl std::error::Error for NearError {}

impl<R: CryptoRng> Near<R> {
    /// An end with these paths that has said nothing yet. `label` names the server that is wanted
    /// behind the far end, `sizes` the lengths that packets may have (see [`Session::new`]).
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

    /// Whether AES is quick on this machine: where it is so on both, packets are sealed by it.
    pub fn prefer_aes(&mut self, aes: bool) {
        self.aes = aes;
    }

    /// How far it is.
    #[must_use]
    pub fn state(&self) -> State {
        // A far end that has gone leaves keys that nobody answers to.
        let is_lost = self.tries > 0 && self.session.is_deaf();
        match self.session.is_up() && !is_lost {
            true => State::Up,
            false => State::Trying { tries: self.tries },
        }
    }

    /// The session, to look at and to take datagrams from.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Appends the packet that carries a datagram of a flow, or a part of one, by a path; see
    /// [`Session`]. False if it has to wait.
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

    /// Takes a packet that came. Whether it was of the far end.
    pub fn open(&mut self, now: Time, packet: &[u8]) -> bool {
        let id = id_of(&self.disguise, packet);
        let known = self.session.ids().find(|(one, ..)| Some(*one) == id);
        if known.is_some_and(|known| self.session.open(now, known, packet).is_some()) {
            self.follow_farewell(now);
            return true;
        }
        self.answered(now, packet).is_some()
    }

    /// The far end has ended the session, as one that is stopped does: another may be there soon.
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

    /// Takes an answer to a handshake.
    fn answered(&mut self, now: Time, packet: &[u8]) -> Option<()> {
        let message = self.disguise.find(packet)?;
        let noise = match Message::read(&message)? {
            Message::Answer { noise } => noise,
            Message::Cookie(cookie) => {
                // The far end wants proof that we are where we say.
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

    /// Appends the next packet that this end has to say by itself: a handshake, or a word of the
    /// session. The path that it goes by. `unix_millis` is the wall clock: handshakes of one key
    /// are in its order.
    pub fn say(&mut self, now: Time, unix_millis: u64, out: &mut Vec<u8>) -> Option<PathId> {
        // Paths that were silent before a handshake need a round trip after it to be heard again.
        let settled = self.agreed.is_some_and(|agreed| now.since(agreed) >= RETRY);
        let forgotten = self.tries == 0 && settled && self.session.is_deaf();
        if now >= self.due || forgotten {
            return Some(self.greet(now, unix_millis, out));
        }
        self.session.say(now, &self.disguise, out)
    }

    /// A path leads to the far end now and did not before, or by another way: its round trip is
    /// measured again. With a session all paths are asked at once. Without one a handshake begins
    /// at once and goes by this path, the first time that it appears.
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

    /// Appends a packet with this frame, whatever it says, after leaving out `skip` numbers: for
    /// frames that this crate does not know, which the other end drops. False without a session or
    /// such a path.
    pub fn seal_frame(&mut self, path: PathId, skip: u64, frame: &[u8], out: &mut Vec<u8>) -> bool {
        self.session.seal_frame(&self.disguise, path, skip, &[frame], out)
    }

    /// When this end is to be asked again.
    #[must_use]
    pub fn next_timeout(&self) -> Time {
        self.session.next_timeout().map_or(self.due, |other| other.min(self.due))
    }
}
