//! The options that decide something.

use std::time::Duration;

use crate::arp::ArpConfig;
use crate::sa::SaConfig;

/// Where a path comes from once the peer is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteProt {
    /// From the subnet administrator.
    Sa,
    /// From the parameters of the multicast group that both are in.
    Acm,
}

/// Options of the engine; names and meanings are those of `ibacm_opts.cfg`.
#[derive(Clone, Debug)]
pub struct Config {
    /// `route_prot`.
    pub route_prot: RouteProt,
    /// `loopback_prot local`.
    pub loopback_local: bool,
    /// `addr_fallback neigh`.
    pub addr_fallback: bool,
    /// `addr_timeout`, minutes.
    pub addr_timeout: Option<u32>,
    /// `route_timeout`, minutes.
    pub route_timeout: Option<u32>,
    /// `timeout`, milliseconds.
    pub timeout_ms: u32,
    /// `retries`.
    pub retries: u32,
    /// `resolve_depth`.
    pub resolve_depth: usize,
    /// It was set: it is no window's limit.
    pub resolve_fixed: bool,
    /// `sa_depth`.
    pub sa_depth: usize,
    /// As `resolve_fixed`.
    pub sa_fixed: bool,
    /// `send_depth`.
    pub send_depth: usize,
    /// `min_mtu` (IB enum).
    pub min_mtu: u8,
    /// `min_rate` (IB enum).
    pub min_rate: u8,
    /// `multicast_groups`.
    pub multicast_groups: usize,
    /// Learned destinations that an endpoint remembers.
    pub max_destinations: usize,
    /// How long a failure is remembered, in milliseconds.
    pub negative_cache_ms: u32,
    /// `log_level`: lines above it are not made.
    pub log_level: u8,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            route_prot: RouteProt::Sa,
            loopback_local: true,
            addr_fallback: true,
            addr_timeout: Some(1440),
            route_timeout: None,
            timeout_ms: 2000,
            retries: 2,
            resolve_depth: 64,
            resolve_fixed: false,
            sa_depth: 32,
            sa_fixed: false,
            send_depth: 32,
            min_mtu: 4,
            min_rate: 3,
            multicast_groups: 2,
            max_destinations: 65_536,
            negative_cache_ms: 0,
            log_level: 0,
        }
    }
}

impl Config {
    pub(crate) fn sa(&self) -> SaConfig {
        SaConfig { depth: self.sa_depth, fixed: self.sa_fixed, timeout_ms: self.timeout_ms, retries: self.retries }
    }

    /// Limits of address requests on a port whose subnet has this timeout exponent (PortInfo:SubnetTimeOut, the time
    /// is 4.096 us * 2^n).
    pub(crate) fn arp(&self, subnet_timeout: u8) -> ArpConfig {
        // 2^(n-8) ms is what deployed services take for it
        let subnet_ms = match subnet_timeout.min(31) {
            n @ 8.. => 1u64 << (n - 8),
            _ => 0,
        };
        ArpConfig {
            depth: self.resolve_depth,
            fixed: self.resolve_fixed,
            timeout: Duration::from_millis(u64::from(self.timeout_ms) + subnet_ms),
            retries: self.retries,
        }
    }
}
