//! Enabling and ending a tracker.

use super::{ENV_NOT_READ, Tracker, thread_id};
use crate::agent::lookup;
use crate::bus_error;
use crate::identity;
use crate::lock_page::LockPage;
use crate::log;
use crate::options::Options;
use crate::quota;
use crate::segment::GROWTH_BYTES;
use crate::types::Status;
use crate::writer::Writer;
use core::ptr;
use core::sync::atomic::{Ordering, fence};

static GLOBAL: Tracker = Tracker::with_page(ENV_NOT_READ);

/// Ends the process's tracker when the process exits. The loader calls what is in this section after exit handlers and
/// destructors of C++ objects, which still close devices and free buffers; an exit handler would be called before most of
/// them.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = end_global;

extern "C" fn end_global() {
    GLOBAL.end();
}

/// Enabling and ending.
impl Tracker {
    /// Returns the process's tracker. It is on if the environment enables it; see the crate's documentation.
    ///
    /// ```
    /// # use ttmem_client::Tracker;
    /// let tracker: &'static Tracker = Tracker::global();
    /// ```
    pub fn global() -> &'static Self {
        &GLOBAL
    }

    /// Returns a separate tracker, which is on. Its first report creates its segment; dropping it removes the segment.
    ///
    /// ```
    /// # use ttmem_client::{Options, Tracker};
    /// let tracker = Tracker::new(&Options::default().runtime("mymodel 1.2"));
    /// assert!(tracker.is_enabled());
    /// ```
    pub fn new(options: &Options) -> Self {
        let tracker = Self::disabled();
        tracker.enable(options);
        tracker
    }

    /// Returns a separate tracker, which is off until [`Tracker::enable`].
    ///
    /// ```
    /// # use ttmem_client::Tracker;
    /// static TRACKER: Tracker = Tracker::disabled();
    /// assert!(!TRACKER.is_enabled());
    /// ```
    pub const fn disabled() -> Self {
        Self::with_page(ptr::null_mut())
    }

    /// Enables tracking, and returns whether it is on. If it is on already, nothing changes. The segment is created by the first
    /// report.
    ///
    /// The process's tracker stays off if the agent tracks this process, because reports would be counted twice, and is
    /// disabled when the agent starts later; see [`Tracker::status`].
    ///
    /// ```
    /// # use ttmem_client::{Options, Tracker};
    /// let tracker = Tracker::disabled();
    /// assert!(tracker.enable(&Options::default()));
    /// ```
    pub fn enable(&self, options: &Options) -> bool {
        if ptr::eq(self, &raw const GLOBAL) {
            return enable_unless_agent_tracks(options);
        }
        self.enable_unchecked(options);
        self.is_enabled()
    }

    /// Enables tracking, whether the agent tracks this process or not.
    pub(crate) fn enable_unchecked(&self, options: &Options) {
        if let Some(to) = &options.log {
            log::start(to);
        }
        if let (_, Some(why)) = options.ring_records() {
            log::write(&why);
        }
        let before = self.page.load(Ordering::Acquire);
        if !before.is_null() && before != ENV_NOT_READ || self.exiting.load(Ordering::Acquire) {
            return;
        }
        bus_error::keep_loaded();
        let spare = self.spare.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: pages live as long as the tracker.
        let Some(page) = (unsafe { spare.as_ref() }).or_else(LockPage::new) else { return };
        let thread = thread_id();
        // No thread gets the lock before there is a writer. A thread that had it before tracking was closed releases it.
        while page.owner.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed).is_err() {
            rustix::thread::sched_yield();
        }
        page.pid.store(u64::from(identity::pid()), Ordering::Relaxed);
        page.usual.store(0, Ordering::Relaxed);
        let new = ptr::from_ref(page).cast_mut();
        if self.page.compare_exchange(before, new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            page.release();
            self.spare.store(new, Ordering::Release);
            return;
        }
        // A linker takes from an archive only what is referred to.
        core::hint::black_box(&AT_EXIT);
        // SAFETY: this thread has the lock of the page that all threads use from now on.
        unsafe { *self.writer.get() = Writer::new(&options.settings()) };
        page.release();
    }

    /// Returns whether reports are recorded.
    ///
    /// ```
    /// # use ttmem_client::{Options, Tracker};
    /// assert!(Tracker::new(&Options::default()).is_enabled());
    /// ```
    pub fn is_enabled(&self) -> bool {
        self.find_page().is_some()
    }

    #[inline]
    pub(super) fn find_page(&self) -> Option<&'static LockPage> {
        let page = self.page.load(Ordering::Relaxed);
        if page.is_null() {
            return None;
        }
        fence(Ordering::Acquire);
        if page == ENV_NOT_READ {
            return self.read_environment();
        }
        // SAFETY: pages live as long as the tracker.
        Some(unsafe { &*page })
    }

    /// Enables the process's tracker if the environment says so: only that one has [`ENV_NOT_READ`].
    #[cold]
    fn read_environment(&self) -> Option<&'static LockPage> {
        if Options::env_enables_tracking() {
            enable_unless_agent_tracks(&Options::from_env());
        } else {
            self.ignore_environment();
        }
        let page = self.page.load(Ordering::Acquire);
        // SAFETY: pages live as long as the tracker.
        if page.is_null() || page == ENV_NOT_READ { None } else { Some(unsafe { &*page }) }
    }

    /// Stops the environment from enabling this tracker.
    fn ignore_environment(&self) {
        let null = ptr::null_mut();
        let _ = self.page.compare_exchange(ENV_NOT_READ, null, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Retries what failed before: creates a segment that had no space or whose file was removed, lets the table grow, and
    /// sends queued messages to an old server. Updates the heartbeat.
    ///
    /// ```
    /// # use ttmem_client::{Options, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// if tracker.status().segment.is_none() {
    ///     tracker.refresh();
    /// }
    /// ```
    pub fn refresh(&self) {
        // Files are counted outside the lock, which no thread waits for meanwhile.
        let folder = self.event(None, |writer| Ok(writer.folder_to_measure())).unwrap_or_default();
        let growth = folder.map(|folder| quota::measure_growth(folder.as_str(), GROWTH_BYTES));
        let _ = self.event((), |writer| {
            writer.refresh(growth);
            Ok(())
        });
    }

    /// Returns the status of tracking.
    ///
    /// ```
    /// # use ttmem_client::{Buffer, Options, Space, Tracker};
    /// let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// tracker.alloc(&Buffer::new(device, Space::Dram, 0x10_0000, 4096))?;
    /// assert_eq!(tracker.status().live, 1);
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn status(&self) -> Status {
        let mut status = self.event(Status::default(), |writer| Ok(writer.status())).unwrap_or_default();
        if self.yielded.load(Ordering::Relaxed) {
            status.reason = Some("agent already tracks this process".to_owned());
        }
        status
    }

    /// Ends tracking: the tracker is off, and the segment is removed unless it holds a failed allocation. All numbers become
    /// invalid. [`Tracker::enable`] starts again.
    ///
    /// The process's own tracker ends by itself when the process exits, any other one when it is dropped. A process that is
    /// killed leaves its segment as a crash segment.
    ///
    /// ```
    /// # use ttmem_client::{Options, Tracker};
    /// let tracker = Tracker::new(&Options::default());
    /// tracker.close();
    /// assert!(!tracker.is_enabled());
    /// ```
    pub fn close(&self) {
        let _ = self.with_writer((), |writer| {
            writer.close();
            self.generation.fetch_add(1, Ordering::Relaxed);
            let page = self.page.swap(ptr::null_mut(), Ordering::AcqRel);
            // SAFETY: pages live as long as the tracker.
            if let Some(page) = unsafe { page.as_ref() } {
                page.usual.store(0, Ordering::Relaxed);
            }
            self.spare.store(page, Ordering::Release);
            Ok(())
        });
    }

    /// Ends tracking because the process exits, while other threads may still report.
    fn end(&self) {
        self.exiting.store(true, Ordering::Release);
        self.ignore_environment();
        // SAFETY: pages live as long as the tracker.
        let Some(page) = (unsafe { self.page.load(Ordering::Acquire).as_ref() }) else { return };
        // In a forked child that reported nothing, the segment is the parent's.
        if page.pid.load(Ordering::Relaxed) != u64::from(identity::pid()) {
            return;
        }
        let _ = self.with_writer((), |writer| {
            writer.end();
            page.usual.store(0, Ordering::Relaxed);
            self.page.store(ptr::null_mut(), Ordering::Release);
            Ok(())
        });
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        // SAFETY: pages live as long as the tracker.
        if let Some(page) = unsafe { self.page.get_mut().as_ref() } {
            if page.pid.load(Ordering::Relaxed) == u64::from(identity::pid()) {
                self.close();
            } else {
                // In a forked child that reported nothing, the segment is the parent's. Another thread may have been changing the
                // writer when the process forked, so none of its memory is released.
                core::mem::forget(self.writer.get_mut().take());
            }
        }
        for page in [*self.page.get_mut(), *self.spare.get_mut()] {
            if !page.is_null() {
                // SAFETY: the page is this tracker's, and no thread uses the tracker any more.
                unsafe { LockPage::unmap(page) };
            }
        }
    }
}

/// Enables the process's tracker, unless the agent tracks this process. Returns whether it is on.
fn enable_unless_agent_tracks(options: &Options) -> bool {
    extern "C" fn withdraw() {
        GLOBAL.yielded.store(true, Ordering::SeqCst);
        GLOBAL.ignore_environment();
        GLOBAL.close();
    }
    bus_error::keep_loaded();
    if GLOBAL.yielded.load(Ordering::SeqCst) || lookup::agent_tracks(withdraw) {
        withdraw();
        return false;
    }
    GLOBAL.enable_unchecked(options);
    // The agent may have started meanwhile, when there was nothing to close.
    if GLOBAL.yielded.load(Ordering::SeqCst) {
        withdraw();
        return false;
    }
    GLOBAL.is_enabled()
}
