//! libFuzzer entry point of [`anabranch_fuzz::proxy_clients`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::proxy_clients::check(data));
