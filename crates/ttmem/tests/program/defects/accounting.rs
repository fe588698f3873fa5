//! Defects of accounting.

use super::*;

#[test]
fn defect_09_repeated_cb_is_counted_once() {
    let server = server();
    let mut puppet = Puppet::new(&server.legacy);
    for _ in 0..5 {
        puppet.send(Type::CbAlloc, 0, 0, 0x19d60, 4096);
        puppet.send(Type::KernelLoad, 0, 0, 9, 512);
    }
    let mut client = client(&server);
    assert_eq!((client.query(0).levels.cb, client.query(0).levels.kernel), (4096, 512));
    puppet.kill();
    assert_eq!(client.query(0).levels, Levels::default());
}

#[test]
fn defect_10_freeing_an_unknown_cb_does_not_wrap() {
    let server = server();
    let mut client = client(&server);
    client.cb_free(0, 0x19d60, 4096);
    client.kernel_unload(0, 5, 4096);
    client.free(0, 5);
    assert_eq!(client.query(0).levels, Levels::default());
    assert_eq!(finding(&server, FindingKind::UnknownFree).unwrap().severity, Severity::Info);
    client.cb_alloc(0, 0x19d60, 100);
    client.cb_free(0, 0x19d60, 100);
    client.cb_free(0, 0x19d60, 100);
    assert_eq!(client.query(0).levels.cb, 0);
    assert!(finding(&server, FindingKind::DoubleFree).is_some());
}

#[test]
fn defect_11_recorded_size_is_freed() {
    let server = server();
    let mut client = client(&server);
    client.kernel_load(0, 0, 1, 1000);
    client.kernel_load(0, 0, 2, 50);
    client.cb_alloc(0, 0x100, 1000);
    client.kernel_unload(0, 1, 10);
    client.cb_free(0, 0x100, 999_999);
    let levels = client.query(0).levels;
    assert_eq!((levels.kernel, levels.cb), (50, 0));
    let findings = server.snapshot().findings;
    let mismatches: u64 =
        findings.iter().filter(|f| f.kind == FindingKind::SizeMismatch).map(|f| f.count).sum();
    assert_eq!(mismatches, 2);
}

#[test]
fn defect_12_conflicts_at_an_address_are_not_ignored() {
    let server = server();
    let mut mine = client(&server);
    mine.alloc(0, DRAM, 0x1000, 100);
    mine.alloc(0, DRAM, 0x1000, 100);
    mine.alloc(0, DRAM, 0x1000, 300);
    assert_eq!(mine.query(0).levels.dram, 300);
    assert!(finding(&server, FindingKind::Replaced).is_some());
    mine.alloc(0, L1, 0x1000, 7);
    assert_eq!((mine.query(0).levels.dram, mine.query(0).levels.l1), (300, 7));
    let mut puppet = Puppet::new(&server.legacy);
    puppet.send(Type::Alloc, 0, DRAM, 0x1000, 5);
    assert_eq!(mine.query(0).levels.dram, 305);
    assert!(finding(&server, FindingKind::Aliased).is_some());
}

#[test]
fn defect_13_exit_does_not_affect_other_owners() {
    let server = server();
    let mut first = Puppet::new(&server.legacy);
    let mut second = Puppet::new(&server.legacy);
    first.send(Type::Alloc, 0, DRAM, 0x1000, 4096);
    second.send(Type::Alloc, 0, DRAM, 0x1000, 4096);
    first.kill();
    let mut client = client(&server);
    assert_eq!(client.query(0).levels.dram, 4096);
    second.send(Type::Free, 0, 0, 0x1000, 0);
    assert_eq!(client.query(0).levels.dram, 0);
    assert!(finding(&server, FindingKind::UnknownFree).is_none());
}

#[test]
fn defect_14_reused_address_is_no_double_free() {
    let server = server();
    let mut client = client(&server);
    for size in 1..=200 {
        client.alloc(0, L1, 0x1000, size);
        client.free(0, 0x1000);
    }
    assert_eq!(client.query(0).levels.l1, 0);
    assert!(server.snapshot().findings.is_empty());
    client.free(0, 0x1000);
    client.sync();
    assert_eq!(finding(&server, FindingKind::DoubleFree).unwrap().count, 1);
}

#[test]
fn defect_15_second_report_adds_a_reference_only() {
    let server = server();
    let mut client = client(&server);
    client.alloc(0, DRAM, 0x1000, 4096);
    client.alloc(0, DRAM, 0x1000, 4096);
    assert_eq!(client.query(0).levels.dram, 4096);
    assert_eq!(server.allocations()[0]["references"], 2);
    client.free(0, 0x1000);
    assert_eq!(client.query(0).levels.dram, 4096);
    client.free(0, 0x1000);
    assert_eq!(client.query(0).levels.dram, 0);
    server.wait_for_log("ref_count=1 remaining");
}

#[test]
fn defect_16_free_affects_its_own_device_only() {
    let server = server();
    let mut client = client(&server);
    for device in 0..8 {
        client.alloc(device, DRAM, 0x1000, 100 + device as u64);
    }
    client.free(5, 0x1000);
    for device in 0..8 {
        let expected = if device == 5 { 0 } else { 100 + device as u64 };
        assert_eq!(client.query(device).levels.dram, expected);
    }
}

