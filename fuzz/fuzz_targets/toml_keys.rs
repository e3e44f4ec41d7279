//! libFuzzer entry point of [`anabranch_fuzz::toml_keys`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::toml_keys::check(data));
