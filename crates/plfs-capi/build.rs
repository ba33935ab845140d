//! libplfs.so is what programs look for by the number of its interface.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libplfs.so.0");
}
