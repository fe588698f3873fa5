/* ttmem: publishes the device memory that a process uses, for the program `ttmem` to show.
 *
 * Generated from crates/ttmem-c by `cargo xtask gen`; edit it there.
 *
 * There is one tracker per process and no handle: devices, allocators, core sets and call sites are numbers. Every
 * function may be called at any time, from any thread, in any forked child. A negative result is a ttmem_error; other
 * results are 0 or a number. While tracking is off, every function returns 0, and numbers that are 0 or errors may be
 * passed on. Structs may be zero-initialised: zero means unknown. No function prints or blocks.
 *
 * Tracking is on with TTMEM=1 (or TT_ALLOC_TRACKING_ENABLED=1) in the environment, or after ttmem_enable.
 */

#ifndef TTMEM_H
#define TTMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TTMEM_VERSION_MAJOR 0
#define TTMEM_VERSION_MINOR 1
#define TTMEM_VERSION_PATCH 0

// Errors: the negative results. `ttmem_error_text` returns their texts.
typedef enum ttmem_error {
  // The device does not exist or was never defined. Nothing changes.
  TTMEM_ERROR_UNKNOWN_CHIP = -1,
  // The allocator was never defined or is closed. Nothing changes.
  TTMEM_ERROR_UNKNOWN_ALLOCATOR = -2,
  // The program was never begun or has ended. Nothing changes.
  TTMEM_ERROR_UNKNOWN_PROGRAM = -3,
  // The size is zero. Nothing changes.
  TTMEM_ERROR_ZERO_SIZE = -4,
  // The size exceeds any device. Nothing changes.
  TTMEM_ERROR_TOO_LARGE = -5,
  // Address plus size exceeds 64 bits. Nothing changes.
  TTMEM_ERROR_BEYOND_ADDRESSES = -6,
  // Double free: the buffer was freed before. Nothing changes.
  TTMEM_ERROR_DOUBLE_FREE = -7,
  // The freed buffer is unknown; it may predate tracking. Nothing changes.
  TTMEM_ERROR_UNKNOWN_FREE = -8,
  // The address was already allocated with the same size: its free was missed. The buffer counts once.
  TTMEM_ERROR_STILL_HELD = -9,
  // The address was already allocated with another size. The old buffer counts as freed, the new one as allocated.
  TTMEM_ERROR_REPLACED = -10,
  // A forked child freed a buffer that its parent allocated. Nothing changes.
  TTMEM_ERROR_INHERITED_FREE = -11,
  // Not recorded: a signal handler interrupted another report of its own thread, or the host is out of memory.
  TTMEM_ERROR_LOST = -13,
  // No room for another definition. Records that refer to it are not described.
  TTMEM_ERROR_DEFINITIONS_FULL = -14,
  // The memory space or buffer type is unknown or not valid for this call. Nothing changes.
  TTMEM_ERROR_WRONG_SPACE = -15,
  // A required pointer is null. Nothing changes.
  TTMEM_ERROR_NULL = -17,
  // The text is not UTF-8. Nothing changes.
  TTMEM_ERROR_NOT_UTF8 = -18,
  // A value or pointer is invalid. Nothing changes.
  TTMEM_ERROR_BAD_VALUE = -19,
  // Internal error. The report may or may not have been recorded.
  TTMEM_ERROR_INTERNAL = -20,
} ttmem_error;

// Memory spaces.
typedef enum ttmem_space {
  // Device DRAM.
  TTMEM_SPACE_DRAM = 1,
  // L1 buffers.
  TTMEM_SPACE_L1 = 2,
  // `L1_SMALL` buffers, at the top of L1.
  TTMEM_SPACE_L1_SMALL = 3,
  // The trace region, in DRAM.
  TTMEM_SPACE_TRACE = 4,
  // Circular buffers, in L1, outside its allocator.
  TTMEM_SPACE_CB = 5,
  // Dataflow buffers, in L1, outside its allocator.
  TTMEM_SPACE_DFB = 6,
  // Scratchpads, in L1, outside its allocator.
  TTMEM_SPACE_SCRATCH = 7,
  // Kernel code.
  TTMEM_SPACE_KERNEL = 8,
  // Host memory mapped for the device. It is tracked so that frees match, and never counted as device memory.
  TTMEM_SPACE_HOST = 9,
  // L1 buffers allocated on some cores only, at an address of its own on each.
  TTMEM_SPACE_L1_CORE = 10,
} ttmem_space;

