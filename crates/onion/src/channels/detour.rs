//! Moves the circuits of a broken QUIC link to the TLS link alongside it
//! (`docs/spec/quic-links.md`). Copies of sent cells are kept until the neighbour acknowledges
//! them. After the move, cells of these circuits are sent inside cells of the TLS link.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_multipath::Time;

use super::{Channels, Link, LinkCircuit, LinkId, Owner, PopOutcome};
use crate::queue::Queue;
use crate::transport::Transport;
use crate::wire::cell::{CELL, Command};
use crate::wire::link::{COUNTS_IN_CELL, CellCount, Identity, TlsLinkToken, put_counts, put_move};
use crate::wire::message::DestroyReason;

/// Maximum number of QUIC links alongside one TLS link. Closed QUIC links count while the TLS link
/// carries their circuits.
const MOST_BESIDE: usize = 8;
/// Maximum number of copies of unacknowledged cells that one link keeps. Above it, all copies are
/// dropped, and the link's circuits can no longer move. A correct neighbour acknowledges cells
/// within a round trip and never causes this.
const MOST_KEPT: usize = 16_384;
/// Number of cells received on a link after which an acknowledgement is sent.
const CELLS_PER_ACK: usize = 48;
/// Maximum number of circuits that one MOVE cell lists, each with its number of received cells.
const COUNTS_IN_MOVE: usize = 1_000;
/// Maximum number of circuits in a link's list of moving circuits. This is also the maximum number
/// of circuits on a link.
const MOST_LISTED: usize = 1 << 16;

/// Counts of received and acknowledged cells of one circuit on a link.
#[derive(Default)]
pub(super) struct Delivery {
    /// Number of cells received on the circuit.
    received: u32,
    /// Number of cells sent on the circuit that the neighbour has acknowledged.
    acknowledged: u32,
    /// Copies of all cells sent on the circuit that the neighbour has not acknowledged.
    pub(super) kept: Queue,
}

/// State for moving the circuits of a QUIC link to the TLS link alongside it if the QUIC link
/// breaks.
pub(super) struct Detour {
    tls_link: LinkId,
    number: u32,
    stage: Stage,
    /// Number of copies of sent cells on all circuits of the link. Each copy is kept until its
    /// cell is acknowledged.
    pub(super) kept: usize,
    /// Circuits on the link with received but unacknowledged cells.
    unacknowledged: BTreeSet<u32>,
    /// Number of received but unacknowledged cells on all circuits of the link.
    received: usize,
    /// True if a timer for the next acknowledgement is set.
    timed: bool,
    /// For each circuit in the neighbour's list of circuits that move to the TLS link: the number
    /// of cells that the neighbour has received on it. Circuits are missing while the list is
    /// incomplete.
    listed: BTreeMap<u32, u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The circuits use the QUIC link.
    OnQuic,
    /// The circuits are moving and use neither link. We have sent our list of them, and the
    /// neighbour's list is incomplete.
    Moving,
    /// The circuits have moved, and use the TLS link alongside the QUIC link.
    Moved,
}

impl Detour {
    /// Returns true if copies of sent cells are kept.
    pub(super) fn keeps(&self) -> bool {
        self.stage == Stage::OnQuic
    }
}

/// Error for a neighbour's cell about QUIC links or moving circuits. The cell has a wrong count of
/// cells or circuits, or a wrong link identifier, or was not expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadCount;

impl Link {
    /// Returns true if the link's circuits have moved to another link, or are moving.
    pub(crate) fn has_moved(&self) -> bool {
        self.detour.as_ref().is_some_and(|detour| detour.stage != Stage::OnQuic)
    }

    /// Returns the link that takes over the circuits, during or after their move; `None` if the
    /// circuits use the QUIC link.
    pub(super) fn carrier(&self) -> Option<LinkId> {
        self.detour.as_ref().filter(|detour| !detour.keeps()).map(|detour| detour.tls_link)
    }

    /// Returns true if copies of sent cells are kept, so that circuits can move to another link.
    pub(crate) fn keeps_copies(&self) -> bool {
        self.detour.as_ref().is_some_and(|detour| detour.keeps())
    }

