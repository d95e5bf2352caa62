//! The engine as a whole, in virtual time.

mod announce;
mod fairness;
mod fallback;
mod floods;
mod groups;
mod link_local;
mod many;
mod news;
mod notices;
mod outage;
mod plugged;
mod plugged_mads;
mod plugged_ports;
mod preload;
mod protocol;
mod reconfigure;
mod refresh;
mod resolving;
mod silent;
mod sim;
mod standing;
mod tally;
mod trouble;

use sim::{from, octets, to, to_name};

/// The same files once more: `sim` gives hosts IPv6 addresses in a module of this name.
#[path = "tests"]
#[allow(clippy::duplicate_mod, reason = "that is the purpose")]
mod ipv6 {
    mod announce;
    mod link_local;
    mod many;
    mod outage;
    mod plugged;
    mod plugged_mads;
    mod plugged_ports;
    mod preload;
    mod protocol;
    mod reconfigure;
    mod resolving;
    mod silent;
    mod sim;
    mod trouble;

    use sim::{from, octets, to, to_name};
}
