//! Devices that are on no bus: the second one of a board, behind the first.

use super::*;
use ttmem_client::{Buffer, Chip, Options, Space, Tracker};

/// An n300 whose devices runtimes know by these ids.
const SERIAL: u64 = 0x0100_0146_1190_302b;
const SECOND: u64 = 0x3_6190_302b;

fn n300() -> Machine {
    let mut machine = Machine::new("2.10.0");
    machine.add_card(Card { serial: SERIAL, ..Card::new("n300", 0) });
    machine
}

/// A process that uses a device that it knows by this id.
fn tracker(machine: &Machine, unique_id: u64, board: &str, arch: Arch) -> Tracker {
    let folder = machine.root().join("dev/shm");
    let tracker = Tracker::new(&Options::default().folder(folder.to_str().unwrap()));
    let chip = Chip::default().unique_id(unique_id).index(1).remote(true).board(board).arch(arch);
    let chip = tracker.define_chip(&chip).unwrap();
    let allocator = tracker.define_allocator(&[chip], &[]).unwrap();
    tracker.alloc(&Buffer::new(allocator, Space::Dram, 0x1000, 4096)).unwrap();
    tracker
}

#[test]
fn second_device_of_an_n300_is_inferred() {
    let machine = n300();
    let snapshot = read_snapshot(&machine);
    let [first, second] = &snapshot.devices[..] else { panic!("{:#?}", snapshot.devices) };
    assert_eq!((first.remote, first.inferred), (false, false));
    assert_eq!((second.index, second.remote, second.inferred), (1, true, true));
    assert_eq!(second.id, format!("{SECOND:#018x}"));
    assert_eq!(second.capacity.unwrap().l1_bytes, 95_944_704);
    let page = String::from_utf8(ttmem(&machine, &[]).stdout).unwrap();
    assert!(page.contains("\n1   n300 R "), "{page}");
}

#[test]
fn process_confirms_an_inferred_device() {
    // By any id that a runtime derives, and by one that is not known here.
    for id in [SECOND, SERIAL << 8 | 1, 0x1234_5678] {
        let machine = n300();
        let server = start_daemon(&machine);
        assert!(server.device(1).inferred);
        let tracker = tracker(&machine, id, "n300", Arch::WormholeB0);
        let device = eventually("it is used", || Some(server.device(1)).filter(|it| it.usage.dram.is_some()));
        assert!(device.remote && !device.inferred, "{id:#x}: {device:#?}");
        assert_eq!(server.snapshot().devices.len(), 2, "{id:#x}");
        // What a process reported of it is kept.
        tracker.close();
        eventually("it is not used", || {
            server.device(1).usage.dram.is_none_or(|dram| dram.count == Some(0)).then_some(())
        });
        assert!(!server.device(1).inferred, "{id:#x}");
    }
}

#[test]
fn second_device_of_a_p300_is_inferred_if_it_is_on_no_bus() {
    let mut machine = Machine::new("2.10.0");
    machine.add_card(Card::new("p300b", 0));
    let server = start_daemon(&machine);
    let device = server.device(1);
    assert_eq!((device.board.as_deref(), device.remote, device.inferred), (Some("p300b"), true, true));
    assert_eq!(device.capacity.unwrap().cores, 120);
    let _tracker = tracker(&machine, 0x77, "p300b", Arch::Blackhole);
    eventually("it is confirmed", || (!server.device(1).inferred).then_some(()));
    assert_eq!(server.snapshot().devices.len(), 2);
    assert!(server.device(1).names.contains(&format!("{:#018x}", 0x77)), "{:#?}", server.device(1));
}

#[test]
fn old_clients_use_inferred_devices() {
    let machine = machine::t3k("2.10.0");
    let server = start_daemon(&machine);
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(6, DRAM, 0x1000, 1 << 30);
    assert_eq!(client.query(6).levels.dram, 1 << 30);
    assert_eq!(client.device_info(-1).capacity.num_devices, 8);
    assert_eq!(client.device_info(6).capacity.total_l1_size, 95_944_704);
    let page = Command::new(exe()).arg("--query-socket").arg(&server.query).output().unwrap();
    let page = String::from_utf8(page.stdout).unwrap();
    assert!(page.contains("\n6   n300 R "), "{page}");
    assert!(!page.contains("Unknown"), "{page}");
}

#[test]
fn descriptor_replaces_inferred_devices() {
    let machine = n300();
    let path = machine.root().join("topology.yaml");
    fs::write(&path, "arch: {0: wormhole}\nchips_with_mmio: [0: 0]\nharvesting: {0: {harvest_mask: 0}}\n")
        .unwrap();
    let output = ttmem(&machine, &["--json", "--topology", path.to_str().unwrap()]);
    assert_eq!(parse_snapshot(&output).devices.len(), 1, "a descriptor has all devices");
}
