//! Where a reader finds the machine, its daemon and shared memory.

use crate::{Error, Result};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use ttmem_core::machine::Host;
use ttmem_sources::{Root, SourceConfig, topology};

/// Where a reader finds the machine, its daemon and shared memory.
#[derive(Clone, Debug)]
pub struct ReaderOptions {
    /// Ask no daemon.
    pub local: bool,
    /// The folder below which the machine's files are; if it is not `/`, no daemon is asked.
    pub root: PathBuf,
    /// A cluster descriptor, as tt-umd writes it; if there is one, no daemon is asked.
    pub topology: Option<PathBuf>,
    /// The folder of segments and counters; by default `/dev/shm` below the root.
    pub folder: Option<PathBuf>,
    /// The daemon's socket; by default the usual ones are tried.
    pub query_socket: Option<PathBuf>,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self { local: false, root: PathBuf::from("/"), topology: None, folder: None, query_socket: None }
    }
}

impl ReaderOptions {
    /// Reads the program's environment variables: `TTMEM_TOPOLOGY`, `TTMEM_SHM_DIR`, `TTMEM_QUERY_SOCKET`.
    pub fn from_env() -> Self {
        let get = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self {
            topology: get("TTMEM_TOPOLOGY"),
            folder: get("TTMEM_SHM_DIR"),
            query_socket: get("TTMEM_QUERY_SOCKET"),
            ..Self::default()
        }
    }

    /// Whether the machine is read by this process, without a daemon.
    pub fn is_local(&self) -> bool {
        self.local || self.topology.is_some() || self.root != Path::new("/")
    }

    /// The folder of segments and counters.
    pub fn folder(&self) -> PathBuf {
        self.folder.clone().unwrap_or_else(|| Root::new(&self.root).path("/dev/shm"))
    }

    /// The sources to read, for one poll.
    pub fn source_config(&self) -> Result<SourceConfig> {
        Ok(SourceConfig {
            root: Root::new(&self.root),
            folder: self.folder(),
            machine: true,
            topology: self.topology.as_deref().map(read_topology).transpose()?,
            repeated: false,
            thorough: true,
            host: self.host(),
            run: None,
        })
    }

    /// The name of the machine that is read.
    fn host(&self) -> Host {
        let root = Root::new(&self.root);
        if root.is_this_machine() {
            return host();
        }
        let read = |path| std::fs::read_to_string(root.path(path)).ok();
        let name = read("/proc/sys/kernel/hostname").or_else(|| read("/etc/hostname"));
        Host { name: name.map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()), ..host() }
    }
}

fn read_topology(path: &Path) -> Result<topology::Topology> {
    let read = || -> std::result::Result<_, Box<dyn std::error::Error + Send + Sync>> {
        let mut text = String::new();
        File::open(path)?.take(topology::MAX_TEXT as u64 + 1).read_to_string(&mut text)?;
        Ok(topology::parse(&text)?)
    };
    read().map_err(|source| Error::Topology { path: path.to_owned(), source })
}

/// The name of this machine, and ttmem's version.
pub fn host() -> Host {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Host { name: Some(name), ttmem: env!("CARGO_PKG_VERSION").to_owned(), driver: None }
}
