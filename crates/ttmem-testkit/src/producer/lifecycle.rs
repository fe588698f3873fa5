//! Requests about the process itself: children, exits, other programs, descriptors and signals.

use super::{Fork, Interrupted, Process};
use crate::helper;
use std::io::{Seek, SeekFrom, Write};
use ttmem_client::{AllocatorNumber, Result, Tracker};

impl Process {
    pub(super) fn children(&self, how: Fork, count: u64, held_by_parent: u64) -> Result<Vec<i32>> {
        let mut pids = Vec::new();
        for n in 0..count {
            let (result, report) = rustix::pipe::pipe().unwrap();
            // SAFETY: the child uses the tracker, which works after a fork, and calls that are safe then.
            let pid = unsafe {
                let pid = match how {
                    Fork::WithHandlers => libc::fork(),
                    Fork::WithoutHandlers => libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32,
                };
                if pid == 0 {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    let held = self.alloc(0x10_0000 + n, 100 + n).is_ok();
                    let freed = self.free(held_by_parent) == Err(ttmem_client::Fault::InheritedFree);
                    let _ = rustix::io::write(&report, &[u8::from(held) + u8::from(freed)]);
                    loop {
                        libc::pause();
                    }
                }
                pid
            };
            let mut answer = [0];
            rustix::io::read(&result, &mut answer).unwrap();
            assert_eq!(answer, [2], "a child could not use the tracker");
            pids.push(pid);
        }
        Ok(pids)
    }

    pub(super) fn reap(&self, pids: Vec<i32>) -> Result<()> {
        pids.into_iter().for_each(helper::reap);
        Ok(())
    }

    pub(super) fn exit(&self, threads: u64) -> Result<()> {
        for thread in 0..threads {
            let process = self.clone_for_thread();
            std::thread::spawn(move || {
                while process.alloc((thread + 1) << 36, 64).and(process.free((thread + 1) << 36)).is_ok() {}
            });
        }
        helper::send(&helper::reply(Result::Ok(())));
        std::process::exit(0);
    }

    pub(super) fn exit_in_child(&self, allocates: bool) -> Result<()> {
        // SAFETY: the child uses the tracker, which works after a fork, and exits; this process has one thread.
        unsafe {
            match libc::fork() {
                0 => {
                    if allocates {
                        self.alloc(4096, 64).unwrap();
                    }
                    libc::exit(0);
                }
                child => assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child),
            }
        }
        Ok(())
    }

    pub(super) fn spawn(&self) -> Result<()> {
        std::process::Command::new("true").status().unwrap();
        Ok(())
    }

    pub(super) fn exec(&self) -> Result<()> {
        use std::os::unix::process::CommandExt;
        helper::send(&helper::reply(Result::Ok(())));
        panic!("{}", std::process::Command::new("sleep").arg("1000").exec());
    }

    pub(super) fn close_descriptors(&self) -> Result<()> {
        for fd in 3..2000 {
            // SAFETY: the owners of these descriptors are meant to lose them.
            unsafe { libc::close(fd) };
        }
        Ok(())
    }

    pub(super) fn open_files(&mut self) -> Result<()> {
        self.files = (0..8).map(|_| tempfile::tempfile().unwrap()).collect();
        Ok(())
    }

    pub(super) fn files_are_intact(&mut self) -> Result<bool> {
        Ok(self.files.iter_mut().all(|file| {
            file.write_all(b"mine").is_ok()
                && file.seek(SeekFrom::Start(0)).is_ok()
                && std::io::read_to_string(&*file).is_ok_and(|text| text == "mine")
        }))
    }

    pub(super) fn interrupt(&self, rounds: u64) -> Result<Interrupted> {
        static ALLOCATOR: std::sync::OnceLock<AllocatorNumber> = std::sync::OnceLock::new();
        static CALLS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        extern "C" fn handle(_: i32) {
            let n = CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let allocator = ALLOCATOR.get().copied().unwrap();
            let process = Process { tracker: Tracker::global(), allocator, files: Vec::new() };
            let _ = process.alloc((1 << 50) + n, 1);
        }
        let _ = ALLOCATOR.set(self.allocator);
        let period = libc::timeval { tv_sec: 0, tv_usec: 100 };
        let timer = libc::itimerval { it_interval: period, it_value: period };
        let none = libc::timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: the handler calls the tracker only.
        unsafe {
            libc::signal(libc::SIGALRM, handle as extern "C" fn(i32) as libc::sighandler_t);
            libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
        }
        for _ in 0..rounds {
            self.alloc(1 << 51, 64)?;
            self.free(1 << 51)?;
        }
        // SAFETY: as above.
        unsafe {
            let off = libc::itimerval { it_interval: none, it_value: none };
            libc::setitimer(libc::ITIMER_REAL, &raw const off, std::ptr::null_mut());
        }
        // The handler may run in another thread, and may still wait for the lock there.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let status = self.tracker.status();
        let calls = CALLS.load(std::sync::atomic::Ordering::Relaxed);
        Ok(Interrupted { calls, live: status.live, lost: status.lost })
    }
}
