//! What users may see of each other's processes: the one place that makes a [`Viewer`] of a peer.

use crate::socket::{self, Peer};
use std::fs;
use std::os::fd::BorrowedFd;
use ttmem_core::{Access, Viewer};

/// What the daemon shows of a process to other users. Its own user and root see everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// Members of this group see everything.
    pub group: Option<u32>,
    /// All users see everything but the arguments of programs.
    pub all: bool,
}

/// Decides what peers may see.
#[derive(Debug)]
pub(crate) struct Viewers {
    sharing: Sharing,
    /// The group to which `/proc` shows all processes, if it hides them from other users.
    exempt_group: Option<u32>,
    /// The number under which the kernel shows every user that has none in this process's namespace.
    ambiguous_uid: Option<u32>,
}

impl Viewers {
    /// Reads how this machine hides processes.
    pub(crate) fn new(sharing: Sharing) -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let users = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        // In the initial namespace, every user has a number.
        let sees_all_users = users.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
        let overflow = || fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?.trim().parse().ok();
        let ambiguous_uid = if sees_all_users { None } else { overflow() };
        Self { sharing, exempt_group: exempt_group(&mounts), ambiguous_uid }
    }

    /// What the peer of a connection may see, by its credentials when it connected. Those of a later message do not count: a
    /// program with other rights may have the socket as its output.
    pub(crate) fn of(&self, socket: BorrowedFd<'_>, peer: Peer) -> Viewer {
        let is_member = |group: u32| socket::peer_groups(socket).contains(&group);
        if peer.uid == 0 || self.sharing.group.is_some_and(is_member) {
            return Viewer::ALL;
        }
        let hides = self.exempt_group.is_some_and(|group| !is_member(group));
        let others = match (hides, self.sharing.all) {
            (true, _) => Access::Anonymous,
            (false, true) => Access::NoArguments,
            (false, false) => Access::Sums,
        };
        // Several users may have this number; no process has the other one.
        let is_ambiguous = self.ambiguous_uid == Some(peer.uid);
        Viewer::user(if is_ambiguous { u32::MAX } else { peer.uid }, others)
    }
}

/// The group to which `/proc` shows all processes; `None`: it shows them to all users. `mounts` is the text of `mountinfo`, where the
/// last mount covers the others.
fn exempt_group(mounts: &str) -> Option<u32> {
    let proc = mounts.lines().rfind(|line| line.split(' ').nth(4) == Some("/proc"))?;
    let (_, filesystem) = proc.split_once(" - ")?;
    let mut options = filesystem.rsplit(' ').next()?.split(',');
    let mode = options.clone().find_map(|it| it.strip_prefix("hidepid="));
    let group = options.find_map(|it| it.strip_prefix("gid=")?.parse().ok());
    mode.filter(|mode| !matches!(*mode, "0" | "off")).map(|_| group.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_processes_follow_from_mount_options() {
        let mounts = |options: &str| {
            format!(
                "22 1 8:1 / / rw - ext4 /dev/sda rw\n24 22 0:22 / /proc rw,nosuid - proc proc {options}\n"
            )
        };
        assert_eq!(exempt_group(&mounts("rw")), None);
        assert_eq!(exempt_group(&mounts("rw,hidepid=off")), None);
        assert_eq!(exempt_group(&mounts("rw,hidepid=invisible")), Some(0));
        assert_eq!(exempt_group(&mounts("rw,gid=5,hidepid=2")), Some(5));
        assert_eq!(exempt_group(&(mounts("rw,hidepid=2") + &mounts("rw"))), None);
        assert_eq!(exempt_group(""), None);
    }
}
