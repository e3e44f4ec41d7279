//! libFuzzer entry point of [`anabranch_fuzz::directory`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::directory::check(data));
