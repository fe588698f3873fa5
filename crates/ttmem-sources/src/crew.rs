//! Threads for work that may never return: while a chip is reset, the kernel can let a reader wait for ten seconds. One
//! thread does everything, until it hangs; then it is left where it is, and another one goes on.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a piece of work may take before somebody else goes on with the rest.
pub(crate) const DEADLINE: Duration = Duration::from_millis(200);
/// Threads that may hang at the same time.
const MOST_THREADS: usize = 128;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// When somebody last took or finished something, and how much was finished so far.
    progress: Option<Instant>,
    finished: u64,
    over: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Who does such work. Threads are started when there is some, and end with this unless they hang.
#[derive(Clone, Default)]
pub(crate) struct Crew(Arc<Shared>);

/// Ends a crew's threads when it is dropped.
#[derive(Default)]
pub(crate) struct Captain(pub(crate) Crew);

impl Drop for Captain {
    fn drop(&mut self) {
        lock(&self.0.0.state).over = true;
        self.0.0.changed.notify_all();
    }
}

pub(crate) fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked left values, and no promise about them was broken.
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Crew {
    /// Has something done, after everything before it.
    pub(crate) fn submit(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = lock(&self.0.state);
        if state.queue.is_empty() {
            state.progress = Some(Instant::now());
        }
        state.queue.push_back(Box::new(job));
        drop(state);
        self.0.changed.notify_all();
        self.keep_going();
    }

    /// Sees to it that somebody works while there is work.
    pub(crate) fn keep_going(&self) {
        let mut state = lock(&self.0.state);
        let hangs = state.progress.is_some_and(|at| at.elapsed() > DEADLINE);
        let needed = !state.queue.is_empty() && state.idle == 0 && (state.threads == 0 || hangs);
        if needed && state.threads < MOST_THREADS {
            state.progress = Some(Instant::now());
            let shared = Arc::clone(&self.0);
            let started = std::thread::Builder::new().name("reader".to_owned()).spawn(move || shared.work());
            state.threads += usize::from(started.is_ok());
        }
    }

    /// Waits until something is so, or the time is over. It is asked again whenever something was finished.
    pub(crate) fn wait(&self, most: Duration, mut done: impl FnMut() -> bool) {
        let until = Instant::now() + most;
        loop {
            let finished = lock(&self.0.state).finished;
            let left = until.saturating_duration_since(Instant::now());
            if done() || left.is_zero() {
                return;
            }
            self.keep_going();
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
        while !state.over {
            if let Some(job) = state.queue.pop_front() {
                state.progress = Some(Instant::now());
                drop(state);
                job();
                state = lock(&self.state);
                state.progress = Some(Instant::now());
                state.finished += 1;
                // Who waits, waits for all of it.
                if state.queue.is_empty() {
                    self.changed.notify_all();
                }
            } else if state.idle > 0 {
                // One is enough to wait for more.
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
    fn work_that_hangs_keeps_nobody_else_from_theirs() {
        let captain = Captain::default();
        let done = Arc::new(AtomicUsize::new(0));
        let (release, held) = channel::<()>();
        captain.0.submit(move || {
            let _ = held.recv();
        });
        for _ in 0..10 {
            let done = Arc::clone(&done);
            captain.0.submit(move || {
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        captain.0.wait(Duration::from_secs(60), || done.load(Ordering::SeqCst) == 10);
        assert_eq!(done.load(Ordering::SeqCst), 10);
        assert_eq!(lock(&captain.0.0.state).threads, 2);
        drop(release);
        // Whoever comes back finds another one waiting, and is not needed any more.
        captain.0.wait(Duration::from_secs(60), || lock(&captain.0.0.state).threads == 1);
        assert_eq!(lock(&captain.0.0.state).threads, 1);
    }
}