// Device architectures; 0: unknown.
typedef enum ttmem_arch {
  // Wormhole B0.
  TTMEM_ARCH_WORMHOLE_B0 = 1,
  // Blackhole.
  TTMEM_ARCH_BLACKHOLE = 2,
} ttmem_arch;

// Memory layout of a buffer in its banks or on its cores.
typedef enum ttmem_layout {
  // Not reported.
  TTMEM_LAYOUT_UNKNOWN = 0,
  // Pages are distributed over all banks.
  TTMEM_LAYOUT_INTERLEAVED = 1,
  // Sharded by rows, one shard per core.
  TTMEM_LAYOUT_HEIGHT_SHARDED = 2,
  // Sharded by columns, one shard per core.
  TTMEM_LAYOUT_WIDTH_SHARDED = 3,
  // Sharded in blocks, one shard per core.
  TTMEM_LAYOUT_BLOCK_SHARDED = 4,
  // Sharded in N dimensions.
  TTMEM_LAYOUT_ND_SHARDED = 5,
} ttmem_layout;

// Classes of kernels.
typedef enum ttmem_kernel_class {
  // Part of a user's program.
  TTMEM_KERNEL_CLASS_APPLICATION = 0,
  // Ethernet fabric.
  TTMEM_KERNEL_CLASS_FABRIC = 1,
  // Command dispatch.
  TTMEM_KERNEL_CLASS_DISPATCH = 2,
  // Not reported.
  TTMEM_KERNEL_CLASS_UNKNOWN = 3,
} ttmem_kernel_class;

// What a buffer is for.
typedef enum ttmem_purpose {
  // Not reported.
  TTMEM_PURPOSE_UNKNOWN = 0,
  // The data of a tensor.
  TTMEM_PURPOSE_TENSOR = 1,
  // A global semaphore.
  TTMEM_PURPOSE_SEMAPHORE = 2,
  // Kernel code and arguments of a cached program.
  TTMEM_PURPOSE_KERNELS = 3,
  // The commands of a captured trace.
  TTMEM_PURPOSE_TRACE = 4,
  // A buffer that the program allocated without a tensor.
  TTMEM_PURPOSE_RAW = 5,
} ttmem_purpose;

// Buffer types, numbered as by tt-metal and the old client.
typedef enum ttmem_buffer_type {
  // Device DRAM.
  TTMEM_BUFFER_TYPE_DRAM = 0,
  // L1.
  TTMEM_BUFFER_TYPE_L1 = 1,
  // Host memory mapped for the device.
  TTMEM_BUFFER_TYPE_SYSTEM_MEMORY = 2,
  // The reserved top of L1.
  TTMEM_BUFFER_TYPE_L1_SMALL = 3,
  // The trace region, in DRAM.
  TTMEM_BUFFER_TYPE_TRACE = 4,
} ttmem_buffer_type;

// Bits of a `flags` field.
typedef enum ttmem_flag {
  // Program memory that is a view of a buffer; the buffer is counted.
  TTMEM_FLAG_VIEW = 1,
  // Program memory at an unknown address; `address` only distinguishes it from others.
  TTMEM_FLAG_UNPLACED = 2,
  // The size is an estimate.
  TTMEM_FLAG_ESTIMATED = 4,
  // Program memory whose dispatches are not reported: whether it is resident is unknown.
  TTMEM_FLAG_UNFOLLOWED = 8,
  // A buffer of another allocator: it reduces free space here but is counted there.
  TTMEM_FLAG_MIRROR = 16,
} ttmem_flag;

// Settings that override the environment; null: as in the environment.
typedef struct ttmem_options {
  // Folder for segments instead of `/dev/shm`.
  const char *folder;
  // Name of what is tracked, for display: `mymodel 1.2`.
  const char *runtime;
  // Where to log problems: `stderr` or a file. Nothing is logged otherwise.
  const char *log;
  // Records that the segment's ring holds, a power of two from 1,024 to 1,048,576. 0: `TTMEM_RING`, or 16,384.
  uint64_t ring;
  // Reserved; zero.
  uint64_t reserved[4];
} ttmem_options;

// Status of tracking.
typedef struct ttmem_status {
  // Live allocations.
  uint64_t live;
  // Live allocations that do not fit the segment's table: counted, but not listed.
  uint64_t unlisted;
  // Reports that were not recorded.
  uint64_t lost;
  // Messages queued for an old server.
  uint64_t queued;
  // 1 if reports are recorded.
  uint32_t on;
  // Reserved; zero.
  uint32_t reserved;
  // File name of the segment, or empty.
  char segment[64];
  // Why there is no segment or a smaller one, or why tracking is off; or empty.
  char reason[128];
} ttmem_status;

