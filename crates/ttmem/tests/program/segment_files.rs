//! Files of segments: reused pids, other users, crash segments, and files that are no segments.

use crate::segments::{daemon, dram, local, process};
use crate::{AS_OTHER_USER, copy_program, exe};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use ttmem_core::Input;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::Health;
use ttmem_core::words::{Basis, Mono, ProcessId};
use ttmem_sources::{EventSink, ProcessIdentity, Retention, SourceConfig, Sources};
use ttmem_testkit::helper::{self, Role};
use ttmem_testkit::producer::{Producer, Request};
use ttmem_testkit::{eventually, memory_folder, schema};
use ttmem_wire::segment::{Header, word};

#[test]
fn reused_pid_is_another_process() {
    let folder = memory_folder();
    // In a PID namespace of its own, the next pid can be set.
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
        snapshot() { "$ttmem" --local --json; echo; }
        one=$1; other=$2; shift 2
        produce 0 "$one" "$@"
        first=$pid; snapshot
        kill -9 $first; wait $first
        echo $((first - 1)) > /proc/sys/kernel/ns_last_pid; sleep 1000 & stranger=$!
        [ $stranger = $first ] || exit 9
        snapshot
        kill -9 $stranger; wait $stranger
        produce $first "$other" "$@"
        [ $pid = $first ] || exit 9
        snapshot
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
    let snapshots: Vec<Snapshot> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| schema::snapshot(line.as_bytes()))
        .collect();
    assert_eq!(snapshots.len(), 3);
    let held = |n: usize| snapshots[n].processes.iter().map(|p| (p.pid, dram(p))).collect::<Vec<_>>();
    let pid = snapshots[0].processes[0].pid;
    assert_eq!(held(0), [(pid, 51)]);
    assert_eq!(held(1), [], "another program with the same pid has no memory");
    assert_eq!(held(2), [(pid, 52)], "the next producer has its own memory only");
    assert_eq!((snapshots[1].health.crash_segments, snapshots[2].health.crash_segments), (1, 1));
}

#[test]
fn segments_of_other_users_are_read_by_root_only() {
    let server = daemon();
    let test = copy_program(&std::env::current_exe().unwrap(), &server);
    let program = copy_program(exe(), &server);
    let folder = server.segments.path();
    let env = [("TTMEM_SHM_DIR", folder.to_str().unwrap())];
    let mut theirs = Producer::start_copy(&test, &AS_OTHER_USER, &env);
    theirs.define(1);
    theirs.alloc(4096, 10);
    let mut ours = Producer::new(folder);
    ours.alloc(4096, 20);
    let snapshot = server.snapshot();
    let other = process(&snapshot, theirs.pid).expect("root reads all");
    assert_eq!((dram(other), other.user.as_deref()), (10, Some("nobody")));
    assert_eq!(dram(process(&snapshot, ours.pid).unwrap()), 20);

    // The other user reads their own segment, and sees that there is another one.
    let output = Command::new(AS_OTHER_USER[0])
        .args(&AS_OTHER_USER[1..])
        .arg(&program)
        .args(["--local", "--json", "--shm-dir"])
        .arg(folder)
        .output()
        .unwrap();
    let seen: Snapshot = schema::snapshot(&output.stdout);
    assert_eq!(seen.processes.iter().map(|p| p.pid).collect::<Vec<_>>(), [Some(theirs.pid)]);
    assert!(seen.health.skipped[0].reason.contains("Permission denied"), "{:?}", seen.health.skipped);

    // A file of another user with the pid of this user's process is not attributed, locked or not.
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
    with_lock(&copy, lock, || skipped("claims pid"));
    // A lock of an open file description, which no process owns.
    let lock = "fcntl.fcntl(f, 37, struct.pack('hhqqi4x', 1, 0, 0, 0, 0))";
    with_lock(&copy, lock, || skipped("is locked, but not by a process"));
}

