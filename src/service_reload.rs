//! SIGHUP: what of changed files takes effect in a service that runs, and what has to wait for its next start.

use super::{Service, addr_entries, because, config, local_name};
use crate::addrfile::AddrEntry;
use crate::evloop::Depths;
use crate::log;
use crate::options::{Options, io as files};
use crate::preload::io::Source;

/// Options that hold until the service is started again: what they name was opened at start.
const FIXED: [&str; 9] = [
    "lock_file",
    "server_port",
    "server_mode",
    "acme_plus_kernel_only",
    "provider_lib_path",
    "builtin_provider",
    "provider_timeout",
    "provider",
    "recv_depth",
];

impl Service {
    /// Opens the log again and reads the files again; connections and what is known of other hosts stay. What cannot be
    /// read, or cannot be changed, stays as it is, with a line in the log.
    pub(super) fn reload(&mut self) {
        self.daemon.reloading();
        let loaded = match files::load(&self.files.opts) {
            Ok(loaded) => Some(loaded),
            Err(e) => {
                // what is said of it belongs into the new log
                reopen_log();
                log!(0, "the options stay as they are: {e}");
                None
            }
        };
        if let Some(loaded) = loaded {
            // Opens the file even if it is still the same one: somebody may have moved it away.
            if let Err(e) = log::configure(&loaded.options.log_file, loaded.options.log_level) {
                log!(0, "the log stays where it is: {e}");
            }
            loaded.findings.iter().for_each(|finding| log!(finding.level(self.plugged), "{finding}"));
            self.take_options(&loaded.options);
        }
        match self.names() {
            Ok(entries) => self.daemon.engine().set_names(entries.into_iter().map(local_name).collect()),
            Err(e) => log!(0, "the names stay as they are: {e}"),
        }
        log!(0, "the files were read again");
        self.daemon.ready();
    }

    fn take_options(&mut self, read: &Options) {
        for name in FIXED {
            let (old, new) = (lines(&self.options, name), lines(read, name));
            if old != new {
                let [old, new] = [old, new].map(|l| if l.is_empty() { "no line".to_owned() } else { l.join(", ") });
                log!(0, "'{new}' takes effect when the service is started again: '{old}' stays");
            }
        }
        let mut options = keep_fixed(&self.options, read);
        let (have, wanted) = (self.slots, super::send_slots(read));
        if wanted > have {
            // a send queue has the length that it was opened with
            log!(0, "resolve_depth and send_depth of that size take effect when the service is started again");
            (options.resolve_depth, options.send_depth) = (self.options.resolve_depth, self.options.send_depth);
        }
        crate::umad::set_debug_level(i32::from(options.umad_debug_level));
        self.daemon.set_depths(Depths { recv: options.recv_depth as usize, send: have });
        self.daemon.configure(config(&options));
        self.daemon.set_metrics(options.metrics_file.as_deref(), options.metrics_interval);
        self.daemon.preload_again(Source::new(&options));
        log_changes(&self.options, &options);
        self.options = options;
    }

    /// A port has come, or has become active: names that are made from the host's are for the ports that there are.
    pub(super) fn ports_changed(&mut self) {
        if self.from_host {
            match self.names() {
                Ok(entries) => self.daemon.engine().set_names(entries.into_iter().map(local_name).collect()),
                Err(e) => log!(0, "the names stay as they are: {e}"),
            }
        }
    }

    /// The lines of the address file; of a host without one, names made from its host name. The first active port has
    /// the host's own name, and keeps it while it is there, so that the name does not wander when ports go up and down.
    pub(super) fn names(&mut self) -> Result<Vec<AddrEntry>, super::StartError> {
        let allow_ip = self.options.support_ips_in_addr_cfg;
        if let Some(entries) = addr_entries(&self.files.addr, allow_ip)? {
            (self.from_host, self.named) = (false, None);
            let ports = crate::device::ib_ports(self.daemon.devices());
            for hint in crate::addrfile::absent(&entries, &ports, &self.files.addr.display().to_string()) {
                log!(0, "{hint}");
            }
            return Ok(entries);
        }
        if !std::mem::replace(&mut self.from_host, true) {
            log!(1, "{} is not there: names are made from the host name", self.files.addr.display());
        }
        let host = crate::lifecycle::hostname().map_err(because("the host's name"))?;
        let mut ports = crate::device::ib_ports(self.daemon.devices());
        if let Some(named) = &self.named
            && ports.iter().any(|p| (&p.device, p.port) == (&named.0, named.1))
        {
            ports.iter_mut().for_each(|p| p.active = (&p.device, p.port) == (&named.0, named.1));
        }
        self.named = ports.iter().find(|p| p.active).map(|p| (p.device.clone(), p.port));
        Ok(crate::addrfile::default_entries(&host, &ports))
    }
}

