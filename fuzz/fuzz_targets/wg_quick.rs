//! libFuzzer entry point of [`anabranch_fuzz::wg_quick`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::wg_quick::check(data));
