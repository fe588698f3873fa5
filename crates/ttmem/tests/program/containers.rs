//! Processes in containers: their folders, pids and filesystems.

use crate::segments::{dram, local};
use crate::{exe, finding};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{FindingKind, Process};
use ttmem_testkit::producer::Producer;
use ttmem_testkit::{Server, eventually, memory_folder};

/// A daemon that reads the default folder.
fn machine_daemon() -> Server {
    Server::start(exe(), &["--quiet", "--shm-dir", "/dev/shm"])
}

/// A producer in namespaces of its own, after some shell commands.
fn container(commands: &str, options: &[&str]) -> Producer {
    let script = format!("{commands} && exec \"$0\" \"$@\"");
    let mut through = vec!["unshare", "--mount", "--pid", "--fork", "--mount-proc"];
    through.extend(options);
    through.extend(["sh", "-c", &script]);
    Producer::start_through(&through, &[])
}

/// The process with this many bytes; each test has a number of its own.
fn holder(snapshot: &Snapshot, bytes: u64) -> Option<&Process> {
    snapshot.processes.iter().find(|process| dram(process) == bytes)
}

#[test]
fn process_of_a_container_has_its_host_pid() {
    let server = machine_daemon();
    let mut producer = container("mount -t tmpfs none /dev/shm", &[]);
    producer.define(1);
    producer.alloc(4096, 7001);
    let name = producer.status().segment;
    assert!(name.starts_with("ttmem.1."), "its own pid is 1: {name}");
    assert!(!Path::new("/dev/shm").join(&name).exists(), "its folder is its own");
    let process = eventually("the process in the container", || holder(&server.snapshot(), 7001).cloned());
    assert_eq!(process.reported_pid, Some(1));
    let pid = process.pid.unwrap();
    assert!(
        fs::read_to_string(format!("/proc/{pid}/status")).unwrap().contains(&format!("NSpid:\t{pid}\t1"))
    );
    assert_eq!(holder(&local(Path::new("/dev/shm")), 7001).unwrap().pid, Some(pid));
    producer.kill();
    Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    eventually("it is gone with its namespace", || holder(&server.snapshot(), 7001).is_none().then_some(()));
}

#[test]
fn folder_of_a_container_may_be_a_link_in_its_root() {
    let server = machine_daemon();
    let mut producer = container(
        "mount -t tmpfs none /run && mkdir /run/shm && mount -t tmpfs none /dev && ln -s ../run/shm /dev/shm",
        &[],
    );
    producer.define(1);
    producer.alloc(4096, 7002);
    eventually("the process in the container", || holder(&server.snapshot(), 7002).map(drop));
}

#[test]
fn links_out_of_a_container_are_not_followed() {
    let outside = memory_folder();
    let mut bait = Producer::new(outside.path());
    bait.alloc(4096, 7003);
    let home = memory_folder();
    let root = home.path().join("root");
    fs::create_dir(&root).unwrap();
    let depth = "../".repeat(12);
    for link in [
        // Up, out of its root.
        format!("{depth}{}", outside.path().display()),
        // Through a link of /proc.
        format!("/proc/{}/root{}", std::process::id(), outside.path().display()),
    ] {
        let server = machine_daemon();
        let script = format!(
            "mount --rbind / {root} && mount -t tmpfs none {root}/dev && ln -s {link} {root}/dev/shm && \
             exec chroot {root} cat",
            root = root.display()
        );
        let mut prisoner = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        eventually("the prisoner is in its root", || {
            let found = fs::read_link(format!("/proc/{}/root", prisoner.id())).ok()?;
            (found == root).then_some(())
        });
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(400));
            let snapshot = server.snapshot();
            assert!(holder(&snapshot, 7003).is_none(), "{link} was followed");
            assert!(snapshot.health.skipped.iter().all(|it| !it.path.contains(&prisoner.id().to_string())));
        }
        prisoner.kill().unwrap();
        prisoner.wait().unwrap();
    }
}

