//! libFuzzer entry point of [`anabranch_fuzz::socks`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::socks::check(data));
