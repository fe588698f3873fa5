//! Another process with a tracker in it, moved by strings of text, as [`crate::puppet`] is for the old protocol.
//!
//! A test binary runs itself again with [`ENV`] set; there one test, [`run_if_asked`], takes commands from standard input
//! and answers on standard output, a line each. Nothing is written to standard error, so that a test can see whether
//! anybody else does.
#![allow(unsafe_code)]

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use ttmem_client::{
    AllocatorNumber, Banks, Buffer, BufferType, Chip, CoreRange, CoresNumber, Kernel, Placement, Program,
    Space, Tracker,
};

/// Asks a test binary to be a producer.
pub const ENV: &str = "TTMEM_PRODUCER";
/// The name of the test that calls [`run_if_asked`].
pub const TEST: &str = "producer";
/// Banks of its DRAM.
pub const BANKS: u64 = 12;
/// Where the ring of kernels begins in each of its cores, if those are laid out.
pub const KERNEL_RING: u64 = 0x8000;
/// Where it ends, and L1 can be used.
pub const UNRESERVED: u64 = 0x1_8000;
/// Where the reserved top begins.
pub const L1_SMALL: u64 = 0x15_0000;
/// Where L1 ends.
pub const L1_END: u64 = 0x16_0000;

/// The producer's strings.
pub struct Producer {
    child: Child,
    strings: Option<ChildStdin>,
    answers: BufReader<std::process::ChildStdout>,
    /// The process with the tracker in it, as seen from here.
    pub pid: u32,
}

impl Producer {
    /// A producer whose segment goes into a folder, with one chip and an allocator on it.
    pub fn new(folder: &Path) -> Self {
        let mut producer = Self::by(&[], &[("TTMEM_SHM_DIR", folder.to_str().unwrap())]);
        producer.pull("define 1");
        producer
    }

    /// One started through another program, as `["setpriv", "--reuid", "65534"]`, with more environment.
    pub fn by(through: &[&str], env: &[(&str, &str)]) -> Self {
        Self::of(&std::env::current_exe().unwrap(), through, env)
    }

    /// The same, of a copy of the test binary.
    pub fn of(exe: &Path, through: &[&str], env: &[(&str, &str)]) -> Self {
        let mut command = match through {
            [] => Command::new(exe),
            [program, args @ ..] => {
                let mut command = Command::new(program);
                command.args(args).arg(exe);
                command
            }
        };
        let mut child = command
            .args(["--exact", TEST, "--nocapture", "--test-threads=1", "--quiet"])
            .env(ENV, "1")
            .env("TTMEM", "1")
            .env_remove("TTMEM_SHM_DIR")
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let strings = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let pid = child.id();
        Self { child, strings, answers, pid }
    }

    /// Gives a command and returns what it answers.
    pub fn pull(&mut self, command: &str) -> String {
        writeln!(self.strings.as_mut().unwrap(), "{command}").unwrap();
        loop {
            let mut line = String::new();
            let len = self.answers.read_line(&mut line).unwrap();
            assert!(len > 0, "the producer died of {command:?}: {}", self.complaints());
            if let Some((_, answer)) = line.split_once("ok ") {
                return answer.trim().to_owned();
            }
        }
    }

    /// The same, of a command that must answer with a number.
    pub fn number(&mut self, command: &str) -> u64 {
        let answer = self.pull(command);
        answer.parse().unwrap_or_else(|_| panic!("{command:?} was answered {answer:?}"))
    }

    /// kill -9, and wait until the kernel has taken it away.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Ends it in peace, and returns how it ended and what it wrote to standard error.
    pub fn quit(mut self) -> (ExitStatus, String) {
        self.strings = None;
        let mut rest = String::new();
        let _ = self.answers.read_to_string(&mut rest);
        let complaints = self.complaints();
        (self.child.wait().unwrap(), complaints)
    }

