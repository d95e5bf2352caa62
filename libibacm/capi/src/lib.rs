//! The C library libibacm: the functions of `infiniband/ib_acm.h` over the crate `libibacm`.
//!
//! What is unsafe is in `boundary`, `queries` and `sessions`, whose callers are C, in `devices`, which calls
//! libibverbs, and in `fork`, which the C library calls.
#![deny(unsafe_code)]
#![allow(missing_docs, reason = "the interface is documented where its users look: in infiniband/ib_acm.h")]

mod boundary;
mod devices;
mod ffi;
mod fork;
mod layout;
mod queries;
mod sessions;
mod state;
