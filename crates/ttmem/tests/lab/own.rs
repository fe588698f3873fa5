//! A C++ program that links a wheel's runtime: the wrappers around the runtime's own functions.

use crate::{board_variable, here, lab, process, snapshot};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use ttmem_testkit::memory_folder;

/// Folder of a wheel's runtime.
fn runtime(version: &str) -> PathBuf {
    let code = "import importlib.util as u; print(u.find_spec('ttnn').submodule_search_locations[0])";
    let output = Command::new(crate::python(version)).args(["-c", code]).output().unwrap();
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

fn compile(runtime: &Path, to: &Path) {
    let libraries = runtime.join("build/lib");
    let mut command = Command::new("g++");
    command.args(["-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]);
    command.arg("-I").arg(here().join("../../../../include"));
    command.arg("-I").arg(runtime.join("tt_metal/api"));
    command.arg(here().join("own.cpp")).arg(ttmem_testkit::c_library()).arg("-L").arg(&libraries);
    command.args(["-ltt_metal", "-pthread", "-ldl", "-lm", "-Wl,--allow-shlib-undefined"]);
    command.arg(format!("-Wl,-rpath,{}", libraries.display())).arg("-o").arg(to);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn wrappers_work_with_the_runtimes_own_functions() {
    for version in [crate::TTNN, "0.76.0"] {
        let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime(version));
        let program = folder.path().join("own");
        compile(&runtime, &program);
        let segments = memory_folder();
        let (name, cluster) = board_variable("n300");
        let mut child = Command::new(&program)
            .env(name, cluster)
            .env("TT_METAL_HOME", &runtime)
            .env("TT_METAL_RUNTIME_ROOT", &runtime)
            .env("TT_METAL_LOGGER_LEVEL", "FATAL")
            .env("TTMEM", "1")
            .env("TTMEM_SHM_DIR", segments.path())
            .current_dir(lab())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The runtime prints lines, too.
        let printed = lines.map_while(Result::ok).find(|line| line.starts_with("own: "));
        assert_eq!(
            printed.as_deref(),
            Some("own: 1 3 0 1"),
            "{version}: three created and tracked, and one refused"
        );
        let snapshot = snapshot(segments.path());
        let usage = serde_json::to_value(&process(&snapshot, child.id()).usage).unwrap();
        for device in 0..2 {
            let cb = &usage[device]["cb"];
            assert_eq!(cb["registered_bytes"], json!(16 * 4096 + 2048 + 16 * 8192), "{version}: {usage}");
            assert_eq!(cb["resident_bytes"], json!(null));
        }
        assert_eq!(usage[0]["l1_small"]["requested_bytes"], json!(4096), "{version}: {usage}");
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success(), "{version}");
    }
}