    /// Returns true if the link keeps more than `MOST_KEPT` copies of sent cells. The caller must
    /// then drop all copies.
    pub(super) fn keeps_too_much(&self) -> bool {
        self.detour.as_ref().is_some_and(|detour| detour.kept > MOST_KEPT)
    }

    /// Returns true if the circuits of this QUIC link have moved to the TLS link to the same
    /// relay, and the TLS link may now send their cells.
    fn takes_turns(&self) -> bool {
        self.detour.as_ref().is_some_and(|detour| detour.stage == Stage::Moved)
    }
}

impl Channels {
    /// Returns true if the circuits of the link `id` have moved to another link, or are moving.
    pub(crate) fn has_moved(&self, id: LinkId) -> bool {
        self.links.get(&id).is_some_and(Link::has_moved)
    }

    /// Returns the number of circuits that have moved to another link since the start.
    pub(crate) fn moved_circuits(&self) -> u64 {
        self.moved
    }

    /// Returns the QUIC links alongside the link `id`.
    pub(crate) fn paired_quic(&self, id: LinkId) -> Vec<LinkId> {
        self.links
            .get(&id)
            .map(|link| link.paired_quic.values().copied().collect())
            .unwrap_or_default()
    }

    /// Returns the QUIC link with the identifier `number` among the QUIC links alongside the TLS
    /// link `id`. Returns `None` if there is no such link.
    pub(crate) fn numbered(&self, id: LinkId, number: u32) -> Option<LinkId> {
        self.links.get(&id)?.paired_quic.get(&number).copied()
    }

    /// Returns the number of circuits on the link `id` and on the QUIC links alongside it.
    pub(crate) fn circuits_with_quic(&self, id: LinkId) -> usize {
        let Some(link) = self.links.get(&id) else { return 0 };
        let paired_quic = link.paired_quic.values().filter_map(|id| self.links.get(id));
        link.circuits() + paired_quic.map(Link::circuits).sum::<usize>()
    }

    /// Pairs `quic`, which we opened to a relay, with a TLS link to the same relay. Returns the
    /// identifier assigned to `quic` among the QUIC links alongside the TLS link, and the token
    /// that identifies the TLS link. Returns zeros if the circuits of `quic` cannot move to any
    /// link.
    pub(crate) fn pair_with_tls(&mut self, quic: LinkId, to: &Identity) -> (u32, TlsLinkToken) {
        let usable = |link: &Link| {
            let token = link.quic_offer.map(|quic_offer| quic_offer.token).unwrap_or_default();
            token != TlsLinkToken::default() && link.paired_quic.len() < MOST_BESIDE
        };
        let is_opening =
            |link: &Link| link.quic_offer.is_some_and(|quic_offer| quic_offer.is_opening);
        let usable = self.reaching(&to.rsa).filter(|(_, link)| usable(link));
        // Prefer the link for which `quic` was opened. Other links may belong to other threads of
        // the relay.
        let found = usable.min_by_key(|(_, link)| !is_opening(link)).map(|(id, _)| id);
        let Some(id) = found else { return Default::default() };
        let Some(link) = self.links.get_mut(&id) else { return Default::default() };
        let (Some(quic_offer), number) = (link.quic_offer, link.last_quic_number + 1) else {
            return Default::default();
        };
        self.pair(quic, id, number);
        (number, quic_offer.token)
    }

    /// Pairs `quic` with the TLS link that the neighbour identifies by `token`. Returns `number`,
    /// the identifier that the neighbour has assigned to `quic` among the QUIC links alongside
    /// that link. Returns 0 if there is no such link here, or if the circuits of `quic` cannot
    /// move to it.
    ///
    /// # Errors
    /// The identifier was already used for another QUIC link.
    pub(crate) fn paired_by_token(
        &mut self,
        quic: LinkId,
        (number, token): (u32, TlsLinkToken),
    ) -> Result<u32, BadCount> {
        let whose = |link: &Link| link.channel.identity();
        let Some(by) = self.links.get(&quic).map(whose) else { return Ok(0) };
        let fits = |link: &Link| link.token == Some(token) && whose(link) == by;
        let found = self.links.iter().find(|(_, link)| fits(link));
        let Some((id, link)) = found.filter(|_| number != 0) else { return Ok(0) };
        if number <= link.last_quic_number {
            return Err(BadCount);
        }
        if link.paired_quic.len() >= MOST_BESIDE {
            return Ok(0);
        }
        self.pair(quic, id, number);
        Ok(number)
    }