    fn complaints(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = stderr.read_to_string(&mut text);
        }
        text
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The producer itself. Does nothing in a process that is none.
pub fn run_if_asked() {
    if std::env::var_os(ENV).is_none() {
        return;
    }
    // As in programs that are not written in Rust.
    // SAFETY: no handler is replaced that anybody counts on here.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let mut strings = std::io::stdin().lock();
    let mut life = Life { tracker: Tracker::global(), allocator: AllocatorNumber::new(0), mine: Vec::new() };
    loop {
        let mut line = String::new();
        if strings.read_line(&mut line).unwrap() == 0 {
            // No destructor, no handler at exit: as programs end that are in a hurry.
            // SAFETY: there is nothing left to be done.
            unsafe { libc::_exit(0) };
        }
        let words: Vec<&str> = line.trim().split(' ').collect();
        let answer = life.obey(&words);
        say(&answer);
    }
}

/// One write, so that nothing of it waits in a buffer when the process is forked or killed.
fn say(answer: &str) {
    rustix::io::write(rustix::stdio::stdout(), format!("ok {answer}\n").as_bytes()).unwrap();
}

struct Life {
    tracker: &'static Tracker,
    allocator: AllocatorNumber,
    mine: Vec<std::fs::File>,
}

fn answer(told: ttmem_client::Result) -> String {
    told.map_or_else(|e| format!("{e:?}"), |sequence| sequence.to_string())
}

impl Life {
    fn alloc(&self, id: u64, bytes: u64) -> ttmem_client::Result {
        let buffer = Buffer::new(self.allocator, Space::Dram, id, bytes);
        let bytes_per_bank = bytes.div_ceil(BANKS);
        self.tracker.alloc(&Buffer { bytes_per_bank, occupied: Some(bytes), ..buffer })
    }

    fn free(&self, id: u64) -> ttmem_client::Result {
        self.tracker.free(self.allocator, Space::Dram, id)
    }

    /// The cores between two corners, given from the word at `from` on.
    fn cores(&self, words: &[&str], from: usize) -> CoresNumber {
        let n = |at: usize| words[from + at].parse::<u8>().unwrap();
        self.tracker.cores(&[CoreRange { from: (n(0), n(1)), to: (n(2), n(3)) }]).unwrap()
    }

