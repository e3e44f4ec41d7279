//! libFuzzer entry point of [`anabranch_fuzz::onion_services`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::onion_services::check(data));
