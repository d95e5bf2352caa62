//! What kind of subnet to build.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::paths::StateDir;

/// ibsim takes ten clients: OpenSM, a query, and this many HCAs of hosts (one less where they have two ports).
pub const MAX_HCAS: usize = 8;

/// What kind of subnet to build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where it keeps its files.
    pub state: StateDir,
    /// Hosts `H1` to `H<n>`.
    pub hosts: usize,
    /// HCAs of each host.
    pub hcas: usize,
    /// Ports of each HCA.
    pub hca_ports: usize,
    /// HCAs that nobody runs on: destinations for the SA.
    pub extra_hcas: usize,
    /// A topology in ibsim's form, instead of the above.
    pub topology: Option<PathBuf>,
    /// OpenSM's partitions.conf.
    pub partitions: Option<PathBuf>,
    /// More lines for opensm.conf.
    pub opensm: Vec<String>,
    /// Leave the hosts without IPoIB interfaces.
    pub no_ipoib: bool,
    /// Have a place for a second subnet manager, which takes one HCA from the hosts.
    pub second_manager: bool,
}

impl Options {
    /// This many hosts, the rest as usual.
    pub fn new(state: StateDir, hosts: usize) -> Self {
        Options {
            state,
            hosts,
            hcas: 1,
            hca_ports: 1,
            extra_hcas: 0,
            topology: None,
            partitions: None,
            opensm: Vec::new(),
            no_ipoib: false,
            second_manager: false,
        }
    }

    /// Reads a command line.
    pub fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Options::new(StateDir::from_env(), 2);
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if arg == "--no-ipoib" {
                options.no_ipoib = true;
                continue;
            }
            if arg == "--second-manager" {
                options.second_manager = true;
                continue;
            }
            let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
            let number = || value.parse::<usize>().map_err(|_| format!("{arg} {value}: not a number"));
            match arg.as_str() {
                "--hosts" => options.hosts = number()?,
                "--hcas" => options.hcas = number()?,
                "--hca-ports" => options.hca_ports = number()?,
                "--extra-hcas" => options.extra_hcas = number()?,
                "--state" => options.state = StateDir::new(absolute(value)?),
                "--topology" => options.topology = Some(absolute(value)?),
                "--partitions" => options.partitions = Some(absolute(value)?),
                "--opensm" => options.opensm.push(value.clone()),
                _ => return Err(format!("{arg}: unknown option")),
            }
        }
        options.check()
    }

    fn check(self) -> Result<Self, String> {
        let most = MAX_HCAS - usize::from(self.hca_ports > 1) - usize::from(self.second_manager);
        if self.topology.is_none() && (self.hosts == 0 || self.hosts * self.hcas > most) {
            return Err(format!("1 to {most} HCAs of hosts, not {}", self.hosts * self.hcas));
        }
        if !(1..=2).contains(&self.hca_ports) || self.hcas == 0 {
            return Err("an HCA has 1 or 2 ports, a host at least one HCA".into());
        }
        if self.extra_hcas > 1900 {
            return Err("at most 1900 extra HCAs".into());
        }
        Ok(self)
    }

    /// The command line that [`Options::parse`] reads.
    pub fn to_args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = Vec::new();
        let mut push = |name: &str, value: OsString| args.extend([name.into(), value]);
        push("--state", self.state.path().into());
        push("--hosts", self.hosts.to_string().into());
        push("--hcas", self.hcas.to_string().into());
        push("--hca-ports", self.hca_ports.to_string().into());
        push("--extra-hcas", self.extra_hcas.to_string().into());
        for (name, path) in [("--topology", &self.topology), ("--partitions", &self.partitions)] {
            if let Some(path) = path {
                push(name, path.into());
            }
        }
        for line in &self.opensm {
            push("--opensm", line.into());
        }
        if self.no_ipoib {
            args.push("--no-ipoib".into());
        }
        if self.second_manager {
            args.push("--second-manager".into());
        }
        args
    }
}

fn absolute(path: &str) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|e| format!("{path}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let mut options = Options::new(StateDir::new("/tmp/x"), 3);
        options.hca_ports = 2;
        options.partitions = Some("/tmp/p".into());
        options.opensm.push("sweep_interval 1".into());
        options.no_ipoib = true;
        options.second_manager = true;
        let args: Vec<String> = options.to_args().into_iter().map(|a| a.into_string().unwrap()).collect();
        assert_eq!(Options::parse(&args), Ok(options));
        assert!(Options::parse(&["--hosts".into(), "9".into()]).is_err());
        assert!(Options::parse(&["--hots".into(), "1".into()]).is_err());
    }
}
