//! The C++ headers: compiled as other people would, by every compiler at hand and with every warning, run, with sanitizers, too, and
//! read back from their segments.
#![allow(clippy::unwrap_used, missing_docs)]

#[expect(dead_code, reason = "programs are started in another way here")]
#[path = "../build/mod.rs"]
mod build;
mod legacy;
mod make;
mod program;

use make::{Build, builds, builds_with_threads};
use program::{Held, Program};
use ttmem_core::words::Space::{Cb, Dram, Host, Kernel, L1, L1Small, Trace};

const SQUARE: [u8; 4] = [0, 0, 1, 1];
const NONE: Vec<[u8; 4]> = vec![];
const ESTIMATE: u64 = 50 * 1024;

/// Runs a program in every variant.
fn everywhere(source: &str, test: impl Fn(&mut Program)) {
    in_all(&builds(), source, test);
}

fn in_all(builds: &[Build], source: &str, test: impl Fn(&mut Program)) {
    for build in builds {
        let mut program = Program::start(build, &build.program(source, &[]));
        test(&mut program);
        program.ends();
    }
}

/// What an old report leaves: no cores and no program.
fn plain(space: ttmem_core::words::Space, devices: &[u32], bytes: u64) -> Held {
    (space, devices.to_vec(), bytes, NONE, None, "")
}

fn cb(devices: &[u32], bytes: u64, cores: &[[u8; 4]], program: Option<u32>) -> Held {
    (Cb, devices.to_vec(), bytes, cores.to_vec(), program, "unplaced")
}

#[test]
fn the_client_reports_and_says_what_is_wrong() {
    everywhere("client.cpp", |it| {
        let reports = [
            plain(Dram, &[0], 1000),
            plain(L1, &[0], 2000),
            plain(L1Small, &[1], 3000),
            plain(Trace, &[1], 5000),
            plain(Cb, &[1], 600),
            plain(Kernel, &[1], 700),
            plain(Kernel, &[1], 800),
            plain(Kernel, &[1], 900),
            plain(Host, &[1], 4000),
        ];
        assert_eq!(sorted(it.held("reports")), sorted(reports.to_vec()));
        assert_eq!(it.held("nothing"), [], "all reports were taken back");
        assert_eq!(it.held("nothing"), [], "mistakes hold nothing");
        let mesh = [
            plain(Dram, &[1, 2, 3], 1 << 20),
            plain(L1, &[1, 2, 3], 4096),
            plain(Cb, &[1, 2, 3], 2048),
            plain(Kernel, &[1, 2, 3], 512),
        ];
        assert_eq!(sorted(it.held("mesh")), sorted(mesh.to_vec()), "one record each");
        assert_eq!(it.held("nothing"), []);
        assert_eq!(it.held("owners"), [plain(Dram, &[0], 100), plain(L1, &[0, 1], 50)]);
        assert_eq!(it.held("one owner"), [plain(Dram, &[0], 100)], "an exception freed the other");
        assert_eq!(it.held("many owners"), vec![plain(Dram, &[0], 10); 10]);
        assert_eq!(it.held("nothing"), []);
        assert_eq!(it.held("again"), [plain(L1, &[5], 64)], "closed and enabled again");
    });
}

fn sorted(mut held: Vec<Held>) -> Vec<Held> {
    held.sort();
    held
}

