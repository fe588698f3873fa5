//! The call sites of the simulated models, and the tensors that they allocate.

use ttmem_client::agent::{self, SiteParts};
use ttmem_client::{CallSite, DataType, Purpose, SiteNumber, Tensor, TensorLayout, Tracker};

/// Folder of the models' files.
macro_rules! model_file {
    ($name:literal) => {
        concat!("/home/me/models/", $name)
    };
}

/// A line that allocates buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    pub(super) file: &'static str,
    pub(super) line: u32,
    pub(super) function: &'static str,
    /// Operation that the line calls.
    op: &'static str,
    contents: Contents,
}

/// Contents of a buffer.
#[derive(Clone, Copy, Debug)]
enum Contents {
    /// A tensor with rows of this many elements; its other dimensions follow from the size of the buffer.
    Rows(DataType, TensorLayout, u32),
    /// A tensor of this shape.
    Shape(DataType, TensorLayout, &'static [u32]),
    Other(Purpose),
}

use Contents::{Other, Rows, Shape};
use DataType::{Bfloat8B, Bfloat16, Uint16};
use TensorLayout::{RowMajor, Tile};

const fn site(
    file: &'static str,
    line: u32,
    function: &'static str,
    op: &'static str,
    contents: Contents,
) -> Site {
    Site { file, line, function, op, contents }
}

/// The line that calls an operation and allocates its output.
pub(super) const fn output(file: &'static str, line: u32, function: &'static str, op: &'static str) -> Site {
    site(file, line, function, op, Rows(Bfloat16, Tile, 64))
}

impl Site {
    /// The call site of a buffer with this size.
    fn of_buffer(&self, bytes: u64) -> CallSite<'static> {
        let site = CallSite::new(self.file, self.line).function(self.function).op(self.op);
        let (data_type, layout, tensor) = match self.contents {
            Other(purpose) => return site.purpose(purpose),
            Shape(data_type, layout, shape) => (data_type, layout, Tensor::new(shape)),
            Rows(data_type, layout, width) => {
                // Exponents, which blocks share, are not counted.
                let element = if matches!(data_type, Bfloat8B) { 1 } else { 2 };
                let rows = bytes / element / u64::from(width);
                (data_type, layout, Tensor::new(&[1, 1, rows as u32, width]))
            }
        };
        site.purpose(Purpose::Tensor).tensor(tensor.data_type(data_type).layout(layout))
    }

    /// Defines the call site of a buffer with this size, with the calls that led to it.
    pub(super) fn define(&self, tracker: &Tracker, bytes: u64) -> ttmem_client::Result<SiteNumber> {
        let site = self.of_buffer(bytes);
        let line = agent::define_frame(tracker, site.file, site.line, 0, site.function)?;
        let mut calls = vec![line];
        for &(file, line, function) in self.callers() {
            calls.push(agent::define_frame(tracker, file, line, 0, function)?);
        }
        let parts = SiteParts {
            frame: line,
            stack: agent::define_stack(tracker, &calls)?,
            op: agent::define_op(tracker, site.op)?,
            purpose: site.purpose,
            tensor: site.tensor,
            ..SiteParts::default()
        };
        agent::define_site(tracker, &parts)
    }

    /// The calls that lead to the function, innermost first.
    fn callers(&self) -> &'static [(&'static str, u32, &'static str)] {
        match (self.file, self.function) {
            (LOAD, _) => {
                &[(LOAD, 31, "load_layer"), (MODEL, 22, "Transformer.__init__"), (GENERATE, 118, "main")]
            }
            (MODEL, "Attention.init_cache") => &[
                (MODEL, 40, "DecoderLayer.init_cache"),
                (MODEL, 27, "Transformer.__init__"),
                (GENERATE, 118, "main"),
            ],
            (MODEL, _) => &[
                (MODEL, 141, "Transformer.forward"),
                (GENERATE, 52, "Generator.prefill"),
                (GENERATE, 131, "main"),
            ],
            (GENERATE, _) => &[(GENERATE, 133, "main")],
            (RESNET, "ResNet50.load") => &[(RESNET, 112, "main")],
            (RESNET, _) => &[(RESNET, 95, "ResNet50.__call__"), (RESNET, 116, "main")],
            (UNET, "UNet.load") => &[(UNET, 140, "main")],
            (UNET, _) => &[(UNET, 96, "UNet.denoise"), (UNET, 144, "main")],
            _ => &[],
        }
    }

    /// The call site of a program, which is known by its device operation.
    pub(super) fn of_program<'a>(&self, device_operation: &'a str) -> CallSite<'a> {
        CallSite::new(self.file, self.line)
            .function(self.function)
            .op(device_operation)
            .purpose(Purpose::Kernels)
    }
}