// A device; zero or null fields are unknown.
typedef struct ttmem_chip {
  // 64-bit unique id.
  uint64_t unique_id;
  // DRAM in bytes.
  uint64_t dram_bytes;
  // Bytes of a DRAM channel that the runtime uses.
  uint64_t dram_bytes_per_channel;
  // L1 of one core in bytes.
  uint64_t l1_bytes_per_core;
  // DRAM that the runtime can allocate, in bytes.
  uint64_t dram_allocatable;
  // L1 that the runtime can allocate, in bytes.
  uint64_t l1_allocatable;
  // Board name, such as `n300`.
  const char *board;
  // PCI address.
  const char *pci;
  // Device number in this process.
  uint32_t index;
  // A `ttmem_arch`.
  uint32_t arch;
  // 1 if it is reached through another device.
  uint32_t remote;
  // DRAM channels.
  uint32_t dram_channels;
  // Tensix cores, without harvested ones.
  uint32_t cores;
  // Start address of the kernel config buffer in a core's L1.
  uint32_t kernel_config;
  // End of the kernel config buffer, where memory of programs and buffers begins.
  uint32_t unreserved;
  // Columns of cores that programs can use.
  uint32_t columns;
  // Rows of cores that programs can use.
  uint32_t rows;
  // Reserved; zero.
  uint32_t reserved[7];
} ttmem_chip;

// Layout of one memory space of an allocator.
typedef struct ttmem_banks {
  // A `ttmem_space`.
  uint32_t space;
  // Banks that allocate in lock-step.
  uint32_t banks;
  // First allocatable address in a bank.
  uint64_t base;
  // Allocatable bytes in a bank.
  uint64_t bytes_per_bank;
} ttmem_banks;

// A rectangle of cores, both corners included; columns and rows up to 15.
typedef struct ttmem_core_range {
  // Lowest column.
  uint32_t x0;
  // Lowest row.
  uint32_t y0;
  // Highest column.
  uint32_t x1;
  // Highest row.
  uint32_t y1;
} ttmem_core_range;

// A line of a program that allocates; zero and null fields are unknown.
typedef struct ttmem_call_site {
  // Path of the file, such as `__FILE__`.
  const char *file;
  // Function, such as `__func__`.
  const char *function;
  // Operation that the line calls, such as `ttnn.matmul`.
  const char *op;
  // Part of the program that the line runs in, such as `decode / attention`.
  const char *track;
  // Dimensions of the tensor that is allocated; null: none.
  const uint32_t *shape;
  // Number of dimensions; of more than 8, the last 8 are kept.
  uint32_t rank;
  // Line, such as `__LINE__`.
  uint32_t line;
  // Data type of the tensor, such as `bfloat16`.
  const char *data_type;
  // Order of the tensor's elements: `tile` or `row_major`.
  const char *tensor_layout;
  // A `ttmem_purpose`. Of a tensor it is `TTMEM_PURPOSE_TENSOR`.
  uint32_t purpose;
  // Reserved; zero.
  uint32_t reserved0;
  // Reserved; zero.
  uint64_t reserved[4];
} ttmem_call_site;

// A buffer.
typedef struct ttmem_buffer {
  // Its allocator. The buffer is on all devices of the allocator.
  int32_t allocator;
  // A `ttmem_space` for buffers.
  uint32_t space;
  // Address in each bank.
  uint64_t address;
  // Requested bytes on each device.
  uint64_t requested;
  // Bytes in each bank; 0: unknown, and so are the allocated bytes.
  uint64_t bytes_per_bank;
  // Occupied bytes, in the banks that hold it; 0: unknown.
  uint64_t occupied;
  // Core set, if the buffer is on some cores only.
  int32_t cores;
  // Call site of the allocation.
  int32_t site;
  // A `ttmem_layout`.
  uint32_t layout;
  // `TTMEM_FLAG_MIRROR`.
  uint32_t flags;
  // Reserved; zero.
  uint64_t reserved[2];
} ttmem_buffer;

