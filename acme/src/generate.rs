//! `-A` and `-O`: configuration files with comments, in the form that every ibacm takes.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use ibacm::addrfile::{AddrEntry, IbPort, default_entries};
use ibacm::verbs::{self, LINK_LAYER_INFINIBAND, LINK_LAYER_UNSPECIFIED, PORT_ACTIVE};

use crate::cli::Options;
use crate::fault::{Fault, strerror};
use crate::out::Out;
use crate::say;

/// Every option with what it does; a line that begins with '#' and a name is one that is not in force.
const OPTIONS: &str = include_str!("../../pkg/ibacm_opts.cfg");
/// Lines of it up to the first empty one say how to use it as a sample, which this file is not.
const OPTIONS_HEAD: &str = "\
# Options of ibacm(8), written by ib_acme -O.
# What each means, with range and unit, is in ibacm(7). `ibacm --check-config` says what is wrong in this file.
# A line is a name and a value. Those that begin with '#' are not in force, and show what holds then.
";
/// Their defaults may become better with another version, so that they are not fixed here.
const NOT_FIXED: [&str; 17] = [
    "addr_fallback",
    "multicast_groups",
    "resolve_depth",
    "sa_depth",
    "send_depth",
    "recv_depth",
    "max_destinations",
    "negative_cache",
    "metrics_file",
    "metrics_interval",
    "wait_for_device",
    "support_ips_in_addr_cfg",
    "provider_lib_path",
    "builtin_provider",
    "provider_timeout",
    "route_data_file",
    "addr_data_file",
];

const ADDRESSES: &str = "\
# Names of this host for ibacm(8), written by ib_acme -A.
#
# Beside them the addresses of the IPoIB interfaces are known; they need no lines here.
#
# A line is: name, device, port, partition.
#   name       up to 63 characters; hosts that run rdma-core's ibacm take up to 46
#   device     as ibv_devinfo names it
#   port       from 1
#   partition  a P_Key in hexadecimal, as 0x8001, or default: the first of the port
# Several names may be for one port. With the option support_ips_in_addr_cfg, IP addresses may stand for names.

";

/// Writes the address file.
pub fn addresses(out: &mut Out, options: &Options, file: &OsStr) -> Result<(), Fault> {
    announce(out, options, file);
    // What is there stays where nothing better can be written.
    prepare(out, "address", &options.directory)?;
    let entries = match names() {
        Ok(entries) => entries,
        Err(e) => {
            say!(out, "ibv_get_device_list - no devices present?");
            let errno = e.raw_os_error().unwrap_or(libc::ENODEV);
            let text = format!("the RDMA devices cannot be listed: {e}");
            let fault = Fault::local(errno, &text, "look whether the kernel's module ib_uverbs is loaded");
            out.explain(&fault);
            return Err(fault);
        }
    };
    let mut contents = ADDRESSES.to_owned();
    for entry in &entries {
        let _ = writeln!(contents, "{entry}");
    }
    let keep = entries.is_empty();
    if write(out, "address", options, file, &contents, keep)? == Written::Kept {
        let place = place(options, file);
        out.advise(format_args!("no InfiniBand device is there: {} stays as it was", place.display()));
    } else if keep {
        out.advise(format_args!("no InfiniBand device is there, so that the file has no names"));
    }
    if options.verbose {
        entries.iter().for_each(|entry| say!(out, "{entry}"));
    }
    Ok(())
}

/// Writes the options file.
pub fn options(out: &mut Out, options: &Options, file: &OsStr) -> Result<(), Fault> {
    announce(out, options, file);
    prepare(out, "option", &options.directory)?;
    write(out, "option", options, file, &options_file(), false).map(drop)
}

/// The options file: the sample with the defaults of this build, those in force that need not stay open.
fn options_file() -> String {
    let defaults = ibacm::options::Options::default().render();
    let body = OPTIONS.split_once("\n\n").map_or(OPTIONS, |(_, body)| body);
    let mut contents = format!("{OPTIONS_HEAD}\n");
    for line in body.lines() {
        let name = line.strip_prefix('#').and_then(|l| l.split(' ').next()).filter(|n| !n.is_empty());
        let default = name.and_then(|n| defaults.iter().find(|d| d.split(' ').next() == Some(n)));
        let _ = match (name, default) {
            (Some(name), Some(default)) if NOT_FIXED.contains(&name) => writeln!(contents, "#{default}"),
            (Some(name), Some(default)) if name != "provider" => writeln!(contents, "{default}"),
            _ => writeln!(contents, "{line}"),
        };
    }
    contents
}

