//! libFuzzer entry point of [`anabranch_fuzz::topology`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::topology::check(data));
