//! Who has a chip open. New drivers say so in a file for each chip; with old ones every process's descriptors are looked
//! at, as far as we may.

use crate::process::{Owner, Processes};
use crate::root::Root;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// As much of a list as is read: a line for each open descriptor.
const MOST_BYTES: usize = 64 << 10;
/// How often all processes' descriptors are looked at, where that is needed.
const SCAN_EVERY: Duration = Duration::from_secs(2);
/// Descriptors that are looked at in one process.
const MOST_DESCRIPTORS: usize = 1 << 16;

/// Nodes, by the pids that have them open.
pub(crate) type Opened = BTreeMap<u32, BTreeSet<u32>>;

#[derive(Debug, Default)]
pub(crate) struct Openers {
    root: Root,
    lists: BTreeMap<u32, File>,
    scanned: Option<(Instant, Opened)>,
}

/// What a look found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) opened: Opened,
    /// Who they are.
    pub(crate) who: BTreeMap<u32, Owner>,
    /// By node: descriptors of processes that cannot be seen from here.
    pub(crate) unseen: BTreeMap<u32, usize>,
}

impl Openers {
    pub(crate) fn new(root: &Root) -> Self {
        Self { root: root.clone(), ..Self::default() }
    }

    pub(crate) fn look(&mut self, nodes: impl Iterator<Item = u32>, processes: &Processes) -> Found {
        let mut found = Found::default();
        let mut untold = BTreeSet::new();
        let mut asked: BTreeMap<u32, Option<Owner>> = BTreeMap::new();
        for node in nodes {
            let Some(list) = self.list(node) else {
                untold.insert(node);
                continue;
            };
            for pid in list {
                if pid == 0 {
                    *found.unseen.entry(node).or_default() += 1;
                } else if asked.entry(pid).or_insert_with(|| processes.who(pid)).is_some() {
                    found.opened.entry(pid).or_default().insert(node);
                } else if processes.hides(pid) {
                    *found.unseen.entry(node).or_default() += 1;
                } else {
                    // It opened the chip and ended; a child that has it open still is not named.
                    untold.insert(node);
                }
            }
        }
        if !untold.is_empty() {
            let now = Instant::now();
            let fresh = self.scanned.as_ref().is_some_and(|(at, _)| now.duration_since(*at) < SCAN_EVERY);
            if !fresh {
                self.scanned = Some((now, scan(&self.root, processes)));
            }
            for (&pid, open) in self.scanned.iter().flat_map(|(_, opened)| opened) {
                let of = found.opened.entry(pid).or_default();
                of.extend(open.intersection(&untold));
            }
            found.opened.retain(|_, nodes| !nodes.is_empty());
        }
        for &pid in found.opened.keys() {
            let who = asked.remove(&pid).flatten().or_else(|| processes.who(pid));
            found.who.extend(who.map(|who| (pid, who)));
        }
        found
    }

    /// The pids in a driver's list; `None`: it has none.
    fn list(&mut self, node: u32) -> Option<Vec<u32>> {
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
            let whole = loop {
                match file.read_at(&mut bytes[len..], len as u64) {
                    Ok(0) => break true,
                    Ok(more) => len += more,
                    Err(_) => break false,
                }
                if len == bytes.len() {
                    if len >= MOST_BYTES {
                        break true;
                    }
                    bytes.resize(2 * len, 0);
                }
            };
            if whole {
                if len >= MOST_BYTES {
                    // The last line may be cut, and half a number is another's.
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

    /// Lets go of what belongs to chips that are gone.
    pub(crate) fn forget(&mut self, nodes: &BTreeSet<u32>) {
        self.lists.retain(|node, _| nodes.contains(node));
        self.scanned = None;
    }
}

fn scan(root: &Root, processes: &Processes) -> Opened {
    let mut opened = Opened::new();
    for pid in processes.all() {
        let Ok(descriptors) = fs::read_dir(root.of_process(pid, "fd")) else { continue };
        for descriptor in descriptors.flatten().take(MOST_DESCRIPTORS) {
            let Ok(target) = fs::read_link(descriptor.path()) else { continue };
            let node = target.to_str().and_then(|it| it.strip_prefix("/dev/tenstorrent/")?.parse().ok());
            if let Some(node) = node {
                opened.entry(pid).or_default().insert(node);
            }
        }
    }
    opened
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_too_long_is_cut_between_two_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("proc/driver/tenstorrent/0");
        fs::create_dir_all(&list).unwrap();
        // Its last line that is read begins two bytes before the end.
        let mut lines = "500000\n".repeat(MOST_BYTES / 7);
        assert_eq!(lines.len(), MOST_BYTES - 2);
        lines.push_str("123456\n");
        fs::write(list.join("pids"), lines).unwrap();
        let pids = Openers::new(&Root::new(folder.path())).list(0).unwrap();
        assert!(pids.iter().all(|&pid| pid == 500_000));
        assert_eq!(pids.len(), MOST_BYTES / 7);
    }
}
