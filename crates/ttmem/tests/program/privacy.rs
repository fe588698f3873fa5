//! What users see of each other's processes: [`EXITS`] has every way out of a daemon, and each is asked by the owner of a process,
//! by root, and by another user.

use crate::{AS_OTHER_USER, DRAM, copy_program, exe};
use rustix::process::{Gid, Uid};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use ttmem_client::{
    AllocatorNumber, Banks, Buffer, CallSite, Chip, CoreRange, DataType, Kernel, Options, Placement, Purpose,
    Space, Tensor, Tracker,
};
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{Dump, Finding, FindingKind, SiteUsage};
use ttmem_testkit::producer::{KERNEL_CONFIG, L1_END, L1_SMALL, UNRESERVED};
use ttmem_testkit::{Client, Server, eventually, schema};
use ttmem_wire::legacy::Vintage;

/// Part of every name that the process has: of files, functions, programs, kernels, tracks, marks and arguments.
const SECRET: &str = "s3cret";
/// An address of one of its buffers, and one that it reports on the legacy socket.
const ADDRESSES: [&str; 2] = ["0x5ec4e000", "0x5ec4e111"];
/// The user of the process, another user, and a group.
const OWNER: u32 = 65534;
const OTHER: u32 = 65533;
const GROUP: u32 = 65532;
/// In the environment of the process: the folder of segments, and the legacy socket.
const VICTIM: [&str; 2] = ["TTMEM_TEST_VICTIM", "TTMEM_TEST_SOCKET"];

