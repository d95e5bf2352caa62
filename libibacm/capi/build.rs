//! Makes the bindings of the few functions of libibverbs that find a device.

use std::path::PathBuf;
use std::{env, process};

const FUNCTIONS: &[&str] = &[
    "ibv_get_device_list",
    "ibv_free_device_list",
    "ibv_get_device_guid",
    "ibv_open_device",
    "ibv_close_device",
    "ibv_query_device",
    "ibv_query_port",
    "ibv_query_gid",
    "ibv_query_pkey",
];

fn fail(message: &str) -> ! {
    eprintln!("error: {message}");
    process::exit(1);
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let found = pkg_config::probe_library("libibverbs")
        .unwrap_or_else(|_| fail("libibverbs is not found: install the Debian packages pkg-config and libibverbs-dev"));
    let mut builder = bindgen::Builder::default()
        .header_contents("devices.h", "#include <infiniband/verbs.h>\n")
        .clang_args(found.include_paths.iter().map(|dir| format!("-I{}", dir.display())))
        .rust_edition(bindgen::RustEdition::Edition2024)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .allowlist_type("ibv_port_attr")
        .allowlist_type("ibv_ah_attr")
        .allowlist_var("IBV_LINK_LAYER_ETHERNET")
        .layout_tests(false)
        .generate_comments(false);
    for name in FUNCTIONS {
        builder = builder.allowlist_function(name);
    }
    let bindings = builder
        .generate()
        .unwrap_or_else(|e| fail(&format!("infiniband/verbs.h cannot be read: install libibverbs-dev ({e})")));
    // Cargo sets it for every build script.
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    if let Err(e) = bindings.write_to_file(out.join("ffi.rs")) {
        fail(&format!("cannot write the bindings into {}: {e}", out.display()));
    }
}
