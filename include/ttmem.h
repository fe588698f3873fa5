/* ttmem: publishes what device memory a process holds, for `ttmem` to show.
 *
 * Made from crates/ttmem-c by `cargo xtask gen`; changes belong there.
 *
 * There is one tracker, the process's own, and nothing to hold a pointer to: chips, allocators, sets of cores and call
 * sites are numbers. Every function may be called at any time, from any thread, in any forked child. Results are 0 or a
 * number; what is negative is a ttmem_error. While tracking is off everything gives 0, and numbers of 0 or errors may be
 * passed on. Structs may be set to zero as a whole: zero means "not said". Nothing is printed, and nothing waits.
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

// What a negative result means. The names say what was wrong; `ttmem_error_text` says it in words.
typedef enum ttmem_error {
  // A chip or device that does not exist, or was never defined. Nothing changes.
  TTMEM_ERROR_UNKNOWN_CHIP = -1,
  // An allocator that was never defined, or is closed. Nothing changes.
  TTMEM_ERROR_UNKNOWN_ALLOCATOR = -2,
  // A program that was never begun, or has ended. Nothing changes.
  TTMEM_ERROR_UNKNOWN_PROGRAM = -3,
  // A size of zero. Nothing changes.
  TTMEM_ERROR_ZERO_SIZE = -4,
  // A size larger than any device. Nothing changes.
  TTMEM_ERROR_TOO_LARGE = -5,
  // An address and a size that together exceed 64 bits. Nothing changes.
  TTMEM_ERROR_BEYOND_ADDRESSES = -6,
  // Freed twice. Nothing changes.
  TTMEM_ERROR_DOUBLE_FREE = -7,
  // A free of an unknown buffer, which may predate tracking. Nothing changes.
  TTMEM_ERROR_UNKNOWN_FREE = -8,
  // The address was still allocated, with the same size: its free was missed. It counts once.
  TTMEM_ERROR_STILL_HELD = -9,
  // The address was still allocated, with another size. That one counts as freed, this one as allocated.
  TTMEM_ERROR_REPLACED = -10,
  // A free in a forked child of what its parent allocated. Nothing changes.
  TTMEM_ERROR_INHERITED_FREE = -11,
  // Not recorded: a signal handler interrupted its own thread in another event, or there is no memory for it.
  TTMEM_ERROR_LOST = -13,
  // No room for a definition. What refers to it is not described.
  TTMEM_ERROR_DEFINITIONS_FULL = -14,
  // A space or buffer type that does not exist, or does not fit the call. Nothing changes.
  TTMEM_ERROR_WRONG_SPACE = -15,
  // A null pointer where a value must be. Nothing changes.
  TTMEM_ERROR_NULL = -17,
  // Text that is not UTF-8. Nothing changes.
  TTMEM_ERROR_NOT_UTF8 = -18,
  // A number without a meaning here, or an invalid pointer. Nothing changes.
  TTMEM_ERROR_BAD_VALUE = -19,
  // An error inside the library. Whether the report was recorded is not known.
  TTMEM_ERROR_INTERNAL = -20,
} ttmem_error;

// Kinds of memory.
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

// Chip architectures; 0: not reported.
typedef enum ttmem_arch {
  // Wormhole B0.
  TTMEM_ARCH_WORMHOLE_B0 = 1,
  // Blackhole.
  TTMEM_ARCH_BLACKHOLE = 2,
} ttmem_arch;

// How a buffer lies in its banks or on its cores.
typedef enum ttmem_layout {
  // Not reported.
  TTMEM_LAYOUT_UNKNOWN = 0,
  // Page by page over all banks.
  TTMEM_LAYOUT_INTERLEAVED = 1,
  // In pieces of some rows, one to a core.
  TTMEM_LAYOUT_HEIGHT_SHARDED = 2,
  // In pieces of some columns, one to a core.
  TTMEM_LAYOUT_WIDTH_SHARDED = 3,
  // In rectangles, one to a core.
  TTMEM_LAYOUT_BLOCK_SHARDED = 4,
  // In pieces of as many dimensions as it has.
  TTMEM_LAYOUT_ND_SHARDED = 5,
} ttmem_layout;

// What kind of kernel.
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

// tt-metal's and the old client's number for what a buffer lies in.
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

// What is special about something: bits of a `flags` field.
typedef enum ttmem_flag {
  // Of what a program keeps: it is a buffer, counted as such; this is only another way to look at it.
  TTMEM_FLAG_VIEW = 1,
  // Of what a program keeps: where it lies is not known. `address` only tells it from others.
  TTMEM_FLAG_UNPLACED = 2,
  // Its size is an estimate.
  TTMEM_FLAG_ESTIMATED = 4,
  // Of what a program keeps: nobody will tell when the program is dispatched, so whether it is resident is not known.
  TTMEM_FLAG_UNFOLLOWED = 8,
  // Of a buffer: another allocator's, which this one only keeps clear of.
  TTMEM_FLAG_MIRROR = 16,
} ttmem_flag;

// How to track, where that differs from what the environment says; null: as it says.
typedef struct ttmem_options {
  // Where segments go instead of `/dev/shm`.
  const char *folder;
  // What is tracked, for people: `mymodel 1.2`.
  const char *runtime;
  // Where to say what goes wrong: `stderr` or a file. Nothing is printed otherwise.
  const char *log;
  // For later; zero.
  uint64_t reserved[5];
} ttmem_options;

// How tracking is going.
typedef struct ttmem_status {
  // Live allocations.
  uint64_t live;
  // Of these, how many did not fit the table; they are counted, but readers cannot list them.
  uint64_t unlisted;
  // Events that could not be recorded.
  uint64_t lost;
  // Messages that wait for an old server to take them.
  uint64_t queued;
  // 1: events are recorded.
  uint32_t on;
  // For later; zero.
  uint32_t reserved;
  // The segment's file name, or empty.
  char segment[64];
  // Why there is none, or a smaller one, or why tracking is off; or empty.
  char reason[128];
} ttmem_status;

// A chip, as far as the process knows it.
typedef struct ttmem_chip {
  // Its 64-bit unique id.
  uint64_t unique_id;
  // All of DRAM.
  uint64_t dram_bytes;
  // The part of a channel the runtime uses.
  uint64_t dram_bytes_per_channel;
  // L1 of one core.
  uint64_t l1_bytes_per_core;
  // What the runtime can hand out of DRAM.
  uint64_t dram_allocatable;
  // What the runtime can hand out of L1.
  uint64_t l1_allocatable;
  // Board name, as `n300`.
  const char *board;
  // PCI address.
  const char *pci;
  // The number the process calls it by.
  uint32_t index;
  // A `ttmem_arch`.
  uint32_t arch;
  // 1: reached through another chip.
  uint32_t remote;
  // DRAM channels.
  uint32_t dram_channels;
  // Tensix cores, harvested ones left out.
  uint32_t cores;
  // Where the ring of kernels begins in a core's L1.
  uint32_t kernel_config;
  // Where it ends, and what programs and buffers share begins.
  uint32_t unreserved;
  // Columns of cores that programs can use.
  uint32_t columns;
  // Rows of them.
  uint32_t rows;
  // For later; zero.
  uint32_t reserved[7];
} ttmem_chip;

// How one space of an allocator is laid out.
typedef struct ttmem_banks {
  // A `ttmem_space`.
  uint32_t space;
  // Banks that the allocator moves in lock-step.
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

// A buffer.
typedef struct ttmem_buffer {
  // Who handed it out. All chips of the allocator hold it.
  int32_t allocator;
  // A `ttmem_space`, of buffers.
  uint32_t space;
  // Its address in each bank.
  uint64_t address;
  // What the program asked for, on each chip.
  uint64_t requested;
  // What it takes in each bank; 0: not known, and then neither is what the allocator charges.
  uint64_t bytes_per_bank;
  // What it takes in the banks that really hold it; 0: not known.
  uint64_t occupied;
  // The cores it lies on, if it lies on some only.
  int32_t cores;
  // Where in the program it was asked for.
  int32_t site;
  // A `ttmem_layout`.
  uint32_t layout;
  // `TTMEM_FLAG_MIRROR`.
  uint32_t flags;
  // For later; zero.
  uint64_t reserved[2];
} ttmem_buffer;

// What a program keeps on each of some cores.
typedef struct ttmem_placement {
  // The allocator of the device or mesh that the program is for.
  int32_t allocator;
  // `TTMEM_SPACE_CB`, `TTMEM_SPACE_DFB` or `TTMEM_SPACE_SCRATCH`.
  uint32_t space;
  // Address on each core.
  uint64_t address;
  // Bytes on each core.
  uint64_t bytes;
  // The program, by a number of the caller's; 0: not said, and then it is not known whether it is resident.
  uint32_t program;
  // Which cores.
  int32_t cores;
  // `TTMEM_FLAG_VIEW`, `_UNPLACED`, `_ESTIMATED`, `_UNFOLLOWED`.
  uint32_t flags;
  // For later; zero.
  uint32_t reserved0;
  // For later; zero.
  uint64_t reserved[2];
} ttmem_placement;

// A kernel of a program.
typedef struct ttmem_kernel {
  // The allocator of the device or mesh that the program is for.
  int32_t allocator;
  // The program, by a number of the caller's; 0: not said, and then it is not known whether it is resident.
  uint32_t program;
  // A number that no other kernel of this allocator has.
  uint64_t id;
  // Its size on each of its cores; where those are not said, on all of them together.
  uint64_t bytes;
  // Which cores it runs on.
  int32_t cores;
  // A `ttmem_kernel_class`.
  uint32_t kind;
  // `TTMEM_FLAG_ESTIMATED`, `_UNFOLLOWED`.
  uint32_t flags;
  // For later; zero.
  uint32_t reserved0;
  // For later; zero.
  uint64_t reserved[2];
} ttmem_kernel;

// An allocator's own statistics of one space.
typedef struct ttmem_statistics {
  // Allocated bytes, over all banks.
  uint64_t allocated;
  // Free bytes, over all banks.
  uint64_t free;
  // The largest free block in a bank.
  uint64_t largest_free_per_bank;
} ttmem_statistics;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The library's version, as `0.1.0`.
const char *ttmem_version(void);

// What a negative result means, in words; of anything else, that it is no error. Never null.
const char *ttmem_error_text(int32_t error);

// Switches tracking on, whatever the environment says, if it is not. Without this it is on if `TTMEM` or
// `TT_ALLOC_TRACKING_ENABLED` is set and not 0. Where the agent tracks the process already it stays off, since what is told by
// hand would count twice; `ttmem_is_enabled` tells.
//
// `options` is null or points to options whose texts are null or end with a zero.
int32_t ttmem_enable(const struct ttmem_options *options);

// Whether events are recorded.
bool ttmem_is_enabled(void);

// Ends tracking: what was published is taken away, and every number given out is void. `ttmem_enable` begins anew.
int32_t ttmem_close(void);

// Makes good what could not be done before: a segment that found no room, or whose file was removed, is tried again; an old
// server is told what waits. Shows readers that the process is well.
int32_t ttmem_refresh(void);

// How tracking is going.
//
// `out` is null or points to a status.
int32_t ttmem_get_status(struct ttmem_status *out);

// Defines a chip. The same one again gets the same number.
//
// `chip` is null or points to a chip whose texts are null or end with a zero.
int32_t ttmem_define_chip(const struct ttmem_chip *chip);

// Defines an allocator: of a device, a mesh, a submesh. What it hands out is held by all of `chips`, in one record.
//
// `chips` and `banks` point to so many of them, or are null where that is 0.
int32_t ttmem_define_allocator(const int32_t *chips,
                               size_t chip_count,
                               const struct ttmem_banks *banks,
                               size_t bank_count);

// The allocator that stands for a device, or the devices of a mesh, of which only the numbers are known: the same ones again
// are the same allocator. What it charges for what it hands out is not known.
//
// `devices` points to so many of them.
int32_t ttmem_define_devices(const int32_t *devices,
                             size_t count);

// The allocator is closed; everything it handed out is free.
int32_t ttmem_close_allocator(int32_t allocator);

// Defines a set of cores. The same one again gets the same number. A set without any core, or a range whose corners are the wrong way
// round, is `TTMEM_ERROR_BAD_VALUE`.
//
// `ranges` points to so many of them.
int32_t ttmem_define_cores(const struct ttmem_core_range *ranges,
                           size_t count);

// Defines a call site, as `model.py:42 forward`. The same one again gets the same number.
//
// `site` is null or ends with a zero.
int32_t ttmem_define_site(const char *site);

// A buffer is held from now on.
//
// `it` is null or points to a buffer.
int32_t ttmem_alloc(const struct ttmem_buffer *it);

// A buffer is free.
int32_t ttmem_free(int32_t allocator, uint32_t space, uint64_t address);

// A buffer is free, and the caller knows its address only: it is looked for in every space.
int32_t ttmem_free_anywhere(int32_t allocator, uint64_t address);

// A buffer in `TTMEM_SPACE_L1_CORE` is free. Others may lie at its address on other cores: all of it must be said.
//
// `it` is null or points to a buffer.
int32_t ttmem_free_on_cores(const struct ttmem_buffer *it);

// An allocation failed.
//
// `it` is null or points to what was asked for.
int32_t ttmem_out_of_memory(const struct ttmem_buffer *it);

// A program begins, by a number of the caller's that is not 0: what it registers follows. The name may be null. A program
// begins by itself with the first thing it registers.
//
// `name` is null or ends with a zero.
int32_t ttmem_begin_program(int32_t allocator,
                            uint32_t program,
                            const char *name);

// A program is built anew on some cores: what it registers follows, and what it had registered before is gone.
int32_t ttmem_build_program(int32_t allocator,
                            uint32_t program,
                            int32_t cores,
                            uint32_t kind);

// A program was dispatched: what it registered is resident from now on, and what was there before is not.
int32_t ttmem_dispatch(int32_t allocator, uint32_t program);

// A program ended, and everything it registered with it.
int32_t ttmem_end_program(int32_t allocator, uint32_t program);

// A program keeps something on its cores: a circular buffer, a dataflow buffer, a scratchpad.
//
// `it` is null or points to a placement.
int32_t ttmem_place(const struct ttmem_placement *it);

// It does not any more.
//
// `it` is null or points to a placement.
int32_t ttmem_displace(const struct ttmem_placement *it);

// A program has a kernel.
//
// `it` is null or points to a kernel.
int32_t ttmem_load_kernel(const struct ttmem_kernel *it);

// It does not any more.
int32_t ttmem_unload_kernel(int32_t allocator, uint64_t id);

// To be called before an allocator's own statistics are taken: the moment, or an error.
int64_t ttmem_before_audit(void);

// The allocator's own statistics. If nothing was held or freed since `moment`, a difference means something; if that is
// negative, it does not: the caller knows that something was on its way.
//
// `it` is null or points to statistics.
int32_t ttmem_audit(int64_t moment,
                    int32_t allocator,
                    uint32_t space,
                    const struct ttmem_statistics *it);

// The most bytes that were charged at once, since the beginning or `ttmem_reset_peak`; or an error.
int64_t ttmem_peak(int32_t allocator, uint32_t space);

// Lets the peak begin anew, at what is charged now.
int32_t ttmem_reset_peak(int32_t allocator, uint32_t space);

// A buffer of so many bytes is held on a device from now on; `buffer_type` is a `ttmem_buffer_type`.
int32_t ttmem_report_allocation(int32_t device, uint64_t size, uint32_t buffer_type, uint64_t address);

// It is free.
int32_t ttmem_report_deallocation(int32_t device, uint64_t address);

// A circular buffer is registered: so large on each core, whichever those are.
int32_t ttmem_report_cb_allocation(int32_t device, uint64_t size, uint64_t address);

// It is not any more. Several may lie at one address: the size must be said.
int32_t ttmem_report_cb_deallocation(int32_t device, uint64_t size, uint64_t address);

// A kernel is loaded: so large on all of its cores together; `kind` is a `ttmem_kernel_class`.
int32_t ttmem_report_kernel_load(int32_t device, uint64_t size, uint64_t id, uint32_t kind);

// It is not any more.
int32_t ttmem_report_kernel_unload(int32_t device, uint64_t id);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TTMEM_H */
