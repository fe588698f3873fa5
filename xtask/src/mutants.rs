//! `cargo xtask mutants`: a test that cannot fail proves nothing.
//!
//! For every defect of the old system that has a test, the old behaviour is put back into a copy of the tree, and the
//! test of that number is expected to fail; likewise for faults that were found in this one. A mutant that survives is
//! an error, and so is one that does not compile.

use crate::{cargo, root};
use anyhow::{Context, bail, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A fault, as changes to our source, and the test that must notice.
struct Mutant {
    /// One of `ttmem/tests/it`; or `package/` and one in that package itself, or `package:target/` and one of its tests
    /// of that name.
    test: &'static str,
    what: &'static str,
    edits: &'static [Edit],
}

struct Edit {
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

const fn edit(file: &'static str, from: &'static str, to: &'static str) -> Edit {
    Edit { file, from, to }
}

const FRAMER: &str = "crates/ttmem-wire/src/framer.rs";
const WIRE: &str = "crates/ttmem-wire/src/legacy.rs";
const STATE: &str = "crates/ttmem-core/src/state.rs";
const VIEW: &str = "crates/ttmem-core/src/view.rs";
const UPDATE: &str = "crates/ttmem-tui/src/update.rs";
const TERMINAL: &str = "crates/ttmem-tui/src/terminal.rs";
const RUN_TOP: &str = "crates/ttmem-tui/src/run.rs";
const PLAN: &str = "crates/ttmem-core/src/plan.rs";
const USAGE: &str = "crates/ttmem-core/src/usage.rs";
const PROGRAMS: &str = "crates/ttmem-core/src/programs.rs";
const JUDGEMENT: &str = "crates/ttmem-core/src/judgement.rs";
const LEGACY: &str = "crates/ttmem-daemon/src/legacy.rs";
const TRACKING: &str = "crates/ttmem-daemon/src/tracking.rs";
const SERVER: &str = "crates/ttmem-daemon/src/server.rs";
const PROCESS: &str = "crates/ttmem-sources/src/process.rs";
const OWNER: &str = "crates/ttmem-sources/src/owner.rs";
const FILE: &str = "crates/ttmem-sources/src/segment.rs";
const SEGMENTS: &str = "crates/ttmem-sources/src/segments.rs";
const FOLLOW: &str = "crates/ttmem-sources/src/follow.rs";
const PLACE: &str = "crates/ttmem-sources/src/place.rs";
const TRACKER: &str = "crates/ttmem-client/src/tracker.rs";
const WRITER: &str = "crates/ttmem-client/src/writer.rs";
const MAPPED: &str = "crates/ttmem-client/src/segment.rs";
const ROOM: &str = "crates/ttmem-client/src/room.rs";
const TELLER: &str = "crates/ttmem-client/src/legacy.rs";
const SAYER: &str = "crates/ttmem-client/src/log.rs";
const SOCKET: &str = "crates/ttmem-daemon/src/socket.rs";
const PROTOCOL: &str = "crates/ttmem-reader/src/protocol.rs";
const SESSION: &str = "crates/ttmem-reader/src/session.rs";
const TABLE: &str = "crates/ttmem-reader/src/processes.rs";
const LISTEN: &str = "crates/ttmem-daemon/src/listen.rs";
const MANAGER: &str = "crates/ttmem-daemon/src/manager.rs";
const UNIT: &str = "packaging/ttmem.service.in";
const OUTPUT: &str = "crates/ttmem-daemon/src/output.rs";
const MAIN: &str = "crates/ttmem/src/main.rs";
const REGION: &str = "crates/ttmem-wire/src/region.rs";
const REGIONS: &str = "crates/ttmem-sources/src/regions.rs";
const BUS: &str = "crates/ttmem-sources/src/bus.rs";
const BOARD: &str = "crates/ttmem-sources/src/board.rs";
const SENSORS: &str = "crates/ttmem-sources/src/sensors.rs";
const CREW: &str = "crates/ttmem-sources/src/crew.rs";
const OPENERS: &str = "crates/ttmem-sources/src/openers.rs";
const SOURCES: &str = "crates/ttmem-sources/src/sources.rs";
const MACHINE: &str = "crates/ttmem-core/src/state/machine.rs";
const CORES: &str = "crates/ttmem-core/src/cores.rs";
const PEAKS: &str = "crates/ttmem-core/src/peaks.rs";
const TRACES: &str = "crates/ttmem-core/src/traces.rs";
const LAID: &str = "crates/ttmem-client/src/writer/programs.rs";
const KEY: &str = "crates/ttmem-client/src/writer/key.rs";
const CORE_DUMP: &str = "crates/ttmem/src/cores.rs";
const AGENT: &str = "crates/ttmem-agent/src/programs.rs";
const AGENTS_WORK: &str = "crates/ttmem-agent/src/agent.rs";
const GIVEN: &str = "crates/ttmem-c/src/given.rs";
const CAPTURES: &str = "crates/ttmem-agent/src/traces.rs";
const SHIM: &str = "crates/ttmem-agent/src/shim_programs.cpp";

const RELEASE: &str = "let references = self.ledger.release(slot);";
const SENDER: &str = "let sender = sender.unwrap_or(connection.peer);";
const FEED: &str = "self.take_in(number, connection, sender, &buffer[..len], until)";
/// A short read is taken for a whole message, with what lay in the buffer behind it.
const PADDED: &str = "self.take_in(number, connection, sender, &buffer[..len.next_multiple_of(144)], until)";

const MUTANTS: &[Mutant] = &[
    Mutant { test: "defect_01_", what: "no version in what is sent", edits: &[edit(PROTOCOL, r#"{{"schema":1,"#, "{{")] },
    Mutant {
        test: "defect_02_",
        what: "every message is taken to have 144 bytes",
        edits: &[edit(
            FRAMER,
            "Self { size: Size::Open { delivered: false },",
            "Self { size: Size::Settled(Vintage::V144),",
        )],
    },
    Mutant { test: "defect_03_", what: "a short read is a message", edits: &[edit(LEGACY, FEED, PADDED)] },
    Mutant {
        test: "defect_04_",
        what: "a peek before every read",
        edits: &[edit(
            SOCKET,
            "let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;",
            "let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
             unsafe { libc::recv(socket.as_raw_fd(), part.iov_base, 1, libc::MSG_PEEK | libc::MSG_DONTWAIT) };",
        )],
    },
    Mutant { test: "defect_05_", what: "a newline is a message", edits: &[edit(LEGACY, FEED, PADDED)] },
    Mutant {
        test: "defect_06_",
        what: "every answer has 144 bytes",
        edits: &[edit(
            LEGACY,
            "answer.encode(vintage, &mut bytes)",
            "answer.encode([ttmem_wire::legacy::Vintage::V144, vintage][0], &mut bytes)",
        )],
    },
    Mutant {
        test: "defect_07_",
        what: "dumps without circular buffers and kernels",
        edits: &[edit(
            VIEW,
            "(entries.filter_map(|entry| self.describe_entry(entry, true)).collect(), next)",
            "(entries.filter_map(|e| self.describe_entry(e, true)).filter(|a| !a.space.is_program()).collect(), next)",
        )],
    },
    Mutant {
        test: "defect_08_",
        what: "32 bits for a channel",
        edits: &[edit(BOARD, "dram_bytes: channels * facts.channel,", "dram_bytes: channels * u64::from(facts.channel as u32),")],
    },
    Mutant {
        test: "defect_09_",
        what: "a repeated load adds again",
        edits: &[
            edit(STATE, "let held: Option<(Slot, bool)> = if space.is_stacked() {", "let held: Option<(Slot, bool)> = if space.is_program() {"),
            edit(STATE, ".find(|&(_, same)| same)", ".find(|&(_, same)| same && !space.is_program())"),
        ],
    },
    Mutant {
        test: "defect_10_",
        what: "an unknown free subtracts what it says",
        edits: &[edit(
            LEGACY,
            "cb: used(Space::Cb),",
            "cb: used(Space::Cb).wrapping_sub(
                state.snapshot(jiff::Timestamp::UNIX_EPOCH, &ttmem_core::Detail::NONE).findings.iter()
                    .filter(|f| f.kind == ttmem_core::snapshot::FindingKind::UnknownFree)
                    .filter_map(|f| f.bytes).sum()),",
        )],
    },
    Mutant {
        test: "defect_11_",
        what: "an unload subtracts what it says",
        edits: &[edit(
            STATE,
            RELEASE,
            "let references = self.ledger.release(slot);
             if size.is_some_and(|size| size < held.requested) {
                 let rest = ledger::entry(!id, held.requested - size.unwrap_or(0), 0);
                 let pool = process.pools[&(scope, space, by.basis)];
                 self.ledger.insert(pool, rest);
                 process.records += 1;
             }",
        )],
    },
    Mutant {
        test: "defect_12_",
        what: "another size at a held address is ignored",
        edits: &[edit(STATE, "let same = |held: &Entry| {", "let same = |held: &Entry| { true ||")],
    },
    Mutant {
        test: "defect_13_",
        what: "records have no owner",
        edits: &[edit(
            TRACKING,
            "let author = self.register_peer(connection, sender, message);",
            "let first = self.session.processes().iter().next().map(|(process, _)| process);
             let author = first.unwrap_or_else(|| self.register_peer(connection, sender, message));",
        )],
    },
    Mutant {
        test: "defect_14_",
        what: "no memory of what was freed",
        edits: &[edit(STATE, "process.freed.push_back((scope, space, id));", "")],
    },
    Mutant {
        test: "defect_15_",
        what: "the same buffer reported twice counts twice",
        edits: &[
            edit(STATE, "let held: Option<(Slot, bool)> = if space.is_stacked() {", "let held: Option<(Slot, bool)> = if space != Space::Kernel {"),
            edit(STATE, ".find(|&(_, same)| same)", ".find(|&(_, same)| same && space == Space::Kernel)"),
        ],
    },
    Mutant {
        test: "defect_16_",
        what: "a free knows no device",
        edits: &[edit(
            LEGACY,
            "Type::Free => Ok(free(None, None)),",
            "Type::Free => {
                 let scope = Scope::Chip(self.devices[&0]);
                 Ok(Event::Free(Free { scope, space: None, id, program: 0, size: None, cores: 0 }))
             }",
        )],
    },
    Mutant {
        test: "defect_17_",
        what: "some spaces are not cleaned up",
        edits: &[edit(
            STATE,
            "let totals = self.ledger.close(pool);\n            let sum",
            "if space == Space::Trace { continue; }\n let totals = self.ledger.close(pool);\n            let sum",
        )],
    },
    Mutant {
        test: "defect_18_",
        what: "circular buffers are added up",
        edits: &[edit(
            PROGRAMS,
            "        taken(borrowed(&self.parts_in(space, pools))).saturating_add(levels)\n",
            "        self.parts_in(space, pools).iter().map(|(_, part)| part.range.len()).sum::<u64>().saturating_add(levels)\n",
        )],
    },
    Mutant {
        test: "defect_19_",
        what: "capacity of the whole grid",
        edits: &[edit(BOARD, "l1_bytes: u64::from(cores) * facts.l1,", "l1_bytes: u64::from(cores.max(120)) * facts.l1,")],
    },
    Mutant {
        test: "defect_20_",
        what: "freeing one circular buffer frees all",
        edits: &[edit(
            STATE,
            RELEASE,
            "let references = if space == Space::Cb { self.ledger.clear(held.pool()); 0 } else { self.ledger.release(slot) };",
        )],
    },
    Mutant {
        test: "defect_21_",
        what: "the trace region weighs on L1",
        edits: &[
            edit(USAGE, "const DRAM: [Space; 2] = [Space::Dram, Space::Trace];", "const DRAM: [Space; 1] = [Space::Dram];"),
            edit(PLAN, "pub(crate) const IN_L1: [Space; 7] =\n    [Space::L1,", "pub(crate) const IN_L1: [Space; 8] =\n    [Space::Trace, Space::L1,"),
        ],
    },
    Mutant {
        test: "defect_22_",
        what: "ring fields hold something",
        edits: &[edit(WIRE, "&buffer[..vintage.size()]", "buffer[132] = 1;\n        &buffer[..vintage.size()]")],
    },
    Mutant {
        test: "defect_23_",
        what: "an unknown free is an error",
        edits: &[edit(
            JUDGEMENT,
            "FindingKind::UnknownFree,\n            Severity::Info,",
            "FindingKind::UnknownFree,\n            Severity::Error,",
        )],
    },
    Mutant {
        test: "defect_24_",
        what: "whoever may not be signalled is dead",
        edits: &[
            edit(
                TRACKING,
                "Ok(fd) => Some(Watch::Pidfd(fd)),",
                "Ok(_) => Some(Watch::Look { root: ttmem_sources::Root::default(), pid: sender.pid, start: None }),",
            ),
            edit(
                PROCESS,
                "Some(now) => !now.over && start",
                "Some(now) => Pid::from_raw(pid as i32).is_some_and(|raw| test_kill_process(raw).is_ok()) && !now.over && start",
            ),
        ],
    },
    Mutant {
        test: "defect_25_",
        what: "a message's word for its pid is believed",
        edits: &[edit(
            LEGACY,
            "let author = self.author(connection, sender, message);",
            "let sender = Peer { pid: message.process_id as u32, ..sender };
             let author = self.author(connection, sender, message);",
        )],
    },
    Mutant {
        test: "defect_26_",
        what: "deaths are noticed later",
        edits: &[
            edit(SERVER, "Token::Process(number) => ended.push(ProcessKey(number)),", "Token::Process(_) => ended.clear(),"),
            edit(
                TABLE,
                "self.iter().filter(|(_, it)| it.watch.ended())",
                "self.iter().filter(|(_, it)| it.watch.ended() && self.last_key == 0)",
            ),
        ],
    },
    Mutant {
        test: "defect_27_",
        what: "only buffers are cleaned up",
        edits: &[edit(
            STATE,
            "let totals = self.ledger.close(pool);\n            let sum",
            "if space.is_program() { continue; }\n let totals = self.ledger.close(pool);\n            let sum",
        )],
    },
    Mutant {
        test: "defect_28_",
        what: "only what a process unloads itself is gone",
        edits: &[edit(
            SESSION,
            "let outcome = self.state.apply(self.now, origin, Event::Exited);",
            "let _ = origin;\n        let outcome = Outcome::Noted;",
        )],
    },
    Mutant {
        test: "defect_29_",
        what: "a connection is one process",
        edits: &[edit(LEGACY, SENDER, "let _ = sender;\n            let sender = connection.peer;")],
    },
    Mutant {
        test: "defect_30_",
        what: "every process is on device 0",
        edits: &[edit(
            VIEW,
            ".map(|(chip, usage)| ProcessUsage { device: chip.to_string(), usage })",
            ".map(|(_, usage)| ProcessUsage { device: ChipId::Ordinal(0).to_string(), usage })",
        )],
    },
    Mutant {
        test: "defect_37_",
        what: "a second server takes the socket",
        edits: &[
            edit(
                LISTEN,
                "Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),",
                "Err(rustix::io::Errno::WOULDBLOCK) => {}",
            ),
            edit(
                LISTEN,
                "Ok(_) => return Err(Error::AlreadyServed { path: path.to_owned() }),",
                "Ok(_) => fs::remove_file(path).map_err(listen)?,",
            ),
        ],
    },
    Mutant {
        test: "defect_38_",
        what: "SIGUSR1 ends the server",
        edits: &[edit(SERVER, "(SIGUSR1, SUMMARY)", "(SIGUSR1, END)")],
    },
    Mutant {
        test: "defect_39_",
        what: "room for 256 devices",
        edits: &[edit(LEGACY, "const UNKNOWN_DEVICES: i32 = 1024;", "const UNKNOWN_DEVICES: i32 = 256;")],
    },
    Mutant {
        test: "defect_45_",
        what: "samples without times",
        edits: &[edit(VIEW, "at: clock.wall(it.at),", "at: clock.at,")],
    },
    Mutant {
        test: "a_crowd_that_asks_and_dies",
        what: "a question met in a drain drains",
        edits: &[
            edit(TRACKING, "        if self.draining {\n            return;\n        }\n", ""),
            edit(TRACKING, "            return self.end_process(process);\n", ""),
            edit(LEGACY, "Some(frame) if self.draining => {", "Some(frame) if self.draining && self.session.now().0 == 0 => {"),
        ],
    },
    Mutant {
        test: "an_answer_that_nobody_reads_costs",
        what: "questions are waited for while an answer waits",
        edits: &[edit(SERVER, "Token::Query(number), !writing, writing);", "Token::Query(number), true, writing);")],
    },
    Mutant {
        test: "a_terminal_that_stands_still",
        what: "a terminal is written to as it was given",
        edits: &[edit(OUTPUT, "map_or_else(|_| writer(fd), Kind::Own)", "map_or(Kind::File, |_| Kind::File)")],
    },
    Mutant {
        test: "a_strangers_terminal_that_stands_still",
        what: "another user's terminal is written to as it was given",
        edits: &[edit(OUTPUT, "map_or_else(|_| writer(fd), Kind::Own)", "map_or(Kind::File, Kind::Own)")],
    },
    Mutant {
        test: "a_clean_short_life_leaves_no_finding",
        what: "a question ends its own author unheard",
        edits: &[edit(LEGACY, "self.reap(spared);", "let _ = spared;
        self.reap(&[]);")],
    },
    Mutant {
        test: "a_question_drained_with_the_dead",
        what: "questions are answered while the dead are heard",
        edits: &[edit(LEGACY, "Some(frame) if self.draining => {", "Some(frame) if self.draining && self.session.now().0 == 0 => {")],
    },
    Mutant {
        test: "many_questions_at_once",
        what: "answers are dropped before any is sent",
        edits: &[
            edit(LEGACY, "const ANSWER_ROOM: usize = 256 << 10;", "const ANSWER_ROOM: usize = 64 << 10;"),
            edit(
                LEGACY,
                "// It may well have read since.\n                    self.send_answers(number, connection);",
                "",
            ),
        ],
    },
    Mutant {
        test: "a_long_report_comes_whole",
        what: "the end of a stream closes it at once",
        edits: &[edit(
            LEGACY,
            "connection.closing.get_or_insert(self.session.now());\n        self.send_answers(number, connection)\n",
            "self.send_answers(number, connection);\n        Turn::Closed\n",
        )],
    },
    Mutant {
        test: "a_log_in_a_file_loses_no_line",
        what: "the log is written once a round",
        edits: &[edit(OUTPUT, "            if self.waiting.len() + piece.len() > ROOM {\n                self.flush();\n            }\n", "")],
    },
    Mutant {
        test: "a_pid_used_again_on_the_same_socket",
        what: "a pid on a connection is one process for ever",
        edits: &[edit(LEGACY, "is_reused(author)\n", "is_reused(author)\n                && self.session.now().0 == 0\n")],
    },
    Mutant {
        test: "a_process_that_frees_all_and_ends",
        what: "the dead are not heard to the end",
        edits: &[edit(TRACKING, "            self.drain(number);\n", "            let _ = number;\n")],
    },
    Mutant {
        test: "sizes_at_one_address_are_limited",
        what: "any number of sizes at one address",
        edits: &[edit(STATE, "} else if variants >= MAX_VARIANTS {", "} else if variants == usize::MAX {")],
    },
    Mutant {
        test: "when_descriptors_run_out",
        what: "a full server asks again at once",
        edits: &[edit(SERVER, "            self.full = true;\n            let _ = epoll::delete(&self.epoll, &self.legacy);\n", "")],
    },
    Mutant {
        test: "a_demo_that_is_killed",
        what: "the demo's daemon outlives it",
        edits: &[edit(MAIN, "demo::end_with(parent)?;", "let _ = parent;")],
    },
    Mutant {
        test: "defect_31_",
        what: "the client waits for the server",
        edits: &[
            edit(TELLER, "SendFlags::NOSIGNAL | SendFlags::DONTWAIT", "SendFlags::NOSIGNAL"),
            edit(TELLER, "SocketFlags::NONBLOCK | SocketFlags::CLOEXEC", "SocketFlags::CLOEXEC"),
        ],
    },
    Mutant {
        test: "defect_32_",
        what: "a free that finds no room is dropped",
        edits: &[edit(TELLER, "        *mark |= GONE;\n", "        *mark = 0;\n        return true;\n        #[allow(unreachable_code)]\n        let _ = ();\n")],
    },
    Mutant {
        test: "defect_33_",
        what: "a dead server raises SIGPIPE",
        edits: &[edit(TELLER, "SendFlags::NOSIGNAL | SendFlags::DONTWAIT", "SendFlags::DONTWAIT")],
    },
    Mutant {
        test: "defect_34_",
        what: "an absent server is asked at every event",
        edits: &[edit(TELLER, "const BACKOFF_NS: u64 = 1_000_000_000;", "const BACKOFF_NS: u64 = 0;")],
    },
    Mutant {
        test: "defect_35_",
        what: "a new server is told nothing again",
        edits: &[edit(TELLER, "self.marks[slot as usize] &= !TOLD;", "continue;")],
    },
    Mutant {
        test: "defect_36_",
        what: "threads tell in any order",
        edits: &[edit(TELLER, "let slot = self.queue[self.head];\n        self.head = (self.head + 1) % self.queue.len();", "let slot = self.queue[(self.head + self.len - 1) % self.queue.len()];")],
    },
    Mutant {
        test: "forked_children",
        what: "a fork goes unnoticed",
        edits: &[edit(TRACKER, "if guard.pid.load(Ordering::Relaxed) == 0 ||", "if guard.pid.load(Ordering::Relaxed) == 1 &&")],
    },
    Mutant {
        test: "a_process_that_goes_on_as_another",
        what: "a pid and a start time are enough",
        edits: &[edit(OWNER, "if processes.has_mapped(pid, segment.id).unwrap_or(true) {", "if processes.has_mapped(pid, segment.id).unwrap_or(true) || pid > 0 {")],
    },
    Mutant {
        test: "a_process_that_closes_all",
        what: "without its lock a process is dead",
        edits: &[edit(OWNER, "if processes.has_mapped(pid, segment.id).unwrap_or(true) {", "if processes.has_mapped(pid, segment.id).is_none() {")],
    },
    Mutant {
        test: "a_process_that_closes_all",
        what: "what is not listed is not counted",
        edits: &[edit(FOLLOW, "self.unlisted.insert(key, rest);", "let _ = rest;")],
    },
    Mutant {
        test: "other_users_segments",
        what: "whoever holds the lock may be anybody",
        edits: &[edit(OWNER, "is_some_and(|it| it.own_pid != own_pid)", "is_some_and(|it| it.own_pid == 0)")],
    },
    Mutant {
        test: "files_that_are_no_segments",
        what: "holes are read",
        edits: &[edit(FILE, "let layout = Layout::of(&header, bytes)?;\n        if (found.st_blocks as u64).saturating_mul(512) < bytes {", "let layout = Layout::of(&header, bytes)?;\n        if bytes == 1 {")],
    },
    Mutant {
        test: "nothing_is_followed",
        what: "a container's links lead anywhere",
        edits: &[
            edit(FILE, "let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;", "let resolve = ResolveFlags::empty();"),
            edit(PLACE, "if kinds.last().is_none_or(", "if kinds.is_empty() && kinds.last().is_none_or("),
        ],
    },
    Mutant {
        test: "a_small_filesystem",
        what: "memory is taken where it is touched",
        edits: &[edit(MAPPED, "rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, bytes as u64)", "rustix::fs::ftruncate(fd, bytes as u64)"), edit(MAPPED, "rustix::fs::fallocate(fd, FallocateFlags::empty(), from, to - from)", "rustix::fs::ftruncate(fd, to)")],
    },
    Mutant {
        test: "a_small_filesystem",
        what: "a segment may take everything",
        edits: &[edit(ROOM, "if used.saturating_add(wanted) <= total / SHARE {", "if used.saturating_add(wanted) <= total / SHARE || total > 0 {")],
    },
    Mutant {
        test: "the_dead_make_room",
        what: "what the dead left stays",
        edits: &[edit(ROOM, "&& identity::is_gone(pid, header.start_ticks.get())", "&& pid == 0 && identity::is_gone(pid, header.start_ticks.get())")],
    },
    Mutant {
        test: "where_no_segment_can_be",
        what: "trouble is printed unasked",
        edits: &[edit(SAYER, "let Some(to) = TO.get() else { return };", "let stderr = \"stderr\".to_owned();\n    let to = TO.get().unwrap_or(&stderr);")],
    },
    Mutant {
        test: "a_signal_handler_that_tracks",
        what: "an event waits for itself",
        edits: &[edit(TRACKER, "if owner == me || stuck || now.saturating_sub(since) > PATIENCE_NS {", "if stuck && now == 0 {")],
    },
    Mutant {
        test: "peaks_are_the_writers",
        what: "the writer's peak is not read",
        edits: &[edit(FOLLOW, "bytes: Some(row.peak.get())", "bytes: None")],
    },
    Mutant {
        test: "a_segment_that_shrinks",
        what: "what cannot be read was never there",
        edits: &[edit(SEGMENTS, "        self.known.insert(id, known);\n        busy\n", "        if known.broken.is_some() {\n            self.retire(known, true, sink);\n        } else {\n            self.known.insert(id, known);\n        }\n        busy\n")],
    },
    Mutant {
        test: "black_boxes_are_few",
        what: "black boxes stay for ever",
        edits: &[edit(SEGMENTS, "if *count > keep.count ||", "if *count > keep.count * 1000 ||")],
    },
    Mutant {
        test: "what_the_library_refuses",
        what: "an address held twice counts twice",
        edits: &[edit(WRITER, "        self.release(held, flags::IMPLIED);\n", "        let _ = held;\n")],
    },
    Mutant {
        test: "nothing_of_a_chip_is_opened",
        what: "a chip's node is opened (defect 40)",
        edits: &[edit(
            BUS,
            "    let pci = chip.pci;\n",
            "    let pci = chip.pci;\n    let _ = fs::File::open(class.join(format!(\"../../../dev/tenstorrent/{node}\")));\n",
        )],
    },
    Mutant {
        test: "no_chip_is_opened_and_nothing",
        what: "a chip's node is opened for the doctor (defect 40)",
        edits: &[edit(
            BUS,
            "    let pci = chip.pci;\n",
            "    let pci = chip.pci;\n    let _ = fs::File::open(class.join(format!(\"../../../dev/tenstorrent/{node}\")));\n",
        )],
    },
    Mutant {
        test: "the_second_chip_of_an_n300",
        what: "a remote chip is its neighbour (defect 41)",
        edits: &[edit(BUS, "            remote: true,\n", "            pci: it.pci,\n            node: it.node,\n")],
    },
    Mutant {
        test: "ttmem-core/sensors_have_an_age",
        what: "an old value is as good as a new one (defect 41)",
        edits: &[edit(VIEW, "let stale = why.is_some() || age_ms > STALE_MS;", "let stale = why.is_some() && age_ms > STALE_MS;")],
    },
    Mutant {
        test: "defect_42_",
        what: "chips are followed anew at every look",
        edits: &[edit(SOURCES, "            self.sensors.follow(self.bus.chips.values());\n", ""), edit(
            SOURCES,
            "        if change.any {\n            // What was said",
            "        self.sensors.follow(self.bus.chips.values());\n        if change.any {\n            // What was said",
        )],
    },
    Mutant {
        test: "a_file_that_never_answers",
        what: "a reader that hangs is waited for (defect 42)",
        edits: &[edit(CREW, "DEADLINE: Duration = Duration::from_millis(200);", "DEADLINE: Duration = Duration::from_secs(3600);")],
    },
    Mutant {
        test: "defect_42_",
        what: "a file that hangs is tried by everybody",
        edits: &[edit(SENSORS, "const HANGING: usize = 2;", "const HANGING: usize = 20;")],
    },
    Mutant {
        test: "defect_43_",
        what: "one name 256 times",
        edits: &[edit(
            REGIONS,
            "for file in place.names(region::FILE_PREFIX) {",
            "for file in (0..256).map(|_| format!(\"{}0{}\", region::FILE_PREFIX, region::FILE_SUFFIX)) {",
        )],
    },
    Mutant {
        test: "defect_43_",
        what: "every file is of chip 0",
        edits: &[edit(REGIONS, "let Some(name) = region::id_of(&file) else { continue };", "let Some(name) = region::id_of(&file).map(|_| 0) else { continue };")],
    },
    Mutant {
        test: "defect_44_",
        what: "as many slots as the count says",
        edits: &[edit(
            REGION,
            "for (slot, process) in self.processes.iter().enumerate() {",
            "for (slot, process) in self.processes.iter().take(head.active_processes.get() as usize).enumerate() {",
        )],
    },
    Mutant {
        test: "defect_46_",
        what: "chip 0 is a free slot",
        edits: &[edit(REGION, "marked || (layout.zero_is_free() && empty && own != Some(slot))", "marked || chip.chip_id == 0 || (empty && own == Some(slot))")],
    },
    Mutant {
        test: "ttmem-wire/chip_0_is_found",
        what: "chip 0 is free while it holds nothing (defect 46)",
        edits: &[edit(REGION, "empty && own != Some(slot))", "empty && own != Some(slot + 16))")],
    },
    Mutant {
        test: "defect_49_",
        what: "as long as it is counted it lives",
        edits: &[edit(
            REGIONS,
            "found.unwrap_or(if unsure {",
            "found.unwrap_or(if region.reference_count > 0 { Fate::Lives(slot.pid, 0) } else if unsure {",
        )],
    },
    Mutant {
        test: "another_users_counters",
        what: "what others may not read is left out in silence (defect 50)",
        edits: &[edit(REGIONS, "self.skip(&path, remedy.unwrap_or_else(|| why.to_string()));", "let _ = remedy;")],
    },
    Mutant {
        test: "numbers_that_cannot_be",
        what: "whatever a file says is believed (defect 50)",
        edits: &[edit(REGIONS, "const MOST_HELD: u64 = 1 << 40;", "const MOST_HELD: u64 = u64::MAX;")],
    },
    Mutant {
        test: "defect_51_",
        what: "the readiness is looked at before the version",
        edits: &[edit(REGION, "if layout == Layout::V4 {\n        match", "if layout != Layout::Poc {\n        match")],
    },
    Mutant {
        test: "defect_51_",
        what: "one that is being made is odd",
        edits: &[edit(REGIONS, "odd: why != RegionError::BeingMade,", "odd: why == RegionError::BeingMade,")],
    },
    Mutant {
        test: "defect_53_",
        what: "what the chip holds is its process's",
        edits: &[edit(
            REGIONS,
            "let held = spaces(region, |of| of(&slot.held));",
            "let held = spaces(region, |of| of(region.chips.first().map_or(&slot.held, |it| &it.held)));",
        )],
    },
    Mutant {
        test: "a_process_that_ends_or_detaches",
        what: "what has the old time has the old value (defect 55)",
        edits: &[edit(REGIONS, "!bytes.is_empty() && bytes == self.bytes {", "!bytes.is_empty() && bytes.get(8..16) == self.bytes.get(8..16) {")],
    },
    Mutant {
        test: "bytes_that_nobody_accounts_for",
        what: "lost adds go unnoticed (defect 48)",
        edits: &[edit(REGIONS, "} else if total < sum && ghosts.is_empty() {", "} else if total < sum && total == 1 {")],
    },
    Mutant {
        test: "bytes_that_nobody_accounts_for",
        what: "what is in no entry is nothing (defect 52)",
        edits: &[edit(REGIONS, "unattributed.push((space, total - sum));", "")],
    },
    Mutant {
        test: "the_dead_are_ghosts",
        what: "the dead hold what they held",
        edits: &[edit(REGIONS, "{ Fate::Unseen } else { Fate::Dead });", "{ Fate::Unseen } else { Fate::Lives(slot.pid, 0) });")],
    },
    Mutant {
        test: "the_dead_are_ghosts",
        what: "a pid is a process for ever",
        edits: &[edit(REGIONS, "let later = later && slot.updated_ns != 0;", "let later = later && slot.updated_ns == 1;")],
    },
    Mutant {
        test: "the_dead_are_ghosts",
        what: "all times are of one clock",
        edits: &[edit(REGIONS, "match region.layout.clock() {", "match [region.layout.clock(), Clock::Wall][1] {")],
    },
    Mutant {
        test: "a_process_that_ends_or_detaches",
        what: "what was told of the detached stays",
        edits: &[edit(REGIONS, "sink.emit(process, Basis::Counters, Event::Levels(chip, Vec::new()));", "let _ = (process, chip);")],
    },
    Mutant {
        test: "a_process_that_ends_or_detaches",
        what: "once dead, a pid is nobody's",
        edits: &[edit(REGIONS, "Fate::Dead | Fate::Unseen => known.updated_ns == slot.updated_ns,", "Fate::Dead | Fate::Unseen => true,")],
    },
    Mutant {
        test: "a_process_that_ends_or_detaches",
        what: "a death is noticed when the file changes",
        edits: &[edit(REGIONS, "if alive && !bytes.is_empty() &&", "if (alive || !bytes.is_empty()) &&")],
    },
    Mutant {
        test: "a_process_that_ends_or_detaches",
        what: "counters are added to what they said before",
        edits: &[edit(MACHINE, "self.ledger.set_level(pool, bytes.min(super::MAX_BYTES));", "let before = self.ledger.pool(pool).level.unwrap_or(0);\n                self.ledger.set_level(pool, (before + bytes).min(super::MAX_BYTES));")],
    },
    Mutant {
        test: "ttmem-core/levels_are_the_whole",
        what: "counters are added to events",
        edits: &[edit(PLAN, "            if basis < *best {\n", "            if *best == Basis::Events && basis == Basis::Counters {\n                pools.push(pool);\n            } else if basis < *best {\n")],
    },
    Mutant {
        test: "a_pid_within_a_container",
        what: "a pid of a namespace is the same here",
        edits: &[edit(REGIONS, "look.who(pid).filter(|it| it.own_pid == slot.pid)?", "look.who(pid)?")],
    },
    Mutant {
        test: "a_container_on_the_hosts_memory",
        what: "every entry is of a process with that pid here",
        edits: &[edit(REGIONS, "others.find_map(|pid| author(pid, look))", "others.find_map(|pid| author(pid, look)).filter(|_| place.id.0 == 0)")],
    },
    Mutant {
        test: "a_container_with_memory_of_its_own",
        what: "whoever has the pid has the file",
        edits: &[edit(REGIONS, "if (!place.own || pid != slot.pid) && !place.is_of(pid, processes) {", "if pid == 0 {")],
    },
    Mutant {
        test: "where_not_everybody_can_be_seen",
        what: "a name is enough where others cannot be seen",
        edits: &[edit(REGIONS, "if later || !named || !processes.sees_all() {", "if later || !named {")],
    },
    Mutant {
        test: "an_entry_without_a_time",
        what: "an entry without a time is of the dead",
        edits: &[edit(REGIONS, "let later = later && slot.updated_ns != 0;", "")],
    },
    Mutant {
        test: "what_cannot_be_is_not_shown",
        what: "a sensor's nonsense is shown",
        edits: &[edit(SENSORS, "(self.range.0..=self.range.1).contains(&value)", "(f64::MIN..=self.range.1 * f64::MAX).contains(&value)")],
    },
    Mutant {
        test: "what_cannot_be_is_not_shown",
        what: "all ones are a number like others",
        edits: &[edit(BUS, ".filter(|&id| id != 0 && id != u64::MAX)", ".filter(|&id| id != 0)")],
    },
    Mutant {
        test: "a_chip_that_cannot_say_who_it_is",
        what: "a chip is asked once who it is",
        edits: &[edit(
            BUS,
            "let known = settled(&asic) && settled(&serial);",
            "let known = settled(&asic) || settled(&serial);",
        )],
    },
    Mutant {
        test: "a_chip_that_cannot_say_who_it_is",
        what: "what a chip was called by until then is another chip",
        edits: &[edit(
            BUS,
            "change.gone.extend(old.map(|old| old.chip.id).filter(|id| *id != new.id));",
            "let _ = (old, new);",
        )],
    },
    Mutant {
        test: "a_chip_that_cannot_say_who_it_is",
        what: "who has it open is told once",
        edits: &[edit(SOURCES, "if self.retell || self.opened", "if self.opened")],
    },
    Mutant {
        test: "ttmem-core/a_chip_that_comes_back",
        what: "a chip that was gone once is gone",
        edits: &[edit(MACHINE, "known.gone &= !from_machine;", "known.gone &= from_machine;")],
    },
    Mutant {
        test: "a_process_in_two_slots",
        what: "a process has one slot",
        edits: &[edit(REGIONS, "*sum = sum.saturating_add(bytes),", "*sum = bytes,")],
    },
    Mutant {
        test: "while_a_chip_is_reset",
        what: "a chip without an answer is gone",
        edits: &[edit(SENSORS, "resetting |= why == Absent::Resetting;", "")],
    },
    Mutant {
        test: "ttmem-sources/a_counter_that_wrapped",
        what: "a counter that wrapped counted nothing",
        edits: &[edit(SENSORS, "f64::from(now.wrapping_sub(then))", "f64::from(now.saturating_sub(then))")],
    },
    Mutant {
        test: "ttmem-sources/a_counter_that_was_set_back",
        what: "a bus carries anything",
        edits: &[edit(SENSORS, "rate.filter(|&rate| rate <= MOST_BYTES_PER_SECOND).map(f64::round)", "rate.filter(|&rate| rate >= 0.0 || rate > MOST_BYTES_PER_SECOND).map(f64::round)")],
    },
    Mutant {
        test: "ttmem-sources/a_rate_needs_two_readings",
        what: "a counter wraps once at most",
        edits: &[edit(SENSORS, "(since < WRAPS_AFTER).then(|| rates(", "(since > WRAPS_AFTER || !since.is_zero()).then(|| rates(")],
    },
    Mutant {
        test: "ttmem-sources/a_heart_beats",
        what: "a heart that stopped beats",
        edits: &[edit(SENSORS, "self.beats = Some(before != beat);", "self.beats = Some(before <= beat);")],
    },
    Mutant {
        test: "chips_are_numbered_by_their_places",
        what: "capacity of the whole grid: 171.6 MiB",
        edits: &[edit(BOARD, "\"n300\" => (Arch::WormholeB0, 64, 6),", "\"n300\" => (Arch::WormholeB0, 120, 6),")],
    },
    Mutant {
        test: "chips_are_numbered_by_their_places",
        what: "a p150 has 140 cores with any firmware",
        edits: &[edit(BOARD, "firmware.is_some_and(|it| it < FEWER_CORES)", "firmware.is_some_and(|it| it != FEWER_CORES || it == FEWER_CORES)")],
    },
    Mutant {
        test: "chips_are_numbered_by_their_places",
        what: "chips have their nodes' numbers",
        edits: &[edit(BUS, ".map(|it| (it.chip.pci, it.node)).collect();", ".map(|it| (None, it.node)).collect();")],
    },
    Mutant {
        test: "chips_come_and_go",
        what: "a chip is its node",
        edits: &[edit(BUS, "id: asic.map_or(chip.id, ChipId::Unique),", "id: asic.map_or(chip.id, |_| ChipId::Ordinal(node)),")],
    },
    Mutant {
        test: "chips_come_and_go",
        what: "chips that left stay",
        edits: &[edit(BUS, "nodes.get(&it.node) != Some(&it.inode);", "nodes.get(&it.node) != Some(&it.inode) && it.node > 1000;")],
    },
    Mutant {
        test: "old_drivers_do_not_say",
        what: "only the driver's list counts",
        edits: &[edit(OPENERS, "        if !untold.is_empty() {\n", "        if untold.len() > 1000 {\n")],
    },
    Mutant {
        test: "old_drivers_do_not_say",
        what: "who cannot be seen is nobody",
        edits: &[edit(OPENERS, "if pid == 0 {\n                    *found.unseen.entry(node).or_default() += 1;", "if pid == 0 {")],
    },
    Mutant {
        test: "ttmem-core/a_program_that_keeps_nothing",
        what: "a program is only where it keeps something",
        edits: &[edit(PROGRAMS, "self.cores.get(&number).filter(|_| number != 0)", "self.cores.get(&number).filter(|_| number == u32::MAX)")],
    },
    Mutant {
        test: "ttmem-core/of_two_dispatches",
        what: "in one moment the lower number was later",
        edits: &[edit(PROGRAMS, "|&(last, _)| std::cmp::Reverse(last));", "|&(last, _)| std::cmp::Reverse(last.0));")],
    },
    Mutant {
        test: "ttmem-core/views_count_nothing",
        what: "programs end behind what they look at",
        edits: &[edit(CORES, "if part.is_placed() {", "if part.space != Space::Kernel {")],
    },
    Mutant {
        test: "ttmem-core/what_nobody_follows",
        what: "what nobody follows is resident with its program",
        edits: &[edit(PROGRAMS, "let followed = unfollowed == 0 ||", "let followed = true || unfollowed == 0 ||")],
    },
    Mutant {
        test: "ttmem-core/what_lies_somewhere",
        what: "what lies somewhere is added up over programs",
        edits: &[edit(PROGRAMS, "somewhere.chunk_by(|a, b| a.0 == b.0)", "somewhere.chunk_by(|_, _| true)")],
    },
    Mutant {
        test: "ttmem-core/what_lies_somewhere",
        what: "a number is taken for an address",
        edits: &[edit(PROGRAMS, "self.space != Space::Kernel && !self.view && !self.unplaced", "self.space != Space::Kernel && !self.view")],
    },
    Mutant {
        test: "ttmem-core/what_was_allocated_since",
        what: "a trace endangers other processes' buffers",
        edits: &[edit(TRACES, ".filter(|it| it.process == process).copied()", ".copied()")],
    },
    Mutant {
        test: "ttmem-core/the_most_on_a_core_is_the_union",
        what: "views take room on a core",
        edits: &[edit(PEAKS, "let placed = || parts.iter().filter(|part| part.is_placed());", "let placed = || parts.iter().filter(|part| part.space != Space::Kernel);")],
    },
    Mutant {
        test: "ttmem-core/a_program_that_ends_at_once",
        what: "what ran before a listing is forgotten",
        edits: &[edit(STATE, "        self.settle_programs(Tenant { process: by.id, scope });\n", "")],
    },
    Mutant {
        test: "ttmem-core/a_program_that_keeps_more",
        what: "a program keeps what it kept the first time",
        edits: &[edit(STATE, "            program.settled = None;\n", "            let _ = program;\n")],
    },
    Mutant {
        test: "ttmem-core/buffers_that_come_later",
        what: "a program stays where another came",
        edits: &[edit(PEAKS, "*on = on.within(cores);", "*on = on.within(cores.with(*on));")],
    },
    Mutant {
        test: "ttmem-core/the_peak_of_what_programs",
        what: "the peak is all that was ever registered",
        edits: &[edit(PEAKS, "        if pool.key.space.is_program() {\n            return;\n        }\n", "")],
    },
    Mutant {
        test: "ttmem-client:model/what_is_published",
        what: "a program built anew was never dispatched",
        edits: &[edit(LAID, "dispatches = words[4];", "dispatches = self.words_of(slot)[4].min(0);")],
    },
    Mutant {
        test: "ttmem-client:model/what_is_published",
        what: "views are asked for",
        edits: &[edit(KEY, "if is_anothers(words) { 0 } else { words[4] }", "words[4]")],
    },
    Mutant {
        test: "buffers_that_a_replay",
        what: "a replay is a capture",
        edits: &[edit(FOLLOW, "captured: Mono(record.bytes_per_bank.get()),", "captured: Mono(record.at_ns.get()),")],
    },
    Mutant {
        test: "each_core_has_its_own_process",
        what: "a program's number is enough",
        edits: &[edit(CORE_DUMP, "(it.pid, it.allocator, it.program) == (program.pid, program.allocator, Some(program.id))", "it.program == Some(program.id)")],
    },
    Mutant {
        test: "dump_shows_cores_alike",
        what: "views lie on cores",
        edits: &[edit(CORE_DUMP, "it.layout != Some(Layout::View)", "it.layout != Some(Layout::Mirror)")],
    },
    Mutant {
        test: "ttmem:standin/when_the_agent_begins",
        what: "the agent says nothing to those who are told by hand",
        edits: &[edit(AGENTS_WORK, "    others::have_them_withdraw();\n", "")],
    },
    Mutant {
        test: "ttmem:standin/beside_an_agent",
        what: "who is told by hand does not ask for the agent",
        edits: &[edit(TRACKER, "if GLOBAL.yielded.load(Ordering::SeqCst) || beside::agent_is_at_work(withdraw) {", "if GLOBAL.yielded.load(Ordering::SeqCst) {")],
    },
    Mutant {
        test: "ttmem-c:c/misuse",
        what: "an error that is passed on is a number",
        edits: &[edit(GIVEN, "u16::try_from(given).unwrap_or(0)", "given as u16 & 1")],
    },
    Mutant {
        test: "ttmem-c:c/misuse",
        what: "pointers may be askew",
        edits: &[edit(GIVEN, "    if !pointer.is_aligned() {\n        return Err(ttmem_error::BadValue);\n    }\n    // SAFETY: checked", "    // SAFETY: checked")],
    },
    Mutant {
        test: "ttmem:standin/a_program_is_called",
        what: "what reads and writes is named first",
        edits: &[edit(SHIM, "for (bool computes : {true, false}) {", "for (bool computes : {false, true}) {")],
    },
    Mutant {
        test: "ttmem:standin/the_runtimes_own_programs",
        what: "all programs are applications'",
        edits: &[edit(AGENT, "let _ = tracker().program(&Program { allocator: scope, program, cores, class, site });", "let _ = tracker().program(&Program { allocator: scope, program, cores, class: KernelClass::Application, site });")],
    },
    Mutant {
        test: "ttmem:standin/nothing_runs_while",
        what: "what is captured runs",
        edits: &[edit(AGENT, "if scope != 0 && table.traces.capture(place, program, id, scope) {", "if scope == 0 && table.traces.capture(place, program, id, scope) {")],
    },
    Mutant {
        test: "ttmem:standin/nothing_runs_while",
        what: "a replay leaves one chip's programs only",
        edits: &[edit(CAPTURES, "            if it.scope == last.scope {", "            if it.scope != 0 {")],
    },
    Mutant {
        test: "ttmem:standin/what_changes_between",
        what: "a circular buffer has its size for ever",
        edits: &[edit(SHIM, "ttmem_agent_program_changed(program_id(program));\n    call<UNPLACE_CBS>(program);", "(void)0;\n    call<UNPLACE_CBS>(program);")],
    },
    Mutant {
        test: "ttmem:standin/a_program_that_is_placed",
        what: "whatever is built has its place",
        edits: &[edit(SHIM, "where.placed = workload != nullptr;", "where.placed = true;")],
    },
    Mutant {
        test: "ttmem-tui:it/nothing_but_y_sends",
        what: "Enter is a yes",
        edits: &[edit(UPDATE, "matches!(key.code, KeyCode::Char('y' | 'Y'))", "matches!(key.code, KeyCode::Char('y' | 'Y') | KeyCode::Enter)")],
    },
    Mutant {
        test: "ttmem-tui:it/a_newline_in_what_is_pasted",
        what: "what is pasted is typed",
        edits: &[edit(UPDATE, "let text = text.replace(char::is_control, \" \");", "")],
    },
    Mutant {
        test: "ttmem-tui:it/pause_holds",
        what: "a picture that is held goes on",
        edits: &[edit(UPDATE, "if ui.paused.is_none() || other {", "if ui.paused.is_none() || other || true {")],
    },
    Mutant {
        test: "terminal::signals_end_it",
        what: "the terminal is kept",
        edits: &[edit(TERMINAL, "b\"\\x1b[0m\\x1b[?2004l\\x1b[?25h\\x1b[?1049l\"", "b\"\\x1b[0m\\x1b[?2004l\"")],
    },
    Mutant {
        test: "terminal::a_daemon_that_died",
        what: "who answered once is never asked again",
        edits: &[edit(RUN_TOP, "Err(_) => failures += 1,", "Err(_) => return,")],
    },
    Mutant {
        test: "ttmem-core/what_is_kept_between_looks",
        what: "changes are taken in once too little",
        edits: &[edit(USAGE, "let known = slot.insert(Followed { skyline, seen: pool.follow() });", "let known = slot.insert(Followed { skyline, seen: pool.follow() + 1 });")],
    },
    Mutant {
        test: "service::a_service_is_ready_when",
        what: "it is ready before it listens",
        edits: &[
            edit(SERVER, "    let legacy = Listener::bind(", "    let mut early = Manager::from_environment();\n    early.tell(ttmem_sources::monotonic(), \"\");\n    let legacy = Listener::bind("),
        ],
    },
    Mutant {
        test: "service::a_manager_that_does_not_read",
        what: "the daemon waits for its manager",
        edits: &[edit(MANAGER, "socket.set_nonblocking(true)?;", "")],
    },
    Mutant {
        test: "service::a_watch_that_is_meant_for_another",
        what: "whoever is watched, we answer",
        edits: &[edit(MANAGER, "filter(|&us| ours && us > 0)", "filter(|&us| us > 0 || ours)")],
    },
    Mutant {
        test: "service::what_the_unit_leaves",
        what: "the unit leaves too little",
        edits: &[edit(UNIT, "CapabilityBoundingSet=CAP_SYS_PTRACE CAP_DAC_READ_SEARCH", "CapabilityBoundingSet=CAP_SYS_PTRACE")],
    },
];

pub(crate) fn run(numbers: &[&str]) -> anyhow::Result<()> {
    let wanted = |test: &str| {
        numbers.is_empty()
            || numbers.iter().any(|n| {
                test == format!("defect_{n:0>2}_")
                    || test.split('/').next_back().is_some_and(|it| it.starts_with(n))
            })
    };
    let tree = root().join("target/mutants/tree");
    copy_tree(&tree)?;
    let mut survivors = Vec::new();
    let chosen = MUTANTS.iter().filter(|mutant| wanted(mutant.test));
    let mut count = 0;
    for mutant in chosen {
        count += 1;
        let killed = try_one(&tree, mutant).with_context(|| format!("{}: {}", mutant.test, mutant.what))?;
        let verdict = if killed { "killed" } else { "SURVIVED" };
        println!("{:<40} {:<48} {verdict}", mutant.test, mutant.what);
        if !killed {
            survivors.push(mutant.test);
        }
    }
    println!("{} passed, {} failed", count - survivors.len(), survivors.len());
    ensure!(survivors.is_empty(), "these tests notice nothing: {survivors:?}");
    Ok(())
}

/// What git knows of, as it is in the working tree.
fn copy_tree(to: &Path) -> anyhow::Result<()> {
    let list = Command::new("git")
        .current_dir(root())
        .args(["ls-files", "-z"])
        .output()
        .context("cannot run git")?;
    ensure!(list.status.success(), "git cannot list the files");
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    for name in String::from_utf8(list.stdout)?.split_terminator('\0') {
        let (source, target) = (root().join(name), to.join(name));
        if source.is_file() {
            fs::create_dir_all(target.parent().context("a file has a folder")?)?;
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

/// Whether the test of the defect fails on the mutant.
fn try_one(tree: &Path, mutant: &Mutant) -> anyhow::Result<bool> {
    let mut originals = Vec::new();
    for edit in mutant.edits {
        let path = tree.join(edit.file);
        let text = fs::read_to_string(&path)?;
        ensure!(text.matches(edit.from).count() == 1, "{:?} is not once in {}", edit.from, edit.file);
        fs::write(&path, text.replace(edit.from, edit.to))?;
        originals.push((path, text));
    }
    let (place, test) = mutant.test.split_once('/').unwrap_or(("ttmem:it", mutant.test));
    let (package, target) = match place.split_once(':') {
        Some((package, target)) => (package, format!("--test={target}")),
        None => (place, "--lib".to_owned()),
    };
    // A fault may well make a test wait for ever.
    let output = Command::new("timeout")
        .arg("300")
        .arg(cargo(&[]).get_program())
        .args(["test", "--locked"])
        .args(["--package", package, &target, "--", test])
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", root().join("target/mutants/target"))
        .output()
        .context("cannot run cargo")?;
    // Newest first, so that two edits of one file end as they began.
    for (path, text) in originals.into_iter().rev() {
        fs::write(path, text)?;
    }
    let log = String::from_utf8_lossy(&output.stdout);
    // What a test itself compiles, as the agent, tells only there that it does not.
    let broken = ["error: could not compile", "failed to run custom build command"];
    if !log.contains("running 1 test") || broken.iter().any(|it| log.contains(it)) {
        println!("{}", String::from_utf8_lossy(&output.stderr));
        bail!("it does not compile, or has no test");
    }
    Ok(log.contains("test result: FAILED") || output.status.code() == Some(124))
}

/// A mutant whose place is gone would be found out only when somebody runs them all.
#[test]
fn every_mutant_still_fits() {
    let mut misfits = Vec::new();
    for mutant in MUTANTS {
        for edit in mutant.edits {
            let text = fs::read_to_string(root().join(edit.file)).unwrap_or_default();
            if text.matches(edit.from).count() != 1 {
                misfits.push(format!("{}: {}: {}", mutant.test, edit.file, edit.from));
            }
        }
    }
    assert!(misfits.is_empty(), "{misfits:#?}");
}
