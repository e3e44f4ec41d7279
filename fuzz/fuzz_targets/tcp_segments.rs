//! libFuzzer entry point of [`anabranch_fuzz::tcp_segments`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::tcp_segments::check(data));
