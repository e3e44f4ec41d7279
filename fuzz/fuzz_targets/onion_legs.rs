//! libFuzzer entry point of [`anabranch_fuzz::onion_legs`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::onion_legs::check(data));
