//! Threads for reads that may hang: while a chip is reset, the kernel can block a reader for ten seconds.
//!
//! One thread runs all jobs until one of them hangs; then that thread is left blocked, and another takes the rest.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a job may take before another thread takes the jobs behind it.
pub(crate) const DEADLINE: Duration = Duration::from_millis(200);
/// Threads that may hang at the same time.
const MAX_THREADS: usize = 128;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// When a job was last started or finished.
    progress: Option<Instant>,
    /// Jobs finished so far.
    finished: u64,
    shut_down: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A queue of jobs and the threads that run them. Threads are started when there are jobs.
#[derive(Clone, Default)]
pub(crate) struct WorkerPool(Arc<Shared>);

/// Ends a pool's threads when it is dropped, except those that hang.
#[derive(Default)]
pub(crate) struct PoolGuard(pub(crate) WorkerPool);

impl Drop for PoolGuard {
    fn drop(&mut self) {
        lock(&self.0.0.state).shut_down = true;
        self.0.0.changed.notify_all();
    }
}

/// Locks a mutex. Poisoning is harmless: the data is plain.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WorkerPool {
    /// Queues a job behind all others.
    pub(crate) fn submit(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = lock(&self.0.state);
        if state.queue.is_empty() {
            state.progress = Some(Instant::now());
        }
        state.queue.push_back(Box::new(job));
        drop(state);
        self.0.changed.notify_all();
        self.start_thread_if_needed();
    }

    /// Starts a thread if jobs wait and no thread makes progress.
    pub(crate) fn start_thread_if_needed(&self) {
        let mut state = lock(&self.0.state);
        let hangs = state.progress.is_some_and(|at| at.elapsed() > DEADLINE);
        let needed = !state.queue.is_empty() && state.idle == 0 && (state.threads == 0 || hangs);
        if needed && state.threads < MAX_THREADS {
            state.progress = Some(Instant::now());
            let shared = Arc::clone(&self.0);
            let started = std::thread::Builder::new().name("reader".to_owned()).spawn(move || shared.work());
            state.threads += usize::from(started.is_ok());
        }
    }

    /// Waits until `done` returns true, or `timeout` is over. `done` is called when the queue becomes empty, and at short
    /// intervals.
    pub(crate) fn wait(&self, timeout: Duration, mut done: impl FnMut() -> bool) {
        let until = Instant::now() + timeout;
        loop {
            let finished = lock(&self.0.state).finished;
            let left = until.saturating_duration_since(Instant::now());
            if done() || left.is_zero() {
                return;
            }
            self.start_thread_if_needed();
            let state = lock(&self.0.state);
            if state.finished == finished {
                let step = left.min(DEADLINE / 4);
                drop(self.0.changed.wait_timeout(state, step).unwrap_or_else(PoisonError::into_inner));
            }
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut state = lock(&self.state);
        while !state.shut_down {
            if let Some(job) = state.queue.pop_front() {
                state.progress = Some(Instant::now());
                drop(state);
                job();
                state = lock(&self.state);
                state.progress = Some(Instant::now());
                state.finished += 1;
                // `wait` is used to wait for the whole queue.
                if state.queue.is_empty() {
                    self.changed.notify_all();
                }
            } else if state.idle > 0 {
                // One idle thread is enough.
                break;
            } else {
                state.idle += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
        state.threads -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    #[test]
    fn hung_job_does_not_block_others() {
        let guard = PoolGuard::default();
        let done = Arc::new(AtomicUsize::new(0));
        let (release, held) = channel::<()>();
        guard.0.submit(move || {
            let _ = held.recv();
        });
        for _ in 0..10 {
            let done = Arc::clone(&done);
            guard.0.submit(move || {
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        guard.0.wait(Duration::from_secs(60), || done.load(Ordering::SeqCst) == 10);
        assert_eq!(done.load(Ordering::SeqCst), 10);
        assert_eq!(lock(&guard.0.0.state).threads, 2);
        drop(release);
        // The released thread finds another one idle, and ends.
        guard.0.wait(Duration::from_secs(60), || lock(&guard.0.0.state).threads == 1);
        assert_eq!(lock(&guard.0.0.state).threads, 1);
    }
}
