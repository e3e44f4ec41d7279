//! libFuzzer entry point of [`anabranch_fuzz::conflux`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::conflux::check(data));
