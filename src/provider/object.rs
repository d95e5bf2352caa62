//! Opens a shared object, asks it what it is, and checks what it says.
#![allow(unsafe_code)] // dlopen(3), and a call into the object.

use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{mem, ptr};

use super::abi;
use crate::options::MAX_PROVIDER_NAME;

/// The one function that an object has to export: fills in its table and the version of the interface.
type Query = unsafe extern "C" fn(*mut *mut abi::Provider, *mut u32) -> c_int;

/// A plug-in that is loaded, for ever: it may have threads that run its code.
#[derive(Debug)]
pub struct Loaded {
    /// The plug-in's own name, 1 to 63 bytes.
    pub name: String,
    /// Its functions, checked.
    pub table: &'static abi::Provider,
    /// Where it came from.
    pub file: PathBuf,
}

// SAFETY: a table is read only, and the name that it points to as well; what its functions want of threads is the affair of
// who calls them.
unsafe impl Sync for abi::Provider {}

/// Loads an object into this process, and has it stay there, whatever is wrong with it. `queried` is called before the
/// object's `provider_query`, when its constructors have run.
///
/// # Errors
/// Why it is of no use.
pub fn open(file: &Path, queried: impl FnOnce()) -> Result<Loaded, String> {
    let path = CString::new(file.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
    // A symbol that is missing is to be missed here, and not by the first call that needs it.
    // SAFETY: a string that ends. The object's constructors run: that it may do whatever it likes is what its owner, who
    // is root, wants of it.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        let said = error();
        // the path is in front of whatever is said of it
        return Err(said.strip_prefix(&format!("{}: ", file.display())).unwrap_or(&said).to_owned());
    }
    // SAFETY: a handle that is open, and a string that ends.
    let query = unsafe { libc::dlsym(handle, c"provider_query".as_ptr()) };
    if query.is_null() {
        return Err(String::from("it has no function provider_query"));
    }
    // SAFETY: by this name it is a function of this type.
    let query = unsafe { mem::transmute::<*mut c_void, Query>(query) };
    queried();
    let (mut table, mut version) = (ptr::null_mut(), 0);
    // SAFETY: both are places for what it fills in.
    let result = unsafe { query(&raw mut table, &raw mut version) };
    if result != 0 {
        return Err(format!("provider_query failed with {result}"));
    }
    let (name, table) = check(table, version)?;
    Ok(Loaded { name, table, file: file.to_owned() })
}

/// What the last call of the loader failed for.
fn error() -> String {
    // SAFETY: takes nothing.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return String::from("it cannot be loaded");
    }
    // SAFETY: a string that lives until this thread's next call of the loader.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Checks what `provider_query` gave; what has another version is not looked at.
fn check(table: *const abi::Provider, version: u32) -> Result<(String, &'static abi::Provider), String> {
    if version != abi::VERSION {
        return Err(format!("its interface has version {version}, this service's has {}", abi::VERSION));
    }
    if table.is_null() || !table.is_aligned() {
        return Err(String::from("provider_query has given no structure"));
    }
    // SAFETY: every version of the structure begins with its size.
    let size = unsafe { (&raw const (*table).size).read() };
    if size != size_of::<abi::Provider>() {
        return Err(format!("its structure has {size} bytes, this service's has {}", size_of::<abi::Provider>()));
    }
    // SAFETY: it is the object's, which stays, and has the size; its fields may have any value.
    let table = unsafe { &*table };
    let functions = [
        ("open_device", table.open_device.is_some()),
        ("open_port", table.open_port.is_some()),
        ("open_endpoint", table.open_endpoint.is_some()),
        ("add_address", table.add_address.is_some()),
        ("resolve", table.resolve.is_some()),
        ("query", table.query.is_some()),
    ];
    if let Some((missing, _)) = functions.iter().find(|f| !f.1) {
        return Err(format!("it lacks the function {missing}"));
    }
    Ok((name(table.name)?, table))
}

/// A name that clients can be shown.
fn name(text: *const std::ffi::c_char) -> Result<String, String> {
    if text.is_null() {
        return Err(String::from("it has no name"));
    }
    // SAFETY: a string of the object's, which ends; no more of it is looked at than a name may have.
    let length = unsafe { libc::strnlen(text, MAX_PROVIDER_NAME + 1) };
    if !(1..=MAX_PROVIDER_NAME).contains(&length) {
        return Err(format!("its name is empty or longer than {MAX_PROVIDER_NAME} bytes"));
    }
    // SAFETY: so many bytes are there.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
    let mut name = String::from_utf8_lossy(bytes).into_owned();
    // what stands for a byte that is no text is longer than that
    name.truncate(name.floor_char_boundary(MAX_PROVIDER_NAME));
    Ok(name)
}
