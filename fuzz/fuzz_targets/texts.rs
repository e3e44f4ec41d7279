//! libFuzzer entry point of [`anabranch_fuzz::texts`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::texts::check(data));
