//! Settings of a tracker.

use crate::identity::{self, variable};
use crate::segment::DEFAULT_RING;
use crate::text::Text;
use crate::writer::Settings;
use ttmem_wire::segment::MAX_RING;

/// Fewest records of a ring that can be chosen.
const MIN_RING: u32 = 1024;

/// How events leave the process.
///
/// ```
/// use ttmem_client::{Options, Transport};
///
/// let options = Options::default().transport(Transport::Legacy("/tmp/tt_allocation_server.sock".to_owned()));
/// assert_ne!(options.transport, Transport::Segment);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// Through a segment.
    #[default]
    Segment,
    /// As messages to an old server on this socket.
    Legacy(String),
}

/// Settings of a tracker.
///
/// ```
/// use ttmem_client::{Options, Tracker};
///
/// let options = Options::default().folder("/dev/shm").runtime("mymodel 1.2");
/// let tracker = Tracker::new(&options);
/// assert!(tracker.is_enabled());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Folder for segments. It must be in memory: a `tmpfs`.
    pub folder: String,
    /// Group that may read the segment.
    pub group: Option<u32>,
    /// Name of the writer, for display: `ttmem-agent 0.1.0`.
    pub writer: String,
    /// Name of the tracked runtime, for display: `ttnn 0.81.1`.
    pub runtime: String,
    /// How events leave the process.
    pub transport: Transport,
    /// Where to log problems: `stderr` or a file. Nothing is logged otherwise.
    pub log: Option<String>,
    /// Records that the segment's ring holds, a power of two between 1,024 and 1,048,576; 16,384 by default. Other numbers are
    /// rounded up. A reader that polls seldom misses no single event of a larger ring; each record takes 64 bytes.
    pub ring: Option<u32>,
    /// What `TTMEM_RING` is set to, if that is not a number.
    unreadable_ring: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            folder: "/dev/shm".to_owned(),
            group: None,
            writer: concat!("ttmem-client ", env!("CARGO_PKG_VERSION")).to_owned(),
            runtime: String::new(),
            transport: Transport::Segment,
            log: None,
            ring: None,
            unreadable_ring: None,
        }
    }
}

impl Options {
    /// Returns whether the environment enables tracking: `TTMEM` or `TT_ALLOC_TRACKING_ENABLED` is set and not 0.
    ///
    /// ```
    /// use ttmem_client::{Options, Tracker};
    ///
    /// if Options::env_enables_tracking() {
    ///     let tracker = Tracker::new(&Options::from_env());
    /// }
    /// ```
    pub fn env_enables_tracking() -> bool {
        let is_set = |name: &str| variable(name).is_some_and(|value| value != "0");
        is_set("TTMEM") || is_set("TT_ALLOC_TRACKING_ENABLED")
    }

    /// Returns the settings of the environment, whether it enables tracking or not.
    ///
    /// ```
    /// use ttmem_client::Options;
    ///
    /// let options = Options::from_env().runtime("mymodel 1.2");
    /// assert_eq!(options.runtime, "mymodel 1.2");
    /// ```
    pub fn from_env() -> Self {
        let mut options = Self::default();
        if let Some(folder) = variable("TTMEM_SHM_DIR") {
            options.folder = folder;
        }
        options.group = variable("TTMEM_GROUP").and_then(|group| group.parse().ok());
        options.log = variable("TTMEM_LOG");
        if let Some(text) = variable("TTMEM_RING") {
            match text.parse::<u64>() {
                Ok(records) => options.ring = Some(u32::try_from(records).unwrap_or(u32::MAX)),
                Err(_) => options.unreadable_ring = Some(text),
            }
        }
        if variable("TTMEM_TRANSPORT").is_some_and(|value| value == "legacy") {
            let path = variable("TTMEM_LEGACY_SOCKET");
            let path = path.unwrap_or_else(|| ttmem_wire::legacy::SOCKET_PATH.to_owned());
            options.transport = Transport::Legacy(path);
        }
        options
    }

    /// Sets the folder for segments.
    ///
    /// ```
    /// # use ttmem_client::Options;
    /// assert_eq!(Options::default().folder("/run/ttmem").folder, "/run/ttmem");
    /// ```
    #[must_use]
    pub fn folder(mut self, folder: impl Into<String>) -> Self {
        self.folder = folder.into();
        self
    }

