//! libFuzzer entry point of [`anabranch_fuzz::core_driver`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::core_driver::check(data));