/// A way out of the daemon, by name. Returns everything that the current user gets. `true`: its owner sees secrets there.
type Exit = (&'static str, bool, fn(&Scene) -> String);

const EXITS: &[Exit] = &[
    ("snapshot", true, |s| s.query(r#"{"get":"snapshot"}"#)),
    ("devices in full", true, |s| s.query(r#"{"get":"snapshot","history":true,"cores":true,"host":true}"#)),
    ("programs of processes", true, |s| s.query(r#"{"get":"snapshot","programs":true}"#)),
    ("one process", true, |s| s.query(&format!(r#"{{"get":"snapshot","brief":true,"pid":{}}}"#, s.pid))),
    ("events of snapshots", true, |s| s.query(r#"{"get":"snapshot","events":true}"#)),
    ("buffers", true, |s| s.query(r#"{"get":"snapshot","buffers":{"limit":1000}}"#)),
    ("sorted", true, |s| {
        s.query(r#"{"get":"snapshot","buffers":{"limit":9,"sort":"site","reversed":true}}"#)
    }),
    ("found buffers", true, |s| s.query(r#"{"get":"snapshot","buffers":{"limit":9,"text":"s3cret"}}"#)),
    ("groups", true, |s| {
        s.groups(&["process", "program", "site", "op", "function", "file", "tensor", "track"])
    }),
    ("programs", true, |s| s.query(r#"{"get":"snapshot","program_list":{"limit":1000,"sort":"name"}}"#)),
    ("a program", true, |s| {
        let open = format!(r#"{{"pid":{},"allocator":1,"id":7}}"#, s.pid);
        s.query(&format!(r#"{{"get":"snapshot","program_list":{{"open":{open}}}}}"#))
    }),
    ("a core", true, |s| s.query(r#"{"get":"snapshot","core":{"device":1,"core":[0,0],"limit":1000}}"#)),
    ("blocks", true, |s| s.query(r#"{"get":"snapshot","blocks":{"limit":1000}}"#)),
    ("sites", true, |s| s.query(r#"{"get":"snapshot","sites":true}"#)),
    ("leaks", true, |s| s.query(r#"{"get":"snapshot","leaks":true}"#)),
    ("flame", true, |s| s.query(r#"{"get":"snapshot","flame":"live"}"#)),
    ("flame at the peak", true, |s| s.query(r#"{"get":"snapshot","flame":"peak"}"#)),
    ("flame since the mark", true, |s| s.query(r#"{"get":"snapshot","flame":"mark"}"#)),
    ("allocations", true, |s| s.query(r#"{"get":"allocations"}"#)),
    ("report", true, |s| s.query(r#"{"get":"report"}"#)),
    ("events", true, |s| s.query(r#"{"get":"events"}"#)),
    ("new events", true, Scene::follow),
    ("dump of old clients", true, Scene::old_dump),
    ("questions of old clients", false, |s| {
        let mut client = Client::connect(&s.server, Vintage::V144);
        format!("{:?} {:?}", client.query(0), client.device_info(0))
    }),
    ("ttmem", true, |s| s.run(&[])),
    ("ttmem --json", true, |s| s.run(&["--json", "--cores", "--programs"])),
    ("ttmem --sites", true, |s| s.run(&["--sites"])),
    ("ttmem --sites --format csv", true, |s| s.run(&["--sites", "--format", "csv"])),
    ("ttmem -s", false, |s| s.run(&["-s"])),
    ("ttmem -v", true, |s| s.run(&["-v"])),
    ("ttmem dump --format csv", true, |s| s.run(&["dump", "--format", "csv"])),
    ("ttmem dump --group-by site", true, |s| s.run(&["dump", "--group-by", "site"])),
    ("ttmem events --format old", true, |s| s.run(&["events", "--format", "old"])),
    ("ttmem postmortem", true, |s| s.run(&["postmortem"])),
    ("ttmem doctor", false, |s| s.run(&["doctor"])),
    ("ttmem check", false, |s| s.run(&["check", "--wait", "0"])),
    ("ttmem dump", true, |s| s.run(&["dump"])),
    ("ttmem dump --json", true, |s| s.run(&["dump", "--json"])),
    ("ttmem dump --blocks", true, |s| s.run(&["dump", "--blocks"])),
    ("ttmem dump --programs", true, |s| s.run(&["dump", "--programs"])),
    ("ttmem dump --cores", true, |s| s.run(&["dump", "--cores"])),
    ("ttmem dump --cores 0,0", true, |s| s.run(&["dump", "--cores", "0,0"])),
    ("ttmem events", true, |s| s.run(&["events"])),
    ("ttmem events --json", true, |s| s.run(&["events", "--json"])),
    ("ttmem peak", true, |s| s.run(&["peak"])),
    ("ttmem leaks", true, |s| s.run(&["leaks"])),
    ("ttmem map", true, |s| s.run(&["map"])),
    ("ttmem flame", true, |s| s.run(&["flame"])),
];

/// A daemon, and a process of [`OWNER`].
struct Scene {
    server: Server,
    /// Copy of the program that any user can run.
    program: std::path::PathBuf,
    pid: u32,
    victim: Child,
}

impl Scene {
    fn start(args: &[&str]) -> Self {
        Self::start_by(Command::new(exe()), args)
    }

    fn start_by(command: Command, args: &[&str]) -> Self {
        let server = Server::start_by(command, args);
        let program = copy_program(exe(), &server);
        let binary = copy_program(&std::env::current_exe().unwrap(), &server);
        let mut victim = Command::new(AS_OTHER_USER[0]);
        victim.args(&AS_OTHER_USER[1..]).arg(&binary);
        victim.args(["--exact", "privacy::victim", "--nocapture", "--quiet", "--skip", "s3cret-argument"]);
        victim.env(VICTIM[0], server.segments.path()).env(VICTIM[1], &server.legacy);
        let mut victim = victim.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut replies = BufReader::new(victim.stdout.take().unwrap());
        // The test harness prints other lines before.
        while line.trim() != "done" {
            line.clear();
            assert!(replies.read_line(&mut line).unwrap() > 0, "the process died");
        }
        let pid = victim.id();
        let scene = Self { server, program, pid, victim };
        eventually("the process is tracked, with its failure and leak", || {
            let snapshot = scene.server.snapshot();
            let kinds = snapshot.findings.iter().filter(|it| it.pid == Some(pid)).count();
            (kinds >= 2).then_some(())
        });
        scene
    }

    /// Ends the process.
    fn end(&mut self) {
        drop(self.victim.stdin.take());
        self.victim.wait().unwrap();
    }

    fn query(&self, request: &str) -> String {
        let mut stream = UnixStream::connect(&self.server.query).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn groups(&self, groupings: &[&str]) -> String {
        let query = |by: &&str| {
            self.query(&format!(r#"{{"get":"snapshot","buffers":{{"group":"{by}","limit":99}}}}"#))
        };
        groupings.iter().map(query).collect()
    }

    /// Events from the beginning, and those of one more round.
    fn follow(&self) -> String {
        let mut stream = UnixStream::connect(&self.server.query).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
            .write_all(b"{\"get\":\"events\",\"follow\":true,\"since\":\"2000-01-01T00:00:00Z\"}\n")
            .unwrap();
        // A round ends with this event, which every user sees.
        let is_last = |line: &str| line.contains("\"allocator_closed\"");
        let before = self.query(r#"{"get":"events"}"#).lines().filter(|line| is_last(line)).count();
        let mut lines = BufReader::new(stream).lines();
        let mut read = |count: usize| {
            let mut text = String::new();
            for _ in 0..count {
                while !is_last(text.lines().last().unwrap_or_default()) {
                    text.push_str(&(lines.next().unwrap().unwrap() + "\n"));
                }
                text.push('\n');
            }
            text
        };
        let old = read(before);
        self.victim.stdin.as_ref().unwrap().write_all(b"go\n").unwrap();
        old + &read(1)
    }

    fn old_dump(&self) -> String {
        let mut stream = UnixStream::connect(&self.server.legacy).unwrap();
        stream.write_all(b"\n").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn run(&self, args: &[&str]) -> String {
        let output = Command::new(&self.program)
            .args(args)
            .env("TTMEM_QUERY_SOCKET", &self.server.query)
            .env("TTMEM_SHM_DIR", self.server.segments.path())
            .env_remove("COLUMNS")
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap() + std::str::from_utf8(&output.stderr).unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

/// Not a test, but the process of [`OWNER`]: reports memory under secret names, and again for each line that it reads.
#[test]
fn victim() {
    let [folder, socket] = VICTIM.map(std::env::var_os);
    let (Some(folder), Some(socket)) = (folder, socket) else { return };
    let tracker = Tracker::new(&Options::default().folder(folder.to_str().unwrap()));
    let chip = Chip::default().unique_id(0x100).dram_bytes(12 << 30).cores(8).l1_bytes_per_core(L1_END);
    let chip = chip.kernel_config(KERNEL_CONFIG as u32).unreserved(UNRESERVED as u32).grid((4, 2));
    let chip = tracker.define_chip(&chip).unwrap();
    let l1 = Banks::new(Space::L1, 8, UNRESERVED, L1_SMALL - UNRESERVED);
    let banks = [Banks::new(Space::Dram, 1, 0, 2 << 30), l1];
    let allocator = tracker.define_allocator(&[chip], &banks).unwrap();
    let mut old = Client::connect_to(Path::new(&socket), Vintage::V144);
    old.alloc(0, DRAM, 0x5ec4_e111, 7777);
    old.sync();
    let lines = std::io::stdin().lines().map_while(Result::ok);
    for round in std::iter::once(String::new()).chain(lines).enumerate().map(|(round, _)| round as u64) {
        report(&tracker, allocator, round);
        let again = tracker.define_allocator(&[chip], &banks).unwrap();
        tracker.close_allocator(again).unwrap();
        // Only the first line is read.
        let _ = writeln!(std::io::stdout(), "done");
    }
    // Without a word of the test harness, which would have no reader.
    std::process::exit(0);
}

/// Reports everything that has a name.
fn report(tracker: &Tracker, allocator: AllocatorNumber, round: u64) {
    let site = |line| {
        let site = CallSite::new("/home/me/s3cret-file.py", line).function("s3cret_function");
        let site = site.op("ttnn.s3cret_op").track("s3cret-track").purpose(Purpose::Tensor);
        let tensor = Tensor::new(&[32, 32]).data_type(DataType::Bfloat16);
        tracker.define_call_site(&site.tensor(tensor)).unwrap()
    };
    let buffer = |space, address| Buffer::new(allocator, space, address, 4096).bytes_per_bank(4096);
    let base = 0x5ec4_e000 + round * 0x10_0000;
    tracker.alloc(&buffer(Space::Dram, base).site(site(1))).unwrap();
    tracker.alloc(&buffer(Space::L1, UNRESERVED + 0x4_0000 + round * 4096).site(site(2))).unwrap();
    for step in 0..14 {
        tracker.alloc(&buffer(Space::Dram, base + (step + 1) * 4096).site(site(3))).unwrap();
        tracker.mark("s3cret-mark", Some(step)).unwrap();
    }
    let cores = tracker.define_cores(&[CoreRange::new((0, 0), (3, 1))]).unwrap();
    if round > 0 {
        tracker.end_program(allocator, 7).unwrap();
        tracker.release_trace(allocator, 5).unwrap();
    }
    tracker.begin_program(allocator, 7, "s3cret_kernel").unwrap();
    tracker.place(&Placement::new(allocator, 7, Space::Cb, UNRESERVED, 4096).cores(cores)).unwrap();
    tracker.load_kernel(&Kernel::new(allocator, 7, 0x77 + round, 2048).cores(cores)).unwrap();
    tracker.dispatch(allocator, 7).unwrap();
    tracker.capture_trace(allocator, 5, 1).unwrap();
    tracker.report_out_of_memory(&buffer(Space::Dram, 0).site(site(4)), Some(64)).unwrap();
    let _ = tracker.free(allocator, Space::Dram, 0x5ec4_e00f);
}

/// Calls `act` as a user, in a thread of its own.
fn as_user<T: Send>(uid: u32, groups: &[u32], act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let act = move || {
            if uid != 0 {
                let groups: Vec<Gid> = groups.iter().map(|&group| Gid::from_raw(group)).collect();
                let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
                rustix::thread::set_thread_groups(&groups).unwrap();
                rustix::thread::set_thread_res_gid(group, group, group).unwrap();
                rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            }
            act()
        };
        scope.spawn(act).join().unwrap()
    })
}

/// Whether an answer has a secret.
fn has_secret(answer: &str) -> bool {
    answer.contains(SECRET) || ADDRESSES.iter().any(|address| answer.contains(address))
}

#[test]
fn no_exit_shows_a_secret() {
    let scene = Scene::start(&[]);
    let mut wrong = Vec::new();
    for &(name, has_secrets, exit) in EXITS {
        for (who, uid, expected) in
            [("its owner", OWNER, has_secrets), ("root", 0, has_secrets), ("another user", OTHER, false)]
        {
            let answer = as_user(uid, &[], || exit(&scene));
            assert!(!answer.is_empty() || uid == OTHER, "{name} for {who}");
            if has_secret(&answer) != expected {
                let at = answer.find(SECRET).unwrap_or(0);
                let around = answer.get(at.saturating_sub(300)..(at + 60).min(answer.len()));
                wrong.push(format!("{name} for {who}: {}", around.unwrap_or(&answer)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A snapshot with everything, as a user gets it.
fn everything(scene: &Scene, uid: u32, groups: &[u32]) -> Snapshot {
    let request = r#"{"get":"snapshot","cores":true,"programs":true,"events":true,"buffers":{"limit":1000},
        "program_list":{"limit":1000},"core":{"device":1,"core":[0,0],"limit":1000},"blocks":{"limit":1000},"sites":true,
        "leaks":true,"host":true}"#;
    let request = request.replace('\n', "");
    schema::snapshot(as_user(uid, groups, || scene.query(&request)).as_bytes())
}

#[test]
fn other_users_see_pid_user_name_and_sums() {
    let scene = Scene::start(&[]);
    let (all, seen) = (everything(&scene, 0, &[]), everything(&scene, OTHER, &[]));
    let process =
        |shot: &Snapshot| shot.processes.iter().find(|it| it.pid == Some(scene.pid)).cloned().unwrap();
    let (known, shown) = (process(&all), process(&seen));
    assert!(shown.hidden && !known.hidden);
    assert_eq!((shown.command, shown.programs, shown.last_mark), (None, None, None));
    assert_eq!((shown.name, shown.user, shown.uid), (known.name, known.user, Some(OWNER)));
    assert_eq!((shown.summary, shown.usage), (known.summary, known.usage));
    assert_eq!(all.devices[0].usage, seen.devices[0].usage);
    let finding = |shot: &Snapshot| {
        let is_failure = |it: &&Finding| it.kind == FindingKind::OutOfMemory && it.pid == Some(scene.pid);
        shot.findings.iter().find(is_failure).cloned().unwrap()
    };
    let text = finding(&seen).text;
    let name = process(&seen).name.unwrap();
    let expected = "out of memory, 4.0 KiB of DRAM; details are withheld from other users";
    assert_eq!(text, format!("pid {} ({name}): {expected}", scene.pid));
    let (buffers, hidden) = (all.buffers.unwrap(), seen.buffers.unwrap());
    assert_eq!((hidden.count, hidden.list.len()), (0, 0));
    assert_eq!((hidden.hidden_count, hidden.hidden_bytes), (buffers.count, buffers.used_bytes));
    assert_eq!(seen.programs.unwrap().hidden_processes, 1);
    let sums = |shot: &[SiteUsage]| shot.iter().map(|it| it.used_bytes).sum::<u64>();
    let sites = seen.sites.unwrap();
    assert_eq!(sums(&sites), sums(&all.sites.unwrap()));
    assert!(sites.len() < 4 && sites.iter().all(|it| it.hidden && it.site_name.is_none()), "{sites:?}");
    let blocks = seen.block_maps.unwrap();
    assert!(blocks.iter().all(|it| it.hidden && it.blocks.is_empty() && it.used_bytes_per_bank.is_none()));
    assert!(seen.leaks.unwrap().is_empty());
    let dump: Dump = schema::dump(as_user(OTHER, &[], || scene.query(r#"{"get":"allocations"}"#)).as_bytes());
    assert!(dump.allocations.is_empty());
    assert_eq!(dump.hidden.iter().map(|it| it.requested_bytes).sum::<u64>(), buffers.requested_bytes);
    let old = as_user(OTHER, &[], || scene.old_dump());
    let line = format!("- 1 buffers of another user: 7.59473 KB in all (PID {}, user nobody)", scene.pid);
    assert!(old.contains(&line), "{old}");
}

#[test]
fn text_of_a_query_finds_no_hidden_name() {
    let scene = Scene::start(&[]);
    let find = |word: &str| {
        let buffers = format!(
            r#""buffers":{{"limit":9,"text":"{word}"}},"program_list":{{"limit":9,"text":"{word}"}}"#
        );
        let grouped =
            format!(r#"{{"get":"snapshot","buffers":{{"group":"site","limit":9,"text":"{word}"}}}}"#);
        let list = scene.query(&format!(r#"{{"get":"snapshot",{buffers}}}"#));
        [list, scene.query(&grouped)].map(|answer| {
            let snapshot: Snapshot = schema::snapshot(answer.as_bytes());
            (snapshot.buffers, snapshot.programs)
        })
    };
    let as_other = |word: &str| as_user(OTHER, &[], || find(word));
    let nothing = as_other("qqqqqq");
    for word in ["s3cret", "s3cret_kernel", "0x5ec4e000", "interleaved"] {
        assert_eq!(as_other(word), nothing, "{word}");
        assert!(word == "interleaved" || as_user(OWNER, &[], || find(word)) != nothing, "{word}");
    }
    // The pid is no secret.
    assert_ne!(as_other(&scene.pid.to_string()), nothing);
}

#[test]
fn secrets_stay_hidden_after_the_exit() {
    let mut scene = Scene::start(&[]);
    scene.end();
    let pid = scene.pid;
    eventually("the exit is known", || scene.server.process(pid).is_none().then_some(()));
    let reused = |uid: u32| {
        let shot = everything(&scene, uid, &[]);
        serde_json::to_string(&(shot.findings, shot.events, shot.devices)).unwrap()
    };
    assert!(has_secret(&reused(0)) && has_secret(&reused(OWNER)));
    let seen = reused(OTHER);
    assert!(!has_secret(&seen) && seen.contains(&format!("pid {pid} ")), "{seen}");
    let events = r#"{"get":"events"}"#;
    assert!(has_secret(&as_user(OWNER, &[], || scene.query(events))), "its last events");
    assert!(!has_secret(&as_user(OTHER, &[], || scene.query(events))));
}

#[test]
fn members_of_the_shared_group_see_everything() {
    let scene = Scene::start(&["--share-group", &GROUP.to_string()]);
    let request = r#"{"get":"allocations"}"#;
    let is_member = |uid, groups: &[u32]| has_secret(&as_user(uid, groups, || scene.query(request)));
    assert!(is_member(OTHER, &[1, GROUP]), "as a supplementary group");
    assert!(is_member(GROUP, &[]), "as the primary group");
    assert!(!is_member(OTHER, &[1]));
    let no_group = Command::new(exe()).args(["serve", "--share-group", "no-such-group"]).output().unwrap();
    assert!(!no_group.status.success());
    assert!(String::from_utf8_lossy(&no_group.stderr).contains("no such group in /etc/group"));
}

#[test]
fn openness_for_all_leaves_out_arguments() {
    let scene = Scene::start(&["--share-all"]);
    for &(name, has_secrets, exit) in EXITS.iter().filter(|(name, ..)| *name != "ttmem postmortem") {
        let answer = as_user(OTHER, &[], || exit(&scene));
        assert_eq!(
            answer.replace("s3cret-argument", "").contains(SECRET) || has_secret(&answer),
            has_secrets,
            "{name}"
        );
        assert!(!answer.contains("s3cret-argument"), "{name}");
    }
    let mine = as_user(OWNER, &[], || scene.query(r#"{"get":"snapshot"}"#));
    assert!(mine.contains("s3cret-argument"));
}

#[test]
fn dump_through_a_program_of_root_is_the_users() {
    let scene = Scene::start(&[]);
    let mut stream = as_user(OTHER, &[], || UnixStream::connect(&scene.server.legacy).unwrap());
    // As a setuid program that has the connection as its output.
    stream.write_all(b"\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains("of another user") && !has_secret(&text), "{text}");
}

#[test]
fn hidden_processes_of_the_host_have_no_pid_user_and_name() {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", "mount -t proc -o hidepid=2 proc /proc && exec \"$0\" \"$@\""])
        .arg(exe());
    let scene = Scene::start_by(command, &["--share-all"]);
    let pid = scene.pid;
    let seen = everything(&scene, OTHER, &[]);
    let sums: Vec<_> = seen.processes.iter().map(|it| (it.pid, &it.name, &it.user, it.hidden)).collect();
    assert_eq!(sums, [(None, &None, &None, true)]);
    assert_eq!(seen.processes[0].usage, everything(&scene, 0, &[]).processes[0].usage);
    let name = everything(&scene, OWNER, &[]).processes[0].name.clone().unwrap();
    for &(what, _, exit) in EXITS {
        if matches!(what, "new events" | "ttmem doctor" | "ttmem check" | "ttmem postmortem") {
            continue;
        }
        let answer = as_user(OTHER, &[], || exit(&scene));
        for part in [SECRET, "nobody", &name, &format!("id\":{pid},"), &format!("id {pid} ")] {
            assert!(!answer.contains(part), "{what}: {part}: {answer}");
        }
    }
}
