//! libFuzzer entry point of [`anabranch_fuzz::recognise`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::recognise::check(data));
