//! The parts of the `ibacm` daemon. The deciding ones ([`engine`], [`arp`], [`sa`], [`cache`]) are pure; the edges
//! ([`ud`], [`umad`], [`server`], [`rtnl`], [`route`], [`lifecycle`], [`log`](mod@log)) make the system calls; [`evloop`]
//! connects them.

mod accept;
pub mod addr;
pub mod addrfile;
pub mod arp;
mod bucket;
pub mod cache;
pub mod cli;
mod conn;
pub mod device;
pub mod dirs;
pub mod engine;
pub mod evloop;
mod few;
pub mod ffi;
pub mod frame;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod keyed;
pub mod lifecycle;
mod listen;
pub mod local_service;
pub mod log;
pub mod map;
pub mod metrics;
mod neighbours;
mod netlink;
mod netlink_sock;
pub mod options;
mod pace;
pub mod preload;
pub mod provider;
pub mod publish;
pub mod rates;
pub mod rdma_nl;
pub mod route;
pub mod rtnl;
mod rtnl_neigh;
mod rtnl_parse;
mod rtnl_table;
pub mod sa;
mod sa_answer;
mod sa_question;
mod sa_queue;
pub mod server;
pub mod service;
mod slots;
pub mod sock;
mod sorted;
pub mod systemd;
pub mod table;
pub mod time;
pub mod token;
pub mod turns;
pub mod ud;
pub mod umad;
pub mod verbs;
mod window;
