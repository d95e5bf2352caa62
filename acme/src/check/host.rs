//! What is to be said of devices, ports, partitions and interfaces. Pure.

use std::net::IpAddr;

use ibacm::verbs;

use super::facts::{DEFAULT_PKEY, Device, Interface, Port};
use super::report::{Finding, Level};

/// Of the devices: is there anything to serve?
pub fn devices(devices: &Result<Vec<Device>, String>) -> Vec<Finding> {
    let here = "this host";
    let list = match devices {
        Ok(list) => list,
        Err(e) => {
            return vec![Finding::failed(
                "device",
                here,
                format!("the RDMA devices cannot be listed: {e}"),
                "load the kernel's RDMA support (modprobe ib_uverbs), and look into dmesg",
            )];
        }
    };
    if list.is_empty() {
        return vec![Finding::failed(
            "device",
            here,
            "no RDMA device",
            "load the adapter's driver (modprobe mlx5_ib, or the one of your adapter) and ib_uverbs, and see whether \
             `rdma link` and `lspci` show the adapter",
        )];
    }
    let mut findings = Vec::new();
    for device in list {
        if let Err(e) = &device.ports {
            findings.push(Finding::failed(
                "device",
                &device.name,
                format!("cannot be used: {e}"),
                "look at the permissions of /dev/infiniband, and into dmesg for what the driver says",
            ));
        }
    }
    let ports = list.iter().flat_map(|d| d.ports.iter().flatten()).count();
    let names = list.iter().map(|d| d.name.as_str()).collect::<Vec<_>>().join(", ");
    if ports > 0 {
        findings.push(Finding::ok("device", here, format!("{names}; InfiniBand ports: {ports}")));
    } else if findings.is_empty() {
        findings.push(Finding::failed(
            "device",
            here,
            format!("no InfiniBand port on {names}"),
            "set the adapter's ports to InfiniBand (for Mellanox: mlxconfig set LINK_TYPE_P1=1); on an Ethernet or \
             iWARP fabric ibacm is not needed",
        ));
    }
    findings
}

/// Of the ports: are they up? A port that is down is a failure where no other port is up.
pub fn ports(ports: &[Port]) -> Vec<Finding> {
    let worst = if ports.iter().any(Port::is_usable) { Level::Warning } else { Level::Failed };
    let each = ports.iter().map(|p| {
        let failed = |found: &str, remedy: &str| Finding::failed("port", p.name(), found, remedy);
        match p.state {
            verbs::PORT_ACTIVE if p.lid == 0 => failed(
                "active, but without a LID",
                "look into the subnet manager's log why it has given none (opensm: /var/log/opensm.log)",
            ),
            verbs::PORT_ACTIVE if p.sm_lid == 0 => failed(
                "active, but it knows of no subnet manager (SM LID 0)",
                "start a subnet manager (systemctl start opensm), or look why it does not reach this port",
            ),
            verbs::PORT_ACTIVE => {
                Finding::ok("port", p.name(), format!("active, LID {}, subnet manager at LID {}", p.lid, p.sm_lid))
            }
            verbs::PORT_DOWN => failed(
                "down: there is no link",
                "plug in the cable, or replace it, and look whether the switch's port is enabled (ibstat, ibportstate)",
            )
            .at_most(worst),
            verbs::PORT_INIT => failed(
                "initialising: there is a link, but no subnet manager (SM) has configured the port",
                "start a subnet manager (systemctl start opensm), or look into its log why it leaves this port out",
            )
            .at_most(worst),
            verbs::PORT_ARMED => failed(
                "armed: the subnet manager has not brought it to the active state yet",
                "wait a moment; if it stays so, look into the subnet manager's log, or restart it",
            )
            .at_most(worst),
            state => failed(
                &format!("in state {state}, in which nothing is sent"),
                "look into dmesg and the subnet manager's log",
            )
            .at_most(worst),
        }
    });
    each.collect()
}