// Memory of a program on each core of a set.
typedef struct ttmem_placement {
  // Allocator of the program's device or mesh.
  int32_t allocator;
  // `TTMEM_SPACE_CB`, `TTMEM_SPACE_DFB` or `TTMEM_SPACE_SCRATCH`.
  uint32_t space;
  // Address on each core.
  uint64_t address;
  // Bytes on each core.
  uint64_t bytes;
  // Program number chosen by the caller; 0: none, and then residency is unknown.
  uint32_t program;
  // Core set.
  int32_t cores;
  // `TTMEM_FLAG_VIEW`, `_UNPLACED`, `_ESTIMATED`, `_UNFOLLOWED`.
  uint32_t flags;
  // Reserved; zero.
  uint32_t reserved0;
  // Reserved; zero.
  uint64_t reserved[2];
} ttmem_placement;

// A kernel of a program.
typedef struct ttmem_kernel {
  // Allocator of the program's device or mesh.
  int32_t allocator;
  // Program number chosen by the caller; 0: none, and then residency is unknown.
  uint32_t program;
  // Id of the kernel, unique in its allocator.
  uint64_t id;
  // Bytes on each of its cores; if `cores` is 0, in total.
  uint64_t bytes;
  // Core set it runs on.
  int32_t cores;
  // A `ttmem_kernel_class`.
  uint32_t kind;
  // `TTMEM_FLAG_ESTIMATED`, `_UNFOLLOWED`.
  uint32_t flags;
  // Reserved; zero.
  uint32_t reserved0;
  // Reserved; zero.
  uint64_t reserved[2];
} ttmem_kernel;

// An allocator's own statistics of one memory space.
typedef struct ttmem_statistics {
  // Allocated bytes, over all banks.
  uint64_t allocated;
  // Free bytes, over all banks.
  uint64_t free;
  // Largest free block in a bank, in bytes.
  uint64_t largest_free_per_bank;
} ttmem_statistics;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the library's version, such as `0.1.0`.
const char *ttmem_version(void);

// Returns the text of an error, or `no error` for 0 and positive numbers. Never null.
const char *ttmem_error_text(int32_t error);

// Enables tracking, whatever the environment says. Without this call, tracking is on if `TTMEM` or
// `TT_ALLOC_TRACKING_ENABLED` is set and not 0. If the agent already tracks the process, tracking stays off, because reports
// would be counted twice; see `ttmem_is_enabled`.
//
// `options` is null or points to options whose strings are null or zero-terminated.
int32_t ttmem_enable(const struct ttmem_options *options);

// Returns whether reports are recorded.
bool ttmem_is_enabled(void);

// Disables tracking and removes the segment, unless it holds a failed allocation. All numbers become invalid. A process does
// this by itself when it exits. `ttmem_enable` starts again.
int32_t ttmem_close(void);

// Marks a moment of the program, such as the end of a step. If the agent tracks this process, the mark is among its events.
//
// `name` is null or zero-terminated; `number` is null or points to the number of the mark.
int32_t ttmem_mark(const char *name,
                   const uint64_t *number);

// Retries what failed before: creates a segment that had no space or whose file was removed, and sends queued messages to
// an old server. Updates the segment's heartbeat.
int32_t ttmem_refresh(void);

// Reads the status of tracking.
//
// `out` is null or points to a status.
int32_t ttmem_get_status(struct ttmem_status *out);

// Defines a device. An identical definition returns the same number.
//
// `chip` is null or points to a chip whose strings are null or zero-terminated.
int32_t ttmem_define_chip(const struct ttmem_chip *chip);

// Defines the allocator of a device, mesh or submesh. Each of its allocations is on all of `chips`, in one record.
//
// `chips` and `banks` point to arrays of the given lengths, or are null if that is 0.
int32_t ttmem_define_allocator(const int32_t *chips,
                               size_t chip_count,
                               const struct ttmem_banks *banks,
                               size_t bank_count);

// Defines an allocator for one or more devices that are known by number only. The same devices return the same allocator.
// Its allocated bytes are unknown: requested bytes are counted instead.
//
// `devices` points to `count` numbers.
int32_t ttmem_define_devices(const int32_t *devices,
                             size_t count);

// Closes an allocator and frees all of its allocations.
int32_t ttmem_close_allocator(int32_t allocator);

// Defines a set of cores. An identical set returns the same number. An empty set or an inverted range is
// `TTMEM_ERROR_BAD_VALUE`.
//
// `ranges` points to `count` ranges.
int32_t ttmem_define_cores(const struct ttmem_core_range *ranges, size_t count);

// Defines a call site, such as `model.py:42 forward`. An identical one returns the same number.
//
// `site` is null or zero-terminated.
int32_t ttmem_define_site(const char *site);

