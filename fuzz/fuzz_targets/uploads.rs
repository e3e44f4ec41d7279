//! libFuzzer entry point of [`anabranch_fuzz::uploads`].
#![no_main]

libfuzzer_sys::fuzz_target!(init: anabranch_fuzz::uploads::prepare(), |data: &[u8]| {
    anabranch_fuzz::uploads::check(data);
});
