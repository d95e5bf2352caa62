//! Finds libibverbs and libibumad, makes their Rust bindings, and has the program export what plug-ins call.
//!
//! Whatever is missing ends the build with one line that names the Debian package to install.

use std::path::{Path, PathBuf};
use std::{env, panic, process};

/// Functions that are called by name; the types they need come with them.
const FUNCTIONS: &[&str] = &[
    "ibv_get_device_list",
    "ibv_free_device_list",
    "ibv_get_device_name",
    "ibv_get_device_guid",
    "ibv_open_device",
    "ibv_close_device",
    "ibv_query_device",
    // The header's macro of the plain name stands for this inline; the exported plain function
    // fills an older and shorter structure.
    "___ibv_query_port",
    "ibv_query_gid",
    "ibv_query_pkey",
    "ibv_get_async_event",
    "ibv_ack_async_event",
    "ibv_alloc_pd",
    "ibv_dealloc_pd",
    "ibv_create_comp_channel",
    "ibv_destroy_comp_channel",
    "ibv_create_cq",
    "ibv_destroy_cq",
    "ibv_get_cq_event",
    "ibv_ack_cq_events",
    "ibv_req_notify_cq",
    "ibv_poll_cq",
    "ibv_reg_mr",
    "ibv_dereg_mr",
    "ibv_create_ah",
    "ibv_destroy_ah",
    "ibv_create_qp",
    "ibv_modify_qp",
    "ibv_query_qp",
    "ibv_destroy_qp",
    "ibv_post_send",
    "ibv_post_recv",
    "ibv_attach_mcast",
    "ibv_detach_mcast",
    "umad_init",
    "umad_open_port",
    "umad_close_port",
    "umad_get_fd",
    "umad_register",
    "umad_unregister",
    "umad_send",
    "umad_recv",
    "umad_debug",
];

/// Types that no function's signature names: flags that go as integers, the header of a message
/// that goes as bytes.
const TYPES: &[&str] = &["ibv_access_flags", "ibv_qp_attr_mask", "ibv_send_flags", "ibv_wc_flags", "ib_user_mad"];

/// The constants of the one enumeration that has no name.
const CONSTANTS: &str = "IBV_LINK_LAYER_.*";

/// What plug-ins call, from `src/provider/exports.rs` and `src/provider/write.c`: the program's functions are not to be
/// found from outside unless the linker is told so.
const EXPORTS: &[&str] = &[
    "acm_alloc_sa_mad",
    "acm_convert_mtu",
    "acm_convert_rate",
    "acm_format_name",
    "acm_free_sa_mad",
    "acm_get_gid",
    "acm_get_opts_file",
    "acm_get_rate",
    "acm_gid_index",
    "acm_if_get_sgid",
    "acm_increment_counter",
    "acm_path_comp_mask",
    "acm_query_response",
    "acm_resolve_response",
    "acm_send_sa_mad",
    "acm_write",
    "ib_any_gid",
];

fn fail(message: &str) -> ! {
    eprintln!("error: {message}");
    process::exit(1);
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=wrapper.h");
    println!("cargo::rerun-if-env-changed=LIBCLANG_PATH");

    let mut includes = Vec::new();
    for (library, package) in [("libibverbs", "libibverbs-dev"), ("libibumad", "libibumad-dev")] {
        includes.extend(probe(library, package));
    }

    // Cargo sets both for every build script.
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let inlines = out.join("inlines");

    let mut builder = bindgen::Builder::default()
        .header("wrapper.h")
        .clang_arg(format!("-I{}", manifest.display()))
        .clang_args(includes.iter().map(|dir| format!("-I{}", dir.display())))
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .layout_tests(false)
        .generate_comments(false)
        .wrap_static_fns(true)
        .wrap_static_fns_path(&inlines);
    for name in FUNCTIONS {
        builder = builder.allowlist_function(name);
    }
    for name in TYPES {
        builder = builder.allowlist_type(name);
    }
    builder = builder.allowlist_var(CONSTANTS);
    let bindings = generate(builder);
    if let Err(e) = bindings.write_to_file(out.join("ffi.rs")) {
        fail(&format!("cannot write the bindings into {}: {e}", out.display()));
    }

    compile_inlines(&inlines.with_extension("c"), &manifest, &includes);
    export();
    pack_relocations();
}

/// Has the linker write relocations in their short form: 23 KB less. The C library has to know it, which glibc does since
/// 2.36; a linker that does not know it says so and goes on. The library of another machine cannot be asked.
fn pack_relocations() {
    let is_native = env::var("HOST").ok() == env::var("TARGET").ok();
    let Ok(said) = process::Command::new("getconf").arg("GNU_LIBC_VERSION").output() else { return };
    let version = String::from_utf8_lossy(&said.stdout);
    let mut numbers = version.trim().trim_start_matches("glibc ").split('.').map(str::parse::<u32>);
    if let (true, Some(Ok(major)), Some(Ok(minor))) = (is_native, numbers.next(), numbers.next())
        && (major, minor) >= (2, 36)
    {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Compiles what Rust cannot say of the functions for plug-ins, and makes all of them public.
fn export() {
    const SOURCE: &str = "src/provider/write.c";
    println!("cargo::rerun-if-changed={SOURCE}");
    if let Err(e) = cc::Build::new().file(SOURCE).try_compile("ibacm_write") {
        fail(&format!("{SOURCE} cannot be compiled: install the Debian packages gcc and libc6-dev ({e})"));
    }
    for name in EXPORTS {
        println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol={name}");
    }
}

/// Has cargo link `library`; gives its include directories.
fn probe(library: &str, package: &str) -> Vec<PathBuf> {
    match pkg_config::Config::new().cargo_metadata(true).probe(library) {
        Ok(found) => found.include_paths,
        Err(pkg_config::Error::Command { .. }) => {
            fail("pkg-config cannot be run: install the Debian package pkg-config (or set PKG_CONFIG)")
        }
        Err(pkg_config::Error::ProbeFailure { .. } | pkg_config::Error::Failure { .. }) => {
            fail(&format!("pkg-config does not know {library}: install the Debian package {package}"))
        }
        Err(other) => fail(&format!("looking for {library} ({package}): {other}")),
    }
}

/// Runs bindgen, which panics (instead of returning an error) where libclang cannot be loaded.
fn generate(builder: bindgen::Builder) -> bindgen::Bindings {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let result = panic::catch_unwind(panic::AssertUnwindSafe(|| builder.generate()));
    panic::set_hook(hook);
    match result {
        Ok(Ok(bindings)) => bindings,
        Ok(Err(e)) => fail(&format!(
            "infiniband/verbs.h or infiniband/umad.h cannot be read: install the Debian packages \
             libibverbs-dev, libibumad-dev and libclang-dev ({})",
            e.to_string().trim().replace('\n', "; ")
        )),
        Err(payload) => {
            let why = payload
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| payload.downcast_ref::<&str>().copied())
                .unwrap_or("no reason given");
            let why = why.lines().next().unwrap_or_default();
            fail(&format!("bindgen cannot use libclang: install the Debian package libclang-dev ({why})"))
        }
    }
}

/// Compiles the callable twins of the header's inline functions.
fn compile_inlines(source: &Path, manifest: &Path, includes: &[PathBuf]) {
    let result =
        cc::Build::new().file(source).include(manifest).includes(includes).warnings(false).try_compile("ibacm_inlines");
    if let Err(e) = result {
        fail(&format!(
            "the inline functions of infiniband/verbs.h cannot be compiled: install the Debian \
             packages gcc and libc6-dev ({e})"
        ));
    }
}
