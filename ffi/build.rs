//! How the shared library is linked: its soname, and that it is never unmapped.

use std::env;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    let soname = format!("libkeymill.so.{}", env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default());
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{soname}");
    // The keeper's thread, thread-local destructors and the fork hook must never find their code gone after dlclose.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    name_in_target_folder(&soname);
}

/// Programs that were linked against the target folder look for the soname when they run: let them find it there.
fn name_in_target_folder(soname: &str) {
    let out = env::var("OUT_DIR").unwrap_or_default();
    if let Some(profile) = Path::new(&out).ancestors().nth(3) {
        #[cfg(unix)]
        // Usually it stands there already.
        let _ = std::os::unix::fs::symlink("libkeymill.so", profile.join(soname));
        #[cfg(not(unix))]
        let _ = (profile, soname);
    }
}
