//! Elligator 2 for Curve25519: public keys as 32 bytes that are indistinguishable from random
//! bytes.
//!
//! The map from a field element to a point is RFC 9380, section 6.7.1 (Z = 2). Its inverse is
//! Bernstein, Hamburg, Krasnova and Lange, "Elligator: elliptic-curve points indistinguishable
//! from uniform random strings", CCS 2013, section 5. Field arithmetic is from fiat-crypto, which
//! is formally verified. A key is drawn again until it has such an encoding. The number of draws,
//! which timing may show, reveals nothing about the final key.

use curve25519_dalek::constants::EIGHT_TORSION;
use curve25519_dalek::{EdwardsPoint, MontgomeryPoint};
use fiat_crypto::curve25519_64 as fiat;
use rand_core::CryptoRng;

/// Elligator 2 encoding of a public key, indistinguishable from 32 random bytes.
pub(crate) type Representative = [u8; 32];

/// The coefficient A of the curve v² = u³ + A·u² + u.
const A: u64 = 486_662;
/// Exponent for computing square roots: (p + 3) / 8 for p = 2^255 - 19, lowest byte first. The
/// power of a square, or that power times a square root of -1, is a square root of it.
const ROOT: [u8; 32] = exponent(0xfe, 0x0f);
/// Exponent that computes the inverse of a field element: p - 2 for p = 2^255 - 19, lowest byte
/// first.
const INVERSE: [u8; 32] = exponent(0xeb, 0x7f);
/// Exponent with which 2 becomes a square root of -1: (p - 1) / 4 for p = 2^255 - 19, lowest byte
/// first.
const QUARTER: [u8; 32] = exponent(0xfb, 0x1f);

const fn exponent(first: u8, last: u8) -> [u8; 32] {
    let mut bytes = [0xff; 32];
    (bytes[0], bytes[31]) = (first, last);
    bytes
}

/// A secret key whose public key has a representative (an encoding that looks like random bytes),
/// together with this representative.
#[derive(Clone)]
pub(crate) struct HiddenPair {
    secret: [u8; 32],
    /// The encoding of the public key, which is sent instead of the key because it looks like
    /// random bytes.
    pub(crate) representative: Representative,
}

impl HiddenPair {
    /// Generates a key pair whose public key has a representative. This takes two attempts on
    /// average.
    ///
    /// The public point gets a random component of low order, so that all points of the curve
    /// occur. Otherwise all public points would be in the prime-order subgroup, which a censor
    /// could test for. X25519 ignores that component.
    pub(crate) fn generate(rng: &mut impl CryptoRng) -> HiddenPair {
        loop {
            let (mut secret, mut dice) = ([0; 32], [0; 1]);
            rng.fill_bytes(&mut secret);
            rng.fill_bytes(&mut dice);
            let [dice] = dice;
            let torsion = EIGHT_TORSION[usize::from(dice & 7)];
            let public = (EdwardsPoint::mul_base_clamped(secret) + torsion).to_montgomery();
            if let Some(representative) = representative(&public.0, dice >> 3) {
                return HiddenPair { secret, representative };
            }
        }
    }

    /// Returns the secret shared with the end that has the public key `other`; `None` if this key
    /// is a point of low order.
    pub(crate) fn agree(&self, other: &[u8; 32]) -> Option<[u8; 32]> {
        agree(&self.secret, other)
    }
}

/// Computes X25519 (RFC 7748, section 5). Returns `None` if the result is zero.
pub(crate) fn agree(secret: &[u8; 32], public: &[u8; 32]) -> Option<[u8; 32]> {
    let shared = MontgomeryPoint(*public).mul_clamped(*secret).0;
    (shared != [0; 32]).then_some(shared)
}

/// Returns the public key of `secret`.
pub(crate) fn public_of(secret: &[u8; 32]) -> [u8; 32] {
    MontgomeryPoint::mul_base_clamped(*secret).0
}

/// Decodes a public key. Any 32 bytes encode a public key.
pub(crate) fn public_key(representative: &Representative) -> [u8; 32] {
    let mut bytes = *representative;
    bytes[31] &= 0x3f;
    map(Element::read(&bytes)).write()
}

