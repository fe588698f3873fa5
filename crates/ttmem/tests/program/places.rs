//! Segments in other places, of other users, on small filesystems; and files that only look like segments.

use crate::segments::{daemon, dram, local, process};
use crate::{NOBODY, copied, exe, finding};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use ttmem_core::Snapshot;
use ttmem_core::input::Input;
use ttmem_core::snapshot::{FindingKind, Health, Process};
use ttmem_core::words::{Basis, Mono, ProcessId};
use ttmem_sources::{EventSink, ProcessIdentity, Retention, SourceConfig, Sources};
use ttmem_testkit::helper::{self, Role};
use ttmem_testkit::producer::{Producer, Request};
use ttmem_testkit::{Server, eventually, memory_folder, schema};
use ttmem_wire::segment::{Header, word};

/// A daemon that looks where daemons look.
fn machine_daemon() -> Server {
    Server::start(exe(), &["--quiet", "--shm-dir", "/dev/shm"])
}

/// In namespaces of its own, after some commands of a shell.
fn container(commands: &str, options: &[&str]) -> Producer {
    let script = format!("{commands} && exec \"$0\" \"$@\"");
    let mut through = vec!["unshare", "--mount", "--pid", "--fork", "--mount-proc"];
    through.extend(options);
    through.extend(["sh", "-c", &script]);
    Producer::start_through(&through, &[])
}

/// The process that holds so much, which no other test's does.
fn holder(snapshot: &Snapshot, bytes: u64) -> Option<&Process> {
    snapshot.processes.iter().find(|process| dram(process) == bytes)
}

#[test]
fn a_containers_process_is_seen_with_the_hosts_pid() {
    let server = machine_daemon();
    let mut producer = container("mount -t tmpfs none /dev/shm", &[]);
    producer.define(1);
    producer.alloc(4096, 7001);
    let name = producer.status().segment;
    assert!(name.starts_with("ttmem.1."), "it knows itself as 1: {name}");
    assert!(!Path::new("/dev/shm").join(&name).exists(), "its folder is its own");
    let it = eventually("the process in the container", || holder(&server.snapshot(), 7001).cloned());
    assert_eq!(it.reported_pid, Some(1));
    let pid = it.pid.unwrap();
    assert!(
        fs::read_to_string(format!("/proc/{pid}/status")).unwrap().contains(&format!("NSpid:\t{pid}\t1"))
    );
    assert_eq!(holder(&local(Path::new("/dev/shm")), 7001).unwrap().pid, Some(pid));
    producer.kill();
    Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    eventually("it is gone with its namespace", || holder(&server.snapshot(), 7001).is_none().then_some(()));
}

