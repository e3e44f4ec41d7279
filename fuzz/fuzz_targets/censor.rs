//! libFuzzer entry point of [`anabranch_fuzz::censor`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::censor::check(data));