/// Returns a representative (an encoding that looks like random bytes) of the point with the
/// coordinate `u`; `None` if the point has none. Half of all points have one. The lowest bit of
/// `dice` chooses between two representatives, and the next two bits fill the bits that a
/// representative leaves free.
fn representative(u: &[u8; 32], dice: u8) -> Option<Representative> {
    let u = Element::read(u);
    let other = u.plus(Element::small(A));
    let (above, below) = if dice & 1 == 0 { (u, other) } else { (other, u) };
    // r² = -above / (2 · below)
    let root = below.plus(below).inverse().times(above).negated().root()?;
    let mut bytes = root.write();
    (bytes != [0; 32]).then_some(())?;
    if root.is_upper() {
        bytes = root.negated().write();
    }
    bytes[31] |= (dice & 6) << 5;
    Some(bytes)
}

/// Maps a field element to a point of the curve (the forward direction of Elligator 2). Returns
/// the point's `u` coordinate.
fn map(r: Element) -> Element {
    let a = Element::small(A);
    let twice = r.squared().plus(r.squared());
    let u = twice.plus(Element::small(1)).inverse().times(a).negated();
    // u³ + A·u² + u is a square on the curve itself.
    let curve = u.plus(a).times(u).plus(Element::small(1)).times(u);
    let other = u.plus(a).negated();
    if curve.root().is_some() { u } else { other }
}

/// A field element: a number modulo 2^255 - 19.
#[derive(Clone, Copy)]
struct Element(fiat::fiat_25519_tight_field_element);

/// The result of adding field elements, before carry propagation. It must be carried or multiplied
/// before further use.
type Loose = fiat::fiat_25519_loose_field_element;

impl Element {
    fn read(bytes: &[u8; 32]) -> Element {
        let (mut bytes, mut read) = (*bytes, fiat::fiat_25519_tight_field_element([0; 5]));
        bytes[31] &= 0x7f;
        fiat::fiat_25519_from_bytes(&mut read, &bytes);
        Element(read)
    }

    fn small(value: u64) -> Element {
        Element(fiat::fiat_25519_tight_field_element([value, 0, 0, 0, 0]))
    }

    fn write(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        fiat::fiat_25519_to_bytes(&mut bytes, &self.0);
        bytes
    }

    fn plus(self, other: Element) -> Element {
        Element::carried(|out| fiat::fiat_25519_add(out, &self.0, &other.0))
    }

    fn negated(self) -> Element {
        Element::carried(|out| fiat::fiat_25519_opp(out, &self.0))
    }

    fn times(self, other: Element) -> Element {
        let mut product = fiat::fiat_25519_tight_field_element([0; 5]);
        fiat::fiat_25519_carry_mul(&mut product, &self.loose(), &other.loose());
        Element(product)
    }

    fn squared(self) -> Element {
        self.times(self)
    }

    fn inverse(self) -> Element {
        self.power(&INVERSE)
    }

    /// Returns a square root of the element; `None` if the element is not a square.
    fn root(self) -> Option<Element> {
        let candidate = self.power(&ROOT);
        let other = candidate.times(Element::small(2).power(&QUARTER));
        let fits = |root: &Element| root.squared().write() == self.write();
        [candidate, other].into_iter().find(fits)
    }

    /// Returns whether the element is greater than (p - 1) / 2, which selects one of two square
    /// roots. Twice such an element modulo p is odd.
    fn is_upper(self) -> bool {
        self.plus(self).write()[0] & 1 == 1
    }

    fn power(self, exponent: &[u8; 32]) -> Element {
        (0..256).rev().fold(Element::small(1), |power, bit| {
            let squared = power.squared();
            let set = exponent[bit / 8] >> (bit % 8) & 1 == 1;
            if set { squared.times(self) } else { squared }
        })
    }

    fn loose(self) -> Loose {
        let mut loose = fiat::fiat_25519_loose_field_element([0; 5]);
        fiat::fiat_25519_relax(&mut loose, &self.0);
        loose
    }

