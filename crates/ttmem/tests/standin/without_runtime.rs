//! Processes that never use the runtime: the agent creates, prints and changes nothing.

use crate::make::{Build, Linkage};
use crate::{exe, segments};
use std::path::Path;
use std::process::{Command, Output};
use ttmem_testkit::{agent, memory_folder};

fn output(program: &[&str], folder: Option<&Path>) -> Output {
    let mut command = match folder {
        Some(folder) => {
            let mut command = Command::new(exe());
            command.args(["run", "--exec", "--shm-dir"]).arg(folder).arg("--").args(program);
            command.env("TTMEM_AGENT", agent());
            command
        }
        None => {
            let mut command = Command::new(program[0]);
            command.args(&program[1..]);
            command
        }
    };
    command.env_remove("LD_PRELOAD").output().unwrap()
}

#[test]
fn process_without_runtime_is_unaffected() {
    let folder = memory_folder();
    let list_tasks =
        "import os; print(os.listdir('/proc/self/task') == [str(os.getpid())], os.listdir('/proc/self/fd'))";
    let programs: [&[&str]; 8] = [
        &["true"],
        &["false"],
        &["sh", "-c", "echo said; exit 3"],
        &["sh", "-c", "echo said; kill -9 $$"],
        &["python3", "-c", "pass"],
        &["python3", "-c", list_tasks],
        &["g++", "--version"],
        &["g++", "no-such-file"],
    ];
    for program in programs {
        let (without, with) = (output(program, None), output(program, Some(folder.path())));
        assert_eq!(with, without, "{program:?}");
    }
    assert!(segments(folder.path()).is_empty());
}

#[test]
fn process_that_does_not_use_the_runtime_is_unaffected() {
    let mut program = crate::Program::start(Build::Plain, Linkage::Linked);
    program.run("truth");
    assert!(segments(program.folder()).is_empty());
    program.quit();
}
