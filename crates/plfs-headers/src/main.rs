//! Its build script writes the headers of plfs-capi: a script and what it is made of are compiled
//! without optimisation, and once for `make lint`, which checks and runs it, and `make headers`.

fn main() {
    println!("plfs.h and plfs_door.h are what crates/plfs-capi/src says");
}
