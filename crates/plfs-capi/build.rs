//! Writes include/plfs.h from the sources. The file is committed; `make lint` fails if it is not
//! what the sources say.

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=cbindgen.toml");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libplfs.so.0");
    let dir = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    match cbindgen::generate(&dir) {
        Ok(header) => drop(header.write_to_file(format!("{dir}/include/plfs.h"))),
        Err(error) => println!("cargo::warning=plfs.h was not written: {error}"),
    }
}
