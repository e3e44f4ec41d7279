//! Introduction points and rendezvous points of a relay: on which circuit of which shard each is.

use std::collections::BTreeMap;

/// How services and clients name a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// Where clients are introduced to the service that has this key.
    Introduction([u8; 32]),
    /// Where a client with this cookie waits for a service.
    Rendezvous([u8; 20]),
}

/// A circuit of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointPlace {
    /// The shard whose circuit it is.
    pub shard: usize,
    /// Its number there.
    pub circuit: u32,
}

/// The points of all shards of a relay. A relay's core is lent one, as it is lent a generator:
/// who runs several shards lends each the same.
pub trait PointTable: Send {
    /// A circuit becomes a point. Gives the place of the one before, if there is one: a service's
    /// newest introduction point counts, and a cookie is its first holder's.
    fn enter(&mut self, point: Point, place: PointPlace) -> Option<PointPlace>;

    /// Where a point is.
    fn find(&self, point: &Point) -> Option<PointPlace>;

    /// A circuit is no point any more. One that took its place stays.
    fn leave(&mut self, point: &Point, place: PointPlace);
}

/// The points of a relay.
#[derive(Debug, Default)]
pub struct Points(BTreeMap<Point, PointPlace>);

impl PointTable for Points {
    fn enter(&mut self, point: Point, place: PointPlace) -> Option<PointPlace> {
        match (point, self.0.get(&point)) {
            (Point::Rendezvous(_), Some(&holder)) => Some(holder),
            _ => self.0.insert(point, place),
        }
    }

    fn find(&self, point: &Point) -> Option<PointPlace> {
        self.0.get(point).copied()
    }

    fn leave(&mut self, point: &Point, place: PointPlace) {
        if self.find(point) == Some(place) {
            self.0.remove(point);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: PointPlace = PointPlace { shard: 0, circuit: 7 };
    const TWO: PointPlace = PointPlace { shard: 1, circuit: 7 };

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
