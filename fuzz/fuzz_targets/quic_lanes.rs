//! libFuzzer entry point of [`anabranch_fuzz::quic_lanes`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::quic_lanes::check(data));
