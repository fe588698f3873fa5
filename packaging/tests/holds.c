/* Holds memory until its input ends; `cargo xtask prefix` compares the figures. */
#include <stdio.h>
#include <string.h>
#include <ttmem.h>

#define MIB (1024u * 1024u)

static int failed;

static int32_t check(int32_t result, const char *what) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, ttmem_error_text(result));
        failed = 1;
    }
    return result;
}

int main(void) {
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", TTMEM_VERSION_MAJOR, TTMEM_VERSION_MINOR, TTMEM_VERSION_PATCH);
    if (strcmp(ttmem_version(), version) != 0) {
        fprintf(stderr, "the header is of %s, the library of %s\n", version, ttmem_version());
        return 1;
    }
    if (!ttmem_is_enabled()) {
        fprintf(stderr, "tracking is off\n");
        return 1;
    }
    ttmem_chip chip = {0};
    chip.unique_id = 0xc0ffee;
    chip.board = "n150";
    chip.arch = TTMEM_ARCH_WORMHOLE_B0;
    chip.cores = 64;
    chip.l1_bytes_per_core = 1499136;
    chip.dram_bytes = 12ull * 1024 * MIB;
    const int32_t chip_number = check(ttmem_define_chip(&chip), "chip");

    const ttmem_banks banks[] = {
        {.space = TTMEM_SPACE_DRAM, .banks = 12, .base = 0, .bytes_per_bank = 1024ull * MIB},
        {.space = TTMEM_SPACE_L1, .banks = 64, .base = 0x19d60, .bytes_per_bank = 1393312},
    };
    const int32_t device = check(ttmem_define_allocator(&chip_number, 1, banks, 2), "allocator");

    const ttmem_core_range two = {.x0 = 0, .y0 = 0, .x1 = 1, .y1 = 0};
    const int32_t cores = check(ttmem_define_cores(&two, 1), "cores");

    ttmem_buffer weights = {0};
    weights.allocator = device;
    weights.space = TTMEM_SPACE_DRAM;
    weights.address = 0x100000;
    weights.requested = MIB;
    weights.bytes_per_bank = 90112;
    weights.site = check(ttmem_define_site("holds.c main"), "site");
    check(ttmem_alloc(&weights), "weights");

    ttmem_buffer activations = {0};
    activations.allocator = device;
    activations.space = TTMEM_SPACE_L1;
    activations.address = 0x150000;
    activations.requested = 65536;
    activations.bytes_per_bank = 2048;
    check(ttmem_alloc(&activations), "activations");

    check(ttmem_begin_program(device, 7, "holds"), "program");
    ttmem_placement input = {0};
    input.allocator = device;
    input.space = TTMEM_SPACE_CB;
    input.address = 0x20000;
    input.bytes = 4096;
    input.program = 7;
    input.cores = cores;
    check(ttmem_place(&input), "circular buffer");
    check(ttmem_dispatch(device, 7), "dispatch");

    printf("holding\n");
    fflush(stdout);
    while (getchar() != EOF) {
    }

    check(ttmem_end_program(device, 7), "end of program");
    check(ttmem_free(device, TTMEM_SPACE_DRAM, weights.address), "free of weights");
    check(ttmem_free(device, TTMEM_SPACE_L1, activations.address), "free of activations");
    if (ttmem_free(device, TTMEM_SPACE_L1, activations.address) != TTMEM_ERROR_DOUBLE_FREE) {
        fprintf(stderr, "freeing twice is no error\n");
        failed = 1;
    }
    check(ttmem_close(), "close");
    return failed;
}
