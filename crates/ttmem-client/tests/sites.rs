//! Call sites are bounded: many shapes of tensors never take the space of lines.
#![allow(clippy::unwrap_used, missing_docs)]

use ttmem_client::{Buffer, CallSite, DataType, Options, Space, Tensor, Tracker};
use ttmem_testkit::memory_folder;
use ttmem_wire::segment::definition::{Definition, parse};
use ttmem_wire::segment::{Header, word};
use zerocopy::FromBytes;

#[derive(Default)]
struct Defined {
    frames: Vec<u32>,
    sites: Vec<(u32, u32)>,
    tensors: usize,
    left_out: [u64; 3],
}

/// What a segment defines.
fn read(folder: &std::path::Path) -> Defined {
    let mut files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let file = files.find(|path| path.is_file()).unwrap();
    let bytes = std::fs::read(file).unwrap();
    let (header, _) = Header::read_from_prefix(&bytes).unwrap();
    let at = |offset: usize| u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap());
    let begin = header.definitions_offset.get() as usize;
    let used = at(word::BLOCKS_USED) as usize;
    assert!(used <= header.definition_blocks.get() as usize * 3 / 4, "the rest is for chips and allocators");
    let mut found = Defined { left_out: [0, 8, 16].map(|n| at(word::LEFT_OUT + n)), ..Defined::default() };
    for definition in parse(&bytes[begin..begin + used * 64]).flatten() {
        match definition {
            Definition::Frame(number, ..) => found.frames.push(number),
            Definition::CallSite(number, site, ..) => {
                found.sites.push((number, site.frame.get()));
                found.tensors += usize::from(site.rank > 0);
            }
            _ => {}
        }
    }
    found
}

#[test]
fn shapes_never_take_the_space_of_lines() {
    let folder = memory_folder();
    let tracker = Tracker::new(&Options::default().folder(folder.path().to_str().unwrap()));
    let device = tracker.define_devices(&[0]).unwrap();
    let shapes: u32 = 100_000;
    let repeats = if std::env::var_os("TTMEM_LONG").is_some() { 100 } else { 1 };
    let mut last = Vec::new();
    for n in 0..shapes {
        let line = n % 100 + 1;
        let tensor = Tensor::new(&[n + 1, 32]).data_type(DataType::Bfloat16);
        let site = CallSite::new("model.py", line).function("forward").op("ttnn.add").tensor(tensor);
        let site = tracker.define_call_site(&site).unwrap();
        for _ in 0..repeats {
            tracker.alloc(&Buffer::new(device, Space::Dram, 0x1000, 64).site(site)).unwrap();
            tracker.free(device, Space::Dram, 0x1000).unwrap();
        }
        if n >= shapes - 100 {
            last.push(site.get());
        }
    }
    // A line that is new after all of them still has its name.
    let new = tracker.define_call_site(&CallSite::new("late.py", 7).tensor(Tensor::new(&[1, 2, 3]))).unwrap();
    last.push(new.get());
    let found = read(folder.path());
    assert_eq!(found.frames.len(), 101);
    let frame_of = |site: u32| found.sites.iter().find(|it| it.0 == site).map(|it| it.1);
    for site in last {
        assert!(frame_of(site).is_some_and(|frame| found.frames.contains(&frame)), "site {site}");
    }
    assert!(found.tensors > 1000, "{}", found.tensors);
    let [frames, sites, tensors] = found.left_out;
    assert!(frames == 0 && sites == 0 && tensors > 90_000, "{:?}", found.left_out);
}

#[test]
fn too_many_lines_are_left_out_and_counted() {
    let folder = memory_folder();
    let tracker = Tracker::new(&Options::default().folder(folder.path().to_str().unwrap()));
    let device = tracker.define_devices(&[0]).unwrap();
    for n in 0..20_000 {
        let path = format!("/home/user/{}/ü{n}.py", "folder".repeat(n % 700));
        let site = tracker.define_call_site(&CallSite::new(&path, 1).function("f"));
        let site = site.unwrap_or_default();
        tracker.alloc(&Buffer::new(device, Space::Dram, 0x1000, 64).site(site)).unwrap();
        tracker.free(device, Space::Dram, 0x1000).unwrap();
    }
    // What is essential still has space.
    tracker.define_devices(&[1, 2, 3]).unwrap();
    let found = read(folder.path());
    assert!(found.left_out[0] > 1000, "{:?}", found.left_out);
}
