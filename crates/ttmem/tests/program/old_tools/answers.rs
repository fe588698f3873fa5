//! Answers to old clients: levels in each field, and text dumps.

use super::dump_text;
use crate::segments::daemon;
use crate::*;
use std::io::Write;
use std::os::unix::net::UnixStream;
use ttmem_core::snapshot::Usage;
use ttmem_core::words::Space;
use ttmem_testkit::producer::{Held, L1_SMALL, Producer, UNRESERVED};
use ttmem_testkit::{Client, eventually};
use ttmem_wire::legacy::{DeviceInfo, Levels, Vintage};

/// Allocations of one device and space that a dump lists.
const LISTED: usize = 1000;

/// What spaces use together. Each of them must use something, or its field would not be tested.
fn sum(usage: &Usage, spaces: &[Space]) -> u64 {
    let used = |space: &Space| usage.used(*space).map(|(bytes, _)| bytes).filter(|&bytes| bytes > 0);
    spaces.iter().map(|space| used(space).unwrap_or_else(|| panic!("{space} is not used"))).sum()
}

#[test]
fn every_space_is_in_one_field_of_an_answer() {
    let server = daemon();
    let folder = server.segments.path().to_str().unwrap();
    let mut producer = Producer::start_through(&[], &[("TTMEM_SHM_DIR", folder)]);
    producer.define_grid(1, 4, 2);
    let all = [(0, 0), (3, 1)];
    producer.alloc(0x1000, 12_000);
    producer.alloc_l1(L1_SMALL - 8192, 8192, None);
    producer.alloc_l1_small(L1_SMALL, 1024);
    producer.alloc_l1_core(L1_SMALL - 65536, 2048, [(1, 0), (2, 0)]);
    producer.program(7, all);
    producer.begin_program(7, "matmul".to_owned());
    producer.hold(7, Held::Cb, UNRESERVED, 4096, all);
    producer.hold(7, Held::Dfb, UNRESERVED + 4096, 1024, all);
    producer.hold(7, Held::Scratch, UNRESERVED + 5120, 512, [(0, 0), (0, 0)]);
    producer.load_kernel(7, 1, 6144, all);
    producer.dispatch(7);
    server.snapshot();
    // A second process, with kernels reported by hand.
    let mut client = Client::connect(&server, Vintage::V144);
    client.kernel_load(0, 1, 5, 57_344);
    client.alloc(0, TRACE, 0x9000, 300);
    let levels = client.query(0).levels;
    let usage = server.usage(0);
    let expected = Levels {
        dram: sum(&usage, &[Space::Dram]),
        l1: sum(&usage, &[Space::L1, Space::L1Core]),
        l1_small: sum(&usage, &[Space::L1Small]),
        trace: sum(&usage, &[Space::Trace]),
        cb: sum(&usage, &[Space::Cb, Space::Dfb, Space::Scratch]),
        kernel: usage.kernel.as_ref().unwrap().registered_bytes,
    };
    assert_eq!(levels, expected);
    assert_eq!(levels.kernel, 8 * 6144 + 57_344, "of both processes");
    assert_eq!((levels.l1, levels.l1_small), (8 * 8192 + 2 * 2048, 8 * 1024));
    assert_eq!(levels.cb, 8 * (4096 + 1024) + 512);
    // Without the kernels, which are loaded but not all in L1, the fields are the device's total.
    let total = usage.l1_total.unwrap().used_bytes;
    let kernels = total - (levels.l1 + levels.l1_small + levels.cb);
    assert!(kernels <= levels.kernel, "{kernels} of {} bytes of kernels", levels.kernel);
}

#[test]
fn device_info_has_the_levels_of_a_query() {
    let server = server();
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(1, DRAM, 0x1000, 4096);
    client.alloc(1, L1, 0x2000, 2048);
    client.cb_alloc(1, 0x19d60, 1024);
    client.kernel_load(1, 0, 7, 512);
    client.sync();
    for vintage in Vintage::ALL {
        let mut client = Client::connect(&server, vintage);
        let info = client.device_info(1);
        assert_eq!(info.levels, client.query(1).levels, "{vintage:?}");
        assert_eq!((info.levels.dram, info.levels.l1), (4096, 2048), "{vintage:?}");
        let has_programs = vintage >= Vintage::V128;
        let expected = if has_programs { (1024, 512) } else { (0, 0) };
        assert_eq!((info.levels.cb, info.levels.kernel), expected, "{vintage:?}");
        for other in [-1, 9] {
            assert_eq!(client.device_info(other).levels, Levels::default(), "{vintage:?} {other}");
        }
        assert_eq!(client.device_info(9).capacity, DeviceInfo::default());
    }
}

#[test]
fn dump_lists_every_buffer_or_counts_the_rest() {
    let server = server();
    assert!(dump_text(&server).contains("Total tracked allocations: 0\nNo allocations remain.\n"));
    let mut client = Client::connect(&server, Vintage::V144);
    for (device, count) in [1, 10, 15, 5000].into_iter().enumerate() {
        for n in 0..count {
            client.alloc(device as i32, DRAM, n << 12, 2048);
            client.cb_alloc(device as i32, n << 12, 1024);
            client.kernel_load(device as i32, 0, n, 512);
        }
    }
    client.sync();
    let text = dump_text(&server);
    for (device, count) in [1, 10, 15, 5000].into_iter().enumerate() {
        let part = text.split(&format!("\nDevice {device}:\n")).nth(1).unwrap();
        let part = part.split("\nDevice ").next().unwrap();
        for (title, noun, nouns) in
            [("DRAM", "Buffer", "buffers"), ("CBs", "CB", "CBs"), ("Kernels", "Kernel", "kernels")]
        {
            assert!(part.contains(&format!("  {title}: {count} {nouns}, ")), "{part}");
            let listed = part.matches(&format!("\n    - {noun} 0x")).count();
            assert_eq!(listed, count.min(LISTED), "{title} of device {device}");
        }
        let rest = format!("    … and {} more; all: ttmem dump --all\n", count.saturating_sub(LISTED));
        assert_eq!(part.matches(&rest).count(), if count > LISTED { 3 } else { 0 }, "{part}");
    }
    assert!(text.contains("\nTotal tracked allocations: 15078\n"), "{text}");
}

#[test]
fn unread_dumps_take_little_memory() {
    let server = Server::start(exe(), &["--sim", "galaxy-wh", "--quiet"]);
    let mut client = Client::connect(&server, Vintage::V144);
    for device in 0..10 {
        for n in 0..1000 {
            client.alloc(device, DRAM, n << 12, 2048);
        }
    }
    client.sync();
    let before = server.resident_bytes();
    let mut silent = Vec::new();
    for _ in 0..60 {
        let mut person = UnixStream::connect(&server.legacy).unwrap();
        person.write_all(b"\n").unwrap();
        person.shutdown(std::net::Shutdown::Write).unwrap();
        silent.push(person);
    }
    // Each of these dumps has 10,000 lines, until too much waits to be read.
    let short = eventually("a dump without single buffers", || {
        let text = dump_text(&server);
        text.contains("\n    … and 1000 more; all: ttmem dump --all\n").then_some(text)
    });
    assert!(!short.contains("- Buffer 0x"), "{short}");
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes more");
    assert_eq!(client.query(0).levels.dram, 1000 * 2048, "others are served");
    drop(silent);
    eventually("complete dumps again", || dump_text(&server).contains("- Buffer 0x").then_some(()));
}
