//! libFuzzer entry point of [`anabranch_fuzz::covers`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::covers::check(data));
