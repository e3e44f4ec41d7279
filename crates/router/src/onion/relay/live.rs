//! Settings of a relay that may change while it runs, and how changes take effect.

use std::net::IpAddr;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_onion::directory::descriptor::Description;
use anabranch_onion::directory::policy::ExitPolicy;
use anabranch_onion::relay::{Behaviour, is_public};
use anabranch_onion::wire::cell::CELL;
use anabranch_os::manager::notify;
use sd_notify::NotifyState;

use super::clocked::Clocked;
use super::workers::WorkerOrder;
use super::{DESCRIBE, MainShard, READY, Watch};
use crate::onion::authorities::Authority;
use crate::onion::reload::{ReloadAction, ReloadedSettings};

/// Default maximum memory for queued cells, in bytes.
const MEMORY: usize = 128 << 20;

/// Settings of a relay that may change while it runs.
#[derive(Clone, Debug)]
pub struct LiveSettings {
    /// IP addresses of the relay's own machine. Exit streams to them are refused, unless private
    /// addresses are allowed.
    pub own: Vec<IpAddr>,
    /// Exit policy for new streams.
    pub policy: ExitPolicy,
    /// True if circuits and streams to private addresses are allowed.
    pub allow_private: bool,
    /// Maximum memory for queued cells, in bytes.
    pub memory: usize,
    /// Description of the relay that is published in its descriptor. The relay fills in its
    /// uptime, its observed bandwidth and its history. The bandwidth in the description also
    /// limits the relay's links.
    pub description: Description,
    /// Time for which circuits may continue after a request to stop.
    pub grace: Duration,
}

impl LiveSettings {
    /// Creates settings with `description`, without a grace period, and without circuits and
    /// streams to private addresses.
    #[must_use]
    pub fn new(description: Description) -> LiveSettings {
        let v6 = description.v6.map(|v6| IpAddr::from(*v6.ip()));
        LiveSettings {
            own: [IpAddr::from(description.address)].into_iter().chain(v6).collect(),
            policy: description.policy.clone(),
            allow_private: false,
            memory: MEMORY,
            description,
            grace: Duration::ZERO,
        }
    }

    /// Returns the exit policy in effect. Unless private addresses are allowed, it refuses
    /// addresses of the relay's own machine and of private networks. Without IPv6 at the relay, it
    /// refuses IPv6.
    pub(super) fn exit_policy(&self) -> ExitPolicy {
        let policy = match self.allow_private {
            true => self.policy.clone(),
            false => self.policy.refusing_private(&self.own),
        };
        let v6 = self.policy.names_v6() || self.description.exits_to_v6();
        if v6 { policy } else { policy.refusing_v6() }
    }

    /// Returns a warning if the relay's own address is private but private addresses are not
    /// allowed; otherwise `None`. With these settings, the relay would not extend circuits to
    /// other relays of its network.
    pub(super) fn warning(&self) -> Option<String> {
        let private = self.own.iter().find(|&&own| !is_public(own));
        let private = private.filter(|_| !self.allow_private)?;
        Some(format!(
            "this relay's address {private} is private, and this relay extends no circuits to \
             private addresses: in a test network of your own, add --allow-private"
        ))
    }

    /// Returns the protocol core's settings for one of the relay's `threads` event loops.
    pub(super) fn behaviour(&self, threads: usize) -> Behaviour {
        Behaviour {
            exit: !self.policy.rejects_all(),
            allow_private: self.allow_private,
            max_cells: self.memory / CELL / threads.max(1),
        }
    }
}

/// New settings for a relay that runs already.
#[derive(Debug)]
pub struct Changes {
    /// New values of the settings that may change.
    pub live: LiveSettings,
    /// The new directory authorities; `None` if they have not changed.
    pub authorities: Option<Vec<Authority>>,
}

