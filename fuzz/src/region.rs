//! Parses any bytes as a region of tt-metal: nothing panics, and a parsed region can be built and parsed again.

use ttmem_wire::region::{
    CHIP_SLOTS, Layout, MAX_BYTES, NAME_BYTES, PROCESS_SLOTS, Region, RegionError, build, parse,
};

/// Offset and value of the word that marks version 4 as ready.
const READINESS: (usize, u32) = (8536, 0x5245_4459);

fn check(bytes: &[u8]) -> Result<Region, RegionError> {
    let region = parse(bytes)?;
    assert_eq!(bytes.len(), region.layout.bytes());
    assert!(region.chips.len() <= CHIP_SLOTS);
    let taken = region.processes.len() + region.releasing_slots as usize + region.broken_slots as usize;
    assert!(taken <= PROCESS_SLOTS);
    assert_eq!(region.is_full(), taken == PROCESS_SLOTS);
    assert!(region.releasing_slots == 0 || region.layout == Layout::V4);
    assert!(region.processes.windows(2).all(|pair| pair[0].slot < pair[1].slot));
    for process in &region.processes {
        assert!(process.slot < PROCESS_SLOTS && process.pid != 0 && i32::try_from(process.pid).is_ok());
        assert!(process.name.len() <= NAME_BYTES && !process.name.contains(char::is_control));
    }
    let held = region.chips.iter().map(|chip| chip.held);
    let mut held = held.chain(region.processes.iter().map(|process| process.held)).chain([region.totals]);
    assert!(region.layout.has_kernels() || held.all(|levels| levels.kernel == 0));
    assert_eq!(parse(&build(region.layout, &region)).as_ref(), Ok(&region));
    // Another layout may lack some fields, but can be parsed.
    for layout in Layout::ALL {
        let other = parse(&build(layout, &region)).expect("a built region can be parsed");
        assert_eq!(other.layout, layout);
        assert_eq!(other.processes.len(), region.processes.len());
    }
    Ok(region)
}

/// Parses the bytes as a region, and as a piece of a region of any layout.
pub fn region(data: &[u8]) {
    let _ = check(data);
    // The first bytes are the layout, the offset of the piece, and whether it is repeated.
    let Some((&[layout, low, high, mode], piece)) = data.split_first_chunk::<4>() else { return };
    if piece.is_empty() {
        return;
    }
    let layout = Layout::ALL[usize::from(layout) % Layout::ALL.len()];
    let at = usize::from(u16::from_le_bytes([low, high])) % layout.bytes();
    // The rest is zeros, or an empty region with a valid header.
    let mut bytes = if mode & 1 == 0 { vec![0; layout.bytes()] } else { build(layout, &Region::new(layout)) };
    let repeat = if mode & 2 == 0 { piece.len() } else { MAX_BYTES };
    for (to, from) in bytes[at..].iter_mut().zip(piece.iter().cycle().take(repeat)) {
        *to = *from;
    }
    // First as it is, then with a header that is accepted.
    let _ = check(&bytes);
    bytes[..4].copy_from_slice(&layout.version().to_le_bytes());
    if layout == Layout::V4 {
        bytes[READINESS.0..READINESS.0 + 4].copy_from_slice(&READINESS.1.to_le_bytes());
    }
    let region = check(&bytes).expect("its layout is known and it is ready");
    assert_eq!(region.layout, layout);
    // One byte less or more is not a region.
    let unknown = |bytes| Err(RegionError::UnknownLayout { bytes, version: layout.version() });
    let len = bytes.len();
    assert_eq!(check(&bytes[..len - 1]), unknown(len - 1));
    bytes.push(0);
    assert_eq!(check(&bytes), unknown(len + 1));
}