fn reopen_log() {
    if let Err(e) = log::reopen() {
        log!(0, "the log stays where it is: {e}");
    }
}

/// Says which options have changed; where none of them is in the log yet, because of its level, what the others are too.
fn log_changes(old: &Options, new: &Options) {
    let unsaid = old.log_level == 0;
    let (old, new) = (old.render(), new.render());
    for line in &new {
        match old.contains(line) {
            false => log!(1, "changed: {line}"),
            true if unsaid => log!(1, "{line}"),
            true => {}
        }
    }
    // of an option with several lines some may just be gone
    let name = |line: &String| line.split(' ').next().unwrap_or_default().to_owned();
    let gone = old.iter().filter(|line| !new.contains(line));
    gone.filter(|line| !new.iter().any(|n| name(n) == name(line))).for_each(|line| log!(1, "no longer: {line}"));
}

/// An option as it stands in a file: one line, or several for some.
fn lines(options: &Options, name: &str) -> Vec<String> {
    let is = |line: &String| line.split_once(' ').is_some_and(|(n, _)| n == name);
    options.render().into_iter().filter(is).collect()
}

/// What holds after `read` was read by a service that was started with `old`.
fn keep_fixed(old: &Options, read: &Options) -> Options {
    Options {
        lock_file: old.lock_file.clone(),
        server_port: old.server_port,
        server_mode: old.server_mode,
        acme_plus_kernel_only: old.acme_plus_kernel_only,
        provider_lib_path: old.provider_lib_path.clone(),
        builtin_provider: old.builtin_provider,
        provider_timeout: old.provider_timeout,
        default_provider: old.default_provider.clone(),
        providers: old.providers.clone(),
        recv_depth: old.recv_depth,
        ..read.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::parse;

    #[test]
    fn what_is_fixed_is_kept_and_nothing_else() {
        let all = "log_file stderr\nlog_level 1\numad_debug_level 1\nlock_file /l\nserver_port 1\nserver_mode loop\n\
            acme_plus_kernel_only yes\nprovider_lib_path /p\nbuiltin_provider no\nprovider_timeout 9\nsupport_ips_in_addr_cfg yes\naddr_timeout 1\nroute_prot acm\n\
            route_timeout 1\nloopback_prot none\ntimeout 1\nretries 1\nresolve_depth 9\nsa_depth 9\nsend_depth 9\n\
            recv_depth 9\nmin_mtu 256\nmin_rate 5\nroute_preload opensm_full_v1\nroute_data_file /r\naddr_preload acm_hosts\n\
            addr_data_file /a\nmax_destinations 99\nmulticast_groups 9\nnegative_cache 9\nmetrics_file /m\nmetrics_interval 9\nwait_for_device yes\nprovider x default\nprovider y 1\n";
        let (read, findings) = parse(all.as_bytes(), "f");
        assert!(findings.is_empty(), "{findings:?}");
        let old = Options::default();
        let held = keep_fixed(&old, &read);
        let name = |line: &str| line.split(' ').next().unwrap().to_owned();
        // addr_prot has one value only
        let changed: Vec<String> =
            read.render().iter().filter(|l| !old.render().contains(l)).map(|l| name(l)).collect();
        assert_eq!(changed.len(), all.lines().count());
        for option in changed {
            let (expected, what) = if FIXED.contains(&option.as_str()) { (&old, "kept") } else { (&read, "taken") };
            assert_eq!(lines(&held, &option), lines(expected, &option), "{option} is not {what}");
        }
        for fixed in FIXED {
            assert_ne!(lines(&old, fixed), lines(&read, fixed), "{fixed} is no option");
        }
    }
}
