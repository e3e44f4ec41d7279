//! A table of a relay's introduction points and rendezvous points for onion services. It has the
//! circuit and the shard (a parallel core of the relay) of each point.

use std::collections::BTreeMap;

/// Identifier of an introduction or rendezvous point of an onion service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// The introduction point of the onion service with this key.
    Introduction([u8; 32]),
    /// The rendezvous point at which a client waits for an onion service, identified by the
    /// client's cookie.
    Rendezvous([u8; 20]),
}

/// Location of an introduction or rendezvous point: the circuit to the point's owner, and the
/// parallel core (shard) that has this circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointLocation {
    /// The parallel core (shard) that owns the circuit.
    pub shard: usize,
    /// The circuit's index within the parallel core (shard).
    pub circuit: u32,
}

/// The introduction and rendezvous points of all shards (parallel cores) of a relay. All shards
/// share one table, which the caller passes to each core.
pub trait PointTable: Send {
    /// Registers the circuit at `place` as `point`. Returns the location of the previously
    /// registered circuit, if any. A new introduction point of a service replaces the old one. For
    /// a rendezvous cookie, the first circuit stays registered.
    fn enter(&mut self, point: Point, place: PointLocation) -> Option<PointLocation>;

    /// Returns the location of `point`; `None` if it is not registered.
    fn find(&self, point: &Point) -> Option<PointLocation>;

    /// Removes `point` if it is registered for the circuit at `place`. Does nothing if `point` is
    /// registered for another circuit.
    fn leave(&mut self, point: &Point, place: PointLocation);
}

/// The table of all introduction and rendezvous points of a relay.
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
