//! What a buffer is for, and the tensor that it holds.

vocabulary! {
    /// What a buffer is for.
    #[derive(Default)]
    pub enum Purpose: u8 {
        #[default]
        Unknown = 0, "unknown": "Not reported.",
        Tensor = 1, "tensor": "The data of a tensor.",
        Semaphore = 2, "semaphore": "A global semaphore.",
        Kernels = 3, "kernels": "Kernel code and arguments of a cached program.",
        Trace = 4, "trace": "The commands of a captured trace.",
        Raw = 5, "raw": "A buffer that the program allocated without a tensor.",
    }
}

vocabulary! {
    /// Data type of a tensor's elements, numbered as in tt-metal.
    pub enum DataType: u8 {
        Bfloat16 = 0, "bfloat16": "16 bits, with the exponent of a 32-bit float.",
        Float32 = 1, "float32": "32-bit float.",
        Uint32 = 2, "uint32": "Unsigned, 32 bits.",
        Bfloat8B = 3, "bfloat8_b": "Blocks of 8-bit floats that share an exponent.",
        Bfloat4B = 4, "bfloat4_b": "Blocks of 4-bit floats that share an exponent.",
        Uint8 = 5, "uint8": "Unsigned, 8 bits.",
        Uint16 = 6, "uint16": "Unsigned, 16 bits.",
        Int32 = 7, "int32": "Signed, 32 bits.",
        Fp8E4M3 = 8, "fp8_e4m3": "8-bit float.",
    }
}

vocabulary! {
    /// Order of a tensor's elements in memory, numbered as in tt-metal.
    pub enum TensorLayout: u8 {
        RowMajor = 0, "row_major": "Row after row.",
        Tile = 1, "tile": "In tiles, usually of 32 by 32 elements.",
    }
}

impl DataType {
    /// Returns the bytes of an element; `None` for types that exist in tiles only, where elements share bytes.
    ///
    /// ```
    /// # use ttmem_types::DataType;
    /// assert_eq!((DataType::Uint16.bytes(), DataType::Bfloat8B.bytes()), (Some(2), None));
    /// ```
    pub const fn bytes(self) -> Option<u64> {
        match self {
            Self::Float32 | Self::Uint32 | Self::Int32 => Some(4),
            Self::Bfloat16 | Self::Uint16 => Some(2),
            Self::Uint8 | Self::Fp8E4M3 => Some(1),
            Self::Bfloat8B | Self::Bfloat4B => None,
        }
    }

    /// Returns the bytes of a tile of 32 by 32 elements. Types in blocks have an exponent for each 16 elements.
    ///
    /// ```
    /// # use ttmem_types::DataType;
    /// assert_eq!((DataType::Bfloat16.tile_bytes(), DataType::Bfloat8B.tile_bytes()), (2048, 1088));
    /// ```
    pub const fn tile_bytes(self) -> u64 {
        match self {
            Self::Bfloat8B => 1024 + 64,
            Self::Bfloat4B => 512 + 64,
            Self::Float32 | Self::Uint32 | Self::Int32 => 4096,
            Self::Bfloat16 | Self::Uint16 => 2048,
            Self::Uint8 | Self::Fp8E4M3 => 1024,
        }
    }
}

/// Rows and columns of a tile.
const TILE: u64 = 32;

/// Pages of one size, in which the memory of tensors is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// Bytes of a page, without alignment.
    pub bytes: u64,
    /// Number of pages.
    pub count: u64,
}

/// Description of a tensor: data type, layout and shape.
///
/// ```
/// use ttmem_types::{DataType, Tensor, TensorLayout};
///
/// let tensor = Tensor::new(&[32, 512]).data_type(DataType::Bfloat16).layout(TensorLayout::Tile);
/// assert_eq!(tensor.to_string(), "bfloat16 [32, 512] tile");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Tensor {
    /// Data type, if known.
    pub data_type: Option<DataType>,
    /// Layout, if known.
    pub layout: Option<TensorLayout>,
    dimensions: [u32; Self::MAX_RANK],
    rank: u8,
}

impl Tensor {
    /// Most dimensions that are kept.
    pub const MAX_RANK: usize = 8;