#[test]
fn the_wrappers_publish_what_is_made() {
    everywhere("wrappers.cpp", |it| {
        let first = cb(&[3], 4096, &[SQUARE], Some(1));
        let kernel = (Kernel, vec![3], ESTIMATE, vec![SQUARE, [3, 3, 3, 3]], Some(1), "estimated");
        assert_eq!(it.held("one device"), [first.clone(), kernel.clone()]);
        let other = cb(&[3], 64, &[[7, 7, 7, 7]], Some(2));
        it.at("two programs");
        assert_eq!(it.look(), [other.clone(), first.clone(), first, kernel]);
        let usage = it.usage(3);
        let (cbs, kernels) = (usage.cb.unwrap(), usage.kernel.unwrap());
        assert_eq!((cbs.registered_bytes, cbs.resident_bytes), (2 * 4 * 4096 + 64, None));
        assert_eq!((kernels.registered_bytes, kernels.estimated_bytes), (5 * ESTIMATE, 5 * ESTIMATE));
        it.go();
        assert_eq!(it.held("one forgotten"), [other]);
        assert_eq!(it.held("all forgotten"), []);

        it.at("views");
        let views = it.placements();
        let seen = |it: &ttmem_core::snapshot::Placement| (it.address, it.bytes, it.view);
        let views: Vec<_> = views.iter().map(seen).collect();
        assert_eq!(views, [(Some(0x9000), 1024, true), (Some(0x12100), 2048, true)]);
        assert_eq!(it.usage(0).cb.unwrap().registered_bytes, 0, "buffers are counted as such");
        it.go();

        let mesh = vec![0, 1, 4, 5];
        let one = [2, 3, 2, 3];
        let on_mesh =
            [cb(&mesh, 4096, &[SQUARE], Some(4)), (Kernel, mesh, ESTIMATE, vec![one], Some(4), "estimated")];
        assert_eq!(it.held("mesh"), on_mesh, "one record, however many devices");

        let kinds = [
            cb(&[0], 16, &[[1, 2, 1, 2]], Some(5)),
            cb(&[0], 32, &[SQUARE], Some(5)),
            cb(&[0], 64, &[SQUARE, [5, 5, 5, 5]], Some(5)),
        ];
        assert_eq!(it.held("kinds of cores"), kinds);
        let wide =
            [cb(&[0], 128, &[], Some(5)), (Kernel, vec![0], 17 * ESTIMATE, NONE, Some(5), "estimated")];
        assert_eq!(it.held("wide cores")[3..], wide, "counted, but not told apart");

        assert_eq!(it.held("no device"), []);
        let front = [
            cb(&[2], 8192, &[SQUARE], Some(6)),
            (Kernel, vec![2], ESTIMATE, vec![SQUARE], Some(6), "estimated"),
        ];
        assert_eq!(it.held("device in front"), front);
        let numbers = [
            cb(&[1, 2, 3], 64, &[SQUARE], Some(7)),
            cb(&[4, 5], 32, &[SQUARE], Some(7)),
            cb(&[7], 16, &[SQUARE], Some(7)),
        ];
        assert_eq!(it.held("devices by number"), numbers);
        assert_eq!(it.held("exceptions"), [], "what threw was not made, or nobody knows what");
        let held = it.held("address used again");
        assert_eq!(held.len(), 1, "each scope begins anew: {held:?}");
        assert_eq!(it.held("scopes ended"), []);
    });
}

#[test]
fn types_are_known_by_what_they_offer() {
    everywhere("shapes.cpp", |it| {
        let row = [0, 0, 3, 0];
        it.at("configurations");
        let held = [
            (Cb, vec![6], 640, NONE, Some(1), "unplaced"),
            (Cb, vec![6], 3000, vec![row], Some(1), ""),
            (Cb, vec![6], 16384, vec![row], Some(1), "unplaced"),
        ];
        assert_eq!(it.look(), held);
        let views: Vec<_> = it.placements().iter().filter(|it| it.view).map(|it| it.address).collect();
        assert_eq!(views, [Some(0x5000)]);
        it.go();
        assert_eq!(it.held("forgotten by number"), []);
        let measured = |bytes, cores: &[[u8; 4]]| (Kernel, vec![6], bytes, cores.to_vec(), Some(2), "");
        let kernels = [
            measured(300, &[row]),
            measured(424, &[row]),
            measured(424, &[[0, 0, 1, 0], [5, 5, 5, 5]]),
            measured(777, &[[1, 1, 1, 1]]),
            (Kernel, vec![6], ESTIMATE, NONE, Some(2), "estimated"),
        ];
        assert_eq!(
            sorted(it.held("kernels")),
            sorted(kernels.to_vec()),
            "400 bytes of words, 24 of characters"
        );
        let mesh = (Cb, vec![8, 9], 5000, NONE, Some(3), "unplaced");
        assert_eq!(it.held("mesh by its devices"), [mesh]);
        assert_eq!(it.held("nothing"), []);
        let nobodys = (Cb, vec![8, 9], 5000, NONE, None, "unplaced");
        assert_eq!(it.held("nobody's"), std::slice::from_ref(&nobodys));
        // By reference a program, behind a pointer a device.
        it.at("a number alone");
        let of_device = cb(&[6], 5000, &[row], None);
        let kernel = (Kernel, vec![6], ESTIMATE, vec![[1, 1, 1, 1]], Some(4), "estimated");
        let held = [nobodys.clone(), of_device.clone(), cb(&[6], 5000, &[row], Some(4)), kernel];
        assert_eq!(sorted(it.look()), sorted(held.to_vec()));
        let mut devices: Vec<u32> = it.snapshot().devices.iter().map(|it| it.index).collect();
        devices.sort_unstable();
        assert_eq!(devices, [6, 8, 9], "fifty programs are no devices");
        it.go();
        assert_eq!(sorted(it.held("a number alone forgotten")), sorted(vec![nobodys, of_device]));
    });
}

