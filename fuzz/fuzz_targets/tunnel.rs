//! libFuzzer entry point of [`anabranch_fuzz::tunnel`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::tunnel::check(data));