// Defines a call site by file, line, function, operation and tensor. An identical one returns the same number. A name that is no
// data type or layout is `TTMEM_ERROR_BAD_VALUE`.
//
// `site` is null or points to a call site whose strings are null or zero-terminated, and whose `shape` points to `rank` numbers.
int32_t ttmem_define_call_site(const struct ttmem_call_site *site);

// Reports an allocated buffer.
//
// `buffer` is null or points to a buffer.
int32_t ttmem_alloc(const struct ttmem_buffer *buffer);

// Reports a freed buffer.
int32_t ttmem_free(int32_t allocator, uint32_t space, uint64_t address);

// Reports a freed buffer of which only the address is known: every space is searched.
int32_t ttmem_free_anywhere(int32_t allocator, uint64_t address);

// Reports a freed buffer in `TTMEM_SPACE_L1_CORE`. Other cores may have other buffers at its address, so all fields count.
//
// `buffer` is null or points to a buffer.
int32_t ttmem_free_on_cores(const struct ttmem_buffer *buffer);

// Reports an allocation that failed for lack of memory.
//
// `buffer` is null or points to the requested buffer.
int32_t ttmem_out_of_memory(const struct ttmem_buffer *buffer);

// Begins a program under a number of the caller's choice, not 0; what it registers follows. The name may be null. Without this
// call, a program begins when it first registers memory.
//
// `name` is null or zero-terminated.
int32_t ttmem_begin_program(int32_t allocator,
                            uint32_t program,
                            const char *name);

// Reports a program that is built or rebuilt for some cores. What it had registered is removed; what it registers follows.
int32_t ttmem_build_program(int32_t allocator,
                            uint32_t program,
                            int32_t cores,
                            uint32_t kind);

// Reports a dispatch: the program's memory becomes resident and replaces what was resident on its cores.
int32_t ttmem_dispatch(int32_t allocator, uint32_t program);

// Ends a program and removes everything it registered.
int32_t ttmem_end_program(int32_t allocator, uint32_t program);

// Registers memory of a program on its cores: a circular buffer, a dataflow buffer or a scratchpad.
//
// `placement` is null or points to a placement.
int32_t ttmem_place(const struct ttmem_placement *placement);

// Removes memory that a program registered.
//
// `placement` is null or points to a placement.
int32_t ttmem_displace(const struct ttmem_placement *placement);

// Registers a kernel of a program.
//
// `kernel` is null or points to a kernel.
int32_t ttmem_load_kernel(const struct ttmem_kernel *kernel);

// Removes a kernel of a program.
int32_t ttmem_unload_kernel(int32_t allocator, uint64_t id);

// Marks the moment before an allocator's own statistics are read, for `ttmem_audit`. Returns the mark or an error.
int64_t ttmem_before_audit(void);

// Reports an allocator's own statistics. They are compared with what was reported if nothing was allocated or freed since
// `moment`; a negative `moment` means that they must not be compared.
//
// `statistics` is null or points to statistics.
int32_t ttmem_audit(int64_t moment,
                    int32_t allocator,
                    uint32_t space,
                    const struct ttmem_statistics *statistics);

// Returns the peak of allocated bytes since the beginning or the last `ttmem_reset_peak`, or an error.
int64_t ttmem_peak(int32_t allocator, uint32_t space);

// Resets the peak to the bytes allocated now.
int32_t ttmem_reset_peak(int32_t allocator, uint32_t space);

// Reports a buffer allocated on a device; `buffer_type` is a `ttmem_buffer_type`.
int32_t ttmem_report_allocation(int32_t device, uint64_t size, uint32_t buffer_type, uint64_t address);

// Reports a buffer freed on a device.
int32_t ttmem_report_deallocation(int32_t device, uint64_t address);

// Registers a circular buffer; `size` is per core, and the cores are unknown.
int32_t ttmem_report_cb_allocation(int32_t device, uint64_t size, uint64_t address);

// Removes a circular buffer. Several may share an address, so the size counts.
int32_t ttmem_report_cb_deallocation(int32_t device, uint64_t size, uint64_t address);

// Registers a kernel; `size` is the total over its cores, `kind` a `ttmem_kernel_class`.
int32_t ttmem_report_kernel_load(int32_t device, uint64_t size, uint64_t id, uint32_t kind);

// Removes a kernel.
int32_t ttmem_report_kernel_unload(int32_t device, uint64_t id);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TTMEM_H */
