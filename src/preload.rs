//! The preload files: paths as the subnet manager has dumped them, and addresses of hosts with their GIDs. What they
//! say is known without asking anybody.
//!
//! Pure, but for [`io`]: bytes in, data and findings out. Bad lines are findings and cost themselves only.
//!
//! The data is kept as it is in the files, not as entries of every endpoint's cache: a destination is 18 bytes for all
//! endpoints together, its record is put together when it is asked for. So the port's LID, subnet prefix and timeout
//! may change, and ports may come up at any time, without the files being read again.

#[path = "preload_hosts.rs"]
mod hosts;
#[path = "preload_io.rs"]
pub mod io;
#[path = "preload_routes.rs"]
mod routes;

pub use hosts::{Hosts, parse_hosts};
pub use routes::{Route, RouteParser, Routes, RoutesFrom, Wanted, parse_routes};

/// First LID of multicast groups (IBA 4.1.3): unicast LIDs are below it.
const MULTICAST_LID: u16 = 0xc000;

/// What both files say.
#[derive(Debug, Default)]
pub struct Preload {
    /// Paths from this host's ports.
    pub routes: Routes,
    /// Addresses of other hosts.
    pub hosts: Hosts,
}
