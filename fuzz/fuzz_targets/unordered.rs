//! libFuzzer entry point of [`anabranch_fuzz::unordered`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::unordered::check(data));