    fn carried(operation: impl FnOnce(&mut Loose)) -> Element {
        let mut loose = fiat::fiat_25519_loose_field_element([0; 5]);
        let mut tight = fiat::fiat_25519_tight_field_element([0; 5]);
        operation(&mut loose);
        fiat::fiat_25519_carry(&mut tight, &loose);
        Element(tight)
    }
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed::stream;

    use super::*;

    fn number(hex: &str) -> Element {
        let byte = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
        let bytes: [u8; 32] = std::array::from_fn(|at| byte(31 - at));
        Element::read(&bytes)
    }

    #[test]
    fn the_map_is_that_of_rfc_9380() {
        // Appendix J.4.2, u and Q.x.
        for (u, x) in [
            (
                "608d892b641f0328523802a6603427c26e55e6f27e71a91a478148d45b5093cd",
                "51125222da5e763d97f3c10fcc92ea6860b9ccbbd2eb1285728f566721c1e65b",
            ),
            (
                "46f5b22494bfeaa7f232cc8d054be68561af50230234d7d1d63d1d9abeca8da5",
                "7d56d1e08cb0ccb92baf069c18c49bb5a0dcd927eff8dcf75ca921ef7f3e6eeb",
            ),
            (
                "235fe40c443766ce7e18111c33862d66c3b33267efa50d50f9e8e5d252a40aaa",
                "3fbe66b9c9883d79e8407150e7c2a1c8680bee496c62fabe4619a72b3cabe90f",
            ),
            (
                "001e92a544463bda9bd04ddbe3d6eed248f82de32f522669efc5ddce95f46f5b",
                "227e0bb89de700385d19ec40e857db6e6a3e634b1c32962f370d26f84ff19683",
            ),
        ] {
            assert_eq!(map(number(u)).write(), number(x).write());
        }
    }

    #[test]
    fn a_representative_stands_for_the_key_that_both_ends_agree_by() {
        let rng = &mut stream(1, 0, "elligator");
        let server = [7; 32];
        for _ in 0..200 {
            let pair = HiddenPair::generate(rng);
            let seen = public_key(&pair.representative);
            let ours = pair.agree(&public_of(&server)).unwrap();
            assert_eq!(agree(&server, &seen), Some(ours));
        }
    }

    #[test]
    fn both_representatives_of_a_point_stand_for_it() {
        let rng = &mut stream(2, 0, "elligator");
        for _ in 0..50 {
            let pair = HiddenPair::generate(rng);
            let u = public_key(&pair.representative);
            for dice in 0..8 {
                let again = representative(&u, dice).expect("it has one");
                assert_eq!(public_key(&again), u);
                assert_eq!(again[31] >> 6, dice >> 1 & 3);
            }
        }
    }

    /// Returns the chi-square statistic of `counts`. With 255 degrees of freedom, 99.99 % of
    /// uniform samples stay below 348.
    fn chi(counts: &[u32; 256], total: f64) -> f64 {
        let expected = total / 256.0;
        counts.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum()
    }

    #[test]
    fn no_byte_of_a_representative_is_biased_and_all_cosets_of_the_subgroup_occur() {
        const MADE: usize = 2_048;
        let rng = &mut stream(3, 0, "elligator");
        let made: Vec<Representative> =
            (0..MADE).map(|_| HiddenPair::generate(rng).representative).collect();
        for place in 0..32 {
            let mut counts = [0; 256];
            made.iter().for_each(|bytes| counts[usize::from(bytes[place])] += 1);
            let chi = chi(&counts, MADE as f64);
            assert!(chi < 380.0, "byte {place}: {chi}");
        }
        let is_prime = |bytes: &&Representative| {
            let point = MontgomeryPoint(public_key(bytes)).to_edwards(0).unwrap();
            point.is_torsion_free()
        };
        let prime = made[..512].iter().filter(is_prime).count();
        assert!((32..100).contains(&prime), "{prime} of 512, an eighth is expected");
    }

    #[test]
    fn points_of_low_order_agree_on_nothing() {
        for torsion in EIGHT_TORSION {
            assert_eq!(agree(&[9; 32], &torsion.to_montgomery().0), None);
        }
    }
}
