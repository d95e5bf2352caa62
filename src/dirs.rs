//! Directories, set when the daemon is built: by the environment variable of the same name, else where Debian has them.

/// `IBACM_CONF_DIR`: the configuration files, and those for preloading.
pub const CONF: &str = match option_env!("IBACM_CONF_DIR") {
    Some(dir) => dir,
    None => "/etc/rdma",
};

/// `IBACM_RUN_DIR`: sockets, port files and the lock file. Clients look in `/run`.
pub const RUN: &str = match option_env!("IBACM_RUN_DIR") {
    Some(dir) => dir,
    None => "/run",
};

/// `IBACM_LOG_DIR`: the log.
pub const LOG: &str = match option_env!("IBACM_LOG_DIR") {
    Some(dir) => dir,
    None => "/var/log",
};

/// `IBACM_PROVIDER_DIR`: the plug-ins.
pub const PROVIDERS: &str = match option_env!("IBACM_PROVIDER_DIR") {
    Some(dir) => dir,
    None if cfg!(target_arch = "x86_64") => "/usr/lib/x86_64-linux-gnu/ibacm",
    None if cfg!(target_arch = "aarch64") => "/usr/lib/aarch64-linux-gnu/ibacm",
    None if cfg!(all(target_arch = "powerpc64", target_endian = "little")) => "/usr/lib/powerpc64le-linux-gnu/ibacm",
    None if cfg!(target_arch = "s390x") => "/usr/lib/s390x-linux-gnu/ibacm",
    None if cfg!(target_arch = "riscv64") => "/usr/lib/riscv64-linux-gnu/ibacm",
    None => "/usr/lib/ibacm",
};