    /// Returns a tensor of a shape. Only the last [`Self::MAX_RANK`] dimensions are kept.
    ///
    /// ```
    /// # use ttmem_types::Tensor;
    /// assert_eq!(Tensor::new(&[1, 32]).shape(), [1, 32]);
    /// ```
    pub fn new(shape: &[u32]) -> Self {
        let shape = &shape[shape.len().saturating_sub(Self::MAX_RANK)..];
        let mut dimensions = [0; Self::MAX_RANK];
        dimensions[..shape.len()].copy_from_slice(shape);
        Self { data_type: None, layout: None, dimensions, rank: shape.len() as u8 }
    }

    /// Sets the data type.
    ///
    /// ```
    /// # use ttmem_types::{DataType, Tensor};
    /// assert_eq!(Tensor::new(&[32]).data_type(DataType::Int32).to_string(), "int32 [32]");
    /// ```
    #[must_use]
    pub const fn data_type(mut self, data_type: DataType) -> Self {
        self.data_type = Some(data_type);
        self
    }

    /// Sets the layout.
    ///
    /// ```
    /// # use ttmem_types::{Tensor, TensorLayout};
    /// assert_eq!(Tensor::new(&[32]).layout(TensorLayout::RowMajor).to_string(), "[32] row_major");
    /// ```
    #[must_use]
    pub const fn layout(mut self, layout: TensorLayout) -> Self {
        self.layout = Some(layout);
        self
    }

    /// Returns the dimensions.
    ///
    /// ```
    /// # use ttmem_types::Tensor;
    /// assert!(Tensor::new(&[]).shape().is_empty());
    /// ```
    pub fn shape(&self) -> &[u32] {
        &self.dimensions[..usize::from(self.rank).min(Self::MAX_RANK)]
    }

    /// Returns the pages of the whole tensor: tiles, or rows. `None`: its type or layout is unknown, or they do not go together.
    ///
    /// ```
    /// # use ttmem_types::{DataType, Pages, Tensor, TensorLayout};
    /// let tensor = Tensor::new(&[2, 40, 100]).data_type(DataType::Bfloat16);
    /// assert_eq!(tensor.layout(TensorLayout::Tile).pages(), Some(Pages { bytes: 2048, count: 2 * 2 * 4 }));
    /// assert_eq!(tensor.layout(TensorLayout::RowMajor).pages(), Some(Pages { bytes: 200, count: 80 }));
    /// ```
    pub fn pages(&self) -> Option<Pages> {
        self.shard_pages(1, 1)
    }

    /// Returns the pages of each shard if the tensor is divided into columns and rows of shards.
    ///
    /// ```
    /// # use ttmem_types::{DataType, Pages, Tensor, TensorLayout};
    /// let tensor = Tensor::new(&[64, 1024]).data_type(DataType::Bfloat16).layout(TensorLayout::Tile);
    /// assert_eq!(tensor.shard_pages(8, 2), Some(Pages { bytes: 2048, count: 4 }));
    /// ```
    pub fn shard_pages(&self, columns: u64, rows: u64) -> Option<Pages> {
        let (data_type, layout) = (self.data_type?, self.layout?);
        let part = |whole: u64, of: u64| whole.div_ceil(of.max(1));
        let (width, height) = self.size_in_memory(layout);
        Some(match layout {
            TensorLayout::Tile => {
                let (across, down) = (part(width / TILE, columns), part(height / TILE, rows));
                Pages { bytes: data_type.tile_bytes(), count: across.saturating_mul(down) }
            }
            TensorLayout::RowMajor => {
                let bytes = part(width, columns).saturating_mul(data_type.bytes()?);
                Pages { bytes, count: part(height, rows) }
            }
        })
    }

    /// Elements of a row and number of rows, all other dimensions together; tiles are complete.
    fn size_in_memory(&self, layout: TensorLayout) -> (u64, u64) {
        let whole = |elements: u32| match layout {
            TensorLayout::Tile => u64::from(elements).next_multiple_of(TILE),
            TensorLayout::RowMajor => u64::from(elements),
        };
        let (width, others) = self.shape().split_last().map_or((1, &[][..]), |(&last, rest)| (last, rest));
        let (rows, others) = others.split_last().map_or((1, others), |(&last, rest)| (last, rest));
        let outer = others.iter().map(|&it| u64::from(it)).fold(1, u64::saturating_mul);
        (whole(width), whole(rows).saturating_mul(outer))
    }
}

impl core::fmt::Display for Tensor {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if let Some(data_type) = self.data_type {
            write!(f, "{} ", data_type.name())?;
        }
        write!(f, "{:?}", self.shape())?;
        if let Some(layout) = self.layout {
            write!(f, " {}", layout.name())?;
        }
        Ok(())
    }
}
