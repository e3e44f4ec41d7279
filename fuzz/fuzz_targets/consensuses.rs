//! libFuzzer entry point of [`anabranch_fuzz::consensuses`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::consensuses::check(data));
