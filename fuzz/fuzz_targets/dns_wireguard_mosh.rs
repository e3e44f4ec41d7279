//! libFuzzer entry point of [`anabranch_fuzz::dns_wireguard_mosh`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_fuzz::dns_wireguard_mosh::check(data));
