//! libFuzzer entry point of [`anabranch_fuzz::ip_packets`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::ip_packets::check(data));
