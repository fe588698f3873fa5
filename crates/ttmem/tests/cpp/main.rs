//! The C++ headers: programs are compiled as users do, by every installed compiler and with every warning, run, also with
//! sanitizers, and compared with what readers see in their segments.
#![allow(clippy::unwrap_used, missing_docs)]

#[expect(dead_code, reason = "programs are started in another way here")]
#[path = "../build/mod.rs"]
mod build;
mod legacy;
mod make;
mod program;

use make::{Build, builds, builds_with_threads};
use program::{Held, Program};
use ttmem_core::words::Purpose;
use ttmem_core::words::Space::{Cb, Dram, Host, Kernel, L1, L1Small, Trace};

const SQUARE: [u8; 4] = [0, 0, 1, 1];
const NONE: Vec<[u8; 4]> = vec![];
const ESTIMATE: u64 = 50 * 1024;

/// Runs a program in every variant.
fn run_all_builds(source: &str, test: impl Fn(&mut Program)) {
    run_builds(&builds(), source, test);
}

fn run_builds(builds: &[Build], source: &str, test: impl Fn(&mut Program)) {
    for build in builds {
        let mut program = Program::start(build, &build.program(source, &[]));
        test(&mut program);
        program.expect_exit();
    }
}

/// An allocation reported by device number: without cores and program.
fn plain(space: ttmem_core::words::Space, devices: &[u32], bytes: u64) -> Held {
    (space, devices.to_vec(), bytes, NONE, None, "")
}

fn cb(devices: &[u32], bytes: u64, cores: &[[u8; 4]], program: Option<u32>) -> Held {
    (Cb, devices.to_vec(), bytes, cores.to_vec(), program, "unplaced")
}

#[test]
fn client_reports_and_returns_errors() {
    run_all_builds("client.cpp", |program| {
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
        assert_eq!(sorted(program.held_at("reports")), sorted(reports.to_vec()));
        assert_eq!(program.held_at("nothing"), [], "all reports were undone");
        assert_eq!(program.held_at("nothing"), [], "mistakes hold nothing");
        let mesh = [
            plain(Dram, &[1, 2, 3], 1 << 20),
            plain(L1, &[1, 2, 3], 4096),
            plain(Cb, &[1, 2, 3], 2048),
            plain(Kernel, &[1, 2, 3], 512),
        ];
        assert_eq!(sorted(program.held_at("mesh")), sorted(mesh.to_vec()), "one record each");
        assert_eq!(program.held_at("nothing"), []);
        assert_eq!(program.held_at("owners"), [plain(Dram, &[0], 100), plain(L1, &[0, 1], 50)]);
        assert_eq!(program.held_at("one owner"), [plain(Dram, &[0], 100)], "an exception freed the other");
        assert_eq!(program.held_at("many owners"), vec![plain(Dram, &[0], 10); 10]);
        assert_eq!(program.held_at("nothing"), []);
        program.wait_at("call sites");
        let mut list = program.list();
        list.sort_by(|a, b| a.id.cmp(&b.id));
        let (line, semaphore) = (&list[0].origin, &list[1].origin);
        assert_eq!(
            [&line.file, &line.function, &line.op, &line.tensor, &line.track]
                .map(|it| it.as_deref().unwrap()),
            ["/home/me/model.cpp", "Attention::load", "matmul", "bfloat16 [1, 32, 512] tile", "decode"]
        );
        assert_eq!((line.line, line.purpose), (Some(42), Some(Purpose::Tensor)));
        assert_eq!((&semaphore.file, semaphore.purpose), (&None, Some(Purpose::Semaphore)));
        let mark = program.process().last_mark.unwrap();
        assert_eq!((mark.name.as_deref(), mark.number), (Some("step"), Some(12)));
        program.resume();
        assert_eq!(program.held_at("again"), [plain(L1, &[5], 64)], "closed and enabled again");
    });
}

fn sorted(mut held: Vec<Held>) -> Vec<Held> {
    held.sort();
    held
}

