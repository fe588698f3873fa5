//! Positions of a machine's chips, and its ethernet links. The runtime finds the mesh by following the links, so they must be
//! those of the real machines.

use super::board::Board;
use ttmem_types::Arch;

/// Position of a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Number of the card.
    pub(crate) card: usize,
    /// Number on the card, from 1 in galaxies and from 0 in other machines.
    pub(crate) location: usize,
    /// PCIe bus of the chip, or of the local chip that it is reached through.
    pub(crate) bus: u8,
    /// Whether the host reaches the chip over PCIe, not through another chip.
    pub(crate) local: bool,
    /// Column and row that the firmware of older Wormhole machines assigns to a chip.
    pub(crate) coordinates: Option<(usize, usize)>,
}

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) chip: usize,
    pub(crate) channel: u32,
}

pub(crate) type Link = [End; 2];

/// Chips and links of a machine.
pub(crate) struct Topology {
    pub(crate) places: Vec<Place>,
    pub(crate) links: Vec<Link>,
}

impl Topology {
    pub(crate) fn of(board: Board) -> Self {
        match board {
            Board::N150 => {
                Self { places: vec![Place { coordinates: Some((0, 0)), ..alone(0) }], links: vec![] }
            }
            Board::P100 | Board::P150 => Self { places: vec![alone(0)], links: vec![] },
            Board::N300 => n300s(1),
            Board::T3k => n300s(4),
            Board::P300 => p300(),
            Board::P150x8 => p150x8(),
            Board::Galaxy | Board::BhGalaxy => galaxy(board.arch()),
        }
    }

    /// Adds parallel links between two chips, from these channels upwards.
    fn wire(&mut self, a: End, b: End, count: u32) {
        let next = |end: End, n| End { channel: end.channel + n, ..end };
        self.links.extend((0..count).map(|n| [next(a, n), next(b, n)]));
    }
}

fn end(chip: usize, channel: u32) -> End {
    End { chip, channel }
}

/// The only chip of a card.
fn alone(card: usize) -> Place {
    Place { card, location: 0, bus: 0x01 + 0x20 * card as u8, local: true, coordinates: None }
}

/// n300 cards: one, or the four of a T3000, whose local chips form the inner square and whose remote chips are on both sides.
/// Local chips come first, as the driver numbers them.
fn n300s(cards: usize) -> Topology {
    let mut machine = Topology { places: vec![], links: vec![] };
    for local in [true, false] {
        for card in 0..cards {
            let coordinates = Some(match (cards, card / 2, local) {
                (1, _, _) => (0, usize::from(!local)),
                (_, 0, true) => (1, card % 2),
                (_, 0, false) => (0, card % 2),
                (_, _, true) => (2, card % 2),
                (_, _, false) => (3, card % 2),
            });
            machine.places.push(Place { location: usize::from(!local), local, coordinates, ..alone(card) });
        }
    }
    for card in 0..cards {
        machine.wire(end(card, 8), end(cards + card, 0), 2);
    }
    if cards == 4 {
        let cables = [(0, 1, 14), (2, 3, 14), (0, 2, 6), (1, 3, 0), (4, 5, 6), (6, 7, 6)];
        for (a, b, channel) in cables {
            machine.wire(end(a, channel), end(b, channel), 2);
        }
    }
    machine
}

fn p300() -> Topology {
    let second = Place { location: 1, bus: 0x02, ..alone(0) };
    let links = vec![[end(0, 2), end(1, 9)], [end(0, 3), end(1, 8)]];
    Topology { places: vec![alone(0), second], links }
}

/// Eight cards, cabled to two parallel rings of four.
fn p150x8() -> Topology {
    let mut machine = Topology { places: (0..8).map(alone).collect(), links: vec![] };
    for row in 0..2 {
        for column in 0..4 {
            machine.wire(end(row * 4 + column, 4), end(row * 4 + (column + 1) % 4, 6), 2);
        }
    }
    for column in 0..4 {
        machine.wire(end(column, 8), end(4 + column, 10), 2);
    }
    machine
}

/// Rows of a tray's chips.
const TRAY_ROWS: usize = 4;
/// Columns of a tray's chips.
const TRAY_COLUMNS: usize = 2;

/// First channel towards each side of a chip. Trays are mirrored, so sides are named after the machine's edge and middle.
struct Sides {
    row_out: u32,
    row_in: u32,
    column_out: u32,
    column_in: u32,
    /// Links to each side.
    links: u32,
    /// Whether opposite edges are cabled, too.
    torus: bool,
}

/// Four trays of eight chips, one in each corner of an 8x4 mesh: a tray's first chip is in the corner, the next three follow
/// along the long edge, the second four are beside them.
fn galaxy(arch: Arch) -> Topology {
    let (buses, sides) = match arch {
        // Per tray, in the order of their buses: whether it is at the bottom, whether it is at the right.
        Arch::WormholeB0 => (
            [(false, true), (true, false), (true, true), (false, false)],
            Sides { column_out: 0, row_out: 4, row_in: 8, column_in: 12, links: 4, torus: false },
        ),
        Arch::Blackhole => (
            [(false, false), (false, true), (true, true), (true, false)],
            Sides { column_out: 0, row_out: 2, row_in: 4, column_in: 6, links: 2, torus: true },
        ),
    };
    let chip = |tray: usize, row: usize, column: usize| (tray * TRAY_COLUMNS + column) * TRAY_ROWS + row;
    let mut machine = Topology { places: vec![], links: vec![] };
    for tray in 0..buses.len() {
        for location in 1..=TRAY_ROWS * TRAY_COLUMNS {
            let bus = (tray * 0x40 + location) as u8;
            machine.places.push(Place { card: tray, location, bus, local: true, coordinates: None });
        }
        for row in 0..TRAY_ROWS {
            let (outer, inner) = (chip(tray, row, 0), chip(tray, row, 1));
            machine.wire(end(outer, sides.column_in), end(inner, sides.column_out), sides.links);
        }
        for row in 1..TRAY_ROWS {
            for column in 0..TRAY_COLUMNS {
                let (outer, inner) = (chip(tray, row - 1, column), chip(tray, row, column));
                machine.wire(end(outer, sides.row_in), end(inner, sides.row_out), sides.links);
            }
        }
    }
    for (a, (bottom, right)) in buses.into_iter().enumerate() {
        for (b, (other_bottom, other_right)) in buses.into_iter().enumerate().skip(a + 1) {
            if right == other_right {
                for column in 0..TRAY_COLUMNS {
                    let last = TRAY_ROWS - 1;
                    let middle =
                        [end(chip(a, last, column), sides.row_in), end(chip(b, last, column), sides.row_in)];
                    let edge =
                        [end(chip(a, 0, column), sides.row_out), end(chip(b, 0, column), sides.row_out)];
                    machine.join(middle, edge, &sides);
                }
            } else if bottom == other_bottom {
                for row in 0..TRAY_ROWS {
                    let middle =
                        [end(chip(a, row, 1), sides.column_in), end(chip(b, row, 1), sides.column_in)];
                    let edge =
                        [end(chip(a, row, 0), sides.column_out), end(chip(b, row, 0), sides.column_out)];
                    machine.join(middle, edge, &sides);
                }
            }
        }
    }
    machine
}

impl Topology {
    /// Links two trays in the machine's middle, and in a torus also at its edges.
    fn join(&mut self, middle: Link, edge: Link, sides: &Sides) {
        self.wire(middle[0], middle[1], sides.links);
        if sides.torus {
            self.wire(edge[0], edge[1], sides.links);
        }
    }
}
