//! The first hop that a client keeps (guard-spec): whoever changes it often will sooner or later
//! have a hostile one.
//!
//! A short list is kept, oldest first. The first usable entry is the guard; a new one is added only
//! when no kept one is. There is a place here for the rest of guard-spec: sampling by a history
//! that outlives the consensus, primary guards, and restrictions by bridges.

use rand_core::Rng;

use super::network::{Network, NoRelay, Position, Wishes};

/// At most so many are kept; beyond, we wait rather than let an attacker walk us through the network.
const MOST: usize = 20;
/// After a failure a guard rests: this long, then twice as long, up to the last figure (seconds).
const FIRST_REST: u64 = 10;
const LONGEST_REST: u64 = 6 * 3600;
/// A guard that no consensus lists for so long is dropped.
const UNLISTED: u64 = 20 * 86_400;

/// One kept guard. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Its RSA identity.
    pub rsa_identity: [u8; 20],
    /// When it was chosen.
    pub chosen: u64,
    /// Whether a circuit was ever built through it.
    pub confirmed: bool,
    /// When a consensus last listed it as a guard.
    pub listed: u64,
    /// How often in a row it failed, and until when it rests for that.
    pub failures: u32,
    /// See `failures`.
    pub rests_until: u64,
}

/// The guards of one client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guards {
    kept: Vec<Guard>,
}

impl Guards {
    /// Takes up what an earlier run kept.
    #[must_use]
    pub fn restore(kept: Vec<Guard>) -> Guards {
        Guards { kept }
    }

    /// What is to be kept for the next run.
    #[must_use]
    pub fn kept(&self) -> &[Guard] {
        &self.kept
    }

    /// The guard to use now. It is the same as before as long as it can be used.
    ///
    /// # Errors
    /// No relay can be one, or all that we keep rest.
    pub fn current(
        &mut self,
        network: &Network,
        wishes: &Wishes,
        unix_now: u64,
        rng: &mut impl Rng,
    ) -> Result<[u8; 20], NoRelay> {
        self.refresh(network, unix_now);
        let usable = |guard: &&Guard| {
            guard.rests_until <= unix_now
                && wishes.allow(Position::Guard, &guard.rsa_identity)
                && is_guard(network, &guard.rsa_identity)
        };
        if let Some(guard) = self.kept.iter().find(usable) {
            return Ok(guard.rsa_identity);
        }
        if self.kept.len() >= MOST {
            return Err(NoRelay(Position::Guard));
        }
        let known: Vec<[u8; 20]> = self.kept.iter().map(|guard| guard.rsa_identity).collect();
        let fresh = Wishes { exclude: [&wishes.exclude[..], &known].concat(), ..wishes.clone() };
        let chosen = network.choose(Position::Guard, &[], &fresh, rng)?.status.rsa_identity;
        self.kept.push(Guard {
            rsa_identity: chosen,
            chosen: unix_now,
            confirmed: false,
            listed: unix_now,
            failures: 0,
            rests_until: 0,
        });
        Ok(chosen)
    }

    /// A circuit was built through this guard.
    pub fn succeeded(&mut self, id: &[u8; 20]) {
        if let Some(guard) = self.kept.iter_mut().find(|guard| guard.rsa_identity == *id) {
            (guard.confirmed, guard.failures, guard.rests_until) = (true, 0, 0);
        }
    }

    /// This guard could not be reached: it rests, and another stands in.
    pub fn failed(&mut self, id: &[u8; 20], unix_now: u64) {
        if let Some(guard) = self.kept.iter_mut().find(|guard| guard.rsa_identity == *id) {
            let rest = FIRST_REST << guard.failures.min(16);
            guard.failures = guard.failures.saturating_add(1);
            guard.rests_until = unix_now + rest.min(LONGEST_REST);
        }
    }

    /// None answered: it is the network that was away. All may be tried again at once.
    pub fn wake(&mut self) {
        self.kept.iter_mut().for_each(|guard| guard.rests_until = 0);
    }

    fn refresh(&mut self, network: &Network, unix_now: u64) {
        let lifetime = network.params().guard_lifetime;
        for guard in &mut self.kept {
            if is_guard(network, &guard.rsa_identity) {
                guard.listed = unix_now;
            }
        }
        self.kept.retain(|guard| {
            unix_now < guard.listed + UNLISTED && unix_now < guard.chosen + lifetime
        });
    }
}

fn is_guard(network: &Network, id: &[u8; 20]) -> bool {
    network.relay(id).is_some_and(|relay| relay.status.flags.guard)
}
