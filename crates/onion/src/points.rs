//! A relay's introduction points and rendezvous points, with the shard and circuit of each.

use std::collections::BTreeMap;

/// Identifier of an introduction or rendezvous point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// The point at which clients are introduced to the service with this key.
    Introduction([u8; 32]),
    /// The point at which a client with this cookie waits for a service.
    Rendezvous([u8; 20]),
}

/// Location of a point: the circuit that is the point, and its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointLocation {
    /// The shard that owns the circuit.
    pub shard: usize,
    /// The circuit's number in the shard.
    pub circuit: u32,
}

/// Points of all shards of a relay. A relay's core receives the table from its owner, because all
/// shards of a relay share one table.
pub trait PointTable: Send {
    /// Registers the circuit at `place` as `point`. Returns the place of the circuit registered
    /// before, if any. A newer introduction point of a service replaces the older one. A rendezvous
    /// cookie stays with its first circuit.
    fn enter(&mut self, point: Point, place: PointLocation) -> Option<PointLocation>;

    /// Returns the place of `point`.
    fn find(&self, point: &Point) -> Option<PointLocation>;

    /// Removes `point` if the circuit at `place` is registered for it. Does nothing if another
    /// circuit has replaced that one.
    fn leave(&mut self, point: &Point, place: PointLocation);
}

/// The table of a relay's points.
#[derive(Debug, Default)]
pub struct Points(BTreeMap<Point, PointLocation>);

impl PointTable for Points {
    fn enter(&mut self, point: Point, place: PointLocation) -> Option<PointLocation> {
        match (point, self.0.get(&point)) {
            (Point::Rendezvous(_), Some(&holder)) => Some(holder),
            _ => self.0.insert(point, place),
        }
    }

    fn find(&self, point: &Point) -> Option<PointLocation> {
        self.0.get(point).copied()
    }

    fn leave(&mut self, point: &Point, place: PointLocation) {
        if self.find(point) == Some(place) {
            self.0.remove(point);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: PointLocation = PointLocation { shard: 0, circuit: 7 };
    const TWO: PointLocation = PointLocation { shard: 1, circuit: 7 };

    #[test]
    fn a_cookie_is_its_first_holders() {
        let (mut points, cookie) = (Points::default(), Point::Rendezvous([1; 20]));
        assert_eq!(points.enter(cookie, ONE), None);
        assert_eq!(points.enter(cookie, TWO), Some(ONE));
        assert_eq!(points.find(&cookie), Some(ONE));
        points.leave(&cookie, TWO);
        assert_eq!(points.find(&cookie), Some(ONE));
        points.leave(&cookie, ONE);
        assert_eq!(points.find(&cookie), None);
    }

    #[test]
    fn a_services_newest_introduction_point_counts() {
        let (mut points, key) = (Points::default(), Point::Introduction([1; 32]));
        assert_eq!(points.enter(key, ONE), None);
        assert_eq!(points.enter(key, TWO), Some(ONE));
        points.leave(&key, ONE);
        assert_eq!(points.find(&key), Some(TWO));
    }
}