    /// Handles the neighbour's answer to our request to pair the QUIC link with a TLS link. The
    /// answer 0 means that the circuits of `quic` cannot move.
    ///
    /// # Errors
    /// The identifier in the answer is neither 0 nor the identifier in our request.
    pub(crate) fn pairing_answered(&mut self, quic: LinkId, number: u32) -> Result<(), BadCount> {
        let detour = self.links.get(&quic).and_then(|link| link.detour.as_ref());
        match detour.map(|detour| detour.number) {
            Some(_) if number == 0 => self.renounce(quic),
            Some(ours) if ours != number => return Err(BadCount),
            // The TLS link may have closed in the meantime.
            _ => {}
        }
        Ok(())
    }

    fn pair(&mut self, quic: LinkId, tls_link: LinkId, number: u32) {
        if let Some(link) = self.links.get_mut(&tls_link) {
            link.paired_quic.insert(number, quic);
            link.last_quic_number = number;
        }
        if let Some(link) = self.links.get_mut(&quic) {
            link.detour = Some(Box::new(Detour {
                tls_link,
                number,
                stage: Stage::OnQuic,
                kept: 0,
                unacknowledged: BTreeSet::new(),
                received: 0,
                timed: false,
                listed: BTreeMap::new(),
            }));
        }
    }

    /// Ends the pairing of the QUIC link `quic` with the link alongside it. `detour` is the state
    /// that this pairing had.
    pub(super) fn forget_detour(&mut self, quic: LinkId, detour: Option<Box<Detour>>) {
        let Some(detour) = detour else { return };
        if let Some(link) = self.links.get_mut(&detour.tls_link) {
            link.paired_quic.remove(&detour.number);
            link.moved.retain(|&moved| moved != quic);
        }
    }

    /// Drops the copies of cells of the link `quic`. Circuits of this link can then no longer move
    /// to another link.
    pub(crate) fn renounce(&mut self, quic: LinkId) {
        let Some(link) = self.links.get_mut(&quic) else { return };
        let detour = link.detour.take_if(|detour| detour.keeps());
        if detour.is_some() {
            link.circuits
                .values_mut()
                .for_each(|circuit| self.pool.clear(&mut circuit.delivery.kept));
        }
        self.forget_detour(quic, detour);
    }

    /// Drops the copies of cells of the QUIC link that has the most copies. Circuits of this link
    /// can then no longer move. Returns false if no link has any copies.
    pub(crate) fn renounce_most(&mut self) -> bool {
        let kept = |link: &Link| {
            let detour = link.detour.as_ref().filter(|detour| detour.keeps());
            detour.map(|detour| detour.kept).filter(|kept| *kept > 0)
        };
        let most = self.links.iter().filter_map(|(id, link)| Some((kept(link)?, id))).max();
        most.map(|(_, id)| self.renounce(id)).is_some()
    }

    /// Adds `cells` to the count of cells received on `link_circuit`. Returns true if the caller
    /// must set a timer for the acknowledgement.
    pub(crate) fn count_received(&mut self, link_circuit: LinkCircuit, cells: u32) -> bool {
        let Some(link) = self.links.get_mut(&link_circuit.link) else { return false };
        let detour = link.detour.as_deref_mut().filter(|detour| detour.keeps());
        let (Some(detour), Some(queue)) = (detour, link.circuits.get_mut(&link_circuit.id)) else {
            return false;
        };
        queue.delivery.received = queue.delivery.received.wrapping_add(cells);
        detour.unacknowledged.insert(link_circuit.id);
        detour.received += cells as usize;
        if detour.received >= CELLS_PER_ACK {
            self.send_arrived(link_circuit.link);
            return false;
        }
        !std::mem::replace(&mut detour.timed, true)
    }