/// The names that the service makes where there is no file.
fn names() -> io::Result<Vec<AddrEntry>> {
    let host = ibacm::lifecycle::hostname()?;
    let mut ports = Vec::new();
    for device in verbs::known_devices()? {
        let Ok(context) = device.open() else { continue };
        for port in 1..=context.phys_port_cnt() {
            let Ok(attr) = context.query_port(port) else { continue };
            if matches!(attr.link_layer, LINK_LAYER_INFINIBAND | LINK_LAYER_UNSPECIFIED) {
                let device = device.name().as_bytes().to_vec();
                ports.push(IbPort { device, port, active: attr.state == PORT_ACTIVE });
            }
        }
    }
    Ok(default_entries(&host, &ports))
}

fn announce(out: &mut Out, options: &Options, file: &OsStr) {
    if options.verbose {
        say!(out, "Generating {}/{}", options.directory.display(), file.display());
    }
}

/// Makes the directory for a file if it is missing, but not those above it.
fn prepare(out: &mut Out, what: &str, directory: &OsStr) -> Result<(), Fault> {
    // Whatever the umask allows beyond that: services read what is in it.
    let made = std::fs::DirBuilder::new().mode(0o755).create(directory);
    let there = std::fs::metadata(directory).and_then(|m| if m.is_dir() { Ok(()) } else { Err(not_a_directory()) });
    there.map_err(|e| {
        let e = made.err().filter(|made| made.kind() != io::ErrorKind::AlreadyExists).unwrap_or(e);
        say!(out, "Failed to open directory {}: {}", directory.display(), text(&e));
        failed(out, "open", what, Path::new(directory), &e)
    })
}

fn not_a_directory() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOTDIR)
}

/// Where a file is to be.
pub fn place(options: &Options, file: &OsStr) -> PathBuf {
    Path::new(&options.directory).join(file)
}

/// What has become of a file.
#[derive(PartialEq, Eq)]
enum Written {
    New,
    /// It was there.
    Kept,
}

/// Writes a file; with `keep` only if it is not there.
fn write(
    out: &mut Out,
    what: &str,
    options: &Options,
    file: &OsStr,
    contents: &str,
    keep: bool,
) -> Result<Written, Fault> {
    let path = place(options, file);
    // Without a name that is the directory, but it is a file that is missing.
    if file.is_empty() {
        return Err(failed(out, "open", what, &path, &io::Error::from_raw_os_error(libc::ENOENT)));
    }
    if keep {
        // One that could not have been written is a failure, whether there was something to write or not.
        match OpenOptions::new().write(true).open(&path) {
            Ok(_) => return Ok(Written::Kept),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(failed(out, "open", what, &path, &e)),
        }
    }
    let mut file = File::create(&path).map_err(|e| failed(out, "open", what, &path, &e))?;
    file.write_all(contents.as_bytes()).map_err(|e| failed(out, "write", what, &path, &e))?;
    Ok(Written::New)
}

/// Says why there is no file.
fn failed(out: &mut Out, verb: &str, what: &str, path: &Path, e: &io::Error) -> Fault {
    say!(out, "Failed to {verb} {what} configuration file: {}", text(e));
    let above = path.parent().is_some_and(|p| p.as_os_str().is_empty() || p.is_dir());
    let advice = match e.kind() {
        io::ErrorKind::NotFound if !above => "make the directories above it first (mkdir -p), or name another with -D",
        io::ErrorKind::PermissionDenied => "be root, or name another directory with -D",
        io::ErrorKind::StorageFull => "make room, or name another directory with -D",
        _ => "name another directory with -D",
    };
    let why = format!("{}: {}", path.display(), text(e));
    let fault = Fault::local(e.raw_os_error().unwrap_or(libc::EIO), &why, advice);
    out.explain(&fault);
    fault
}

fn text(e: &io::Error) -> String {
    e.raw_os_error().map_or_else(|| e.to_string(), strerror)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_file_holds_every_option_and_the_defaults() {
        let contents = options_file();
        let (parsed, findings) = ibacm::options::parse(contents.as_bytes(), "written");
        assert!(findings.is_empty(), "{findings:?}");
        assert_eq!(parsed, ibacm::options::Options::default());
        for line in parsed.render() {
            let name = line.split(' ').next().unwrap_or_default();
            let wanted =
                if NOT_FIXED.contains(&name) || name == "provider" { format!("#{name} ") } else { line.clone() };
            assert!(contents.lines().any(|l| l.starts_with(&wanted)), "{wanted}");
        }
        assert!(contents.lines().all(|l| l.len() < 119), "rdma-core's service reads lines of that length");
    }

    #[test]
    fn the_address_file_has_no_line_in_force_but_names() {
        let (entries, findings) = ibacm::addrfile::parse(ADDRESSES.as_bytes(), "written", false);
        assert!(entries.is_empty() && findings.is_empty());
        assert!(ADDRESSES.lines().all(|l| l.len() < 119));
    }
}
