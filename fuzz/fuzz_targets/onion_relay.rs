//! libFuzzer entry point of [`anabranch_fuzz::onion_relay`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::onion_relay::check(data));
