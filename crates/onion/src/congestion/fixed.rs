//! Windows of a fixed size: 1,000 cells for a circuit, 500 for a stream.

use std::time::Duration;

use super::{Control, Outlet};

/// A window that SENDMEs open again by steps.
#[derive(Clone, Debug)]
pub struct Fixed {
    room: u64,
    size: u64,
    step: u64,
}

impl Fixed {
    /// Of a circuit.
    pub fn circuit() -> Fixed {
        Fixed { room: 1000, size: 1000, step: 100 }
    }

    /// Of a stream.
    pub fn stream() -> Fixed {
        Fixed { room: 500, size: 500, step: 50 }
    }
}

impl Control for Fixed {
    fn room(&self) -> u64 {
        self.room
    }

    fn is_marked(&self) -> bool {
        (self.size - self.room + 1).is_multiple_of(self.step)
    }

    fn sent(&mut self) {
        self.room = self.room.saturating_sub(1);
    }

    fn acknowledged(&mut self, _rtt: Duration, _outlet: Outlet) -> bool {
        let opened = self.room + self.step;
        let owed = opened <= self.size;
        self.room = opened.min(self.size);
        owed
    }

    fn sendme_inc(&self) -> u64 {
        self.step
    }

    fn window(&self) -> u64 {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hundredth_cell_is_marked_and_an_acknowledgement_opens_as_many() {
        let mut window = Fixed::circuit();
        let mut marked = Vec::new();
        for cell in 1..=1000 {
            if window.is_marked() {
                marked.push(cell);
            }
            window.sent();
        }
        assert_eq!(marked, (1..=10).map(|n| n * 100).collect::<Vec<_>>());
        assert_eq!(window.room(), 0);
        assert!(window.acknowledged(Duration::ZERO, Outlet::default()));
        assert_eq!(window.room(), 100);
    }

    #[test]
    fn an_acknowledgement_that_is_not_owed_is_told() {
        let mut window = Fixed::stream();
        (0..49).for_each(|_| window.sent());
        assert!(!window.acknowledged(Duration::ZERO, Outlet::default()));
        assert_eq!(window.room(), 500);
    }
}
