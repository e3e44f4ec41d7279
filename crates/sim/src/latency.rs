//! The core network, which connects the access lines.

use std::time::Duration;

/// One-way delays of the core network from place to place. A place is a point at which access
/// lines join the core network. The core network has no limit on its rate and loses nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latencies {
    places: usize,
    /// The matrix of delays, row after row. Row `a` contains the delays from place `a` (a point at
    /// which access lines join the core network).
    delays: Vec<Duration>,
}

/// Error: a matrix of latencies is empty or not square.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotSquare;

impl Latencies {
    /// Creates the latencies of a core network with a single place (a point at which access lines
    /// join it). The delay between any two hosts is `delay`.
    pub fn uniform(delay: Duration) -> Latencies {
        Latencies { places: 1, delays: vec![delay] }
    }

    /// Creates latencies from the square matrix `rows`. Row `a`, column `b` is the delay from
    /// place `a` to place `b` (points at which access lines join the core network).
    ///
    /// # Errors
    /// [`NotSquare`] if the matrix is empty or not square.
    pub fn matrix(rows: &[Vec<Duration>]) -> Result<Latencies, NotSquare> {
        if rows.is_empty() || rows.iter().any(|row| row.len() != rows.len()) {
            return Err(NotSquare);
        }
        Ok(Latencies { places: rows.len(), delays: rows.concat() })
    }

    /// Returns the number of places (points at which access lines join the core network).
    pub fn places(&self) -> usize {
        self.places
    }

    /// Returns the delay from one place to another (points at which access lines join the core
    /// network).
    pub fn between(&self, from: usize, to: usize) -> Duration {
        self.delays[from * self.places + to]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_may_be_asymmetric_but_not_ragged() {
        let ms = Duration::from_millis;
        let delays = Latencies::matrix(&[vec![ms(1), ms(20)], vec![ms(30), ms(2)]]).unwrap();
        assert_eq!((delays.between(0, 1), delays.between(1, 0)), (ms(20), ms(30)));
        assert_eq!(Latencies::matrix(&[vec![ms(1), ms(2)], vec![ms(3)]]), Err(NotSquare));
        assert_eq!(Latencies::matrix(&[]), Err(NotSquare));
    }
}
