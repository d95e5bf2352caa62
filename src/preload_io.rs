//! Reads the preload files when they are needed: before clients are served, again when a port appears whose paths have
//! not been picked out yet, and when whoever holds the [`Source`] makes a new one.
//!
//! That is done at once and not beside the loop: clients that came while the files are read would ask the subnet
//! administrator for just what the files are to spare it, all hosts of a cluster in the same moment. A dump of 48,000
//! LIDs' headers and a host's own block takes some tens of milliseconds.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::{Hosts, Preload, RouteParser, Routes, Wanted, parse_hosts};
use crate::log;
use crate::options::io::{self as files, ReadError};
use crate::options::{AddrPreload, Finding, Options, RoutePreload};

/// Bytes that are read at a time.
const PIECE: usize = 128 << 10;

/// Where the data comes from, and for which ports it has been read.
#[derive(Debug, Default)]
pub struct Source {
    routes: Option<PathBuf>,
    hosts: Option<PathBuf>,
    known: Vec<u64>,
}

impl Source {
    /// The files that the options name.
    pub fn new(o: &Options) -> Source {
        Source {
            routes: (o.route_preload == RoutePreload::OpensmFullV1).then(|| o.route_data_file.clone()),
            hosts: (o.addr_preload == AddrPreload::AcmHosts).then(|| o.addr_data_file.clone()),
            known: Vec::new(),
        }
    }

    /// Everything that is preloaded for a host whose ports have these GUIDs; `None` if that is known already. What
    /// cannot be read is not there; the log says so.
    pub fn refresh(&mut self, guids: &[u64]) -> Option<Preload> {
        let new = guids.iter().any(|g| !self.known.contains(g));
        if !new || (self.routes.is_none() && self.hosts.is_none()) {
            return None;
        }
        self.known = guids.to_vec();
        let routes = self.routes.as_deref().map(|path| said(read_routes(path, Wanted::Ports(guids))));
        let hosts = self.hosts.as_deref().map(|path| said(read_hosts(path)));
        let preload = Preload { routes: routes.unwrap_or_default(), hosts: hosts.unwrap_or_default() };
        log!(1, "preloaded: {} LIDs, {} addresses", preload.routes.lids(), preload.hosts.len());
        Some(preload)
    }

    /// Everything that is wrong in the files.
    pub fn check(&self) -> Vec<String> {
        let routes = self.routes.as_deref().map(|path| problems(read_routes(path, Wanted::Check)));
        let hosts = self.hosts.as_deref().map(|path| problems(read_hosts(path)));
        routes.into_iter().chain(hosts).flatten().collect()
    }
}

fn said<T: Default>(read: Result<(T, Vec<Finding>), ReadError>) -> T {
    match read {
        Ok((data, findings)) => {
            findings.iter().for_each(|f| log!(0, "{f}"));
            data
        }
        Err(e) => {
            log!(0, "nothing is preloaded: {e}");
            T::default()
        }
    }
}

fn problems<T>(read: Result<(T, Vec<Finding>), ReadError>) -> Vec<String> {
    match read {
        Ok((_, findings)) => findings.iter().map(ToString::to_string).collect(),
        Err(e) => vec![e.to_string()],
    }
}

/// Reads a dump of any size.
///
/// # Errors
/// One that is not there or cannot be read.
pub fn read_routes(path: &Path, wanted: Wanted<'_>) -> Result<(Routes, Vec<Finding>), ReadError> {
    let failed = |e| ReadError::Io(path.to_owned(), e);
    // opening a pipe waits for its writer, a device never ends
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(failed(io::Error::other("not a file")));
    }
    let mut file = File::open(path).map_err(failed)?;
    let name = path.display().to_string();
    let mut parser = RouteParser::new(&name, wanted);
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(parser.finish()),
            Ok(n) => parser.feed(&piece[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(failed(e)),
        }
    }
}

/// Reads the addresses.
///
/// # Errors
/// A file that is not there, cannot be read, or is larger than [`files::MAX_FILE`].
pub fn read_hosts(path: &Path) -> Result<(Hosts, Vec<Finding>), ReadError> {
    let missing = || ReadError::Io(path.to_owned(), io::ErrorKind::NotFound.into());
    let bytes = files::read(path)?.ok_or_else(missing)?;
    Ok(parse_hosts(&bytes, &path.display().to_string()))
}
