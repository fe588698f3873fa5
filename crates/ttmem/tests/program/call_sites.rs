//! Usage by call site, operation, function, file and tensor, on the command line.

use crate::exe;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;
use ttmem_client::{
    AllocatorNumber, Banks, Buffer, CallSite, Chip, DataType, Options, Purpose, Space, Tensor, TensorLayout,
    Tracker,
};
use ttmem_core::Snapshot;
use ttmem_testkit::{memory_folder, schema};

const KIB: u64 = 1 << 10;
const MODEL: &str = "/home/me/model.py";

/// A tracked process: this one, with a segment in a folder of its own.
struct Tracked {
    folder: Arc<TempDir>,
    tracker: Tracker,
    allocator: AllocatorNumber,
}

impl Tracked {
    /// Two tensors of one line in 3 shares, one of another file in 1, and a semaphore of unknown origin.
    fn start() -> Self {
        let folder = memory_folder();
        let tracker = Tracker::new(&Options::default().folder(folder.path().to_str().unwrap()));
        let chip = tracker.define_chip(&Chip::default().unique_id(0x100).dram_bytes(12 << 30)).unwrap();
        let allocator = tracker.define_allocator(&[chip], &[Banks::new(Space::Dram, 1, 0, 1 << 30)]).unwrap();
        let tracked = Self { folder, tracker, allocator };
        let tensor =
            |shape: &[u32]| Tensor::new(shape).data_type(DataType::Bfloat16).layout(TensorLayout::Tile);
        let site = |file, line| CallSite::new(file, line).purpose(Purpose::Tensor);
        let forward = site(MODEL, 42).function("Layer.forward").op("ttnn.matmul");
        tracked.alloc(0x1000, 40 * KIB, &forward.tensor(tensor(&[32, 512])));
        tracked.alloc(0x2_0000, 20 * KIB, &forward.op("ttnn.add").tensor(tensor(&[32, 256])));
        tracked.alloc(0x4_0000, 20 * KIB, &site("/home/me/loss.py", 7).function("loss").op("ttnn.add"));
        tracked.alloc(0x6_0000, 20 * KIB, &CallSite::new("", 0).purpose(Purpose::Semaphore));
        tracked
    }

    fn alloc(&self, address: u64, bytes: u64, site: &CallSite<'_>) {
        let site = self.tracker.define_call_site(site).unwrap();
        let buffer = Buffer::new(self.allocator, Space::Dram, address, bytes);
        self.tracker.alloc(&buffer.bytes_per_bank(bytes).occupied(bytes).site(site)).unwrap();
    }

