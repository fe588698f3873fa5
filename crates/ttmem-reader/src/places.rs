//! Where the machine is, who is asked about it, and where processes publish.

use crate::{Error, Result};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use ttmem_core::machine::Host;
use ttmem_sources::{Root, SourceConfig, topology};

/// Where figures come from.
#[derive(Clone, Debug)]
pub struct Places {
    /// Ask no daemon.
    pub local: bool,
    /// The folder that the machine's files lie below; if it is not `/`, no daemon is asked.
    pub root: PathBuf,
    /// A cluster descriptor, as tt-umd writes it; if there is one, no daemon is asked.
    pub topology: Option<PathBuf>,
    /// The folder of segments and counters; `/dev/shm` below the root if it is not said.
    pub folder: Option<PathBuf>,
    /// The daemon's socket; without it, those where one may be are tried.
    pub query_socket: Option<PathBuf>,
}

impl Default for Places {
    fn default() -> Self {
        Self { local: false, root: PathBuf::from("/"), topology: None, folder: None, query_socket: None }
    }
}

impl Places {
    /// What the environment says: `TTMEM_TOPOLOGY`, `TTMEM_SHM_DIR`, `TTMEM_QUERY_SOCKET`, as for the program.
    pub fn from_env() -> Self {
        let get = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self {
            topology: get("TTMEM_TOPOLOGY"),
            folder: get("TTMEM_SHM_DIR"),
            query_socket: get("TTMEM_QUERY_SOCKET"),
            ..Self::default()
        }
    }

    /// Whether this process must look itself.
    pub fn is_local(&self) -> bool {
        self.local || self.topology.is_some() || self.root != Path::new("/")
    }

    /// The folder of segments and counters.
    pub fn folder(&self) -> PathBuf {
        self.folder.clone().unwrap_or_else(|| Root::new(&self.root).path("/dev/shm"))
    }

    /// What to read, and where.
    pub fn reading(&self) -> Result<SourceConfig> {
        Ok(SourceConfig {
            root: Root::new(&self.root),
            folder: self.folder(),
            machine: true,
            topology: self.topology.as_deref().map(read_topology).transpose()?,
            repeated: false,
            thorough: true,
            host: self.host(),
        })
    }

    /// The machine that is shown.
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

/// This machine, and this version.
pub fn host() -> Host {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Host { name: Some(name), ttmem: env!("CARGO_PKG_VERSION").to_owned(), driver: None }
}
