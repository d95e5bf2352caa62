//! The C library libibacm: the functions of `infiniband/ib_acm.h` over the crate `libibacm`.
//!
//! [`boundary`](self) and the modules for libibverbs hold all that is unsafe.
#![deny(unsafe_code)]
#![allow(missing_docs, reason = "the interface is documented where its users look: in infiniband/ib_acm.h")]

mod boundary;
mod devices;
mod ffi;
mod layout;
mod sessions;
mod state;
