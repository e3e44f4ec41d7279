//! libFuzzer entry point of [`anabranch_fuzz::quic_cells`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::quic_cells::check(data));
