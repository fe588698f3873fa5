//! Finds the processes that have a chip open. New drivers list them in a file for each chip; with old ones the descriptors of
//! every process are read, as far as permissions allow.

use crate::process::{ProcessIdentity, Processes};
use crate::root::Root;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Longest part of a driver's list that is read. It has a line for each open descriptor.
const MAX_BYTES: usize = 64 << 10;
/// Time between two scans of all processes' descriptors.
const SCAN_INTERVAL: Duration = Duration::from_secs(2);
/// Descriptors that are read of one process.
const MAX_DESCRIPTORS: usize = 1 << 16;

/// By pid, the numbers of the device nodes that the process has open.
pub(crate) type OpenNodes = BTreeMap<u32, BTreeSet<u32>>;

/// Reads which processes have chips open.
#[derive(Debug, Default)]
pub(crate) struct DeviceUsers {
    root: Root,
    /// The driver's lists, by node.
    lists: BTreeMap<u32, File>,
    /// The last scan of descriptors.
    scanned: Option<(Instant, OpenNodes)>,
}

/// The processes that have chips open.
#[derive(Debug, Default)]
pub(crate) struct FoundUsers {
    pub(crate) open_nodes: OpenNodes,
    /// The visible ones among them, by pid.
    pub(crate) identities: BTreeMap<u32, ProcessIdentity>,
    /// By node: open descriptors of processes that are not visible from here.
    pub(crate) hidden: BTreeMap<u32, usize>,
}

impl DeviceUsers {
    pub(crate) fn new(root: &Root) -> Self {
        Self { root: root.clone(), ..Self::default() }
    }

    /// Finds the processes that have any of these nodes open.
    pub(crate) fn find(&mut self, nodes: impl Iterator<Item = u32>, processes: &Processes) -> FoundUsers {
        let mut found = FoundUsers::default();
        let mut unlisted = BTreeSet::new();
        let mut identified: BTreeMap<u32, Option<ProcessIdentity>> = BTreeMap::new();
        for node in nodes {
            let Some(list) = self.read_list(node) else {
                unlisted.insert(node);
                continue;
            };
            for pid in list {
                if pid == 0 {
                    *found.hidden.entry(node).or_default() += 1;
                } else if identified.entry(pid).or_insert_with(|| processes.identify(pid)).is_some() {
                    found.open_nodes.entry(pid).or_default().insert(node);
                } else if processes.is_hidden(pid) {
                    *found.hidden.entry(node).or_default() += 1;
                } else {
                    // It opened the chip and exited; a child that inherited the descriptor is not in the list.
                    unlisted.insert(node);
                }
            }
        }
        if !unlisted.is_empty() {
            let now = Instant::now();
            let fresh = self.scanned.as_ref().is_some_and(|(at, _)| now.duration_since(*at) < SCAN_INTERVAL);
            if !fresh {
                self.scanned = Some((now, scan_descriptors(&self.root, processes)));
            }
            for (&pid, open) in self.scanned.iter().flat_map(|(_, open_nodes)| open_nodes) {
                let nodes = found.open_nodes.entry(pid).or_default();
                nodes.extend(open.intersection(&unlisted));
            }
            found.open_nodes.retain(|_, nodes| !nodes.is_empty());
        }
        for &pid in found.open_nodes.keys() {
            let identity = identified.remove(&pid).flatten().or_else(|| processes.identify(pid));
            found.identities.extend(identity.map(|identity| (pid, identity)));
        }
        found
    }

    /// The pids in the driver's list of a node; `None` if there is no list.
    fn read_list(&mut self, node: u32) -> Option<Vec<u32>> {
        for _ in 0..2 {
            let file = match self.lists.get(&node) {
                Some(file) => file,
                None => {
                    let path = self.root.path(&format!("/proc/driver/tenstorrent/{node}/pids"));
                    self.lists.entry(node).or_insert(File::open(path).ok()?)
                }
            };
            let mut bytes = vec![0; 4096];
            let mut len = 0;
            let readable = loop {
                match file.read_at(&mut bytes[len..], len as u64) {
                    Ok(0) => break true,
                    Ok(more) => len += more,
                    Err(_) => break false,
                }
                if len == bytes.len() {
                    if len >= MAX_BYTES {
                        break true;
                    }
                    bytes.resize(2 * len, 0);
                }
            };
            if readable {
                if len >= MAX_BYTES {
                    // The last line may be cut, and half a number is another pid.
                    len = bytes.iter().rposition(|&b| b == b'\n').unwrap_or(0);
                }
                let text = String::from_utf8_lossy(&bytes[..len]);
                return Some(text.lines().filter_map(|line| line.trim().parse().ok()).collect());
            }
            // A chip that was plugged in again has a new list.
            self.lists.remove(&node);
        }
        None
    }

    /// Closes the lists of chips that are gone, and forgets the last scan.
    pub(crate) fn retain(&mut self, nodes: &BTreeSet<u32>) {
        self.lists.retain(|node, _| nodes.contains(node));
        self.scanned = None;
    }
}

fn scan_descriptors(root: &Root, processes: &Processes) -> OpenNodes {
    let mut open_nodes = OpenNodes::new();
    for pid in processes.pids() {
        let Ok(descriptors) = fs::read_dir(root.process_file(pid, "fd")) else { continue };
        for descriptor in descriptors.flatten().take(MAX_DESCRIPTORS) {
            let Ok(target) = fs::read_link(descriptor.path()) else { continue };
            let node = target.to_str().and_then(|it| it.strip_prefix("/dev/tenstorrent/")?.parse().ok());
            if let Some(node) = node {
                open_nodes.entry(pid).or_default().insert(node);
            }
        }
    }
    open_nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlong_list_is_cut_between_two_pids() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("proc/driver/tenstorrent/0");
        fs::create_dir_all(&list).unwrap();
        // The last line that is read begins two bytes before the end.
        let mut lines = "500000\n".repeat(MAX_BYTES / 7);
        assert_eq!(lines.len(), MAX_BYTES - 2);
        lines.push_str("123456\n");
        fs::write(list.join("pids"), lines).unwrap();
        let pids = DeviceUsers::new(&Root::new(folder.path())).read_list(0).unwrap();
        assert!(pids.iter().all(|&pid| pid == 500_000));
        assert_eq!(pids.len(), MAX_BYTES / 7);
    }
}