    /// The output of a command that reads only this process's segment.
    fn print(&self, args: &[&str]) -> String {
        let mut command = Command::new(exe());
        command.args(args).args(["--local", "--shm-dir"]).arg(self.folder.path()).env_remove("COLUMNS");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Total, share, count and label of each group.
    fn groups(&self, by: &str) -> Vec<String> {
        let page = self.print(&["dump", "--group-by", by]);
        let label = page.lines().next().unwrap().rfind("  ").unwrap() + 2;
        let rows = page.lines().skip(1).filter(|line| !line.contains(" allocations, "));
        rows.map(|line| {
            let figures: Vec<&str> = line.split_whitespace().take(4).collect();
            format!("{} {}", figures.join(" "), line[label..].trim())
        })
        .collect()
    }
}

#[test]
fn buffers_are_grouped_by_parts_of_call_sites() {
    let tracked = Tracked::start();
    for (by, expected) in [
        (
            "site",
            &[
                "60.0 KiB 60.0% 2 2 operations, model.py:42 (Layer.forward)",
                "20.0 KiB 20.0% 1 semaphore",
                "20.0 KiB 20.0% 1 ttnn.add, loss.py:7 (loss)",
            ][..],
        ),
        ("op", &["40.0 KiB 40.0% 2 ttnn.add", "40.0 KiB 40.0% 1 ttnn.matmul", "20.0 KiB 20.0% 1 semaphore"]),
        (
            "function",
            &[
                "60.0 KiB 60.0% 2 Layer.forward (model.py)",
                "20.0 KiB 20.0% 1 semaphore",
                "20.0 KiB 20.0% 1 loss (loss.py)",
            ],
        ),
        (
            "file",
            &[
                "60.0 KiB 60.0% 2 /home/me/model.py",
                "20.0 KiB 20.0% 1 semaphore",
                "20.0 KiB 20.0% 1 /home/me/loss.py",
            ],
        ),
        (
            "tensor",
            &[
                "40.0 KiB 40.0% 1 bfloat16 [32, 512] tile",
                "20.0 KiB 20.0% 1 unknown",
                "20.0 KiB 20.0% 1 semaphore",
                "20.0 KiB 20.0% 1 bfloat16 [32, 256] tile",
            ],
        ),
    ] {
        assert_eq!(tracked.groups(by), expected, "{by}");
    }
    let page = tracked.print(&["dump", "--group-by", "site", "--format", "csv,nounits"]);
    assert!(page.contains(",60\n") && page.contains(MODEL), "{page}");
    let json = tracked.print(&["dump", "--group-by", "site", "--json", "--top", "1"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let group = &json["groups"][0];
    assert_eq!(
        (&group["file"], &group["line"], &group["share_percent"]),
        (&MODEL.into(), &42.into(), &60.0.into())
    );
    assert_eq!((&group["ops"][1], &group["op"]), (&"ttnn.add".into(), &serde_json::Value::Null));
}

#[test]
fn allocations_name_operation_line_and_tensor() {
    let tracked = Tracked::start();
    let page = tracked.print(&["dump", "--all"]);
    assert!(
        page.contains("ttnn.matmul, model.py:42 (Layer.forward), bfloat16 [32, 512] tile, exact"),
        "{page}"
    );
    assert!(page.contains("semaphore, exact"), "{page}");
    let csv = tracked.print(&["dump", "--format", "csv"]);
    assert!(
        csv.lines().next().unwrap().ends_with(",basis,op,file,line,function,purpose,tensor,track"),
        "{csv}"
    );
    assert!(
        csv.contains("ttnn.matmul,/home/me/model.py,42,Layer.forward,tensor,\"bfloat16 [32, 512] tile\""),
        "{csv}"
    );
    let json: serde_json::Value = schema::dump(tracked.print(&["dump", "--json"]).as_bytes());
    let first = &json["allocations"][0];
    assert_eq!((&first["op"], &first["line"]), (&"ttnn.matmul".into(), &42.into()));
}

#[test]
fn sites_are_listed_with_their_usage() {
    let tracked = Tracked::start();
    let page = tracked.print(&["--sites"]);
    let rows: Vec<&str> = page.lines().collect();
    assert!(
        rows[0].contains("SIZE COUNT  AT PEAK  DEVICE SPACE ") && rows[0].ends_with("CALL SITE"),
        "{page}"
    );
    assert!(
        rows[1].contains("40.0 KiB     1 40.0 KiB  0      dram") && rows[1].contains("ttnn.matmul"),
        "{page}"
    );
    assert!(rows[1].ends_with("model.py:42 (Layer.forward)"), "{page}");
    assert_eq!(rows[5], "4 buffers, 100.0 KiB on all devices; sizes are per device");
    let snapshot: Snapshot = schema::snapshot(tracked.print(&["--json", "--sites"]).as_bytes());
    let sites = snapshot.sites.unwrap();
    assert_eq!(sites.iter().map(|it| it.used_bytes).sum::<u64>(), 100 * KIB);
    assert_eq!(sites[0].origin.tensor.as_deref(), Some("bfloat16 [32, 512] tile"));
    let csv = tracked.print(&["--sites", "--format", "csv,nounits"]);
    assert!(csv.lines().nth(1).unwrap().starts_with("40960,40960,1,0,dram,"), "{csv}");
    let other = tracked.print(&["--sites", "--json", "-d", "0"]);
    let snapshot: Snapshot = schema::snapshot(other.as_bytes());
    assert_eq!(snapshot.sites.unwrap().len(), 4);
}

#[test]
fn flames_add_up_to_the_devices_usage() {
    let tracked = Tracked::start();
    let lines = tracked.print(&["flame"]);
    let name = format!("DRAM;{}", tracked_name(&tracked));
    let expected = [
        format!("{name};model.py:42 (Layer.forward);ttnn.matmul;bfloat16 [32, 512] tile 40960"),
        format!("{name};model.py:42 (Layer.forward);ttnn.add;bfloat16 [32, 256] tile 20480"),
        format!("{name};loss.py:7 (loss);ttnn.add 20480"),
        format!("{name};unknown;semaphore 20480"),
    ];
    assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
    let path = tracked.folder.path().join("flame.json");
    let path = path.to_str().unwrap();
    assert_eq!(tracked.print(&["flame", "-o", path]), "");
    let file: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(file["$schema"], "https://www.speedscope.app/file-format-schema.json");
    let profile = &file["profiles"][0];
    assert_eq!((&profile["name"], &profile["unit"]), (&"DRAM".into(), &"bytes".into()));
    let weights: u64 = profile["weights"].as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).sum();
    assert_eq!((weights, &profile["endValue"]), (100 * KIB, &(100 * KIB).into()));
    let frames = file["shared"]["frames"].as_array().unwrap();
    let line = frames.iter().find(|it| it["name"] == "model.py:42 (Layer.forward)").unwrap();
    assert_eq!((&line["file"], &line["line"]), (&MODEL.into(), &42.into()));
    // What speedscope's schema requires of a sampled profile.
    assert_eq!((&profile["type"], &profile["startValue"]), (&"sampled".into(), &0.into()));
    let stacks = profile["samples"].as_array().unwrap();
    assert_eq!(stacks.len(), profile["weights"].as_array().unwrap().len());
    assert!(frames.iter().all(|it| it["name"].is_string()));
    assert!(
        stacks
            .iter()
            .flat_map(|it| it.as_array().unwrap())
            .all(|it| it.as_u64().unwrap() < frames.len() as u64)
    );
    // A file that cannot be written is an error, and so is a place without buffers.
    let fails = |args: &[&str], code: i32, part: &str| {
        let mut command = Command::new(exe());
        let output = command.arg("flame").args(args).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && errors.contains(part), "{errors}");
    };
    let (folder, none) = (tracked.folder.path().to_str().unwrap(), memory_folder());
    fails(&["--local", "--shm-dir", folder, "-o", "/nowhere/flame"], 1, "cannot write /nowhere/flame");
    fails(&["--local", "--shm-dir", none.path().to_str().unwrap()], 3, "no buffers are allocated");
}

#[test]
fn flames_of_the_peak_and_since_a_mark_are_apart() {
    let tracked = Tracked::start();
    let site = CallSite::new(MODEL, 50).function("Layer.forward").op("ttnn.add");
    let sum = |text: &str| -> u64 {
        text.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    let flame = |option: &str, code: i32| {
        let mut command = Command::new(exe());
        command.args(["flame", option, "--local", "--shm-dir"]).arg(tracked.folder.path());
        let output = command.output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{errors}");
        (String::from_utf8(output.stdout).unwrap(), errors)
    };
    let (_, errors) = flame("--since-mark", 3);
    assert!(errors.contains("no mark set by ") && errors.contains("set one with `ttmem.mark("), "{errors}");
    tracked.tracker.mark("step", Some(1)).unwrap();
    let (_, errors) = flame("--since-mark", 3);
    assert!(errors.contains("no live buffers were allocated since a mark"), "{errors}");
    tracked.alloc(0x8_0000, 30 * KIB, &site);
    let (since, errors) = flame("--since-mark", 0);
    assert_eq!((sum(&since), since.lines().count(), errors.as_str()), (30 * KIB, 1, ""), "{since}");
    assert!(since.contains("model.py:50 (Layer.forward);ttnn.add 30720"), "{since}");
    assert_eq!(sum(&flame("--at-peak", 0).0), 130 * KIB, "the peak is now");
    // A reader that comes after the peak knows only its size.
    tracked.tracker.free(tracked.allocator, Space::Dram, 0x8_0000).unwrap();
    let (peak, errors) = flame("--at-peak", 0);
    assert_eq!(peak, format!("DRAM;{};unknown {}\n", tracked_name(&tracked), 130 * KIB));
    assert!(errors.contains("ttmem did not follow the process then: use `ttmem run`"), "{errors}");
}

/// The name and pid of a tracked process, as flames show it.
fn tracked_name(tracked: &Tracked) -> String {
    let snapshot: Snapshot = schema::snapshot(tracked.print(&["--json"]).as_bytes());
    let process = &snapshot.processes[0];
    format!("{} (pid {})", process.name.as_deref().unwrap(), process.pid.unwrap())
}