#[test]
fn wrappers_publish_what_they_create() {
    run_all_builds("wrappers.cpp", |program| {
        let first = cb(&[3], 4096, &[SQUARE], Some(1));
        let kernel = (Kernel, vec![3], ESTIMATE, vec![SQUARE, [3, 3, 3, 3]], Some(1), "estimated");
        assert_eq!(program.held_at("one device"), [first.clone(), kernel.clone()]);
        let other = cb(&[3], 64, &[[7, 7, 7, 7]], Some(2));
        program.wait_at("two programs");
        assert_eq!(program.allocations(), [other.clone(), first.clone(), first, kernel]);
        let usage = program.usage(3);
        let (cbs, kernels) = (usage.cb.unwrap(), usage.kernel.unwrap());
        assert_eq!((cbs.registered_bytes, cbs.resident_bytes), (2 * 4 * 4096 + 64, None));
        assert_eq!((kernels.registered_bytes, kernels.estimated_bytes), (5 * ESTIMATE, 5 * ESTIMATE));
        program.resume();
        assert_eq!(program.held_at("one forgotten"), [other]);
        assert_eq!(program.held_at("all forgotten"), []);

        program.wait_at("views");
        let views = program.placements();
        let seen = |it: &ttmem_core::snapshot::Placement| (it.address, it.bytes, it.view);
        let views: Vec<_> = views.iter().map(seen).collect();
        assert_eq!(views, [(Some(0x9000), 1024, true), (Some(0x12100), 2048, true)]);
        assert_eq!(program.usage(0).cb.unwrap().registered_bytes, 0, "buffers are counted as such");
        program.resume();

        let mesh = vec![0, 1, 4, 5];
        let one = [2, 3, 2, 3];
        let on_mesh =
            [cb(&mesh, 4096, &[SQUARE], Some(4)), (Kernel, mesh, ESTIMATE, vec![one], Some(4), "estimated")];
        assert_eq!(program.held_at("mesh"), on_mesh, "one record, however many devices");

        let kinds = [
            cb(&[0], 16, &[[1, 2, 1, 2]], Some(5)),
            cb(&[0], 32, &[SQUARE], Some(5)),
            cb(&[0], 64, &[SQUARE, [5, 5, 5, 5]], Some(5)),
        ];
        assert_eq!(program.held_at("kinds of cores"), kinds);
        let wide =
            [cb(&[0], 128, &[], Some(5)), (Kernel, vec![0], 17 * ESTIMATE, NONE, Some(5), "estimated")];
        assert_eq!(program.held_at("wide cores")[3..], wide, "counted, but not per core");

        assert_eq!(program.held_at("no device"), []);
        let front = [
            cb(&[2], 8192, &[SQUARE], Some(6)),
            (Kernel, vec![2], ESTIMATE, vec![SQUARE], Some(6), "estimated"),
        ];
        assert_eq!(program.held_at("device in front"), front);
        let numbers = [
            cb(&[1, 2, 3], 64, &[SQUARE], Some(7)),
            cb(&[4, 5], 32, &[SQUARE], Some(7)),
            cb(&[7], 16, &[SQUARE], Some(7)),
        ];
        assert_eq!(program.held_at("devices by number"), numbers);
        assert_eq!(program.held_at("exceptions"), [], "calls that threw created nothing known");
        let held = program.held_at("address used again");
        assert_eq!(held.len(), 1, "each scope begins anew: {held:?}");
        assert_eq!(program.held_at("scopes ended"), []);
    });
}

#[test]
fn types_are_recognised_by_their_members() {
    run_all_builds("shapes.cpp", |program| {
        let row = [0, 0, 3, 0];
        program.wait_at("configurations");
        let held = [
            (Cb, vec![6], 640, NONE, Some(1), "unplaced"),
            (Cb, vec![6], 3000, vec![row], Some(1), ""),
            (Cb, vec![6], 16384, vec![row], Some(1), "unplaced"),
        ];
        assert_eq!(program.allocations(), held);
        let views: Vec<_> = program.placements().iter().filter(|it| it.view).map(|it| it.address).collect();
        assert_eq!(views, [Some(0x5000)]);
        program.resume();
        assert_eq!(program.held_at("forgotten by number"), []);
        let measured = |bytes, cores: &[[u8; 4]]| (Kernel, vec![6], bytes, cores.to_vec(), Some(2), "");
        let kernels = [
            measured(300, &[row]),
            measured(424, &[row]),
            measured(424, &[[0, 0, 1, 0], [5, 5, 5, 5]]),
            measured(777, &[[1, 1, 1, 1]]),
            (Kernel, vec![6], ESTIMATE, NONE, Some(2), "estimated"),
        ];
        assert_eq!(
            sorted(program.held_at("kernels")),
            sorted(kernels.to_vec()),
            "400 bytes of words, 24 of characters"
        );
        let mesh = (Cb, vec![8, 9], 5000, NONE, Some(3), "unplaced");
        assert_eq!(program.held_at("mesh by its devices"), [mesh]);
        assert_eq!(program.held_at("nothing"), []);
        let of_no_program = (Cb, vec![8, 9], 5000, NONE, None, "unplaced");
        assert_eq!(program.held_at("of no program"), std::slice::from_ref(&of_no_program));
        // An object with only an id is a program by reference, and a device by pointer.
        program.wait_at("a number alone");
        let of_device = cb(&[6], 5000, &[row], None);
        let kernel = (Kernel, vec![6], ESTIMATE, vec![[1, 1, 1, 1]], Some(4), "estimated");
        let held = [of_no_program.clone(), of_device.clone(), cb(&[6], 5000, &[row], Some(4)), kernel];
        assert_eq!(sorted(program.allocations()), sorted(held.to_vec()));
        let mut devices: Vec<u32> = program.snapshot().devices.iter().map(|it| it.index).collect();
        devices.sort_unstable();
        assert_eq!(devices, [6, 8, 9], "fifty programs are no devices");
        program.resume();
        assert_eq!(
            sorted(program.held_at("a number alone forgotten")),
            sorted(vec![of_no_program, of_device])
        );
    });
}