    /// Sets the group that may read the segment.
    ///
    /// ```
    /// # use ttmem_client::Options;
    /// assert_eq!(Options::default().group(100).group, Some(100));
    /// ```
    #[must_use]
    pub fn group(mut self, group: u32) -> Self {
        self.group = Some(group);
        self
    }

    /// Sets the name of the writer.
    ///
    /// ```
    /// # use ttmem_client::Options;
    /// assert_eq!(Options::default().writer("mymodel 1.2").writer, "mymodel 1.2");
    /// ```
    #[must_use]
    pub fn writer(mut self, writer: impl Into<String>) -> Self {
        self.writer = writer.into();
        self
    }

    /// Sets the name of the tracked runtime.
    ///
    /// ```
    /// # use ttmem_client::Options;
    /// assert_eq!(Options::default().runtime("ttnn 0.81.1").runtime, "ttnn 0.81.1");
    /// ```
    #[must_use]
    pub fn runtime(mut self, runtime: impl Into<String>) -> Self {
        self.runtime = runtime.into();
        self
    }

    /// Sets how events leave the process.
    ///
    /// ```
    /// # use ttmem_client::{Options, Transport};
    /// assert_eq!(Options::default().transport(Transport::Segment), Options::default());
    /// ```
    #[must_use]
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Sets where to log problems: `stderr` or a file.
    ///
    /// ```
    /// # use ttmem_client::Options;
    /// assert_eq!(Options::default().log("stderr").log.as_deref(), Some("stderr"));
    /// ```
    #[must_use]
    pub fn log(mut self, log: impl Into<String>) -> Self {
        self.log = Some(log.into());
        self
    }

    /// Sets how many records the segment's ring holds.
    ///
    /// ```
    /// # use ttmem_client::Options;
    /// assert_eq!(Options::default().ring(65_536).ring, Some(65_536));
    /// ```
    #[must_use]
    pub fn ring(mut self, records: u32) -> Self {
        self.ring = Some(records);
        self
    }

    /// Returns how many records the ring holds, and what to log if that is not what was requested.
    pub(crate) fn ring_records(&self) -> (u32, Option<String>) {
        if let Some(text) = self.unreadable_ring.as_ref().filter(|_| self.ring.is_none()) {
            let why = format!("TTMEM_RING={text} is not a number of records; the ring has {DEFAULT_RING}");
            return (DEFAULT_RING, Some(why));
        }
        let Some(wanted) = self.ring else { return (DEFAULT_RING, None) };
        let records = wanted.clamp(MIN_RING, MAX_RING).next_power_of_two();
        let why = format!(
            "a ring of {wanted} records is not possible (a power of two from {MIN_RING} to {MAX_RING}); it has {records}"
        );
        (records, (records != wanted).then_some(why))
    }

    /// Returns the settings in the form that a writer keeps, without heap memory.
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings {
            folder: Text::new(),
            group: self.group,
            writer: Text::new(),
            runtime: Text::new(),
            hooks: [0; 2],
            legacy: None,
            ring: self.ring_records().0,
            run: identity::run(),
        };
        // A path that is too long is dropped: cut, it would be another path.
        if self.folder.len() <= 200 {
            settings.folder.push(format_args!("{}", self.folder));
        }
        settings.writer.push(format_args!("{}", self.writer));
        settings.runtime.push(format_args!("{}", self.runtime));
        if let Transport::Legacy(path) = &self.transport {
            let mut text = Text::new();
            // An empty path cannot be connected to.
            if path.len() <= 107 {
                text.push(format_args!("{path}"));
            }
            settings.legacy = Some(text);
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_is_rounded_up_with_a_message() {
        let ring = |wanted| Options::default().ring(wanted).ring_records();
        assert_eq!(Options::default().ring_records(), (16_384, None));
        for exact in [1024, 16_384, 1 << 20] {
            assert_eq!(ring(exact), (exact, None));
        }
        for (wanted, records) in [(0, 1024), (1025, 2048), (100_000, 131_072), (u32::MAX, 1 << 20)] {
            let (got, why) = ring(wanted);
            assert_eq!(got, records, "{wanted}");
            assert!(why.unwrap().contains(&wanted.to_string()));
        }
        let unreadable = Options { unreadable_ring: Some("many".to_owned()), ..Options::default() };
        let (records, why) = unreadable.ring_records();
        assert_eq!(records, 16_384);
        assert_eq!(why.unwrap(), "TTMEM_RING=many is not a number of records; the ring has 16384");
        assert_eq!(unreadable.ring(2048).ring_records(), (2048, None), "the program's choice counts");
    }
}
