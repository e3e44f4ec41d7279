//! libFuzzer entry point of [`anabranch_fuzz::tls_records`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::tls_records::check(data));