#[test]
fn a_containers_folder_may_be_a_link_within_its_root() {
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
fn nothing_is_followed_out_of_a_containers_root() {
    let outside = memory_folder();
    let mut bait = Producer::new(outside.path());
    bait.alloc(4096, 7003);
    let home = memory_folder();
    let root = home.path().join("root");
    fs::create_dir(&root).unwrap();
    let depth = "../".repeat(12);
    for link in [
        // Up, beyond its root.
        format!("{depth}{}", outside.path().display()),
        // Through a link of the kernel's.
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
fn a_pid_used_again_is_another_process() {
    let folder = memory_folder();
    // In a pid namespace of one's own the next pid can be chosen.
    let script = r#"
        f=$1; ttmem=$2; define=$3; shift 3
        export TTMEM=1 TTMEM_SHM_DIR=$f
        produce() { # PID COMMAND, then the helper and its options: a producer with this pid
            pid=$1; alloc=$2; shift 2
            rm -f "$f/commands"; mkfifo "$f/commands"
            [ "$pid" = 0 ] || echo $((pid - 1)) > /proc/sys/kernel/ns_last_pid
            "$@" < "$f/commands" > "$f/replies" 2>&1 & pid=$!
            exec 3> "$f/commands"
            echo "$define" >&3; echo "$alloc" >&3
            while [ "$(grep -c '^{' "$f/replies")" -lt 2 ]; do sleep 0.01; done
        }
        look() { "$ttmem" --local --json; echo; }
        one=$1; other=$2; shift 2
        produce 0 "$one" "$@"
        first=$pid; look
        kill -9 $first; wait $first
        echo $((first - 1)) > /proc/sys/kernel/ns_last_pid; sleep 1000 & stranger=$!
        [ $stranger = $first ] || exit 9
        look
        kill -9 $stranger; wait $stranger
        produce $first "$other" "$@"
        [ $pid = $first ] || exit 9
        look
        kill -9 $pid
    "#;
    let alloc = |bytes| Request::Alloc { address: 4096, bytes };
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "sh", "-c", script, "sh"])
        .arg(folder.path())
        .arg(exe())
        .args(
            [Request::Define { chips: 1 }, alloc(51), alloc(52)]
                .map(|it| serde_json::to_string(&it).unwrap()),
        )
        .arg(std::env::current_exe().unwrap())
        .args(helper::OPTIONS)
        .env(helper::ROLE, Role::Producer.to_env())
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.code() != Some(9), "the pid could not be forced");
    let looks: Vec<Snapshot> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| schema::snapshot(line.as_bytes()))
        .collect();
    assert_eq!(looks.len(), 3);
    let held = |n: usize| looks[n].processes.iter().map(|p| (p.pid, dram(p))).collect::<Vec<_>>();
    let pid = looks[0].processes[0].pid;
    assert_eq!(held(0), [(pid, 51)]);
    assert_eq!(held(1), [], "a stranger with the same pid holds nothing");
    assert_eq!(held(2), [(pid, 52)], "and the next one only its own");
    assert_eq!((looks[1].health.crash_segments, looks[2].health.crash_segments), (1, 1));
}

#[test]
fn other_users_segments_are_theirs() {
    let server = daemon();
    let test = copied(&std::env::current_exe().unwrap(), &server);
    let program = copied(exe(), &server);
    let folder = server.segments.path();
    let env = [("TTMEM_SHM_DIR", folder.to_str().unwrap())];
    let mut theirs = Producer::start_copy(&test, &NOBODY, &env);
    theirs.define(1);
    theirs.alloc(4096, 10);
    let mut ours = Producer::new(folder);
    ours.alloc(4096, 20);
    let snapshot = server.snapshot();
    let it = process(&snapshot, theirs.pid).expect("root sees all");
    assert_eq!((dram(it), it.user.as_deref()), (10, Some("nobody")));
    assert_eq!(dram(process(&snapshot, ours.pid).unwrap()), 20);

    // They see their own, and that there is something else.
    let output = Command::new(NOBODY[0])
        .args(&NOBODY[1..])
        .arg(&program)
        .args(["--local", "--json", "--shm-dir"])
        .arg(folder)
        .output()
        .unwrap();
    let seen: Snapshot = schema::snapshot(&output.stdout);
    assert_eq!(seen.processes.iter().map(|p| p.pid).collect::<Vec<_>>(), [Some(theirs.pid)]);
    assert!(seen.health.skipped[0].reason.contains("Permission denied"), "{:?}", seen.health.skipped);

    // Theirs under our pid is nobody's: neither as a file, nor with the lock held.
    let copy = folder.join(format!("ttmem.{}.00000000000000aa", ours.pid));
    let mut bytes = fs::read(folder.join(ours.status().segment)).unwrap();
    bytes[48..56].copy_from_slice(&0xaau64.to_le_bytes());
    fs::write(&copy, &bytes).unwrap();
    std::os::unix::fs::chown(&copy, Some(65534), Some(65534)).unwrap();
    let skipped = |part: &str| {
        eventually(part, || {
            let snapshot = server.snapshot();
            assert_eq!(dram(process(&snapshot, ours.pid).unwrap()), 20);
            let found = snapshot.health.skipped.into_iter().find(|it| it.path == copy.to_str().unwrap())?;
            found.reason.contains(part).then_some(())
        });
    };
    skipped("belongs to user 65534, but pid");
    let lock = "fcntl.lockf(f, fcntl.LOCK_EX)";
    locked(&copy, lock, || skipped("claims pid"));
    // A lock that no process holds, but an open file.
    let lock = "fcntl.fcntl(f, 37, struct.pack('hhqqi4x', 1, 0, 0, 0, 0))";
    locked(&copy, lock, || skipped("is locked, but not by a process"));
}

