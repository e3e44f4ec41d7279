//! A lossy circuit of three hops over a hostile network: cells are lost, duplicated, delayed,
//! changed, forged and replayed with other counters. An end accepts only cells that the other end
//! sent, and each cell at most once.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_onion::crypto::lossy::{
    KEY_BYTES, LossyClient, LossyKeys, LossyRelay, Outward, Refusal, ZEROS,
};
use anabranch_onion::wire::cell::{BODY, Body, Command};

use crate::input::Input;

const HOPS: usize = 3;
const COMMANDS: [Command; 2] = [Command(76), Command(3)];
/// Maximum number of cells in a script. Each passes six layers of encryption.
const MAX_CELLS: usize = 64;
/// Length in bytes of the number that identifies a cell, at the front of its content.
const NUMBER: usize = 4;

/// A cell in flight. `place` is the number of links that it has passed.
#[derive(Clone)]
struct Cell {
    place: usize,
    command: Command,
    counter: u32,
    body: Body,
    is_changed: bool,
}

/// One direction: cells in flight, command and number of sent cells by counter, and the counters
/// of accepted cells.
#[derive(Default)]
struct DirectionState {
    cells: Vec<Cell>,
    sent: BTreeMap<u32, (Command, u32)>,
    accepted: BTreeSet<u32>,
}

/// Checks a script: the cells that the ends send, and the actions of the network.
pub fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let keys: Vec<LossyKeys> = (1..=HOPS as u8).map(|hop| (&[hop; KEY_BYTES]).into()).collect();
    let mut client = LossyClient::new(&keys);
    let mut relays: Vec<LossyRelay> = keys.iter().map(LossyRelay::new).collect();
    let mut ways = [DirectionState::default(), DirectionState::default()];
    let mut number = 0;
    while !input.is_empty() {
        let is_back = input.coin();
        let way = &mut ways[usize::from(is_back)];
        if number < MAX_CELLS && (way.cells.is_empty() || input.coin()) {
            let (command, mut body) = (input.pick(&COMMANDS), [0xff; BODY]);
            body[ZEROS..][..NUMBER].copy_from_slice(&(number as u32).to_be_bytes());
            let counter = match is_back {
                false => client.originate(command, &mut body),
                true => relays[HOPS - 1].originate(command, &mut body),
            };
            let counter = counter.expect("a script is shorter than 2^32 cells");
            way.sent.insert(counter, (command, number as u32));
            way.cells.push(Cell { place: 0, command, counter, body, is_changed: false });
            number += 1;
            continue;
        }
        if way.cells.is_empty() {
            continue;
        }
        let at = input.below(way.cells.len());
        match input.below(6) {
            0 => drop(way.cells.swap_remove(at)),
            1 if way.cells.len() < MAX_CELLS => way.cells.push(way.cells[at].clone()),
            2 => change(&mut way.cells[at], &mut input),
            _ => {
                let cell = way.cells.swap_remove(at);
                way.pass(cell, is_back, &mut client, &mut relays);
            }
        }
    }
}

/// Changes the counter, the command or a byte of a cell in flight.
fn change(cell: &mut Cell, input: &mut Input<'_>) {
    let before = (cell.command, cell.counter, cell.body);
    match input.below(4) {
        0 => cell.counter = u32::from(input.word()),
        1 => cell.counter = u32::from(input.word()) << 16,
        2 => cell.command = input.pick(&COMMANDS),
        _ => {
            let at = usize::from(input.word()) % BODY;
            cell.body[at] ^= input.byte();
        }
    }
    cell.is_changed |= before != (cell.command, cell.counter, cell.body);
}

impl DirectionState {
    /// Delivers a cell to its next hop.
    fn pass(
        &mut self,
        mut cell: Cell,
        is_back: bool,
        client: &mut LossyClient,
        relays: &mut [LossyRelay],
    ) {
        let header = (cell.command, cell.counter);
        let is_last = cell.place == HOPS - 1;
        let result = match is_back {
            false => {
                let found = relays[cell.place].outward(header, &mut cell.body, is_last);
                found.map(|found| assert_eq!(found == Outward::Ours, is_last))
            }
            true if is_last => client.inward(header, &mut cell.body),
            true => relays[HOPS - 2 - cell.place].inward(header, &mut cell.body),
        };
        match result {
            Ok(()) if is_last => self.accept(&cell),
            Ok(()) => self.cells.push(Cell { place: cell.place + 1, ..cell }),
            Err(Refusal::Garbage) => assert!(cell.is_changed, "nobody changed this cell"),
            Err(Refusal::Replayed | Refusal::TooFarAhead) => {}
        }
    }

    /// Checks a cell that the receiving end has accepted.
    fn accept(&mut self, cell: &Cell) {
        let number = cell.body[ZEROS..].first_chunk::<NUMBER>().expect("a cell is longer");
        let content = (cell.command, u32::from_be_bytes(*number));
        assert_eq!(self.sent.get(&cell.counter), Some(&content), "the other end did not send it");
        assert!(cell.body[ZEROS + NUMBER..].iter().all(|&byte| byte == 0xff));
        assert!(self.accepted.insert(cell.counter), "accepted twice");
    }
}
