//! libFuzzer entry point of [`anabranch_fuzz::documents`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::documents::check(data));
