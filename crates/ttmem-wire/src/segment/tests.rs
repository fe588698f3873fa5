use super::definition::{Banks, CallSite, Chip, Definition, Frame, MAX_BUILD_ID, MAX_BYTES, parse};
use super::*;
use crate::record::{PADDING_UNKNOWN, Space, flags};
use proptest::prelude::*;
use ttmem_types::{DataType, Purpose, Tensor, TensorLayout};
use zerocopy::little_endian::U32;

/// Returns the bytes of a vector in docs/protocol: a block that begins with "```hex" and its name. Each line is an offset and the
/// bytes at that offset; other bytes are zero.
fn vector(name: &str) -> Vec<u8> {
    let pages = [
        include_str!("../../../../docs/protocol/segment.md"),
        include_str!("../../../../docs/protocol/records.md"),
    ];
    let begin = format!("```hex {name}\n");
    let rest = pages.iter().find_map(|page| page.split_once(&begin));
    let (_, rest) = rest.unwrap_or_else(|| panic!("docs/protocol has no vector {name}"));
    let block = rest.split("```").next().unwrap();
    let mut bytes: Vec<u8> = Vec::new();
    for line in block.lines() {
        let (offset, hex) = line.split_once(':').unwrap();
        let offset = usize::from_str_radix(offset.trim(), 16).unwrap();
        let digits: String = hex.split_whitespace().collect();
        let part = (0..digits.len() / 2).map(|n| u8::from_str_radix(&digits[n * 2..n * 2 + 2], 16).unwrap());
        bytes.resize(offset, 0);
        bytes.extend(part);
    }
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

fn plan() -> Plan {
    Plan { rows: 2, definition_blocks: 8, ring_records: 4, slots: 2 }
}

fn header() -> Header {
    let mut header = plan().header();
    header.magic = MAGIC.into();
    header.pid = 4242.into();
    header.uid = 1000.into();
    header.start_ticks = 123_456.into();
    header.pid_namespace = 4_026_531_836.into();
    header.nonce = 0x0123_4567_89ab_cdef.into();
    header.wall_ns = 1_763_193_600_000_000_000.into();
    header.mono_ns = 5_000_000_000.into();
    set_text(&mut header.program, "python");
    set_text(&mut header.writer, "ttmem-client 0.1.0");
    set_text(&mut header.runtime, "ttnn 0.81.1");
    header.run = 0xfedc_ba98_7654_3210.into();
    header
}

fn record() -> Record {
    Record {
        sequence: 7.into(),
        at_ns: 5_000_001_234.into(),
        kind: Kind::Alloc as u8,
        space: Space::L1 as u8,
        allocator: 1.into(),
        flags: flags::MIRROR.into(),
        cores: 1.into(),
        id: 0x15_0000.into(),
        requested: 8000.into(),
        bytes_per_bank: 2048.into(),
        padding: 192.into(),
        program: 0.into(),
        site: 3.into(),
        slot: 1.into(),
    }
}

fn failure() -> crate::failure::Failure {
    crate::failure::Failure {
        needed: 0x6_1560,
        available: Some(0x2_e000),
        cores: 1,
        program: 17,
        site: 3,
        ..crate::failure::Failure::new(ttmem_types::FailureKind::Clash, Some(Space::Cb), 1)
    }
}

#[test]
fn failure_matches_its_vector() {
    let record = Record { sequence: 9.into(), at_ns: 5_000_002_000.into(), ..failure().record() };
    assert_eq!(record.as_bytes(), vector("failure"));
    assert_eq!(crate::failure::Failure::of(&record), Some(failure()));
}

#[test]
fn mark_matches_its_vector() {
    let mark = Record {
        sequence: 10.into(),
        at_ns: 5_000_002_500.into(),
        flags: flags::MEASURED.into(),
        id: 12.into(),
        site: 3.into(),
        ..Record::new(Kind::Mark, None, 0)
    };
    assert_eq!(mark.as_bytes(), vector("mark"));
}

fn chip() -> Chip {
    let mut chip = Chip {
        unique_id: 0x2_61b2_c3d4.into(),
        index: 3.into(),
        arch: 1,
        remote: 1,
        dram_bytes: (12u64 << 30).into(),
        dram_bytes_per_channel: (2u64 << 30).into(),
        l1_bytes_per_core: 1_499_136.into(),
        dram_allocatable: 12_872_318_208.into(),
        l1_allocatable: 78_034_432.into(),
        dram_channels: 6.into(),
        cores: 64.into(),
        ..Chip::default()
    };
    set_text(&mut chip.board, "n300");
    set_text(&mut chip.pci, "0000:01:00.0");
    chip
}

fn row() -> RowCopy {
    RowCopy {
        sequence: 7.into(),
        allocator: 1.into(),
        space: Space::L1 as u8,
        requested: 8000.into(),
        allocated: 8192.into(),
        count: 1.into(),
        peak: 16_384.into(),
        unlisted: 0.into(),
        ..RowCopy::new_zeroed()
    }
}

fn encoded(definition: Definition<'_>) -> Vec<u8> {
    let mut bytes = [0xff; MAX_BYTES];
    let blocks = definition.encode(&mut bytes).unwrap();
    bytes[..blocks * BLOCK].to_vec()
}

#[test]
fn documented_vectors_are_written_and_read() {
    let header_vector = &vector("header")[..size_of::<Header>()];
    assert_eq!(header_vector, header().as_bytes());
    assert_eq!(Header::read_from_bytes(header_vector), Ok(header()));
    assert_eq!(vector("record"), record().as_bytes());
    assert_eq!(Record::parse(&vector("record")), Ok((record(), Kind::Alloc, Some(Space::L1))));
    assert_eq!(vector("row"), row().as_bytes());
    let (chip, banks, chips) = (chip(), banks(), [U16::new(1), U16::new(2)]);
    let cores = [U64::new(0x000f_000f), U64::new(0), U64::new(0), U64::new(0)];
    let frame = Frame { file: 1.into(), line: 42.into(), offset: 0.into() };
    let frames = [U32::new(2), U32::new(3)];
    let call_site = CallSite {
        frame: 2.into(),
        stack: 1.into(),
        op: 5.into(),
        track: 7.into(),
        purpose: Purpose::Tensor as u8,
        data_type: DataType::Bfloat16 as u8 + 1,
        layout: TensorLayout::Tile as u8 + 1,
        rank: 2 + 1,
    };
    let build_id: [u8; 8] = core::array::from_fn(|n| 0xa0 + n as u8);
    let dimensions = [U32::new(32), U32::new(512)];
    let tensor = Tensor::new(&[32, 512]).data_type(DataType::Bfloat16).layout(TensorLayout::Tile);
    assert_eq!(call_site.tensor(&dimensions), Some(tensor));
    let definitions = [
        ("chip", Definition::Chip(1, &chip)),
        ("allocator", Definition::Allocator(1, &banks, &chips)),
        ("cores", Definition::Cores(1, &cores)),
        ("program", Definition::Program(9, "matmul")),
        ("site", Definition::Site(3, "model.py:42 forward")),
        ("file", Definition::File(1, "/home/me/model.py")),
        ("frame", Definition::Frame(2, &frame, "Layer.forward")),
        ("stack", Definition::Stack(1, 4, &frames)),
        ("op", Definition::Op(5, "ttnn.matmul")),
        ("track", Definition::Track(7, "decode / attention")),
        ("call site", Definition::CallSite(6, &call_site, &dimensions, "")),
        ("library", Definition::Library(2, &build_id, "/opt/lib.so")),
    ];
    let mut all = Vec::new();
    for (name, definition) in definitions {
        assert_eq!(vector(name), encoded(definition), "{name}");
        all.extend(vector(name));
    }
    let read: Vec<_> = parse(&all).map(Option::unwrap).collect();
    assert_eq!(read, definitions.map(|(_, definition)| definition));
}

fn banks() -> [Banks; 2] {
    [Banks::new(Space::Dram, 12, 1_048_640, 1_072_693_184), Banks::new(Space::L1, 64, 105_824, 1_393_312)]
}

#[test]
fn invalid_file_names_are_refused() {
    assert_eq!(parse_name(b"ttmem.4242.0123456789abcdef"), Some((4242, 0x0123_4567_89ab_cdef)));
    for bad in [
        "ttmem.4242",
        "ttmem.4242.123",
        "ttmem.x.0123456789abcdef",
        "ttmem.4242.0123456789abcdeg",
        "ttmem.+42.0123456789abcdef",
        "ttmem.99999999999.0123456789abcdef",
        "xttmem.1.0123456789abcdef",
        "ttmem.1.0123456789abcdef.bak",
    ] {
        assert_eq!(parse_name(bad.as_bytes()), None, "{bad}");
    }
}

/// The version matrix of PROTOCOL.md: an old reader and a new writer, and the reverse.
#[test]
fn version_matrix_holds() {
    let bytes = plan().bytes(2) as u64;
    let with = |change: &dyn Fn(&mut Header)| {
        let mut header = header();
        change(&mut header);
        Layout::of(&header, 1 << 20)
    };
    // The current, an older and a newer minor version.
    assert_eq!(Layout::of(&header(), bytes).unwrap().table, plan().table_offset() as u64);
    assert!(with(&|h| h.minor = 0.into()).is_ok());
    assert!(with(&|h| h.minor = 99.into()).is_ok());
    // A newer minor version may have a longer header, longer rows, and unknown areas between the known ones.
    let longer = with(&|h| {
        h.minor = (MINOR + 1).into();
        h.header_bytes = 8192.into();
        h.row_bytes = 256.into();
        h.rows_offset = 8192.into();
        h.definitions_offset = (8192 + 2 * 256u64).into();
        h.ring_offset = 20_000.into();
        h.table_offset = 40_000.into();
    });
    let longer = longer.unwrap();
    assert_eq!((longer.rows, longer.ring, longer.table), ((8192, 2, 256), (20_000, 4), 40_000));
    // In another major version, the same bytes have another meaning.
    assert_eq!(with(&|h| h.major = 2.into()), Err(SegmentError::Version(2, MINOR)));
    assert_eq!(with(&|h| h.major = 0.into()), Err(SegmentError::Version(0, MINOR)));
    // Definitions, kinds and spaces of later versions are skipped.
    let mut unknown = encoded(Definition::Site(1, "x"));
    unknown[0] = 200;
    unknown.extend(encoded(Definition::Program(2, "y")));
    assert_eq!(parse(&unknown).collect::<Vec<_>>(), [None, Some(Definition::Program(2, "y"))]);
    assert_eq!(Kind::from_byte(200), None);
    assert_eq!(Space::from_number(200), None);
}

#[test]
fn contradictory_header_is_refused() {
    let file = plan().bytes(2) as u64;
    let with = |change: &dyn Fn(&mut Header)| {
        let mut header = header();
        change(&mut header);
        Layout::of(&header, file).unwrap_err()
    };
    assert_eq!(with(&|h| h.magic = 0.into()), SegmentError::BeingMade);
    assert_eq!(with(&|h| h.magic = 1.into()), SegmentError::Magic);
    assert_eq!(with(&|h| h.rows = u32::MAX.into()), SegmentError::TooMany("rows"));
    assert_eq!(
        with(&|h| h.ring_records = 0.into()),
        SegmentError::Contradiction("ring length is no power of two")
    );
    assert_eq!(with(&|h| h.header_bytes = 100.into()), SegmentError::Contradiction("header is too short"));
    assert_eq!(with(&|h| h.row_bytes = 64.into()), SegmentError::Contradiction("row length"));
    assert_eq!(with(&|h| h.rows_offset = 0.into()), SegmentError::Contradiction("rows"));
    assert_eq!(with(&|h| h.ring_offset = u64::MAX.into()), SegmentError::Contradiction("ring"));
    assert_eq!(with(&|h| h.ring_offset = (u64::MAX - 7).into()), SegmentError::Contradiction("ring"));
    assert_eq!(with(&|h| h.ring_offset = (1u64 << 40).into()), SegmentError::Truncated("ring"));
    assert_eq!(with(&|h| h.table_offset = 4096.into()), SegmentError::Contradiction("table"));
    let layout = Layout::of(&header(), file).unwrap();
    let vitals = |slots: u64| Vitals { slots: slots.into(), ..Vitals::new_zeroed() };
    assert_eq!(layout.slots(&vitals(2), file), Ok(2));
    assert_eq!(layout.slots(&vitals(3), file), Err(SegmentError::Truncated("table")));
    assert_eq!(layout.slots(&vitals(u64::MAX), file), Err(SegmentError::TooMany("slots")));
}

proptest! {
    #[test]
    fn definitions_are_read_as_written(
        chips in prop::collection::vec(any::<u16>(), 0..200), count in 0..3usize, number in any::<u16>(),
        words in any::<[u64; 4]>(), text in "\\PC{0,300}", build_id in prop::collection::vec(any::<u8>(), 0..=MAX_BUILD_ID),
    ) {
        let banks = &banks()[..count.min(2)];
        let chips: Vec<U16> = chips.into_iter().map(U16::new).collect();
        let (words, chip) = (words.map(U64::new), chip());
        let all = [
            Definition::Allocator(number, banks, &chips),
            Definition::Cores(number, &words),
            Definition::Site(u32::from(number) << 8, &text),
            Definition::Chip(number, &chip),
            Definition::Program(7, &text),
            Definition::Library(8, &build_id, &text),
        ];
        let bytes: Vec<u8> = all.iter().flat_map(|definition| encoded(*definition)).collect();
        prop_assert_eq!(parse(&bytes).map(Option::unwrap).collect::<Vec<_>>(), all);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        // At most one definition per block, whatever lengths they have.
        prop_assert!(parse(&bytes).count() <= bytes.len() / BLOCK);
        newest_copy(&bytes);
        if let Ok((header, _)) = Header::read_from_prefix(&bytes) {
            let _ = Layout::of(&header, bytes.len() as u64);
        }
        let mut table = Vec::new();
        for chunk in bytes.chunks_exact(SIZE) {
            if let Ok((mut record, kind, _)) = Record::parse(chunk) {
                // The table grows up to the slot, so slots are limited here.
                record.slot = (record.slot.get() % 5000).into();
                replay(&mut table, &record, kind);
            }
        }
        prop_assert!(table.len() <= 5000);
    }

    /// A slot of a copy may have any contents, if a record that is replayed later changes it.
    #[test]
    fn replaying_completes_a_torn_copy(
        steps in prop::collection::vec((0..6u32, 0..4u8, 1..3u32), 1..60),
        split in any::<prop::sample::Index>(), garbage in any::<[u8; 64]>(),
    ) {
        let mut sequence = 0;
        let records: Vec<(Record, Kind)> = steps
            .into_iter()
            .map(|(slot, what, program)| {
                sequence += 1;
                let kind = [Kind::Alloc, Kind::Free, Kind::Dispatch, Kind::ProgramEnd][usize::from(what)];
                let slot = if kind == Kind::ProgramEnd { NO_SLOT } else { slot };
                let sequence = U64::new(sequence);
                (Record { sequence, kind: kind as u8, slot: slot.into(), program: program.into(), ..record() }, kind)
            })
            .collect();
        let run = |records: &[(Record, Kind)], table: &mut Vec<Record>| {
            for (record, kind) in records {
                replay(table, record, *kind);
            }
        };
        let live = |table: &[Record]| -> Vec<(usize, Record)> {
            let live = table.iter().copied().enumerate();
            live.filter(|(_, slot)| slot.sequence.get() != 0).collect()
        };
        let mut truth = Vec::new();
        run(&records, &mut truth);
        // The copy began after some records; slots that changed since have arbitrary contents.
        let split = split.index(records.len());
        let mut copy = Vec::new();
        run(&records[..split], &mut copy);
        for (record, _) in records[split..].iter().filter(|(_, kind)| table_change(*kind) == TableChange::Put) {
            let slot = record.slot.get() as usize;
            copy.resize(copy.len().max(slot + 1), Record::new_zeroed());
            copy[slot] = Record::read_from_bytes(&garbage).unwrap();
        }
        run(&records[split..], &mut copy);
        prop_assert_eq!(live(&copy), live(&truth));
    }
}

#[test]
fn text_is_cut_at_a_character_boundary() {
    let mut field = [0xff; 5];
    set_text(&mut field, "abcdé");
    assert_eq!(text(&field), "abcd");
    assert_eq!(text(&[b'a', 0xff, 0, b'x']), "a");
    assert_eq!(PADDING_UNKNOWN, PADDING_UNKNOWN);
}
