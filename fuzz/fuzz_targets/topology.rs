//! libFuzzer's way into [`anabranch_fuzz::topology`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::topology::check(data));
