//! libFuzzer entry point of [`anabranch_fuzz::camouflage`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::camouflage::check(data));