/// Runs `work` while another process holds a lock, which it takes with a line of Python.
fn with_lock(file: &Path, lock: &str, work: impl FnOnce()) {
    // It exits at the end of its input, and so with this test.
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

/// Ignores all events.
struct IgnoreEvents;

impl EventSink for IgnoreEvents {
    fn register(&mut self, owner: &ProcessIdentity, _: Basis) -> ProcessId {
        ProcessId { pid: owner.pid, start: 1 }
    }

    fn emit(&mut self, _: ProcessId, _: Basis, _: Input) {}

    fn emit_machine(&mut self, _: Input) {}
}

#[test]
fn crash_segments_expire_by_age_and_share() {
    let folder = memory_folder();
    let mut names = Vec::new();
    for _ in 0..3 {
        let mut producer = Producer::new(folder.path());
        producer.alloc(4096, 64);
        names.push(producer.status().segment);
        producer.kill();
    }
    let mut running = Producer::new(folder.path());
    running.alloc(4096, 64);
    let mut sources = Sources::new(SourceConfig::segments(folder.path()));
    sources.rescan(&mut IgnoreEvents);
    sources.poll(Mono(1), &mut IgnoreEvents);
    let mut health = Health::default();
    sources.fill_health(&mut health);
    assert_eq!((health.segments, health.crash_segments), (1, 3));
    let left = || names.iter().map(|name| folder.path().join(name).exists()).collect::<Vec<_>>();
    let now = |seconds: i64| {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Mono((now.tv_sec + seconds) as u64 * Mono::SECOND)
    };
    sources.expire_crash_segments(now(3600), Retention::default());
    assert_eq!(left(), [true; 3], "after an hour, all are kept");
    // A share for three segments, but not for four.
    let system = rustix::fs::statvfs("/dev/shm").unwrap();
    let each = std::fs::metadata(folder.path().join(&names[0])).unwrap().len();
    let share = system.f_blocks * system.f_frsize / (each * 7 / 2);
    sources.expire_crash_segments(now(0), Retention { share, ..Retention::default() });
    assert_eq!(left(), [false, true, true], "the oldest is removed");
    sources.expire_crash_segments(now(25 * 3600), Retention::default());
    assert_eq!(left(), [false; 3], "after a day, all are removed");
    assert!(folder.path().join(running.status().segment).exists(), "the segment in use stays");
}

#[test]
fn files_that_are_no_segments_are_listed_as_skipped() {
    let server = daemon();
    let folder = server.segments.path();
    let mut producer = Producer::new(folder);
    producer.alloc(4096, 64);
    let good = fs::read(folder.join(producer.status().segment)).unwrap();
    // The pid of a process that does not exist, so that complete files are crash segments.
    let exited = 4_194_301u32;
    let mut number = 0x100u64;
    let mut named = || {
        number += 1;
        (folder.join(format!("ttmem.{exited}.{number:016x}")), number)
    };
    let mut make = |change: &dyn Fn(&mut Vec<u8>)| {
        let (path, number) = named();
        let mut bytes = good.clone();
        bytes[24..28].copy_from_slice(&exited.to_le_bytes());
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
    // A complete file of a later minor version.
    make(&|b| b[10..12].copy_from_slice(&9u16.to_le_bytes()));
    // An incomplete file, which is not listed.
    make(&|b| b[..8].fill(0));
    // A file without the table that it claims, which fails only when it is read.
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
    // Files with other names are ignored.
    fs::write(folder.join("ttmem.not-a-pid.x"), b"").unwrap();
    fs::write(folder.join("ttmemx"), b"").unwrap();

    for snapshot in [server.snapshot(), local(folder)] {
        for (path, reason) in &expected {
            let found = snapshot.health.skipped.iter().find(|it| it.path == path.to_str().unwrap());
            let found = found.unwrap_or_else(|| panic!("{} is not skipped", path.display()));
            assert!(found.reason.contains(reason), "{}: {}", path.display(), found.reason);
        }
        assert_eq!(snapshot.health.skipped.len(), expected.len(), "{:?}", snapshot.health.skipped);
        assert_eq!(dram(process(&snapshot, producer.pid).unwrap()), 64, "the valid segment is read");
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
fn many_files_of_one_user_do_not_hide_others() {
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
    // The files of root count for root; those of the other user do not.
    for n in 0..5000 {
        fs::remove_file(folder.join(format!("ttmem.x{n}"))).unwrap();
    }
    let found = || server.process(producer.pid).filter(|it| dram(it) == 64);
    eventually("the folder is listed again", found);
    let skipped = server.snapshot().health.skipped;
    assert_eq!(skipped.len(), 64 + 1, "the list is limited");
    assert!(skipped[64].reason.contains("more files than are read"), "{skipped:?}");
}

#[test]
fn truncated_segment_keeps_the_last_known_figures() {
    let server = daemon();
    let mut producer = Producer::new(server.segments.path());
    producer.flood(3000, 100);
    assert_eq!(dram(&server.process(producer.pid).unwrap()), 300_000);
    let path = server.segments.path().join(producer.status().segment);
    // The process is stopped: access to the truncated part would kill it.
    let pid = rustix::process::Pid::from_raw(producer.pid as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    // More records than any ring has, so the table must be read again.
    for at in [word::BEGUN, word::APPLIED] {
        file.write_all_at(&10_000_000u64.to_le_bytes(), at as u64).unwrap();
    }
    file.set_len(200_000).unwrap();
    for _ in 0..3 {
        let snapshot = server.snapshot();
        let found = process(&snapshot, producer.pid).expect("it is running");
        assert_eq!((dram(found), found.complete), (300_000, false));
        assert!(snapshot.health.skipped[0].reason.contains("is shorter than its"), "{snapshot:?}");
    }
    assert!(local(server.segments.path()).health.skipped[0].reason.contains("is shorter than its"));
    producer.kill();
    assert!(server.process(producer.pid).is_none());
}
