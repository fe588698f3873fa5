//! The plugin for pytest, in stock ttnn.

use super::*;
use ttmem_testkit::memory_folder;

/// Runs pytest on the suite, with the plugin.
fn run_suite(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(python(TTNN));
    command.args(["-m", "pytest", "-p", "no:cacheprovider", "-rA"]);
    command.arg(here().join("limits")).args(args).current_dir(folder);
    command
        .env("PYTHONPATH", super::python::package())
        .env("TTMEM_AGENT", agent())
        .env("TTMEM_SHM_DIR", folder);
    command
        .env_remove("LD_PRELOAD")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("TT_METAL_LOGGER_LEVEL", "FATAL");
    let (name, value) = board_variable("n150");
    command.env(name, value).output().unwrap()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn tests_above_their_limits_fail_with_the_line() {
    for more in [&[][..], &["-n", "2"]] {
        check_outcomes(more);
    }
}

fn check_outcomes(more: &[&str]) {
    let folder = memory_folder();
    let output = run_suite(folder.path(), &[&["--ttmem"], more].concat());
    let page = printed(&output);
    assert_eq!(output.status.code(), Some(1), "{page}");
    let ends_as_its_name_says = |line: &&str| {
        let (outcome, test) = line.split_once(' ').unwrap();
        let name = test.split(" - ").next().unwrap();
        match outcome {
            "PASSED" => name.ends_with("_passes"),
            "FAILED" => name.ends_with("_fails"),
            _ => false,
        }
    };
    let outcomes: Vec<&str> =
        page.lines().filter(|line| line.starts_with("PASSED ") || line.starts_with("FAILED ")).collect();
    assert_eq!(outcomes.len(), 14, "{page}");
    assert!(outcomes.iter().all(ends_as_its_name_says), "{page}");
    for part in [
        "limit_device_memory: peak of dram 1.5 MiB above the start of the test, limit 1.0 MiB: 1.5 MiB by ttnn.empty, test_limits.py:",
        "limit_device_memory: peak of l1 ",
        "limit_device_leaks: 24.0 KiB of dram in 1 buffer left by ttnn.empty, test_limits.py:",
        "(allocate), held by tensor in test_kept_exception_fails (kept traceback of ValueError, test_limits.kept[",
        "limit_device_memory: not measured: this process has not used device 7",
        // What a test itself says comes first.
        "AssertionError: assert 'apple' == 'pear'",
        "device memory (ttmem)",
        "PEAK DRAM       PEAK L1        LEFT  TEST",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    // Without the option, nothing is measured or limited.
    let output = run_suite(folder.path(), &[&["-k", "not own"], more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
}

#[test]
fn higher_peaks_than_in_the_baseline_fail() {
    let folder = memory_folder();
    let args =
        ["--ttmem", "--ttmem-baseline", "peaks.json", "--ttmem-fail-on-increase=2%", "-k", "without_limits"];
    let first = run_suite(folder.path(), &args);
    assert!(first.status.success() && printed(&first).contains("wrote "), "{}", printed(&first));
    let again = run_suite(folder.path(), &args);
    assert!(again.status.success() && printed(&again).contains("none is higher"), "{}", printed(&again));
    let path = folder.path().join("peaks.json");
    let peaks = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, peaks.replace("393216", "300000")).unwrap();
    let higher = run_suite(folder.path(), &args);
    assert_eq!(higher.status.code(), Some(1), "{}", printed(&higher));
    assert!(
        printed(&higher).contains("peak of dram 293.0 KiB -> 384.0 KiB (+31.1 %)"),
        "{}",
        printed(&higher)
    );
    std::fs::write(&path, "{\"other\": {\"dram\": 1}}").unwrap();
    let new = run_suite(folder.path(), &args);
    assert!(
        new.status.success() && printed(&new).contains("none is higher, 1 not in it"),
        "{}",
        printed(&new)
    );
    std::fs::write(&path, "[]").unwrap();
    let damaged = run_suite(folder.path(), &args);
    assert!(
        damaged.status.code() == Some(4) && printed(&damaged).contains("cannot read "),
        "{}",
        printed(&damaged)
    );
    for (args, part) in [
        (&["--ttmem", "--ttmem-fail-on-increase=2%"][..], "needs --ttmem-baseline FILE"),
        (&["--ttmem-baseline=x", "--ttmem-fail-on-increase=much"], "'much' is not a percentage"),
    ] {
        let wrong = run_suite(folder.path(), args);
        assert!(wrong.status.code() == Some(4) && printed(&wrong).contains(part), "{}", printed(&wrong));
    }
}

#[test]
fn unknown_sizes_in_limits_are_usage_errors() {
    let folder = memory_folder();
    let test = "import pytest\n@pytest.mark.limit_device_memory(LIMIT)\ndef test_it(): pass\n";
    for (limit, part) in [
        ("'2 GB of it'", "unknown size"),
        ("'3 GiB', space='sram'", "unknown buffer space 'sram'"),
        ("'3 GiB', spaces='l1'", "limit_device_memory: got an unexpected keyword argument 'spaces'"),
        ("'1 B')\n@pytest.mark.limit_device_memry('1 B'", "unknown mark limit_device_memry; expected one of"),
    ] {
        let path = folder.path().join("test_wrong.py");
        std::fs::write(&path, test.replace("LIMIT", limit)).unwrap();
        let wrong = run_suite(folder.path(), &["--ttmem", path.to_str().unwrap()]);
        let page = printed(&wrong);
        assert!(wrong.status.code() == Some(4) && page.contains(part) && page.contains("test_it"), "{page}");
        assert!(!page.contains("device memory (ttmem)"), "{page}");
        // A worker cannot end the run.
        let in_worker =
            run_suite(folder.path(), &["--ttmem", "-n", "1", path.to_str().unwrap(), "-k", "test_it"]);
        let page = printed(&in_worker);
        let is_named = page.contains(part) && page.contains("FAILED ") && !page.contains("INTERNAL");
        assert!(in_worker.status.code() == Some(1) && is_named, "{page}");
    }
}

#[test]
fn limit_that_cannot_be_measured_fails() {
    let folder = memory_folder();
    let path = folder.path().join("test_none.py");
    let test = "import pytest\n@pytest.mark.limit_device_memory('1 GiB')\ndef test_it(): pass\n";
    std::fs::write(&path, test).unwrap();
    let missing = PathBuf::from("/nowhere/agent.so");
    for (agent, reason) in [
        (agent(), "no device memory was tracked; tests need a device"),
        (missing, "cannot load the agent: /nowhere/agent.so: cannot open shared object file"),
    ] {
        let mut command = Command::new(python(TTNN));
        command.args(["-m", "pytest", "-p", "no:cacheprovider", "--ttmem"]).arg(&path);
        command
            .current_dir(folder.path())
            .env("PYTHONPATH", super::python::package())
            .env("TTMEM_AGENT", agent);
        let output = command.env("TTMEM_SHM_DIR", folder.path()).env_remove("LD_PRELOAD").output().unwrap();
        let page = printed(&output);
        assert_eq!(output.status.code(), Some(1), "{page}");
        assert!(page.contains(&format!("limit_device_memory: not measured: {reason}")), "{page}");
    }
}
