//! What a Node addon needs of the linker.

fn main() {
    // Its set-up for Windows without Microsoft's linker wants a `libnode.dll`, which no Node brings; `dyn-symbols` finds the functions in the running program.
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("windows") {
        napi_build::setup();
    }
}
