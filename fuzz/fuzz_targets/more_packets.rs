//! libFuzzer's way into [`anabranch_fuzz::more_packets`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::more_packets::check(data));
