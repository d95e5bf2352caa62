#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ibacm::fuzzing::sa(bytes));