#[test]
fn the_old_snippets_compile_as_they_stand() {
    everywhere("seeds.cpp", |it| {
        assert_eq!(it.held("custom tracking"), [plain(Dram, &[3], 1 << 20)]);
        assert_eq!(it.held("nothing"), []);
        let hooks = [
            plain(L1, &[3], 4096),
            plain(Cb, &[3], 100),
            plain(Kernel, &[3], 2000),
            plain(Kernel, &[3], 3000),
        ];
        assert_eq!(it.held("hooks of the allocator"), hooks);
        assert_eq!(it.held("nothing"), []);
        // 1,024 tiles of 2,048 bytes, and 50 KiB on each of 80 cores.
        let circular = (Cb, vec![4], 2 << 20, NONE, None, "unplaced");
        let kernel = (Kernel, vec![4], ESTIMATE, vec![[0, 0, 7, 9]], Some(1), "estimated");
        it.at("wrappers");
        assert_eq!(it.look(), [circular.clone(), kernel.clone()]);
        let bytes = it.usage(4).kernel.unwrap().registered_bytes;
        assert_eq!(bytes, 80 * 50 * 1024, "as the old wrapper had it");
        it.go();
        let manual = [circular.clone(), plain(Cb, &[5], 4096), kernel, plain(Kernel, &[5], 2048)];
        assert_eq!(sorted(it.held("manual reporting")), sorted(manual.to_vec()));
        assert_eq!(it.held("only the circular buffer of no program"), std::slice::from_ref(&circular));
        let tracked = (Cb, vec![6], 512, vec![[0, 0, 3, 0]], None, "unplaced");
        let kernel = plain(Kernel, &[6], 4 * 30000);
        let kernels = vec![kernel.clone(), kernel];
        let with_kernels = |more: Vec<Held>| sorted([more, kernels.clone()].concat());
        let all = vec![circular.clone(), tracked.clone(), tracked.clone()];
        assert_eq!(sorted(it.held("full integration")), with_kernels(all), "both kernels of handle 0");
        assert_eq!(sorted(it.held("one freed")), with_kernels(vec![circular.clone(), tracked]));
        assert_eq!(sorted(it.held("both freed")), with_kernels(vec![circular]));
    });
}

#[test]
fn threads_and_forked_children_keep_their_own_books() {
    in_all(&builds_with_threads(), "crowd.cpp", |it| {
        let of = |program: &Held| (program.1.clone(), program.2);
        let kept: Vec<_> = it.held("crowd").iter().map(of).collect();
        let mut expected = vec![(vec![0], 7)];
        expected.extend([vec![(vec![0], 100); 4], vec![(vec![1], 100); 4]].concat());
        expected.sort();
        assert_eq!(kept, expected, "what eight threads left");
        it.at("child");
        let seen = it.snapshot();
        assert_eq!(seen.processes.len(), 2);
        assert!(seen.findings.is_empty(), "nothing of its parent's is touched: {:?}", seen.findings);
        let mut with_child = expected.clone();
        with_child.insert(0, (vec![0], 3));
        assert_eq!(it.look().iter().map(of).collect::<Vec<_>>(), with_child);
        it.go();
        let after: Vec<_> = it.held("parent").iter().map(of).collect();
        assert!(expected.iter().all(|it| after.contains(it)), "{after:?}");
        it.at("nothing");
        let pid = it.pid();
        let findings = it.snapshot().findings;
        let of_programs = findings.iter().filter(|it| it.pid == Some(pid));
        assert_eq!(of_programs.count(), 0, "{findings:?}");
        it.go();
    });
}

#[test]
fn the_headers_may_be_included_everywhere() {
    for build in builds() {
        let mut it = Program::start(&build, &build.program("halves.cpp", &["other_half.cpp"]));
        let both = [cb(&[1], 40, &[[0, 0, 0, 0]], Some(1)), cb(&[1], 50, &[[1, 1, 1, 1]], Some(1))];
        assert_eq!(it.held("both halves"), both);
        assert_eq!(it.held("nothing"), []);
        it.ends();
        let mut it = Program::start(&build, &build.program_with("plain.cpp", &[], &["-fno-exceptions"]));
        let made = [cb(&[2], 48, &[[0, 0, 0, 0]], Some(1)), plain(Kernel, &[2], 64)];
        assert_eq!(sorted(it.held("without exceptions")), sorted(made.to_vec()));
        it.ends();
    }
}

#[test]
fn the_documented_example_does_what_it_says() {
    let page = include_str!("../../../../docs/cpp.md");
    let mut examples = page.split("```cpp\n").skip(1).filter_map(|rest| rest.split("```").next());
    let example = examples.find(|it| it.contains("int main")).expect("the page has an example");
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("example.cpp");
    std::fs::write(&source, example).unwrap();
    for build in builds() {
        let segments = ttmem_testkit::memory_folder();
        let output =
            build.start(&build.foreign(&source)).env("TTMEM_SHM_DIR", segments.path()).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && page.contains(&format!("# prints: {printed}")), "{printed}");
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
