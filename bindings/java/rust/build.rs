//! How the library is linked: it is never unmapped.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // A class loader that is collected closes the library; the keeper's thread and thread-local destructors must
        // never find their code gone.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