impl MainShard<'_> {
    /// Reads the settings again after SIGHUP. Returns false if the relay must end.
    pub(super) fn on_hangup(&mut self, watch: &mut Clocked<'_>) -> bool {
        let Some(reload) = &mut self.reload else { return true };
        let outcome = match reload.take() {
            ReloadAction::End => return false,
            ReloadAction::Keep(why) => Err(why),
            ReloadAction::Adopt(ReloadedSettings { settings, names }) => {
                self.adopt(settings, watch);
                Ok(names)
            }
        };
        notify(&[NotifyState::Ready, NotifyState::Status(READY)]);
        watch.reloaded(&outcome);
        true
    }

    fn adopt(&mut self, changes: Changes, watch: &mut Clocked<'_>) {
        let Changes { mut live, authorities } = changes;
        // The bridge's transports are kept, because they do not depend on the settings in the
        // file.
        live.description.bridge.clone_from(&self.settings.live.description.bridge);
        let news = live.description.differs_from(&self.settings.live.description);
        if let Some(authorities) = authorities {
            watch.trust(&authorities);
            self.settings.dirclient.trust(authorities, false);
        }
        let [rate, burst, _] = live.description.bandwidth;
        if self.settings.live.description.bandwidth[..2] != [rate, burst] {
            self.meters.iter().for_each(|meter| meter.set(rate, burst));
        }
        let behaviour = live.behaviour(self.settings.threads);
        self.workers.send(|| WorkerOrder::Live(Box::new(live.clone()), behaviour));
        self.shard.adopt(&live, behaviour);
        self.settings.live = live;
        // If only the observed bandwidth has changed, the description is published when publishing
        // is due.
        if news {
            self.describe();
        }
    }

    /// Passes the relay's current description to the directory client, with uptime, observed
    /// bandwidth and history. The description is published at once if a setting has changed since
    /// the last call.
    pub(super) fn describe(&self) {
        let uptime = self.shard.station.clock.now().since(Time::ZERO).as_secs();
        let history = self.history_file.history.clone();
        let mut description = Description { uptime, ..self.settings.live.description.clone() };
        let [.., observed] = &mut description.bandwidth;
        *observed = history.observed();
        self.settings.dirclient.publish(Description { history, ..description });
    }

    /// Updates the relay's description if an update is due: every [`DESCRIBE`], and soon after a
    /// bandwidth self-test.
    pub(super) fn describe_in_time(&mut self, now: Time) {
        if now >= self.describe_at {
            self.describe_at = now + DESCRIBE;
            self.describe();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV4;

    use super::*;

    fn live(rules: &[&str], v6: Option<&str>) -> LiveSettings {
        let at: SocketAddrV4 = "192.0.2.7:9001".parse().unwrap();
        let usual = Description::new("river".to_owned(), at, "x".to_owned());
        let (policy, v6) = (ExitPolicy::parse(rules).unwrap(), v6.map(|at| at.parse().unwrap()));
        LiveSettings::new(Description { policy, v6, ..usual })
    }

    fn allows(live: &LiveSettings, address: &str) -> bool {
        live.exit_policy().allows(address.parse().unwrap(), 443)
    }

    #[test]
    fn an_exit_that_accepts_everything_keeps_streams_out_of_its_own_machine_and_network() {
        let open = live(&["accept *:*"], Some("[2001:db8::7]:9001"));
        for inside in ["127.0.0.1", "10.1.2.3", "::1", "fd00::1", "192.0.2.7", "2001:db8::7"] {
            assert!(!allows(&open, inside), "{inside}");
            assert!(
                allows(&LiveSettings { allow_private: true, ..open.clone() }, inside),
                "{inside}"
            );
        }
        assert!(allows(&open, "192.0.2.8") && allows(&open, "2001:db8::8"));
    }

    #[test]
    fn a_relay_that_will_extend_to_no_neighbour_says_so() {
        let mut inside = live(&["reject *:*"], Some("[fd00::1]:9001"));
        let warning = inside.warning().unwrap();
        assert!(warning.contains("fd00::1") && warning.contains("--allow-private"), "{warning}");
        inside.allow_private = true;
        assert_eq!(inside.warning(), None);
        assert_eq!(live(&["reject *:*"], None).warning(), None);
    }

    #[test]
    fn streams_go_to_ipv6_where_the_relay_has_it_or_its_operator_names_it() {
        assert!(!allows(&live(&["accept *:*"], None), "2001:db8::8"));
        assert!(allows(&live(&["accept *6:443", "accept *:80"], None), "2001:db8::8"));
        assert!(!live(&["reject *:*"], None).behaviour(1).exit);
    }
}
