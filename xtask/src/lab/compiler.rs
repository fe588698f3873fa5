//! Installs the stand-in for the kernel compiler into a wheel, and settings that keep the wheel's files in the environment.

use super::python;
use crate::packages;
use anyhow::{Context, ensure};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const STAND_IN: &str = include_str!("../../lab/kernel_compiler.py");

/// Imported by every Python of the environment at start, through a `.pth` file.
const AT_START: &str = include_str!("../../lab/ttmem_lab.py");
const IMPORT: &str = "import ttmem_lab\n";

/// Programs that the stand-in calls.
pub(crate) const PROGRAMS: [&str; 2] = ["riscv64-unknown-elf-as", "riscv64-unknown-elf-ld"];
/// The Debian package that contains them.
pub(crate) const PACKAGE: &str = "binutils-riscv64-unknown-elf";

/// Changes when anything that is installed here changes.
pub(super) fn fingerprint() -> u64 {
    super::fingerprint(&[STAND_IN, AT_START, IMPORT].concat())
}

pub(super) fn prerequisites() -> anyhow::Result<()> {
    if PROGRAMS.into_iter().all(packages::has) {
        return Ok(());
    }
    packages::install(&[PACKAGE])?;
    for program in PROGRAMS {
        ensure!(packages::has(program), "{program} is still missing after installing {PACKAGE}");
    }
    Ok(())
}

/// Installs the stand-in at the path of the wheel's compiler.
pub(super) fn install(environment: &Path) -> anyhow::Result<()> {
    let site = python::packages(environment)?;
    let toolchain = site.join("ttnn/runtime/sfpi");
    let program = toolchain.join("compiler/bin/riscv-tt-elf-g++");
    fs::create_dir_all(toolchain.join("compiler/bin"))?;
    fs::create_dir_all(toolchain.join("include"))?;
    let version =
        firmware_compiler(&site.join("ttnn/tt_metal/pre-compiled")).unwrap_or_else(|| "0".to_owned());
    // The environment's own interpreter, since any python3 may be on the path. It needs none of the environment's packages,
    // and starts faster without them.
    let begin = format!("#!{} -IS\n", environment.join("bin/python").display());
    fs::write(&program, begin + &STAND_IN.replace("@VERSION@", &version))
        .with_context(|| format!("cannot write {}", program.display()))?;
    fs::set_permissions(&program, Permissions::from_mode(0o755))?;
    fs::write(site.join("ttmem_lab.py"), AT_START)?;
    fs::write(site.join("ttmem_lab.pth"), IMPORT)?;
    Ok(())
}

/// Name of the compiler that built the wheel's firmware: the runtime uses that firmware only if its own compiler has the same
/// name. Older wheels have no firmware, and let the stand-in build it.
fn firmware_compiler(firmware: &Path) -> Option<String> {
    let builds = fs::read_dir(firmware).into_iter().flatten().flatten();
    let mut files = builds.filter_map(|build| fs::read(build.path().join("brisc/brisc.elf")).ok());
    files.find_map(|bytes| compiler_named_in(&bytes))
}

/// Reads the note that a compiler leaves in its output: `GCC: (tenstorrent/sfpi:…) 15.1.0` and a zero.
fn compiler_named_in(elf: &[u8]) -> Option<String> {
    const NOTE: &[u8] = b"GCC: (tenstorrent/sfpi";
    let at = elf.windows(NOTE.len()).position(|it| it == NOTE)?;
    let note = elf[at..].split(|&byte| byte == 0).next()?;
    Some(String::from_utf8_lossy(note).strip_prefix("GCC: ")?.to_owned())
}

#[test]
fn firmware_compiler_is_read_from_its_note() {
    let elf = b"\x7fELF\0junk\0GCC: (tenstorrent/sfpi:1.2.3[4]) 15.1.0\0more";
    assert_eq!(compiler_named_in(elf).as_deref(), Some("(tenstorrent/sfpi:1.2.3[4]) 15.1.0"));
    assert_eq!(compiler_named_in(b"GCC: (Debian) 12"), None);
}
