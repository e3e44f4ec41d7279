//! libFuzzer entry point of [`anabranch_fuzz::trace_reader`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::trace_reader::check(data));
