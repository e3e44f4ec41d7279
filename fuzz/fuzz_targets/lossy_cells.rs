//! libFuzzer's way into [`anabranch_fuzz::lossy_cells`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::lossy_cells::check(data));