pub(super) const LOAD: &str = model_file!("llama/load.py");
pub(super) const MODEL: &str = model_file!("llama/model.py");
pub(super) const GENERATE: &str = model_file!("llama/generate.py");
pub(super) const RESNET: &str = model_file!("resnet/resnet.py");
pub(super) const UNET: &str = model_file!("diffusion/unet.py");
pub(super) const SWEEP: &str = model_file!("sweep.py");
const CCL: &str = model_file!("llama/ccl.py");
const TRAIN: &str = model_file!("train.py");
const LOAD_MATRIX: &str = "load_matrix";

/// The weights of a layer of the language model, with their sizes in MiB.
pub(super) const LLM_WEIGHTS: [(u64, Site); 4] = [
    (56, site(LOAD, 52, LOAD_MATRIX, "ttnn.as_tensor", Rows(Bfloat8B, Tile, 14_336))),
    (24, site(LOAD, 52, LOAD_MATRIX, "ttnn.as_tensor", Rows(Bfloat8B, Tile, 6144))),
    (56, site(LOAD, 52, LOAD_MATRIX, "ttnn.as_tensor", Rows(Bfloat8B, Tile, 4096))),
    (1, site(LOAD, 67, "load_norms", "ttnn.as_tensor", Rows(Bfloat16, RowMajor, 32))),
];

pub(super) const KV_CACHE: Site =
    site(MODEL, 61, "Attention.init_cache", "ttnn.zeros", Shape(Bfloat8B, Tile, &[32, 8, 49_152, 128]));
pub(super) const SEMAPHORE: Site =
    site(CCL, 23, "Ccl.__init__", "ttnn.create_global_semaphore", Other(Purpose::Semaphore));
pub(super) const TRACE: Site =
    site(GENERATE, 66, "Generator.capture", "ttnn.end_trace_capture", Other(Purpose::Trace));
pub(super) const HIDDEN_STATES: Site =
    site(MODEL, 116, "DecoderLayer.forward", "ttnn.rms_norm", Rows(Bfloat16, Tile, 4096));
pub(super) const SCORES: Site = site(
    MODEL,
    129,
    "Attention.forward",
    "ttnn.transformer.scaled_dot_product_attention",
    Shape(Bfloat16, Tile, &[1, 32, 32, 768]),
);
pub(super) const DECODE_STATE: Site = site(
    GENERATE,
    63,
    "Generator.decode",
    "ttnn.to_memory_config",
    Shape(Bfloat16, Tile, &[1, 1, 128, 4096]),
);

pub(super) const RESNET_WEIGHTS: Site =
    site(RESNET, 19, "ResNet50.load", "ttnn.from_torch", Rows(Bfloat16, Tile, 1024));
pub(super) const HALO_CONFIG: Site =
    site(RESNET, 30, "ResNet50.stem", "ttnn.conv2d", Rows(Uint16, RowMajor, 12_288));
pub(super) const FEATURES: Site =
    site(RESNET, 88, "ResNet50.forward", "ttnn.to_memory_config", Rows(Bfloat16, Tile, 512));

pub(super) const UNET_WEIGHTS: Site =
    site(UNET, 31, "UNet.load", "ttnn.from_torch", Rows(Bfloat16, Tile, 4096));
pub(super) const LATENTS: Site =
    site(UNET, 77, "UNet.forward", "ttnn.to_memory_config", Rows(Bfloat16, Tile, 320));

pub(super) const LOSSES: Site = site(TRAIN, 212, "train_step", "ttnn.add", Rows(Bfloat16, Tile, 512));
pub(super) const BATCH: Site = site(TRAIN, 208, "train_step", "ttnn.from_torch", Rows(Bfloat16, Tile, 1024));

pub(super) const CASES: Site = site(SWEEP, 18, "run_cases", "ttnn.rand", Rows(Bfloat16, Tile, 2048));
pub(super) const CHECK: Site = site(SWEEP, 34, "check", "ttnn.sum", Rows(Bfloat16, Tile, 512));
pub(super) const KERNELS: Site = site(SWEEP, 27, "run", "ttnn.layer_norm", Other(Purpose::Kernels));
