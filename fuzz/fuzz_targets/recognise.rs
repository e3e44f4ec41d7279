//! libFuzzer's way into [`anabranch_fuzz::recognise`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::recognise::check(data));
