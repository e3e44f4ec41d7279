//! libFuzzer's way into [`anabranch_fuzz::trace_reader`].
#![no_main]

use std::panic;

// The reader turns panics of the Parquet decoder into errors. libFuzzer's own hook would end the
// process at the panic already; without it, a panic that nobody catches still does.
libfuzzer_sys::fuzz_target!(
    init: panic::set_hook(Box::new(|about| eprintln!("{about}"))),
    |data: &[u8]| anabranch_fuzz::trace_reader::check(data)
);