#[test]
fn segment_on_another_filesystem_is_skipped() {
    let server = machine_daemon();
    // Another file is mounted on the segment.
    let name = "/dev/shm/ttmem.1.0000000000000000";
    let mut producer = container(
        &format!("mount -t tmpfs none /dev/shm && touch {name} && mount --bind /proc/self/status {name}"),
        &[],
    );
    producer.define(1);
    producer.alloc(4096, 7005);
    eventually("the process in the container", || holder(&server.snapshot(), 7005).map(drop));
    let skipped = server.snapshot().health.skipped;
    let found = skipped.iter().find(|it| it.path.ends_with(name)).expect("it is skipped");
    assert_eq!(found.reason, "is not in shared memory");
}

#[test]
fn segments_use_little_of_a_small_filesystem() {
    for (size, count) in [(4u64 << 20, 20_000u64), (64 << 20, 200_000)] {
        let mut producer = container(&format!("mount -t tmpfs -o size={size} none /dev/shm"), &[]);
        producer.define(1);
        producer.alloc(4096, 1200);
        // The producer is the only child of the process that was started.
        let children = format!("/proc/{0}/task/{0}/children", producer.pid);
        let pid: u32 = fs::read_to_string(children).unwrap().trim().parse().unwrap();
        let folder = PathBuf::from(format!("/proc/{pid}/root/dev/shm"));
        let used = || -> u64 {
            use std::os::unix::fs::MetadataExt;
            let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap());
            let ours = files.filter(|entry| entry.file_name().to_string_lossy().starts_with("ttmem."));
            ours.map(|entry| entry.metadata().unwrap().blocks() * 512).sum()
        };
        producer.flood(count, 12);
        assert!(used() > 0 && used() <= size / 8, "{} of {size}", used());
        // Another file fills the filesystem; the workload continues, and its figures stay.
        let mut filler = File::create(folder.join("filler")).unwrap();
        let block = vec![1; 65536];
        while std::io::Write::write(&mut filler, &block).is_ok() {}
        producer.close_allocator();
        producer.define(1);
        producer.flood(count, 12);
        producer.alloc(4096, 1200);
        assert_eq!(producer.status().live, count + 1);
        assert_eq!(producer.status().lost, 0);
        let server = machine_daemon();
        let process = eventually("the process in the container", || {
            holder(&server.snapshot(), count * 12 + 1200).cloned()
        });
        assert_eq!(process.usage[0].usage.dram.as_ref().unwrap().count, Some(count + 1));
        if producer.status().unlisted > 0 {
            assert!(finding(&server, FindingKind::Unlisted).is_some());
            assert!(producer.status().reason.contains("may use 1/8"));
        } else {
            panic!("{count} buffers fit {size} bytes?");
        }
        let (status, errors) = producer.quit();
        assert!(status.success());
        assert_eq!(errors, "", "nothing is printed");
    }
}

#[test]
fn crash_segments_are_removed_for_new_segments() {
    // Space for two of the smallest segments.
    let script = "mount -t tmpfs -o size=4M none /dev/shm";
    let exe = std::env::current_exe().unwrap();
    let mut keeper = container(script, &[]);
    keeper.define(1);
    let children = format!("/proc/{0}/task/{0}/children", keeper.pid);
    let pid = fs::read_to_string(children).unwrap().trim().to_owned();
    let folder = PathBuf::from(format!("/proc/{pid}/root/dev/shm"));
    let mut newest = String::new();
    for _ in 0..12 {
        let mut one = Producer::start_copy(&exe, &["nsenter", "--target", &pid, "--mount", "--pid"], &[]);
        one.define(1);
        one.alloc(4096, 64);
        newest = one.status().segment;
        assert_ne!(newest, "", "{}", one.status().reason);
        let (status, _) = one.quit();
        assert!(status.success());
    }
    let names = || -> Vec<String> {
        let entries = fs::read_dir(&folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    assert!(names().contains(&newest) && names().contains(&keeper.status().segment));
    assert!(names().len() < 6, "{:?}", names());
}
