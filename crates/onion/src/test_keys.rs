//! Relay keys that tests share, because generating RSA keys would take most of a test's time.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};

use anabranch_multipath::seed::stream;

use crate::wire::keys::RelayKeys;

/// Time at which the keys are generated, in seconds since 1970.
const MADE: u64 = 1_800_000_000;

/// Returns the keys that are generated from the random stream of `seed` and `purpose`. They are
/// generated once in a process.
pub(crate) fn relay_keys(seed: u64, purpose: &'static str) -> &'static RelayKeys {
    type KeyCache = BTreeMap<(u64, &'static str), &'static OnceLock<RelayKeys>>;
    static KEPT: Mutex<KeyCache> = Mutex::new(BTreeMap::new());
    let kept = {
        let mut kept = KEPT.lock().unwrap();
        *kept.entry((seed, purpose)).or_insert_with(|| Box::leak(Box::default()))
    };
    kept.get_or_init(|| RelayKeys::generate(&mut stream(seed, 0, purpose), MADE).unwrap())
}