/// Of a usable port's partitions and those of its interfaces.
pub fn partitions(port: &Port, interfaces: &[Interface]) -> Vec<Finding> {
    let keys: Vec<u16> = port.pkeys.iter().copied().filter(|k| *k != 0).collect();
    let shown = keys.iter().map(|k| format!("{k:#06x}")).collect::<Vec<_>>().join(", ");
    let default = "have the subnet manager make it a full member (OpenSM, partitions.conf: \
                   `Default=0x7fff,ipoib:ALL=full;`), and restart that or send it SIGHUP";
    let mut findings = vec![if keys.is_empty() {
        Finding::failed("partition", port.name(), "member of no partition: the table of keys is empty", default)
    } else if keys.contains(&0xffff) {
        Finding::ok("partition", port.name(), format!("full member of the default partition ({shown})"))
    } else if !port.is_full_member() {
        Finding::failed(
            "partition",
            port.name(),
            format!(
                "only a limited member ({shown}): limited members cannot talk to each other, and multicast groups \
                 refuse them"
            ),
            default,
        )
    } else if keys.contains(&0x7fff) {
        Finding::warning(
            "partition",
            port.name(),
            format!("limited member of the default partition, full member of another ({shown})"),
            "name the full partition in ibacm_addr.cfg and have an IPoIB interface in it; or make this port a full \
             member of the default partition (OpenSM, partitions.conf: `Default=0x7fff,ipoib:ALL=full;`)",
        )
    } else {
        Finding::failed(
            "partition",
            port.name(),
            format!("no member of the default partition ({shown}): the subnet administrator cannot be asked"),
            default,
        )
    }];
    for (interface, pkey) in interfaces.iter().filter_map(|i| Some((i, i.pkey?))) {
        // That it is not in the default partition, or in none at all, has been said.
        let said = keys.is_empty() || (pkey ^ DEFAULT_PKEY) & 0x7fff == 0;
        if port.has_gid(interface.gid) && port.key_of(pkey).is_none() && !said {
            findings.push(Finding::failed(
                "partition",
                &interface.name,
                format!("its partition {pkey:#06x} is not among those of {} ({shown})", port.name()),
                format!(
                    "have the subnet manager make the port a member (OpenSM, partitions.conf), or remove the \
                     interface (ip link del {})",
                    interface.name
                ),
            ));
        }
    }
    findings
}

/// Whether an address can be one that others know this host by.
pub fn is_global(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => !v4.is_unspecified() && !v4.is_loopback(),
        IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_loopback() && v6.segments()[0] & 0xffc0 != 0xfe80,
    }
}

fn has_address(interface: &Interface) -> bool {
    interface.is_up != Some(false) && interface.addresses.iter().any(|(ip, _)| is_global(*ip))
}

/// Of IPoIB addresses of the usable ports. A port without one is a failure where no port has one.
pub fn addresses(ports: &[&Port], interfaces: &[Interface]) -> Vec<Finding> {
    let of = |p: &Port| interfaces.iter().filter(|i| p.has_gid(i.gid)).collect::<Vec<_>>();
    let worst = if ports.iter().any(|p| of(p).into_iter().any(has_address)) { Level::Warning } else { Level::Failed };
    let mut findings = Vec::new();
    for port in ports {
        let here = of(port);
        if here.is_empty() {
            let found = "no IPoIB address: there is no IPoIB interface";
            let remedy = "load IPoIB (modprobe ib_ipoib) and give its interface an address \
                          (ip addr add ADDRESS/LENGTH dev ib0)";
            findings.push(Finding::failed("address", port.name(), found, remedy).at_most(worst));
        }
        let enough = here.iter().any(|i| has_address(i));
        for interface in here {
            findings.push(address(port, interface, if enough { Level::Warning } else { worst }));
        }
    }
    findings
}

fn address(port: &Port, interface: &Interface, worst: Level) -> Finding {
    let name = &interface.name;
    let global = interface.addresses.iter().filter(|(ip, _)| is_global(*ip));
    let shown = global.map(|(ip, length)| format!("{ip}/{length}")).collect::<Vec<_>>().join(", ");
    if shown.is_empty() {
        let found = format!("no IPoIB address on the interface of {}", port.name());
        let remedy = format!("give it one (ip addr add ADDRESS/LENGTH dev {name}, and the like at every boot)");
        return Finding::failed("address", name, found, remedy).at_most(worst);
    }
    if interface.is_up == Some(false) {
        let remedy = format!("set it up (ip link set {name} up)");
        return Finding::failed("address", name, format!("the interface is down; it has {shown}"), remedy)
            .at_most(worst);
    }
    if interface.carrier == Some(false) {
        return Finding::warning(
            "address",
            name,
            format!("no carrier, though {} is active: it is in no broadcast group; it has {shown}", port.name()),
            "look into dmesg for what ib_ipoib says, whether the port is a full member of its partition, and whether \
             the subnet manager makes a broadcast group there (OpenSM, partitions.conf: `ipoib`)",
        );
    }
    Finding::ok("address", name, format!("{shown} on {}", port.name()))
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
