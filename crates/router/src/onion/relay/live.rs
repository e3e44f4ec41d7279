//! What of a relay may change while it runs, and how it does.

use std::net::IpAddr;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_onion::directory::descriptor::Description;
use anabranch_onion::directory::policy::ExitPolicy;
use anabranch_onion::relay::Behaviour;
use anabranch_onion::wire::cell::CELL;
use anabranch_os::manager::tell;
use sd_notify::NotifyState;

use super::clocked::Clocked;
use super::workers::WorkerOrder;
use super::{DESCRIBE, MainShard, READY, Watch};
use crate::onion::authorities::Authority;
use crate::onion::reload::{Asked, Renewed};

/// Default limit of queued cells, in bytes.
const MEMORY: usize = 128 << 20;

/// Settings that may change while a relay runs.
#[derive(Clone, Debug)]
pub struct Live {
    /// The addresses that we call ours.
    pub own: Vec<IpAddr>,
    /// Where streams may go: those that come from now on.
    pub policy: ExitPolicy,
    /// Whether circuits and streams may lead to private addresses.
    pub allow_private: bool,
    /// Limit of queued cells, in bytes.
    pub memory: usize,
    /// What is published of us; uptime is filled in, and what we were seen to carry, now and in the
    /// days before. Links are held to its bandwidth.
    pub description: Description,
    /// How long circuits may go on after the end was asked for.
    pub grace: Duration,
}

impl Live {
    /// As the description says, without a time of grace; private addresses are nobody's business.
    #[must_use]
    pub fn new(description: Description) -> Live {
        let v6 = description.v6.map(|v6| IpAddr::from(*v6.ip()));
        Live {
            own: [IpAddr::from(description.address)].into_iter().chain(v6).collect(),
            policy: description.policy.clone(),
            allow_private: false,
            memory: MEMORY,
            description,
            grace: Duration::ZERO,
        }
    }

    /// How one of so many shards behaves.
    pub(super) fn behaviour(&self, threads: usize) -> Behaviour {
        Behaviour {
            exit: !self.policy.rejects_all(),
            allow_private: self.allow_private,
            max_cells: self.memory / CELL / threads.max(1),
        }
    }
}

/// What a relay was told anew.
#[derive(Debug)]
pub struct Changes {
    /// The settings from now on.
    pub live: Live,
    /// Whom to ask and whom to tell from now on, if that has changed.
    pub authorities: Option<Vec<Authority>>,
}

impl MainShard<'_> {
    /// SIGHUP has come: false if it is to end.
    pub(super) fn on_hangup(&mut self, watch: &mut Clocked<'_>) -> bool {
        let Some(reload) = &mut self.reload else { return true };
        let outcome = match reload.take() {
            Asked::End => return false,
            Asked::Keep(why) => Err(why),
            Asked::Adopt(Renewed { settings, names }) => {
                self.adopt(settings, watch);
                Ok(names)
            }
        };
        tell(&[NotifyState::Ready, NotifyState::Status(READY)]);
        watch.reloaded(&outcome);
        true
    }

    fn adopt(&mut self, changes: Changes, watch: &mut Clocked<'_>) {
        let Changes { mut live, authorities } = changes;
        // Transports came up by themselves.
        live.description.bridge.clone_from(&self.settings.live.description.bridge);
        if let Some(authorities) = authorities {
            watch.trust(&authorities);
            self.settings.dirclient.trust(authorities, false);
        }
        let [rate, burst, _] = live.description.bandwidth;
        if self.settings.live.description.bandwidth[..2] != [rate, burst] {
            self.meters.iter().for_each(|meter| meter.set(rate, burst));
        }
        let behaviour = live.behaviour(self.settings.threads);
        self.workers.tell(|| WorkerOrder::Live(Box::new(live.clone()), behaviour));
        self.shard.adopt(&live, behaviour);
        self.settings.live = live;
        self.describe();
    }

    /// Has us described as we are; only what is news is published.
    pub(super) fn describe(&self) {
        let uptime = self.shard.station.clock.now().since(Time::ZERO).as_secs();
        let history = self.history_file.history.clone();
        let mut description = Description { uptime, ..self.settings.live.description.clone() };
        let [.., observed] = &mut description.bandwidth;
        *observed = history.observed();
        self.settings.dirclient.publish(Description { history, ..description });
    }

    /// The same once a minute: what is no news is published only when it is due.
    pub(super) fn describe_in_time(&mut self, now: Time) {
        if now >= self.describe_at {
            self.describe_at = now + DESCRIBE;
            self.describe();
        }
    }
}
