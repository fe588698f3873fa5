//! What others notice: users of `ttmem`, old clients and the service manager.

use crate::attacks::Target;
use crate::{READER, Siege};
use std::collections::VecDeque;
use std::fmt::Write;
use std::io::Read;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use ttmem_testkit::{Client, message};
use ttmem_wire::legacy::{Type, Vintage};

/// Limits of the long form.
const MAX_GAP: Duration = Duration::from_secs(1);
const MAX_RUN: Duration = Duration::from_millis(200);
const MAX_SEND: Duration = Duration::from_millis(50);
const MAX_RSS: u64 = 64 << 20;
/// Bytes for each buffer of honest users.
const BUFFER: u64 = 100;

/// What was measured during an attack.
#[derive(Default)]
pub(crate) struct Figures {
    /// Longest time between two signs of life.
    gap: Duration,
    /// Time of the runs of `ttmem`, sorted.
    times: Vec<Duration>,
    /// Runs of `ttmem`.
    pub(crate) runs: usize,
    /// Longest time that an old client needed to send a message.
    send: Duration,
    /// Answers that an old client received.
    pub(crate) answers: u64,
    /// Answers that were not exact.
    pub(crate) wrong: u64,
    /// Most memory of the daemon.
    rss: u64,
    /// Processor time of the daemon, in parts of one processor.
    cpu: f64,
}

impl Figures {
    pub(crate) const HEADER: &str = "\
attack       gap ms  ttmem ms: median  worst  send ms: worst  answers  wrong  daemon MiB  CPU %";

    pub(crate) fn row(&self, name: &str) -> String {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (median, worst) = (self.times[self.times.len() / 2], self.times[self.times.len() - 1]);
        let mut row = String::new();
        let _ = write!(row, "{name:<12} {:>6.0}  {:>16.1}  {:>5.0}", ms(self.gap), ms(median), ms(worst));
        let _ = write!(row, "  {:>14.1}  {:>7}  {:>5}", ms(self.send), self.answers, self.wrong);
        let _ = write!(row, "  {:>10}  {:>5.0}", self.rss >> 20, self.cpu * 100.0);
        row
    }

    /// Limits that were exceeded, with `live` buffers of honest users.
    pub(crate) fn failures(&self, live: u64) -> Vec<String> {
        let worst = self.times[self.times.len() - 1];
        let room = MAX_RSS + BUFFER * live;
        let exceeded = [
            (self.gap > MAX_GAP, format!("{:?} between two signs of life", self.gap)),
            (worst > MAX_RUN, format!("ttmem took {worst:?}")),
            (self.send > MAX_SEND, format!("an old client's send took {:?}", self.send)),
            (self.rss > room, format!("the daemon has {} bytes, of at most {room}", self.rss)),
        ];
        exceeded.into_iter().filter(|(is_exceeded, _)| *is_exceeded).map(|(_, text)| text).collect()
    }

    /// Adds what the process of [`report_and_compare`] printed.
    pub(crate) fn add_client(&mut self, mut client: Child) {
        let mut text = String::new();
        client.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(client.wait().unwrap().success(), "{text}");
        let line = text.lines().find_map(|line| line.strip_prefix("client ")).unwrap();
        let numbers: Vec<u64> = line.split(' ').map(|it| it.parse().unwrap()).collect();
        (self.send, self.answers, self.wrong) = (Duration::from_nanos(numbers[0]), numbers[1], numbers[2]);
    }
}

/// Runs `ttmem` as another user, again and again, and reads the daemon's memory.
pub(crate) fn watch(siege: &Siege, time: Duration, manager: &ServiceManager) -> Figures {
    let mut figures = Figures::default();
    let (begin, cpu) = (Instant::now(), siege.server.cpu_time());
    while begin.elapsed() < time {
        let mut command = Command::new(&siege.program);
        command.arg("--query-socket").arg(&siege.server.query).uid(READER).gid(READER);
        let started = Instant::now();
        let output = command.stdin(Stdio::null()).output().unwrap();
        figures.times.push(started.elapsed());
        assert!(output.status.success(), "{output:?}");
        figures.rss = figures.rss.max(siege.server.resident_bytes());
        std::thread::sleep(Duration::from_millis(20));
    }
    figures.cpu = siege.server.cpu_time().saturating_sub(cpu).as_secs_f64() / begin.elapsed().as_secs_f64();
    figures.gap = manager.longest_gap();
    figures.times.sort_unstable();
    figures.runs = figures.times.len();
    figures
}

/// An old client that allocates, frees, and compares the level of its device, which no other process uses.
pub(crate) fn report_and_compare(target: &Target, time: Duration) {
    const DEVICE: i32 = 7;
    const SIZE: u64 = 1 << 20;
    let end = Instant::now() + time;
    let mut client = Client::connect_to(&target.legacy, Vintage::V144);
    let (mut worst, mut answers, mut wrong) = (Duration::ZERO, 0, 0);
    let (mut held, mut next) = (VecDeque::new(), 1);
    while Instant::now() < end {
        for _ in 0..9 {
            let freed = if held.len() == 5 { held.pop_front() } else { None };
            let message = match freed {
                Some(id) => message(Type::Free, DEVICE, 0, id, 0),
                None => message(Type::Alloc, DEVICE, 0, next, SIZE),
            };
            if freed.is_none() {
                held.push_back(next);
                next += 1;
            }
            let begin = Instant::now();
            client.send(message);
            worst = worst.max(begin.elapsed());
        }
        answers += 1;
        wrong += u64::from(client.query(DEVICE).levels.dram != held.len() as u64 * SIZE);
        std::thread::sleep(Duration::from_millis(5));
    }
    eprintln!("client {} {answers} {wrong}", worst.as_nanos());
}

/// An old client that holds buffers until its standard input ends.
pub(crate) fn hold(target: &Target, buffers: u64) {
    let mut client = Client::connect_to(&target.legacy, Vintage::V144);
    // It waits while the daemon reads.
    client.stream.set_write_timeout(None).unwrap();
    client.stream.set_read_timeout(None).unwrap();
    for n in 0..buffers {
        client.alloc((n % 6) as i32, (n % 2) as u8, 0x1000 + n * 64, 64 + n % 1000);
    }
    client.sync();
    eprintln!("ready");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// A service manager that measures the time between two signs of life.
pub(crate) struct ServiceManager {
    folder: TempDir,
    /// When the last sign was received, and the longest time between two.
    signs: Arc<Mutex<(Instant, Duration)>>,
}

impl ServiceManager {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        let signs = Arc::new(Mutex::new((Instant::now(), Duration::ZERO)));
        let shared = signs.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len) = socket.recv(&mut bytes) {
                if String::from_utf8_lossy(&bytes[..len]).contains("WATCHDOG=1") {
                    let mut signs = shared.lock().unwrap();
                    *signs = (Instant::now(), signs.1.max(signs.0.elapsed()));
                }
            }
        });
        Self { folder, signs }
    }

    /// Requires a sign of life from a daemon as often as it ticks.
    pub(crate) fn configure(&self, command: &mut Command) {
        command.env("NOTIFY_SOCKET", self.folder.path().join("notify")).env("WATCHDOG_USEC", "500000");
    }

    pub(crate) fn restart(&self) {
        self.signs.lock().unwrap().1 = Duration::ZERO;
    }

    pub(crate) fn longest_gap(&self) -> Duration {
        let signs = self.signs.lock().unwrap();
        signs.1.max(signs.0.elapsed())
    }
}
