//! What other programs do to the segment folder: many files, files with ttmem's names, and other filesystems.

use super::*;
use std::os::unix::fs::{PermissionsExt as _, chown};

/// A user without rights.
const OTHER_USER: u32 = 65534;

/// System calls of a process that starts, reports, and lets its table grow several times.
fn system_calls(folder: &Path) -> Vec<String> {
    let trace = tempfile::NamedTempFile::new().unwrap();
    let through = ["strace", "-f", "-o", trace.path().to_str().unwrap()];
    let mut producer = Producer::start_through(&through, &[("TTMEM_SHM_DIR", folder.to_str().unwrap())]);
    producer.define(1);
    producer.flood(100_000, 12);
    assert_eq!(producer.status().unlisted, 0, "{}", producer.status().reason);
    let calls = fs::read_to_string(trace.path()).unwrap();
    producer.exit_cleanly(0);
    calls
        .lines()
        .filter(|call| call.contains("ttmem") || call.contains("getdents"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn writers_read_no_files_of_others() {
    let folder = memory_folder();
    let alone = system_calls(folder.path());
    for n in 0..20_000 {
        let path = folder.path().join(format!("ttmem.{}.{n:016x}", n % 100 + 1));
        fs::write(&path, b"").unwrap();
        chown(&path, Some(OTHER_USER), None).unwrap();
    }
    let among_others = system_calls(folder.path());
    assert_eq!(among_others.len(), alone.len(), "{among_others:#?}");
    assert!(alone.len() < 60, "{alone:#?}");
}

#[test]
fn index_of_another_user_is_not_used() {
    let folder = memory_folder();
    let index = folder.path().join("ttmem-index.0");
    let elsewhere = memory_folder();
    for is_link in [false, true] {
        if is_link {
            fs::remove_dir(&index).unwrap();
            std::os::unix::fs::symlink(elsewhere.path(), &index).unwrap();
        } else {
            fs::create_dir(&index).unwrap();
            chown(&index, Some(OTHER_USER), None).unwrap();
        }
        let mut producer = Producer::new(folder.path());
        producer.alloc(4096, 64);
        assert_ne!(producer.status().segment, "");
        assert_eq!(producer.status().reason, "");
        assert_eq!(local(folder.path()).processes.iter().map(dram).collect::<Vec<_>>(), [64]);
        assert_eq!(fs::read_dir(&index).unwrap().count(), 0);
        producer.exit_cleanly(0);
    }
}

#[test]
fn index_follows_removed_segments() {
    let folder = memory_folder();
    let index = folder.path().join("ttmem-index.0");
    let mut victim = Producer::new(folder.path());
    let name = victim.status().segment;
    victim.kill();
    fs::remove_file(folder.path().join(&name)).unwrap();
    assert!(index.join(&name).exists());
    let mut producer = Producer::new(folder.path());
    assert!(!index.join(&name).exists(), "the next writer removes what is gone");
    assert!(index.join(producer.status().segment).exists());
    producer.exit_cleanly(0);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn setuid_programs_ignore_variables() {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (exe, log) = (home.path().join("setuid"), home.path().join("log"));
    fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
    let folder = memory_folder();
    for (mode, tracks) in [(0o755, true), (0o4755, false)] {
        fs::set_permissions(&exe, fs::Permissions::from_mode(mode)).unwrap();
        let env = [
            ("TTMEM_SHM_DIR", folder.path().to_str().unwrap()),
            ("TTMEM_LOG", log.to_str().unwrap()),
            ("TTMEM_RING", "x"),
        ];
        let through = if mode == 0o755 { &[][..] } else { &AS_OTHER_USER };
        let mut producer = Producer::start_copy(&exe, through, &env);
        assert_eq!(producer.define(1) > 0, tracks);
        assert_eq!(log.exists(), tracks, "a file that its user could not write");
        let _ = fs::remove_file(&log);
        let _ = producer.quit();
    }
}

#[test]
fn segment_with_holes_is_incomplete() {
    let folder = memory_folder();
    let mut producer = Producer::new(folder.path());
    producer.flood(3000, 100);
    let path = folder.path().join(producer.status().segment);
    let file = fs::File::options().write(true).open(&path).unwrap();
    let len = file.metadata().unwrap().len();
    let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, flags, len / 2, len - len / 2).unwrap();
    assert!(producer.status().reason.contains("another program erased parts of the segment"));
    producer.alloc(4096, 64);
    producer.refresh();
    assert!(producer.status().lost > 0);
    let snapshot = local(folder.path());
    assert!(snapshot.processes.iter().all(|process| !process.complete), "{snapshot:?}");
    let (status, errors) = producer.quit();
    assert!(status.success() && errors.is_empty(), "{status} {errors}");
}
