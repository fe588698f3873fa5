//! The files that the kernel shows of a process.

use super::USERS;

/// A simulated process.
#[derive(Clone, Debug)]
pub struct FakeProcess {
    /// Pid on the host.
    pub pid: u32,
    /// Name, up to 15 bytes of any kind.
    pub name: String,
    /// The command line's arguments.
    pub command: Vec<String>,
    /// The user's id.
    pub uid: u32,
    /// Start time, in clock ticks since boot.
    pub start: u64,
    /// Open device nodes, once for each descriptor.
    pub opens: Vec<u32>,
    /// Number of its container, and its pid there.
    pub container: Option<(u32, u32)>,
}

impl FakeProcess {
    /// A process of an ordinary user, with some nodes open.
    pub fn new(pid: u32, name: &str, opens: &[u32]) -> Self {
        assert!(name.len() < 16, "the kernel keeps no more of a name");
        Self {
            pid,
            name: name.to_owned(),
            command: vec![name.to_owned()],
            uid: USERS[1].1,
            start: u64::from(pid) * 100,
            opens: opens.to_vec(),
            container: None,
        }
    }

    pub(super) fn files(&self) -> [(&'static str, String); 5] {
        let Self { pid, name, uid, start, .. } = self;
        let inner = self.container.map_or(String::new(), |(_, pid)| format!("\t{pid}"));
        let group = self.container.map_or("user.slice".to_owned(), |(number, _)| {
            format!("system.slice/docker-{number:064x}.scope")
        });
        let zeros = "0 ".repeat(29);
        [
            // The start is the 22nd of 52 fields.
            ("stat", format!("{pid} ({name}) S 1{} {start} {zeros}0\n", " 0".repeat(17))),
            (
                "status",
                format!(
                    "Name:\t{name}\nState:\tS (sleeping)\nTgid:\t{pid}\nPid:\t{pid}\nPPid:\t1\n\
                     Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{uid}\t{uid}\t{uid}\t{uid}\n\
                     NStgid:\t{pid}{inner}\nNSpid:\t{pid}{inner}\nThreads:\t1\n"
                ),
            ),
            ("comm", format!("{name}\n")),
            ("cmdline", self.command.iter().flat_map(|word| [word, "\0"]).collect()),
            ("cgroup", format!("0::/{group}\n")),
        ]
    }

    pub(super) fn links(&self) -> Vec<(String, String)> {
        // The host's namespaces have fixed numbers; the kernel numbers others as they are created.
        let namespace = |own: u32| self.container.map_or(own, |(number, _)| own + 1000 + 2 * number);
        let opened = self.opens.iter().map(|node| format!("/dev/tenstorrent/{node}"));
        let descriptors = std::iter::repeat_n("/dev/null".to_owned(), 3).chain(opened).enumerate();
        let mut links: Vec<_> = descriptors.map(|(fd, target)| (format!("fd/{fd}"), target)).collect();
        links.push(("ns/pid".to_owned(), format!("pid:[{}]", namespace(4_026_531_836))));
        links.push(("ns/mnt".to_owned(), format!("mnt:[{}]", namespace(4_026_531_841))));
        links
    }
}
