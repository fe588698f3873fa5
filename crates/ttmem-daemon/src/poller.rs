//! What the loop waits for, through epoll.

use rustix::event::{Timespec, epoll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// What wakes the loop. The number of a connection or process is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    LegacyListener,
    QueryListener,
    Signal,
    Legacy(u64),
    Query(u64),
    Process(u64),
    /// The copy of the daemon that computes an answer for a connection.
    Copy(u64),
}

impl Token {
    fn data(self) -> epoll::EventData {
        epoll::EventData::new_u64(match self {
            Self::LegacyListener => 0,
            Self::QueryListener => 1,
            Self::Signal => 2,
            Self::Legacy(number) => number << 3 | 3,
            Self::Query(number) => number << 3 | 4,
            Self::Process(number) => number << 3 | 5,
            Self::Copy(number) => number << 3 | 6,
        })
    }

    /// The token of an event.
    pub(crate) fn of(event: &epoll::Event) -> Self {
        let data = event.data.u64();
        match data & 7 {
            0 => Self::LegacyListener,
            1 => Self::QueryListener,
            3 => Self::Legacy(data >> 3),
            4 => Self::Query(data >> 3),
            5 => Self::Process(data >> 3),
            6 => Self::Copy(data >> 3),
            _ => Self::Signal,
        }
    }
}

/// An epoll instance.
pub(crate) struct Poller(OwnedFd);

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Waits for events, at most for `timeout`, and replaces `events` by them.
    pub(crate) fn wait(&self, events: &mut Vec<epoll::Event>, timeout: Duration) -> io::Result<()> {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        events.clear();
        match epoll::wait(&self.0, rustix::buffer::spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Wakes the loop with `token` when `fd` is readable.
    pub(crate) fn add(&self, fd: impl AsFd, token: Token) -> io::Result<()> {
        Ok(epoll::add(&self.0, fd, token.data(), epoll::EventFlags::IN)?)
    }

    /// Changes whether the loop is woken when `fd` is readable, and when it is writable.
    pub(crate) fn modify(&self, fd: BorrowedFd<'_>, token: Token, readable: bool, writable: bool) {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, readable);
        flags.set(epoll::EventFlags::OUT, writable);
        let _ = epoll::modify(&self.0, fd, token.data(), flags);
    }

    /// Stops waiting for `fd`.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.0, fd);
    }
}