    /// Sends the acknowledgement of the cells received on the link `id`, because its timer has
    /// expired.
    pub(crate) fn arrived_due(&mut self, id: LinkId) {
        if let Some(detour) = self.links.get_mut(&id).and_then(|link| link.detour.as_mut()) {
            detour.timed = false;
            self.send_arrived(id);
        }
    }

    fn send_arrived(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let Some(detour) = link.detour.as_deref_mut().filter(|detour| detour.keeps()) else {
            return;
        };
        detour.received = 0;
        let ids = std::mem::take(&mut detour.unacknowledged).into_iter();
        let counts = ids.filter_map(|id| Some((id, link.circuits.get(&id)?.delivery.received)));
        let counts: Vec<CellCount> = counts.collect();
        for counts in counts.chunks(COUNTS_IN_CELL) {
            let mut body = Vec::new();
            put_counts(&mut body, counts.iter().copied());
            self.send_control_cell(LinkCircuit { link: id, id: 0 }, Command::ARRIVED, &body);
        }
    }

    /// Handles the neighbour's acknowledgement: drops the copies of the acknowledged cells.
    ///
    /// # Errors
    /// The neighbour acknowledged more cells than were sent.
    pub(crate) fn arrived(
        &mut self,
        id: LinkId,
        counts: impl Iterator<Item = CellCount>,
    ) -> Result<(), BadCount> {
        let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
        let Some(detour) = link.detour.as_deref_mut().filter(|detour| detour.keeps()) else {
            return Ok(());
        };
        for (id, count) in counts {
            // The circuit may have closed in the meantime.
            let Some(circuit) = link.circuits.get_mut(&id) else { continue };
            let more = circuit.delivery.fresh(count).ok_or(BadCount)?;
            self.pool.skip(&mut circuit.delivery.kept, more);
            circuit.delivery.acknowledged = count;
            detour.kept -= more;
        }
        Ok(())
    }

