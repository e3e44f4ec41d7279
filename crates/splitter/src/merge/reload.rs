//! Changes the settings of a running far end. On SIGHUP, the far end reads its settings again. It
//! adopts either all changes or none.

use std::net::SocketAddr;
use std::sync::Arc;

use anabranch_os::manager::reloading;

use super::client_interface::alike;
use super::client_states::ClientState;
use super::driver::{Driver, look_up, look_up_web_server};
use super::settings::Settings;

impl Driver<'_> {
    /// Handles SIGHUP: reads the settings again, or stops the far end if its terminal was closed.
    pub(super) fn on_hangup(&mut self) {
        if self.hangup.as_mut().is_some_and(anabranch_os::hangup::Hangup::take) {
            self.stopped = true;
            return;
        }
        let Some(reread) = &mut self.reread else { return };
        reloading();
        let read = reread(&self.settings);
        if let Err(why) = read.and_then(|settings| self.adopt(settings)) {
            self.screen.warn(&format!("{why}; the current settings stay"));
        }
        self.report_ready();
    }

    fn adopt(&mut self, settings: Settings) -> Result<(), String> {
        refuse_fixed(&self.settings, &settings)?;
        let servers = look_up(&settings.servers).map_err(|failure| failure.to_string())?;
        let web_server = look_up_web_server(&settings).map_err(|failure| failure.to_string())?;
        if self.interface.is_some() {
            alike(&settings.keys).map_err(|failure| failure.to_string())?;
        }
        let now = self.clock.now();
        self.servers = servers;
        let tls = settings.listen_tls.as_ref().map(|(_, end)| Arc::clone(end));
        self.streams.iter_mut().for_each(|streams| streams.replace(web_server, tls.as_ref()));
        self.settings = settings;
        self.replace_clients();
        self.flows.set_most(self.settings.flows);
        // Existing sessions keep their addresses and schedules.
        let about = self.about();
        self.screen.reloaded(now, &about);
        Ok(())
    }

    /// Adopts the clients of the new key file. Notifies each removed client, on all of its paths,
    /// that its session has ended.
    fn replace_clients(&mut self) {
        let now = self.clock.now();
        let peers = &self.settings.keys.peers;
        let stays = |state: &&ClientState| peers.iter().any(|peer| peer.public == state.public);
        let left = self.client_states.iter().filter(|state| !stays(state)).map(ClientState::id);
        for client in left.collect::<Vec<_>>() {
            self.far.session(client).into_iter().for_each(|session| session.close());
            self.tend(now, client);
            self.send(now);
            self.flows.close_all(client);
            self.close_streams(client);
        }
        let clients: Vec<_> =
            self.settings.keys.peers.iter().map(|peer| (peer.public, peer.psk)).collect();
        let (named, gone) = self.far.replace_clients(&clients);
        gone.iter().for_each(|client| self.client_states[client.0 as usize].leave());
        for (id, peer) in named.iter().zip(&self.settings.keys.peers) {
            match self.client_states.get_mut(id.0 as usize) {
                Some(state) => state.rename(&peer.name),
                // IDs are assigned consecutively.
                None => self.client_states.push(ClientState::new(*id, &peer.name, peer.public)),
            }
        }
        let named = named.into_iter().zip(&self.settings.keys.peers);
        if let Some(interface) = &mut self.interface
            && let Err(error) = interface.lead_to(named, &self.settings.keys.own.public)
        {
            self.screen.warn(&format!(
                "the routes of the interface (--tun) to some clients could not be set: {error}"
            ));
        }
    }
}

fn tls(settings: &Settings) -> Option<SocketAddr> {
    settings.listen_tls.as_ref().map(|(listen, _)| *listen)
}

/// Returns an error if a setting differs that cannot change while the far end runs.
fn refuse_fixed(old: &Settings, new: &Settings) -> Result<(), String> {
    let changed = [
        ("listen", old.listen != new.listen),
        ("listen-tcp", old.listen_tcp != new.listen_tcp),
        ("listen-tls", tls(old) != tls(new)),
        ("stream-age", old.stream_age != new.stream_age),
        ("tun", old.tun != new.tun),
        ("key (the far end's private key)", old.keys.own.public != new.keys.own.public),
        ("pad", old.pad != new.pad),
    ];
    match changed.iter().find(|(_, changed)| *changed) {
        Some((name, _)) => Err(format!(
            "'{name}' cannot change while the far end runs: undo the change in the \
                         settings file, or restart the far end"
        )),
        None => Ok(()),
    }
}