    fn obey(&mut self, words: &[&str]) -> String {
        let n = |at: usize| words[at].parse::<u64>().unwrap();
        match words[0] {
            "hello" => String::new(),
            "define" => {
                let chip = |n| Chip { unique_id: 0x100 + n, index: n as u32, ..Chip::default() };
                let chips: Vec<_> = (0..n(1)).map(|n| self.tracker.chip(&chip(n)).unwrap()).collect();
                let banks = [Banks::new(Space::Dram, BANKS as u16, 0, 1 << 40)];
                self.allocator = self.tracker.allocator(&chips, &banks).unwrap();
                self.allocator.get().to_string()
            }
            "alloc" => answer(self.alloc(n(1), n(2))),
            "free" => answer(self.free(n(1))),
            // So many buffers of a size, one behind the other.
            "flood" => {
                for id in 0..n(1) {
                    self.alloc((1 << 32) + id * n(2), n(2)).unwrap();
                }
                String::new()
            }
            // Takes and gives back, in this thread, so many times.
            "churn" => {
                for round in 0..n(1) {
                    let id = (1 << 45) + (round % 100) * 4096;
                    self.alloc(id, 64).unwrap();
                    self.free(id).unwrap();
                }
                String::new()
            }
            // Threads that take and give back, each its own addresses, so many times.
            "storm" => {
                std::thread::scope(|scope| {
                    for thread in 0..n(1) {
                        let life =
                            Life { tracker: self.tracker, allocator: self.allocator, mine: Vec::new() };
                        let rounds = n(2);
                        scope.spawn(move || {
                            for round in 0..rounds {
                                let id = ((thread + 1) << 40) + (round % 3) * 4096;
                                life.alloc(id, 64).unwrap();
                                life.free(id).unwrap();
                            }
                        });
                    }
                });
                String::new()
            }
            "place" => {
                let cores = self.tracker.cores(&[CoreRange { from: (0, 0), to: (3, 0) }]).unwrap();
                let (allocator, program) = (self.allocator, n(1) as u32);
                let placed = Placement::new(allocator, program, Space::Cb, n(2), n(3));
                answer(self.tracker.place(&Placement { cores, ..placed }))
            }
            // Chips whose cores are laid out: how many, columns, rows.
            "grid" => {
                let cores = (n(2) * n(3)) as u32;
                let chip = |index| Chip {
                    unique_id: 0x100 + index,
                    index: index as u32,
                    dram_bytes: 12 << 30,
                    cores,
                    l1_bytes_per_core: L1_END,
                    kernel_ring: KERNEL_RING as u32,
                    unreserved: UNRESERVED as u32,
                    grid: (n(2) as u8, n(3) as u8),
                    ..Chip::default()
                };
                let chips: Vec<_> = (0..n(1)).map(|n| self.tracker.chip(&chip(n)).unwrap()).collect();
                let banks = [
                    Banks::new(Space::Dram, BANKS as u16, 0, 1 << 40),
                    Banks::new(Space::L1, cores as u16, UNRESERVED, L1_SMALL - UNRESERVED),
                    Banks::new(Space::L1Small, cores as u16, L1_SMALL, L1_END - L1_SMALL),
                ];
                self.allocator = self.tracker.allocator(&chips, &banks).unwrap();
                self.allocator.get().to_string()
            }
            // A buffer in L1: address, bytes on each core, and the corners of the cores it lies on, if not on all.
            "l1" | "small" => {
                let space = if words[0] == "l1" { Space::L1 } else { Space::L1Small };
                let cores = if words.len() > 3 { self.cores(words, 3) } else { CoresNumber::NONE };
                let buffer = Buffer::new(self.allocator, space, n(1), n(2));
                answer(self.tracker.alloc(&Buffer {
                    bytes_per_bank: n(2),
                    occupied: Some(n(2)),
                    cores,
                    ..buffer
                }))
            }
            "free-l1" => answer(self.tracker.free(self.allocator, Space::L1, n(1))),
            // A program: number and corners.
            "program" => {
                let program = Program::new(self.allocator, n(1) as u32);
                answer(self.tracker.program(&Program { cores: self.cores(words, 2), ..program }))
            }
            // What it keeps: program, space, address, bytes on each core, corners; `view` behind that: of a buffer.
            "keep" => {
                let space = match words[2] {
                    "cb" => Space::Cb,
                    "dfb" => Space::Dfb,
                    _ => Space::Scratch,
                };
                let placed = Placement::new(self.allocator, n(1) as u32, space, n(3), n(4));
                let (cores, view) = (self.cores(words, 5), words.len() > 9);
                answer(self.tracker.place(&Placement { cores, view, ..placed }))
            }
            // A kernel of a program: program, number, bytes on each core, corners.
            "load" => {
                let kernel = Kernel::new(self.allocator, n(1) as u32, n(2), n(3));
                answer(self.tracker.load_kernel(&Kernel { cores: self.cores(words, 4), ..kernel }))
            }
            "trace" => answer(self.tracker.trace(self.allocator, n(1) as u32, n(2))),
            "replay" => answer(self.tracker.replay_trace(self.allocator, n(1) as u32)),
            "end-trace" => answer(self.tracker.end_trace(self.allocator, n(1) as u32)),
            "begin" => answer(self.tracker.begin_program(self.allocator, n(1) as u32, words[2])),
            "dispatch" => answer(self.tracker.dispatch(self.allocator, n(1) as u32)),
            "end" => answer(self.tracker.end_program(self.allocator, n(1) as u32)),
            // By number only: device, address, bytes.
            "report" => answer(self.tracker.report_allocation(&[n(1) as u32], n(3), BufferType::Dram, n(2))),
            "unreport" => answer(self.tracker.report_deallocation(&[n(1) as u32], n(2))),
            "site" => {
                self.tracker.site(words[1]).map_or_else(|e| format!("{e:?}"), |it| it.get().to_string())
            }
            "close-tracker" => {
                self.tracker.close();
                "closed".to_owned()
            }
            "close" => answer(self.tracker.close_allocator(self.allocator)),
            "peak" => answer(self.tracker.peak(self.allocator, Space::Dram)),
            "reset-peak" => answer(self.tracker.reset_peak(self.allocator, Space::Dram)),
            "refresh" => {
                self.tracker.refresh();
                String::new()
            }
            "oom" => answer(self.tracker.out_of_memory(&Buffer::new(self.allocator, Space::L1, 0, n(1)))),
            "segment" => self.tracker.status().segment.unwrap_or_default(),
            "reason" => self.tracker.status().reason.unwrap_or_default(),
            "live" => self.tracker.status().live.to_string(),
            "unlisted" => self.tracker.status().unlisted.to_string(),
            "lost" => self.tracker.status().lost.to_string(),
            "queued" => self.tracker.status().queued.to_string(),
            // Children that hold a buffer each, and stay. `how` is fork or clone; each frees what the parent holds, too.
            "children" => self.children(words[1], n(2), n(3)),
            "reap" => {
                for pid in words[1..].iter().map(|word| word.parse::<i32>().unwrap()) {
                    // SAFETY: the child is ours, and nobody else waits for it.
                    unsafe {
                        libc::kill(pid, libc::SIGKILL);
                        libc::waitpid(pid, std::ptr::null_mut(), 0);
                    }
                }
                String::new()
            }
            "spawn" => Command::new("true").status().unwrap().to_string(),
            // Goes on as another program.
            "exec" => {
                use std::os::unix::process::CommandExt;
                say("going");
                panic!("{}", Command::new("sleep").arg("1000").exec());
            }
            // As programs do that become daemons.
            "close-descriptors" => {
                for fd in 3..2000 {
                    // SAFETY: whoever owns them is the one that is to suffer.
                    unsafe { libc::close(fd) };
                }
                String::new()
            }
            // Files of the workload's own, where others were; then, whether they are still open and hold what was written.
            "mine" => {
                self.mine = (0..8).map(|_| tempfile::tempfile().unwrap()).collect();
                String::new()
            }
            "still-mine" => {
                let whole = self.mine.iter_mut().all(|file| {
                    file.write_all(b"mine").is_ok()
                        && file.seek(SeekFrom::Start(0)).is_ok()
                        && std::io::read_to_string(&*file).is_ok_and(|text| text == "mine")
                });
                whole.to_string()
            }
            "reenter" => self.reenter(n(1)),
            _ => panic!("the producer does not know {words:?}"),
        }
    }