#[test]
fn defect_17_unfreed_memory_is_reclaimed_at_exit() {
    let server = server();
    let mut puppet = Puppet::new(&server.legacy);
    for kind in [DRAM, L1, HOST, L1_SMALL, TRACE] {
        puppet.send(Type::Alloc, 0, kind, 0x1000, 64);
    }
    assert_eq!(server.allocations().len(), 5);
    puppet.kill();
    assert!(server.allocations().is_empty());
    assert_eq!(server.snapshot().health.live_records, 0);
    assert_eq!(finding(&server, FindingKind::Reclaimed).unwrap().bytes, Some(5 * 64));
}

#[test]
fn defect_18_cached_programs_are_not_active() {
    let server = server();
    let mut client = client(&server);
    // Ten cached programs whose circular buffers have the same addresses.
    for program in 0..10 {
        client.cb_alloc(0, 0x19d60, 65_536 + program);
        client.kernel_load(0, 0, program, 1000);
    }
    client.sync();
    let usage = server.usage(0);
    let cb = usage.cb.unwrap();
    assert_eq!((cb.registered_bytes, cb.resident_bytes, cb.count), (65_545, None, Some(10)));
    let kernel = usage.kernel.unwrap();
    assert_eq!((kernel.registered_bytes, kernel.resident_bytes), (10_000, None));
}

#[test]
fn defect_19_use_above_the_capacity_is_flagged() {
    let server = server();
    assert_eq!(server.device(0).capacity.unwrap().l1_bytes, 95_944_704);
    let mut client = client(&server);
    client.alloc(0, L1, 0, 95_944_704);
    client.sync();
    assert!(finding(&server, FindingKind::OverCapacity).is_none());
    client.alloc(0, L1_SMALL, 0, 4096);
    client.sync();
    let over = finding(&server, FindingKind::OverCapacity).unwrap();
    assert_eq!((over.severity, over.bytes), (Severity::Error, Some(4096)));
    assert_eq!(server.usage(0).l1_total.unwrap().used_bytes, 95_944_704 + 4096, "shown, not clamped");
}

#[test]
fn kernels_that_are_never_unloaded_are_not_in_use() {
    let server = server();
    let mut client = client(&server);
    client.alloc(0, L1, 0, 1 << 20);
    for kernel in 0..100 {
        client.kernel_load(0, 0, kernel, 2 << 20);
    }
    assert_eq!(client.query(0).levels.kernel, 200 << 20, "as the old server counted them");
    let usage = server.usage(0);
    assert_eq!(usage.kernel.unwrap().registered_bytes, 200 << 20);
    assert_eq!(usage.l1_total.unwrap().used_bytes, 1 << 20);
    assert!(finding(&server, FindingKind::OverCapacity).is_none());
}

#[test]
fn defect_20_freeing_one_cb_leaves_the_others() {
    let server = server();
    let mut client = client(&server);
    client.cb_alloc(0, 0x1000, 100);
    client.cb_alloc(0, 0x2000, 200);
    client.cb_alloc(0, 0x1000, 300);
    client.cb_free(0, 0x1000, 300);
    assert_eq!(client.query(0).levels.cb, 300);
    assert_eq!(server.usage(0).cb.unwrap().count, Some(2));
}

#[test]
fn defect_21_trace_is_dram_and_l1_small_is_l1() {
    let server = server();
    let mut client = client(&server);
    client.alloc(0, TRACE, 0, 1 << 20);
    client.alloc(0, L1_SMALL, 0, 1 << 10);
    client.alloc(0, HOST, 0, 1 << 30);
    client.sync();
    let usage = server.usage(0);
    let (dram, l1) = (usage.dram_total.unwrap(), usage.l1_total.unwrap());
    assert_eq!((dram.used_bytes, dram.capacity_bytes), (1 << 20, Some(12 << 30)));
    assert_eq!((l1.used_bytes, l1.capacity_bytes), (1 << 10, Some(95_944_704)));
    assert_eq!(usage.host.unwrap().requested_bytes, 1 << 30, "known, and in no total");
    assert_eq!(client.query(0).levels.l1_small, 1 << 10);
}

#[test]
fn defect_22_unused_fields_are_zero() {
    let server = server();
    let mut client = client(&server);
    client.kernel_load(0, 0, 1, 4096);
    client.sync();
    let mut buffer = [0; MAX_SIZE];
    let question = message(Type::Query, 0, 0, 0, 0).encode(Vintage::V144, &mut buffer).to_vec();
    client.stream.write_all(&question).unwrap();
    let mut answer = [0xff; 144];
    client.stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[128..], [0; 16]);
    let text = String::from_utf8(ask(&server.query, &Request::SNAPSHOT).unwrap()).unwrap();
    assert!(!text.contains("ring"), "{text}");
    assert_eq!(answer[80..88], 4096u64.to_le_bytes());
    assert_eq!(server.usage(0).kernel.unwrap().registered_bytes, 4096);
}

#[test]
fn defect_23_unknown_free_is_information() {
    let server = server();
    let mut client = client(&server);
    client.free(2, 0xabcd);
    client.sync();
    let unknown = finding(&server, FindingKind::UnknownFree).unwrap();
    assert_eq!((unknown.severity, unknown.count), (Severity::Info, 1));
    server.wait_for_log("unknown buffer 0xabcd on device 2 (allocated before tracking started)");
    assert_eq!(server.warnings(), "");
}
