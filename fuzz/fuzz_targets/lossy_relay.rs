//! libFuzzer entry point of [`anabranch_fuzz::lossy_relay`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::lossy_relay::check(data));
