//! libFuzzer entry point of [`anabranch_fuzz::mosh_login`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::mosh_login::check(data));
