//! libFuzzer entry point of [`anabranch_fuzz::pluggable`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::pluggable::check(data));
