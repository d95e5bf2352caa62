//! The bindings to libibverbs, made by bindgen at build time (see `build.rs`); [`crate::devices`] calls them.

// Generated text: C's names, its unsafe inline accessors and no documentation.
#![allow(
    unsafe_code,
    unsafe_op_in_unsafe_fn,
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    dead_code,
    missing_docs,
    unnecessary_transmutes,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]

include!(concat!(env!("OUT_DIR"), "/ffi.rs"));

impl Default for ibv_ah_attr {
    fn default() -> ibv_ah_attr {
        // SAFETY: a structure of integers, for which zero is a value.
        unsafe { std::mem::zeroed() }
    }
}