    /// Starts to move the circuits of a QUIC link to the link alongside it. Sends a list of these
    /// circuits with the number of cells received on each. Returns false if the circuits cannot
    /// move.
    pub(crate) fn start_move(&mut self, quic: LinkId) -> bool {
        let Some(link) = self.links.get_mut(&quic) else { return false };
        let Some(detour) = link.detour.as_deref_mut().filter(|detour| detour.keeps()) else {
            return false;
        };
        detour.stage = Stage::Moving;
        detour.unacknowledged.clear();
        let (tls_link, number) = (detour.tls_link, detour.number);
        // The list contains no closed circuits. The neighbour closes every circuit that is
        // missing.
        link.inbox.clear();
        link.channel.outbox.clear();
        (link.padded, link.is_notified, link.transport) = (false, false, Transport::default());
        let counts: Vec<CellCount> =
            link.circuits.iter().map(|(id, circuit)| (id, circuit.delivery.received)).collect();
        self.moved += counts.len() as u64;
        self.unreach(quic);
        self.ready.retain(|&ready| ready != quic);
        let Some(link) = self.links.get_mut(&tls_link) else { return false };
        link.moved.push(quic);
        let before = link.channel.outbox.len();
        let mut rest = &counts[..];
        loop {
            let (now, later) = rest.split_at(rest.len().min(COUNTS_IN_MOVE));
            let body = put_move(number, later.is_empty(), now);
            link.channel.send_long(Command::MOVE, &body);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        link.listing += link.channel.outbox.len() - before;
        self.wake(tls_link);
        true
    }

    /// Adds `counts` to the neighbour's list of circuits that move to the TLS link. If this part
    /// `ends` the list, completes the move. Returns the owners of circuits that are not in the
    /// completed list, because the neighbour has closed them.
    ///
    /// # Errors
    /// The counts are invalid, or no list was expected.
    pub(crate) fn listed(
        &mut self,
        quic: LinkId,
        ends: bool,
        counts: &[CellCount],
    ) -> Result<Vec<Owner>, BadCount> {
        let Some(link) = self.links.get_mut(&quic) else { return Ok(Vec::new()) };
        let detour = link.detour.as_deref_mut();
        let Some(detour) = detour.filter(|detour| detour.stage == Stage::Moving) else {
            return Err(BadCount);
        };
        for &(circuit, count) in counts {
            if detour.listed.insert(circuit, count).is_some() || detour.listed.len() > MOST_LISTED {
                return Err(BadCount);
            }
        }
        if ends { self.finish_move(quic) } else { Ok(Vec::new()) }
    }

    /// Completes the move of the circuits of `quic`, after each end has received the other's list
    /// of them. Queues unacknowledged cells for the TLS link, ahead of cells that were not sent
    /// yet. Returns the owners of circuits that are not in the neighbour's list, because the
    /// neighbour has closed them.
    fn finish_move(&mut self, quic: LinkId) -> Result<Vec<Owner>, BadCount> {
        let Some(link) = self.links.get_mut(&quic) else { return Ok(Vec::new()) };
        let Some(detour) = link.detour.as_deref_mut() else { return Ok(Vec::new()) };
        let mut listed = std::mem::take(&mut detour.listed);
        let (mut ended, tls_link) = (Vec::new(), detour.tls_link);
        let ids: Vec<u32> = link.circuits.keys().collect();
        for id in ids {
            let Some(circuit) = link.circuits.get_mut(&id) else { continue };
            match listed.remove(&id) {
                Some(count) => {
                    let more = circuit.delivery.fresh(count).ok_or(BadCount)?;
                    self.pool.skip(&mut circuit.delivery.kept, more);
                }
                // The neighbour has not received the circuit's first cell, so all cells are sent
                // again.
                None if circuit.delivery.received == 0 && circuit.delivery.acknowledged == 0 => {}
                // The neighbour has closed the circuit.
                None => {
                    ended.push(id);
                    continue;
                }
            }
            let mut cells = std::mem::take(&mut circuit.delivery.kept);
            let was_empty = circuit.queue.is_empty();
            self.pool.join(&mut cells, std::mem::take(&mut circuit.queue));
            circuit.queue = cells;
            if was_empty && !circuit.queue.is_empty() {
                link.policy.activate(id);
            }
        }
        (detour.kept, detour.stage) = (0, Stage::Moved);
        let lost = ended.iter().filter_map(|id| {
            let mut circuit = link.circuits.remove(id)?;
            self.pool.clear(&mut circuit.queue);
            self.pool.clear(&mut circuit.delivery.kept);
            link.policy.remove(*id);
            Some(circuit.owner)
        });
        let lost: Vec<Owner> = lost.collect();
        // The circuits left in the list do not exist here. If the count is 0, their first cell has
        // not arrived yet. We have closed the others.
        for (id, _) in listed.into_iter().filter(|(_, count)| *count > 0) {
            let reason = DestroyReason::FINISHED;
            link.channel.send_control_cell(id, Command::DESTROY, &[reason.0]);
        }
        link.listing = link.channel.outbox.len();
        self.wake(tls_link);
        Ok(lost)
    }

    /// Notifies the neighbour, by MOVE_OVER on the link `id`, that all circuits of the QUIC link
    /// with the identifier `number` are closed.
    pub(crate) fn send_move_over(&mut self, id: LinkId, number: u32) {
        if let Some(link) = self.links.get_mut(&id) {
            link.channel.send_long(Command::MOVE_OVER, &number.to_be_bytes());
            self.check_outbox(id);
        }
    }

    /// Returns the link that takes over the circuits of `quic`, during or after their move, and
    /// the identifier of `quic` on that link. Returns `None` if the circuits still use `quic`.
    pub(crate) fn moved_to(&self, quic: LinkId) -> Option<(LinkId, u32)> {
        let detour = self.links.get(&quic)?.detour.as_ref().filter(|detour| !detour.keeps())?;
        Some((detour.tls_link, detour.number))
    }

    /// Returns true while the circuits of `quic` move to the TLS link alongside it. The move ends
    /// when the neighbour's list of these circuits is complete.
    pub(crate) fn is_moving(&self, quic: LinkId) -> bool {
        let detour = self.links.get(&quic).and_then(|link| link.detour.as_ref());
        detour.is_some_and(|detour| detour.stage == Stage::Moving)
    }

    /// Closes each QUIC link whose circuits moved to the link `id` and have all closed.
    pub(crate) fn tidy(&mut self, id: LinkId) {
        let Some(link) = self.links.get(&id).filter(|link| !link.moved.is_empty()) else { return };
        let is_over = |id: &LinkId| {
            let link = self.links.get(id).filter(|link| link.takes_turns());
            link.is_some_and(|link| link.circuits() == 0 && link.channel.outbox.is_empty())
        };
        let over: Vec<LinkId> = link.moved.iter().copied().filter(is_over).collect();
        for quic in over {
            self.close(quic);
        }
    }

    /// Returns true if circuits that moved to the link `id` from other links have something to
    /// send.
    pub(super) fn moved_have_cells(&mut self, id: LinkId) -> bool {
        let moved = self.links.get(&id).map(|link| link.moved.clone()).unwrap_or_default();
        moved.iter().any(|id| {
            let link = self.links.get_mut(id).filter(|link| link.takes_turns());
            link.is_some_and(Link::has_cells)
        })
    }

    /// Appends a cell to `out`, either of the link `id` or of a link whose circuits moved to it.
    /// These links take turns.
    pub(super) fn pop_in_turn(&mut self, now: Time, id: LinkId, out: &mut Vec<u8>) -> PopOutcome {
        let Some(link) = self.links.get(&id) else { return PopOutcome::Nothing };
        let (moved, turn) = (link.moved.clone(), link.turn);
        for step in 0..=moved.len() {
            let turn = (turn + step) % (moved.len() + 1);
            let popped = match turn.checked_sub(1) {
                None => match self.links.get_mut(&id) {
                    Some(link) => link.pop_cell(now, &mut self.pool, out),
                    None => PopOutcome::Nothing,
                },
                Some(nth) => self.pop_moved(now, moved[nth], out),
            };
            if !matches!(popped, PopOutcome::Nothing) {
                if let Some(link) = self.links.get_mut(&id) {
                    link.quiet.note(now, false);
                    link.turn = turn + 1;
                }
                return popped;
            }
        }
        self.links.get_mut(&id).into_iter().for_each(|link| link.is_notified = false);
        self.tidy(id);
        PopOutcome::Nothing
    }

    /// Appends the next cell of the link `quic` to `out`, inside a cell of the link that has taken
    /// over the circuits of `quic`.
    fn pop_moved(&mut self, now: Time, quic: LinkId, out: &mut Vec<u8>) -> PopOutcome {
        let Some(link) = self.links.get_mut(&quic).filter(|link| link.takes_turns()) else {
            return PopOutcome::Nothing;
        };
        let (start, number) = (out.len(), link.detour.as_ref().map_or(0, |detour| detour.number));
        put_head(out, number);
        if link.channel.outbox.len() < CELL {
            let popped = link.pop_cell(now, &mut self.pool, out);
            if matches!(popped, PopOutcome::Nothing) {
                out.truncate(start);
            }
            return popped;
        }
        out.extend(link.channel.outbox.drain(..CELL));
        if link.channel.outbox.is_empty() {
            (link.busiest, link.listing) = (link.circuits.len(), 0);
        }
        PopOutcome::Own
    }
}

/// Appends the header of a cell that carries a cell of another link: circuit ID 0, the command
/// DETOUR, the length, and the identifier `number` of the cell's original link.
fn put_head(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&[0; 4]);
    out.push(Command::DETOUR.0);
    out.extend_from_slice(&(4 + CELL as u16).to_be_bytes());
    out.extend_from_slice(&number.to_be_bytes());
}