/// Does something while another process holds a lock, which it takes with a line of Python.
fn locked(file: &Path, lock: &str, work: impl FnOnce()) {
    // It ends with its input, and so with this test.
    let script = format!(
        "import fcntl,struct,sys; f=open(sys.argv[1],'r+'); {lock}; print(1,flush=True); sys.stdin.read()"
    );
    let mut locker = Command::new("python3")
        .args(["-c", &script])
        .arg(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Read::read(locker.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    work();
    drop(locker.stdin.take());
    locker.wait().unwrap();
}

/// Hears nothing.
struct Deaf;

impl EventSink for Deaf {
    fn register(&mut self, owner: &ProcessIdentity, _: Basis) -> ProcessId {
        ProcessId { pid: owner.pid, start: 1 }
    }

    fn emit(&mut self, _: ProcessId, _: Basis, _: Input) {}

    fn emit_machine(&mut self, _: Input) {}
}

#[test]
fn black_boxes_go_by_age_and_by_their_share_the_oldest_first() {
    let folder = memory_folder();
    let mut names = Vec::new();
    for _ in 0..3 {
        let mut producer = Producer::new(folder.path());
        producer.alloc(4096, 64);
        names.push(producer.status().segment);
        producer.kill();
    }
    let mut living = Producer::new(folder.path());
    living.alloc(4096, 64);
    let mut sources = Sources::new(SourceConfig::segments(folder.path()));
    sources.rescan(&mut Deaf);
    sources.poll(Mono(1), &mut Deaf);
    let mut health = Health::default();
    sources.fill_health(&mut health);
    assert_eq!((health.segments, health.crash_segments), (1, 3));
    let left = || names.iter().map(|name| folder.path().join(name).exists()).collect::<Vec<_>>();
    let now = |seconds: i64| {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Mono((now.tv_sec + seconds) as u64 * Mono::SECOND)
    };
    sources.expire_crash_segments(now(3600), Retention::default());
    assert_eq!(left(), [true; 3], "an hour is not long");
    // A share that three segments fit, and four do not.
    let system = rustix::fs::statvfs("/dev/shm").unwrap();
    let each = std::fs::metadata(folder.path().join(&names[0])).unwrap().len();
    let share = system.f_blocks * system.f_frsize / (each * 7 / 2);
    sources.expire_crash_segments(now(0), Retention { share, ..Retention::default() });
    assert_eq!(left(), [false, true, true], "the oldest makes room");
    sources.expire_crash_segments(now(25 * 3600), Retention::default());
    assert_eq!(left(), [false; 3], "a day is");
    assert!(folder.path().join(living.status().segment).exists(), "the living stay");
}

#[test]
fn files_that_are_no_segments_are_skipped_with_a_reason() {
    let server = daemon();
    let folder = server.segments.path();
    let mut producer = Producer::new(folder);
    producer.alloc(4096, 64);
    let good = fs::read(folder.join(producer.status().segment)).unwrap();
    // Of a process that is no more, so that what is whole is a black box.
    let dead = 4_194_301u32;
    let mut number = 0x100u64;
    let mut named = || {
        number += 1;
        (folder.join(format!("ttmem.{dead}.{number:016x}")), number)
    };
    let mut make = |change: &dyn Fn(&mut Vec<u8>)| {
        let (path, number) = named();
        let mut bytes = good.clone();
        bytes[24..28].copy_from_slice(&dead.to_le_bytes());
        bytes[48..56].copy_from_slice(&number.to_le_bytes());
        change(&mut bytes);
        fs::write(&path, bytes).unwrap();
        path
    };
    let set = |at: usize, value: u32| {
        move |bytes: &mut Vec<u8>| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes())
    };
    let offset = |field: &str| match field {
        "major" => std::mem::offset_of!(Header, major),
        "ring_records" => std::mem::offset_of!(Header, ring_records),
        "rows" => std::mem::offset_of!(Header, rows),
        "row_bytes" => std::mem::offset_of!(Header, row_bytes),
        _ => std::mem::offset_of!(Header, table_offset),
    };
    let mut expected: Vec<(PathBuf, &str)> = vec![
        (make(&|b| b.truncate(100)), "too short for a header"),
        (make(&|b| b.truncate(4096)), "shorter than its rows"),
        (make(&|b| b.truncate(100_000)), "shorter than its definitions"),
        (make(&|b| b[0] ^= 1), "is no segment"),
        (make(&set(offset("major"), 2)), "has version 2.0"),
        (make(&set(offset("ring_records"), 1000)), "no power of two"),
        (make(&set(offset("rows"), u32::MAX)), "too many rows"),
        (make(&set(offset("row_bytes"), 8)), "row length"),
        (make(&set(offset("table_offset"), 4096)), "contradicts itself: table"),
        (make(&set(24, 77)), "named for another"),
    ];
    // Whole: a later minor version, with more in it than we know. Its writer is dead.
    make(&|b| b[10..12].copy_from_slice(&9u16.to_le_bytes()));
    // Still being made: no reason to complain.
    make(&|b| b[..8].fill(0));
    // One that claims a table it does not have is met when it is read.
    let huge = make(&|b| b[word::SLOTS..word::SLOTS + 8].copy_from_slice(&u64::MAX.to_le_bytes()));
    let sparse = make(&|_| ());
    File::options().write(true).open(&sparse).unwrap().set_len(100 << 30).unwrap();
    expected.push((sparse, "has holes"));
    let (fifo, _) = named();
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    expected.push((fifo, "is a pipe"));
    let (device, _) = named();
    assert!(Command::new("mknod").arg(&device).args(["c", "1", "3"]).status().unwrap().success());
    expected.push((device, "is a device"));
    let (link, _) = named();
    symlink(folder.join(producer.status().segment), &link).unwrap();
    expected.push((link, "is a symbolic link"));
    let (inner, _) = named();
    fs::create_dir(&inner).unwrap();
    expected.push((inner, "is a folder"));
    let (socket, _) = named();
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    expected.push((socket, "is a socket"));
    fs::write(folder.join("ttmem.not-a-pid.x"), b"").unwrap();
    expected.push((folder.join("ttmem.not-a-pid.x"), "named for another"));
    fs::write(folder.join("ttmemx"), b"").unwrap();

    for snapshot in [server.snapshot(), local(folder)] {
        for (path, reason) in &expected {
            let found = snapshot.health.skipped.iter().find(|it| it.path == path.to_str().unwrap());
            let found = found.unwrap_or_else(|| panic!("{} is not skipped", path.display()));
            assert!(found.reason.contains(reason), "{}: {}", path.display(), found.reason);
        }
        assert_eq!(snapshot.health.skipped.len(), expected.len(), "{:?}", snapshot.health.skipped);
        assert_eq!(dram(process(&snapshot, producer.pid).unwrap()), 64, "what is real is still seen");
        assert_eq!(snapshot.processes.len(), 1);
        assert_eq!(snapshot.health.crash_segments, 2);
    }
    assert!(server.resident_bytes() < 64 << 20);
    let table = Command::new(exe()).args(["--local", "--shm-dir"]).arg(folder).output().unwrap();
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("Not read:") && table.contains("is too short for a header"), "{table}");
    assert!(table.contains("more: ttmem --json"));
    let dump = Command::new(exe()).args(["dump", "--segment"]).arg(&huge).output().unwrap();
    assert_eq!(dump.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&dump.stderr).contains("claims too many slots"), "{dump:?}");
    let dump = Command::new(exe()).args(["dump", "--segment", "/dev/null"]).output().unwrap();
    assert!(String::from_utf8_lossy(&dump.stderr).contains("not a file"), "{dump:?}");
}