    fn children(&self, how: &str, count: u64, held_by_parent: u64) -> String {
        let mut pids = Vec::new();
        for n in 0..count {
            let (spoken, speaks) = rustix::pipe::pipe().unwrap();
            // SAFETY: the child uses the tracker, which is made for that, and calls that are safe after a fork.
            let pid = unsafe {
                let pid = match how {
                    "fork" => libc::fork(),
                    _ => libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32,
                };
                if pid == 0 {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    let held = self.alloc(0x10_0000 + n, 100 + n).is_ok();
                    let freed = self.free(held_by_parent) == Err(ttmem_client::Fault::InheritedFree);
                    let word = [u8::from(held) + u8::from(freed)];
                    let _ = rustix::io::write(&speaks, &word);
                    loop {
                        libc::pause();
                    }
                }
                pid
            };
            let mut word = [0];
            rustix::io::read(&spoken, &mut word).unwrap();
            assert_eq!(word, [2], "a child could not use the tracker");
            pids.push(pid.to_string());
        }
        pids.join(" ")
    }

    /// Events that a signal handler interrupts with events of its own.
    fn reenter(&self, count: u64) -> String {
        static LIFE: std::sync::OnceLock<AllocatorNumber> = std::sync::OnceLock::new();
        static CALLS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        extern "C" fn handle(_: i32) {
            let n = CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let life = Life {
                tracker: Tracker::global(),
                allocator: LIFE.get().copied().unwrap(),
                mine: Vec::new(),
            };
            let _ = life.alloc((1 << 50) + n, 1);
        }
        let _ = LIFE.set(self.allocator);
        let period = libc::timeval { tv_sec: 0, tv_usec: 100 };
        let timer = libc::itimerval { it_interval: period, it_value: period };
        let none = libc::timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: the handler calls the tracker only.
        unsafe {
            libc::signal(libc::SIGALRM, handle as extern "C" fn(i32) as libc::sighandler_t);
            libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
        }
        for _ in 0..count {
            self.alloc(1 << 51, 64).unwrap();
            self.free(1 << 51).unwrap();
        }
        // SAFETY: as above.
        unsafe {
            let off = libc::itimerval { it_interval: none, it_value: none };
            libc::setitimer(libc::ITIMER_REAL, &raw const off, std::ptr::null_mut());
        }
        // The handler may have run in another thread, and may still wait for its turn there.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let status = self.tracker.status();
        let calls = CALLS.load(std::sync::atomic::Ordering::Relaxed);
        format!("{calls} {} {}", status.live, status.lost)
    }
}