impl Delivery {
    /// Returns the number of newly acknowledged cells, given that the neighbour has received
    /// `count` cells of the circuit in all. Returns `None` if we have sent fewer cells.
    fn fresh(&self, count: u32) -> Option<usize> {
        let more = count.wrapping_sub(self.acknowledged);
        (more as usize <= self.kept.len()).then_some(more as usize)
    }
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed::stream;

    use super::*;
    use crate::channel::{Capabilities, Channel, Role, Start};
    use crate::circuitmux;
    use crate::wire::cell::{BODY, Cells, Width, put_variable};

    const TLS: LinkId = LinkId::new(0, 1);
    const QUIC: LinkId = LinkId::new(0, 2);
    const LINK_CIRCUIT: LinkCircuit = LinkCircuit { link: QUIC, id: 0x8000_0007 };
    const OWNER: Owner = Owner { circuit: 3, outward: true };

    /// Returns two links, the second alongside the first and with a circuit on it.
    fn links() -> Channels {
        let mut channels = Channels::new(circuitmux::Kind::Ewma);
        for (id, capabilities) in
            [(TLS, Capabilities::ORDERED), (QUIC, Capabilities::STREAM_PER_CIRCUIT)]
        {
            let start = Start::new(Time::ZERO, 0, std::net::Ipv4Addr::LOCALHOST.into());
            let start = Start { capabilities, ..start };
            let mut channel = Channel::new(Role::Client, start);
            // After VERSIONS, circuit IDs have four bytes.
            let mut versions = Vec::new();
            put_variable(&mut versions, Width::Two, Command::VERSIONS, &[0, 5]);
            let cell = Cells::new(&mut versions, Width::Two, 9).next_cell().unwrap().unwrap();
            channel.take(&mut stream(1, id.bits(), "link"), &cell).unwrap();
            channel.outbox.clear();
            channels.open(id, channel, None);
        }
        channels.pair(QUIC, TLS, 1);
        if let Some(link) = channels.link(QUIC) {
            link.add(LINK_CIRCUIT.id, OWNER);
        }
        channels
    }

