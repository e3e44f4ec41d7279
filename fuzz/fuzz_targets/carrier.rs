//! libFuzzer entry point of [`anabranch_fuzz::carrier`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::carrier::check(data));
