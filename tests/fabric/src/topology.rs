//! The topology file that ibsim reads: written for the usual cases, read back for a given one.

use std::fmt::Write as _;

/// Leaf switches for HCAs that nobody runs on have this many of them.
const LEAF: usize = 100;

/// A channel adapter that one of our hosts uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hca {
    /// Its name in the topology.
    pub node: String,
    /// Number of its host, from 1.
    pub host: usize,
    /// Which of the host's HCAs, from 0.
    pub index: usize,
    /// How many ports.
    pub ports: u8,
}

/// What to build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Hosts.
    pub hosts: usize,
    /// HCAs of each host.
    pub hcas: usize,
    /// Ports of each HCA.
    pub ports: usize,
    /// HCAs that nobody runs on.
    pub extra: usize,
    /// There is an HCA `SM2` for a second subnet manager.
    pub second_manager: bool,
}

/// The name of a host's HCA: `H1`, its second `H1-2`.
fn node_name(host: usize, index: usize) -> String {
    if index == 0 { format!("H{host}") } else { format!("H{host}-{}", index + 1) }
}

/// Writes a topology: one switch, the subnet manager's HCA `SM`, the hosts; leaf switches for the extra HCAs.
pub fn write(shape: &Shape) -> String {
    // Links of the root switch: node and port at the other end.
    let mut links: Vec<(String, usize)> = vec![("SM".into(), 1)];
    let mut nodes = String::new();
    let _ = writeln!(nodes, "Hca 1 \"SM\"\n[1] \"SW1\"[1]\n");
    for host in 1..=shape.hosts {
        for index in 0..shape.hcas {
            let name = node_name(host, index);
            let _ = writeln!(nodes, "Hca {} \"{name}\"", shape.ports);
            for port in 1..=shape.ports {
                links.push((name.clone(), port));
                let _ = writeln!(nodes, "[{port}] \"SW1\"[{}]", links.len());
            }
            nodes.push('\n');
        }
    }
    let extra: Vec<usize> = (1..=shape.extra).collect();
    for (leaf, members) in extra.chunks(LEAF).enumerate() {
        let name = format!("SWX{}", leaf + 1);
        links.push((name.clone(), 1));
        let _ = writeln!(nodes, "Switch {} \"{name}\"\n[1] \"SW1\"[{}]", LEAF + 1, links.len());
        for (i, x) in members.iter().enumerate() {
            let _ = writeln!(nodes, "[{}] \"X{x}\"[1]", i + 2);
        }
        nodes.push('\n');
        for (i, x) in members.iter().enumerate() {
            let _ = writeln!(nodes, "Hca 1 \"X{x}\"\n[1] \"{name}\"[{}]\n", i + 2);
        }
    }
    if shape.second_manager {
        // Behind all others, whose LIDs it leaves as they are.
        links.push(("SM2".into(), 1));
        let _ = writeln!(nodes, "Hca 1 \"SM2\"\n[1] \"SW1\"[{}]\n", links.len());
    }
    let mut out = format!("Switch {} \"SW1\"\n", links.len().max(36));
    for (i, (node, port)) in links.iter().enumerate() {
        let _ = writeln!(out, "[{}] \"{node}\"[{port}]", i + 1);
    }
    out.push('\n');
    out + &nodes
}

/// The HCAs of hosts in a topology: those named `H<number>` or `H<number>-<number>`.
pub fn host_hcas(text: &str) -> Vec<Hca> {
    let mut hcas: Vec<Hca> = text.lines().filter_map(host_hca).collect();
    hcas.sort_by_key(|hca| (hca.host, hca.index));
    hcas
}

fn host_hca(line: &str) -> Option<Hca> {
    let rest = line.trim_start().strip_prefix("Hca")?;
    let (ports, rest) = rest.split_once('"')?;
    let (node, _) = rest.split_once('"')?;
    let (host, index) = match node.strip_prefix('H')?.split_once('-') {
        Some((host, number)) => (host.parse().ok()?, number.parse::<usize>().ok()?.checked_sub(1)?),
        None => (node[1..].parse().ok()?, 0),
    };
    Some(Hca { node: node.into(), host, index, ports: ports.trim().parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_and_read() {
        let text = write(&Shape { hosts: 2, hcas: 2, ports: 2, extra: 150, second_manager: true });
        let hcas = host_hcas(&text);
        assert_eq!(hcas.len(), 4);
        assert_eq!(hcas[1], Hca { node: "H1-2".into(), host: 1, index: 1, ports: 2 });
        assert_eq!(text.matches("Hca 1 \"X").count(), 150);
        assert!(text.ends_with("Hca 1 \"SM2\"\n[1] \"SW1\"[12]\n\n"));
        assert!(text.contains("Switch 101 \"SWX2\"\n[1] \"SW1\"[11]"));
        assert!(text.starts_with("Switch 36 \"SW1\"\n[1] \"SM\"[1]\n[2] \"H1\"[1]\n[3] \"H1\"[2]\n"));
    }
}