    fn send(channels: &mut Channels, cells: u32) {
        for number in 0..cells {
            let mut body = [0; BODY];
            body[..4].copy_from_slice(&number.to_be_bytes());
            channels.push(Time::ZERO, LINK_CIRCUIT, Command::RELAY, &body);
            assert!(matches!(
                channels.pop(Time::ZERO, QUIC, &mut Vec::new()),
                PopOutcome::Cell { .. }
            ));
        }
    }

    fn kept(channels: &Channels) -> usize {
        channels.links.get(&QUIC).unwrap().detour.as_ref().map_or(0, |detour| detour.kept)
    }

    #[test]
    fn a_neighbour_that_says_nothing_costs_a_bounded_number_of_copies() {
        let mut channels = links();
        send(&mut channels, MOST_KEPT as u32);
        assert_eq!((kept(&channels), channels.used()), (MOST_KEPT, MOST_KEPT));
        send(&mut channels, 1);
        assert_eq!(
            (channels.links.get(&QUIC).unwrap().detour.is_none(), channels.used()),
            (true, 0)
        );
        assert!(channels.paired_quic(TLS).is_empty());
        send(&mut channels, 9);
        assert_eq!((channels.used(), channels.start_move(QUIC)), (0, false));
        // If memory is short, copies are dropped before circuits are closed.
        let mut channels = links();
        send(&mut channels, 5);
        assert!(channels.renounce_most());
        assert!(!channels.renounce_most());
        assert_eq!((channels.used(), channels.owner(LINK_CIRCUIT)), (0, Some(OWNER)));
    }

    #[test]
    fn what_did_not_come_goes_again_once_in_order_and_before_what_waits() {
        let mut channels = links();
        send(&mut channels, 20);
        assert_eq!(channels.arrived(QUIC, [(LINK_CIRCUIT.id, 5), (9, 9)].into_iter()), Ok(()));
        assert_eq!(channels.arrived(QUIC, [(LINK_CIRCUIT.id, 21)].into_iter()), Err(BadCount));
        assert_eq!(kept(&channels), 15);
        assert!(channels.start_move(QUIC));
        assert!(!channels.start_move(QUIC), "once");
        for number in 20..23u32 {
            let mut body = [0; BODY];
            body[..4].copy_from_slice(&number.to_be_bytes());
            channels.push(Time::ZERO, LINK_CIRCUIT, Command::RELAY, &body);
        }
        let mut out = Vec::new();
        assert!(matches!(channels.pop(Time::ZERO, TLS, &mut out), PopOutcome::Own), "our list");
        assert_eq!(out[..12], [0, 0, 0, 0, 192, 0, 13, 0, 0, 0, 1, 1]);
        assert!(matches!(channels.pop(Time::ZERO, TLS, &mut out), PopOutcome::Nothing));
        assert!(matches!(channels.pop(Time::ZERO, QUIC, &mut out), PopOutcome::Nothing));
        assert_eq!(channels.listed(QUIC, false, &[]), Ok(Vec::new()));
        assert_eq!(channels.listed(QUIC, true, &[(LINK_CIRCUIT.id, 12)]), Ok(Vec::new()));
        assert_eq!(channels.listed(QUIC, true, &[]), Err(BadCount), "twice");
        out.clear();
        while !matches!(channels.pop(Time::ZERO, TLS, &mut out), PopOutcome::Nothing) {}
        let cells: Vec<u32> = out
            .chunks(11 + CELL)
            .map(|cell| {
                assert_eq!(cell[..11], [0, 0, 0, 0, 193, 2, 6, 0, 0, 0, 1]);
                assert_eq!(cell[11..16], [0x80, 0, 0, 7, 3]);
                u32::from_be_bytes([cell[16], cell[17], cell[18], cell[19]])
            })
            .collect();
        assert_eq!(cells, (12..23).collect::<Vec<u32>>());
        assert_eq!((channels.used(), channels.moved_circuits()), (0, 1));
        channels.leave(LINK_CIRCUIT);
        channels.tidy(TLS);
        assert!(channels.link(QUIC).is_none() && channels.paired_quic(TLS).is_empty());
    }

