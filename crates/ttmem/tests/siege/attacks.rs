//! The attacks, each with many connections of one process.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use ttmem_testkit::message;
use ttmem_wire::legacy::{MAX_SIZE, Type, Vintage};

/// The sockets of a daemon.
pub(crate) struct Target {
    pub(crate) query: PathBuf,
    pub(crate) legacy: PathBuf,
}

/// An attack on one connection, until a time.
type Attack = fn(&Target, Instant) -> std::io::Result<()>;

/// Attacks by name. Each runs on [`CONNECTIONS`] threads.
pub(crate) const ATTACKS: [(&str, Attack); 7] = [
    ("lists", |target, end| query(target, end, LIST)),
    ("snapshots", |target, end| query(target, end, SNAPSHOT)),
    ("dumps", |target, end| query(target, end, DUMP)),
    ("unread", unread),
    ("hang up", hang_up),
    ("idle", idle),
    ("messages", messages),
];

const CONNECTIONS: usize = 60;
/// Idle connections of each thread.
const IDLE: usize = 20;

const SNAPSHOT: &[u8] = b"{\"get\":\"snapshot\"}\n";
const DUMP: &[u8] = b"{\"get\":\"allocations\"}\n";
const LIST: &[u8] =
    b"{\"get\":\"snapshot\",\"buffers\":{\"sort\":\"age\",\"offset\":4000000,\"text\":\"dram 1\",\"limit\":1000}}\n";

/// Runs an attack for a time.
pub(crate) fn run(name: &str, target: &Target, time: Duration) {
    let (_, attack) = ATTACKS.iter().find(|(it, _)| *it == name).unwrap();
    let end = Instant::now() + time;
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                while Instant::now() < end {
                    // The daemon may hang up at any time.
                    if attack(target, end).is_err() {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
            });
        }
    });
}

fn connect(path: &PathBuf, end: Instant) -> std::io::Result<UnixStream> {
    let stream = UnixStream::connect(path)?;
    let rest = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    stream.set_read_timeout(Some(rest))?;
    stream.set_write_timeout(Some(rest))?;
    Ok(stream)
}

/// Requests and reads, as fast as the daemon answers.
fn query(target: &Target, end: Instant, request: &[u8]) -> std::io::Result<()> {
    let mut stream = connect(&target.query, end)?;
    let mut bytes = vec![0; 64 << 10];
    while Instant::now() < end {
        stream.write_all(request)?;
        loop {
            let len = stream.read(&mut bytes)?;
            if len == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            if bytes[..len].ends_with(b"\n") {
                break;
            }
        }
    }
    Ok(())
}

/// Requests and reads nothing.
fn unread(target: &Target, end: Instant) -> std::io::Result<()> {
    let mut stream = connect(&target.query, end)?;
    for request in [LIST, DUMP, SNAPSHOT].iter().cycle().take(100) {
        stream.write_all(request)?;
    }
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    Ok(())
}

/// Requests a list and hangs up at once.
fn hang_up(target: &Target, end: Instant) -> std::io::Result<()> {
    connect(&target.query, end)?.write_all(LIST)
}

/// Holds connections of old clients that send nothing.
fn idle(target: &Target, end: Instant) -> std::io::Result<()> {
    let held: Vec<UnixStream> =
        (0..IDLE).map(|_| connect(&target.legacy, end)).collect::<std::io::Result<_>>()?;
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    drop(held);
    Ok(())
}

/// Allocates and frees as an old client, as fast as the daemon reads.
fn messages(target: &Target, end: Instant) -> std::io::Result<()> {
    let mut stream = connect(&target.legacy, end)?;
    let (mut bytes, mut buffer) = (Vec::new(), [0; MAX_SIZE]);
    for kind in [Type::Alloc, Type::Free].into_iter().cycle().take(1000) {
        bytes.extend_from_slice(message(kind, 1, 0, 0x1000, 64).encode(Vintage::V144, &mut buffer));
    }
    while Instant::now() < end {
        stream.write_all(&bytes)?;
    }
    Ok(())
}
