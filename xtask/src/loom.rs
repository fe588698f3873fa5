//! `cargo xtask loom`: models of publication, in every order another processor may see the writer's stores.

use crate::{cargo, root, succeed};

pub(crate) fn run() -> anyhow::Result<()> {
    let mut test =
        cargo(&["test", "--release", "--locked", "--quiet", "--package", "ttmem-client", "--test", "loom"]);
    // Other flags mean another build of everything: kept apart.
    test.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", root().join("target/loom"));
    succeed(&mut test)
}