    #[test]
    fn circuits_that_one_end_does_not_know_end_or_are_made_again() {
        // Neither end has received cells of the circuit: all cells are sent again.
        let mut channels = links();
        send(&mut channels, 1);
        assert!(channels.start_move(QUIC));
        assert_eq!(channels.listed(QUIC, true, &[]), Ok(Vec::new()));
        assert_eq!((channels.used(), channels.waiting(LINK_CIRCUIT)), (1, 1));
        // The neighbour knew the circuit, and has closed it.
        for received in [true, false] {
            let mut channels = links();
            send(&mut channels, 2);
            match received {
                true => drop(channels.count_received(LINK_CIRCUIT, 1)),
                false => channels.arrived(QUIC, [(LINK_CIRCUIT.id, 1)].into_iter()).unwrap(),
            }
            assert!(channels.start_move(QUIC));
            assert_eq!(channels.listed(QUIC, true, &[]), Ok(vec![OWNER]));
            assert_eq!((channels.used(), channels.owner(LINK_CIRCUIT)), (0, None));
        }
        // We have closed circuit 9. Circuit 8's first cell has not arrived yet.
        let mut channels = links();
        assert!(channels.start_move(QUIC));
        assert_eq!(
            channels.listed(QUIC, true, &[(LINK_CIRCUIT.id, 0), (9, 4), (8, 0)]),
            Ok(Vec::new())
        );
        let mut out = Vec::new();
        while !matches!(channels.pop(Time::ZERO, TLS, &mut out), PopOutcome::Nothing) {}
        let list = 12 + 8;
        assert_eq!(out.len(), list + 11 + CELL);
        assert_eq!(out[list + 11..list + 16], [0, 0, 0, 9, Command::DESTROY.0]);
    }

    #[test]
    fn the_neighbour_is_told_after_so_many_cells_or_a_while() {
        let mut channels = links();
        assert!(channels.count_received(LINK_CIRCUIT, 1), "somebody is to see to it");
        assert!((2..CELLS_PER_ACK).all(|_| !channels.count_received(LINK_CIRCUIT, 1)));
        let take_outbox = |channels: &mut Channels| {
            let link = channels.link(QUIC).unwrap();
            std::mem::take(&mut link.channel.outbox)
        };
        assert!(take_outbox(&mut channels).is_empty());
        assert!(!channels.count_received(LINK_CIRCUIT, 1));
        let message = take_outbox(&mut channels);
        assert_eq!(message[..13], [0, 0, 0, 0, 74, 0x80, 0, 0, 7, 0, 0, 0, CELLS_PER_ACK as u8]);
        channels.arrived_due(QUIC);
        assert!(take_outbox(&mut channels).is_empty(), "nothing has come since");
        assert!(channels.count_received(LINK_CIRCUIT, 1));
        channels.arrived_due(QUIC);
        assert_eq!(take_outbox(&mut channels)[9..13], [0, 0, 0, CELLS_PER_ACK as u8 + 1]);
    }
}