#[test]
fn old_snippets_compile_unchanged() {
    run_all_builds("seeds.cpp", |program| {
        assert_eq!(program.held_at("custom tracking"), [plain(Dram, &[3], 1 << 20)]);
        assert_eq!(program.held_at("nothing"), []);
        let hooks = [
            plain(L1, &[3], 4096),
            plain(Cb, &[3], 100),
            plain(Kernel, &[3], 2000),
            plain(Kernel, &[3], 3000),
        ];
        assert_eq!(program.held_at("hooks of the allocator"), hooks);
        assert_eq!(program.held_at("nothing"), []);
        let unchanged = [plain(L1, &[3], 4096)];
        assert_eq!(program.held_at("statistics of allocators"), unchanged, "the update changes nothing");
        // 1,024 tiles of 2,048 bytes, and 50 KiB on each of 80 cores.
        let circular = (Cb, vec![4], 2 << 20, NONE, None, "unplaced");
        let kernel = (Kernel, vec![4], ESTIMATE, vec![[0, 0, 7, 9]], Some(1), "estimated");
        program.wait_at("wrappers");
        assert_eq!(program.allocations(), [circular.clone(), kernel.clone()]);
        let bytes = program.usage(4).kernel.unwrap().registered_bytes;
        assert_eq!(bytes, 80 * 50 * 1024, "as with the old wrapper");
        program.resume();
        let manual = [circular.clone(), plain(Cb, &[5], 4096), kernel, plain(Kernel, &[5], 2048)];
        assert_eq!(sorted(program.held_at("manual reporting")), sorted(manual.to_vec()));
        assert_eq!(
            program.held_at("only the circular buffer of no program"),
            std::slice::from_ref(&circular)
        );
        let tracked = (Cb, vec![6], 512, vec![[0, 0, 3, 0]], None, "unplaced");
        let kernel = plain(Kernel, &[6], 4 * 30000);
        let kernels = vec![kernel.clone(), kernel];
        let with_kernels = |more: Vec<Held>| sorted([more, kernels.clone()].concat());
        let all = vec![circular.clone(), tracked.clone(), tracked.clone()];
        assert_eq!(
            sorted(program.held_at("full integration")),
            with_kernels(all),
            "both kernels of handle 0"
        );
        assert_eq!(sorted(program.held_at("one freed")), with_kernels(vec![circular.clone(), tracked]));
        assert_eq!(sorted(program.held_at("both freed")), with_kernels(vec![circular]));
    });
}

#[test]
fn threads_and_children_are_tracked_separately() {
    run_builds(&builds_with_threads(), "crowd.cpp", |program| {
        let of = |held: &Held| (held.1.clone(), held.2);
        let kept: Vec<_> = program.held_at("crowd").iter().map(of).collect();
        let mut expected = vec![(vec![0], 7)];
        expected.extend([vec![(vec![0], 100); 4], vec![(vec![1], 100); 4]].concat());
        expected.sort();
        assert_eq!(kept, expected, "what eight threads left");
        program.wait_at("child");
        let seen = program.snapshot();
        assert_eq!(seen.processes.len(), 2);
        assert!(seen.findings.is_empty(), "nothing of its parent's is touched: {:?}", seen.findings);
        let mut with_child = expected.clone();
        with_child.insert(0, (vec![0], 3));
        assert_eq!(program.allocations().iter().map(of).collect::<Vec<_>>(), with_child);
        program.resume();
        let after: Vec<_> = program.held_at("parent").iter().map(of).collect();
        assert!(expected.iter().all(|it| after.contains(it)), "{after:?}");
        program.wait_at("nothing");
        let pid = program.pid();
        let findings = program.snapshot().findings;
        let of_programs = findings.iter().filter(|it| it.pid == Some(pid));
        assert_eq!(of_programs.count(), 0, "{findings:?}");
        program.resume();
    });
}

#[test]
fn headers_can_be_included_in_every_unit() {
    for build in builds() {
        let mut program = Program::start(&build, &build.program("halves.cpp", &["other_half.cpp"]));
        let both = [cb(&[1], 40, &[[0, 0, 0, 0]], Some(1)), cb(&[1], 50, &[[1, 1, 1, 1]], Some(1))];
        assert_eq!(program.held_at("both halves"), both);
        assert_eq!(program.held_at("nothing"), []);
        program.expect_exit();
        let mut program = Program::start(&build, &build.program_with("plain.cpp", &[], &["-fno-exceptions"]));
        let made = [cb(&[2], 48, &[[0, 0, 0, 0]], Some(1)), plain(Kernel, &[2], 64)];
        assert_eq!(sorted(program.held_at("without exceptions")), sorted(made.to_vec()));
        program.expect_exit();
    }
}

#[test]
fn documented_example_prints_what_the_page_says() {
    let page = include_str!("../../../../docs/cpp.md");
    let mut examples = page.split("```cpp\n").skip(1).filter_map(|rest| rest.split("```").next());
    let example = examples.find(|it| it.contains("int main")).expect("the page has an example");
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("example.cpp");
    std::fs::write(&source, example).unwrap();
    for build in builds() {
        let segments = ttmem_testkit::memory_folder();
        let output =
            build.command(&build.external(&source)).env("TTMEM_SHM_DIR", segments.path()).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && page.contains(&format!("# prints: {printed}")), "{printed}");
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
