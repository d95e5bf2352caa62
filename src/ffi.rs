//! The bindings to libibverbs and libibumad, made by bindgen at build time (see `build.rs`).
//!
//! Nothing here is safe to call as it stands; [`crate::verbs`], [`crate::ud`] and
//! [`crate::umad`] are the places that do. Enumerations of C are plain integers with constants,
//! because a driver may hand over values that the header doesn't know.

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
