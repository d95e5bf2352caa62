//! The engine as a whole, in virtual time.

mod fallback;
mod groups;
mod news;
mod notices;
mod preload;
mod protocol;
mod reconfigure;
mod refresh;
mod resolving;
mod sim;
mod trouble;

use ibacm_wire::client::{EP_FLAG_DEST, EP_FLAG_SOURCE, Entry, TYPE_IP, TYPE_NAME};
use std::net::IpAddr;

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

fn to(host: usize) -> Entry {
    Entry::address(EP_FLAG_DEST, TYPE_IP, &octets(sim::ip(host)))
}

fn from(host: usize) -> Entry {
    Entry::address(EP_FLAG_SOURCE, TYPE_IP, &octets(sim::ip(host)))
}

fn to_name(host: usize) -> Entry {
    Entry::address(EP_FLAG_DEST, TYPE_NAME, sim::name(host).to_uppercase().as_bytes())
}