#[test]
fn many_files_of_one_user_hide_nobody_else() {
    let server = daemon();
    let folder = server.segments.path();
    for n in 0..5000 {
        fs::write(folder.join(format!("ttmem.x{n}")), b"").unwrap();
        let path = folder.join(format!("ttmem.1.{n:016x}"));
        fs::write(&path, b"").unwrap();
        std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
    }
    let mut producer = Producer::new(folder);
    producer.alloc(4096, 64);
    // Root's own junk, above, counts for root; the other user's does not.
    for n in 0..5000 {
        fs::remove_file(folder.join(format!("ttmem.x{n}"))).unwrap();
    }
    assert_eq!(server.process(producer.pid).as_ref().map(dram), Some(64));
    assert_eq!(server.snapshot().health.skipped.len(), 64, "reasons are few");
}

#[test]
fn another_filesystem_on_a_segments_name_is_not_asked() {
    let server = machine_daemon();
    // Something is mounted on the very file.
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
fn a_segment_that_shrinks_or_lies_while_it_is_read_loses_nothing_that_was_known() {
    let server = daemon();
    let mut producer = Producer::new(server.segments.path());
    producer.flood(3000, 100);
    assert_eq!(dram(&server.process(producer.pid).unwrap()), 300_000);
    let path = server.segments.path().join(producer.status().segment);
    // It must not notice: touching what is cut off would kill it.
    let pid = rustix::process::Pid::from_raw(producer.pid as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    // More happened than any ring holds, so everything must be read again.
    for at in [word::BEGUN, word::APPLIED] {
        file.write_all_at(&10_000_000u64.to_le_bytes(), at as u64).unwrap();
    }
    file.set_len(200_000).unwrap();
    for _ in 0..3 {
        let snapshot = server.snapshot();
        let it = process(&snapshot, producer.pid).expect("it lives");
        assert_eq!((dram(it), it.complete), (300_000, false));
        assert!(snapshot.health.skipped[0].reason.contains("is shorter than its"), "{snapshot:?}");
    }
    assert!(local(server.segments.path()).health.skipped[0].reason.contains("is shorter than its"));
    producer.kill();
    assert!(server.process(producer.pid).is_none());
}

#[test]
fn a_small_filesystem_is_left_to_the_workload() {
    for (size, count) in [(4u64 << 20, 20_000u64), (64 << 20, 200_000)] {
        let mut producer = container(&format!("mount -t tmpfs -o size={size} none /dev/shm"), &[]);
        producer.define(1);
        producer.alloc(4096, 1200);
        // The process in there is the only child of the one we started.
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
        // Somebody else fills it up; the workload goes on, and its figures stay.
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
        let it = eventually("the process in the container", || {
            holder(&server.snapshot(), count * 12 + 1200).cloned()
        });
        assert_eq!(it.usage[0].usage.dram.as_ref().unwrap().count, Some(count + 1));
        if producer.status().unlisted > 0 {
            assert!(finding(&server, FindingKind::Unlisted).is_some());
            assert!(producer.status().reason.contains("may use 1/8"));
        } else {
            panic!("{count} buffers fit {size} bytes?");
        }
        let (status, complaints) = producer.quit();
        assert!(status.success());
        assert_eq!(complaints, "", "nothing is ever printed");
    }
}

#[test]
fn the_dead_make_room_for_the_living() {
    // Enough for two of the smaller segments.
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
