#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keepsake_fuzz::targets::forget(data));
