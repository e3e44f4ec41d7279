//! Cells of a link: they cover the bytes without gaps, and splitting the bytes changes none of
//! them.

use anabranch_onion::wire::cell::{self, Cells, Command, Width};

const LONGEST: usize = 2000;

/// Checks an input. The first byte selects the width of circuit IDs; the rest is received data.
pub fn check(input: &[u8]) {
    let Some((&first, bytes)) = input.split_first() else { return };
    let width = if first & 1 == 0 { Width::Four } else { Width::Two };
    let (whole, taken) = read(bytes, width);
    for cut in [bytes.len() / 2, bytes.len().saturating_sub(1)] {
        let (fewer, before) = read(&bytes[..cut], width);
        assert!(whole.starts_with(&fewer) && before <= taken, "a cut changes what came before");
    }
    if width == Width::Four {
        let mut again = Vec::new();
        whole.iter().for_each(|cell| write(&mut again, cell));
        assert_eq!(again.len(), taken, "cells leave no gaps");
        assert_eq!(read(&again, width).0, whole);
    }
}

type Found = (u32, Command, Vec<u8>);

fn read(bytes: &[u8], width: Width) -> (Vec<Found>, usize) {
    let mut bytes = bytes.to_vec();
    let mut cells = Cells::new(&mut bytes, width, LONGEST);
    let mut found = Vec::new();
    while let Ok(Some(cell)) = cells.next_cell() {
        assert!(cell.body.len() <= LONGEST);
        // Our own variable-length cells contain no circuit ID.
        let circuit = if cell.command.is_variable() { 0 } else { cell.circuit };
        found.push((circuit, cell.command, cell.body.to_vec()));
    }
    (found, cells.taken())
}

fn write(out: &mut Vec<u8>, (circuit, command, body): &Found) {
    match command.is_variable() {
        true => cell::put_variable(out, Width::Four, *command, body),
        false => cell::put_fixed(out, *circuit, *command, body),
    }
}
