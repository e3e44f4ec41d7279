//! Results of the StegoTorus paper, measured between California and New Jersey (section 6).

use super::plan::Arm;

/// A row of the StegoTorus paper's Table 3: the mean number of bytes on the wire in each
/// direction, over 32 downloads of 1,000,000 B.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Bytes sent to the server.
    pub up: f64,
    /// Bytes received from the server.
    pub down: f64,
}

/// Returns the row of the StegoTorus paper's Table 3 that corresponds to `arm`; `None` if there is
/// none. The paper has one HTTP module, which is compared with each of our HTTP profiles.
#[must_use]
pub fn table_3(arm: Arm) -> Option<Row> {
    let (up, down) = match arm {
        Arm::Direct => (23_643.0, 1_014_401.0),
        Arm::Tor => (61_162.0, 1_075_715.0),
        Arm::Nosteg | Arm::NostegRr | Arm::NostegShort => (63_061.0, 1_084_228.0),
        _ if arm.is_http() => (966_964.0, 11_814_610.0),
        _ => return None,
    };
    Some(Row { up, down })
}

/// Returns the values of the StegoTorus paper's Figure 7 for `arm`: mean goodput in kB/s for
/// downloads of 100, 200, … 1,000 kB. `None` if the figure lacks this method.
#[must_use]
pub fn figure_7(arm: Arm) -> Option<[f64; 10]> {
    match arm {
        Arm::Tor => Some([241., 403., 460., 483., 510., 531., 548., 554., 568., 573.]),
        Arm::Nosteg | Arm::NostegRr | Arm::NostegShort => {
            Some([214., 357., 432., 406., 496., 492., 525., 526., 558., 553.])
        }
        _ if arm.is_http() => Some([25., 25., 28., 27., 26., 26., 26., 26., 27., 27.]),
        _ => None,
    }
}

/// Returns a value of the paper's Figure 6: the median bandwidth on the wire in kB/s. `rate` is
/// the stream's rate (50, 150 or 300 kB/s), `rtt` the round-trip time (100, 150, … 450 ms). For
/// HTTP camouflage, the value was measured with six connections. For Tor and for StegoTorus's
/// chopper without camouflage, the value does not depend on `rtt`. Returns `None` if the figure
/// has no such value.
#[must_use]
pub fn figure_6(arm: Arm, rate: u32, rtt: u32) -> Option<f64> {
    let at = [50, 150, 300].iter().position(|one| *one == rate)?;
    match arm {
        Arm::Tor => Some([123., 230., 390.][at]),
        Arm::Nosteg | Arm::NostegRr | Arm::NostegShort => Some([125., 235., 396.][at]),
        _ if arm.is_http() => {
            let test_network = rtt.checked_sub(100).filter(|more| more % 50 == 0)? / 50;
            HTTP[at].get(test_network as usize).copied()
        }
        _ => None,
    }
}

const HTTP: [[f64; 8]; 3] = [
    [295., 167., 154., 44., 38., 28., 24., 23.],
    [484., 224., 94., 107., 90., 31., 25., 22.],
    [473., 162., 140., 47., 39., 27., 23., 21.],
];

/// Shortest round-trip time in ms at which HTTP camouflage cannot sustain a stream of [`SLOW`]
/// kB/s in the StegoTorus paper (section 6).
pub const BROKEN_FROM: u32 = 200;
/// Rate of the slowest stream in the StegoTorus paper's text, in kB/s.
pub const SLOW: u32 = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_at_their_round_trips_alone() {
        assert_eq!(figure_6(Arm::Opaque, 50, 450), Some(23.0));
        assert_eq!(figure_6(Arm::Text, 300, 100), Some(473.0));
        assert_eq!(figure_6(Arm::Tor, 150, 275), Some(230.0));
        for (arm, rate, rtt) in [(Arm::Text, 50, 85), (Arm::Text, 50, 120), (Arm::Text, 60, 100)] {
            assert_eq!(figure_6(arm, rate, rtt), None);
        }
        assert_eq!((figure_6(Arm::Obfs4, 50, 100), table_3(Arm::Obfs4)), (None, None));
    }
}
